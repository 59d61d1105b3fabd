"""`lrc probe`: read physical quantities from z, u and both."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.commands.arguments import Positional, Unprefixed, parse
from lrc_jepa.console import progress_bar, say, table
from lrc_jepa.data.quantities import measured
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.masks import mask_quantities, read_masks
from lrc_jepa.evaluate.probes import PROBES, ProbeConfig, draw_frames, probe_table
from lrc_jepa.models.streams import frame_streams, probe_features
from lrc_jepa.run import Run, open_run

Array = NDArray[Any]


LOOKS = "ep_appearance"  # what the simulated worlds drew for each episode


@dataclass(frozen=True)
class ProbeArgs:
    """Which run, which probes."""

    run: Positional[Path]
    """Folder of a run or of a checkpoint."""
    data: Path | None = None
    """Dataset; left out: the one the run was trained on."""
    masks: Path | None = None
    """Mask file (see docs/laboratory.md): probe objects in video without a simulator."""
    kinds: tuple[str, ...] = tuple(PROBES)
    """Which probes: ridge, ridge-cv, mlp."""
    out: Path | None = None
    """Where rows go; left out: the run's folder."""
    device: str = "auto"
    """auto, cpu or cuda."""
    probe: Unprefixed[ProbeConfig] = ProbeConfig()


def stored_quantities(store: Store, fit: Array, test: Array) -> dict[str, tuple[Array, Array]]:
    """Every quantity a dataset records, (n,d), on the rows to fit and to test on.

    The looks of an episode, where its factors differ between episodes, are a quantity of all its frames.
    """
    truths = measured(store, test)
    found = {name: (known, truths[name]) for name, known in measured(store, fit).items()}
    looks = store.per_episode.get(LOOKS)
    if looks is not None and looks.ndim == 2 and (varies := np.ptp(looks, axis=0) > 0).any():
        episodes = (np.searchsorted(store.ep_offset, rows, side="right") - 1 for rows in (fit, test))
        known, truth = (looks[of][:, varies] for of in episodes)
        found["appearance"] = (known, truth)
    return found


def _targets(opened: Run, args: ProbeArgs) -> tuple[Any, Any, dict[str, tuple[Any, Any]]]:
    """Rows to fit and to test on, and each quantity on both."""
    store = opened.store
    fit, test = draw_frames(store, args.probe)
    if args.masks is None:
        if not store.quantities:
            raise BadInput(f"dataset {store.path} records no physical quantities; pass --masks")
        return fit, test, stored_quantities(store, fit, test)
    rows, values = mask_quantities(store, *read_masks(args.masks, store))
    episode = np.searchsorted(store.ep_offset, rows, side="right") - 1
    tested = np.unique(np.searchsorted(store.ep_offset, test, side="right") - 1)
    held = np.isin(episode, tested)
    if held.all() or not held.any():
        raise BadInput("the masks cover too few episodes to split them for probes")
    return rows[~held], rows[held], {name: (v[~held], v[held]) for name, v in values.items()}


def main(argv: list[str]) -> dict[str, Any]:
    """Fit, write rows, show the table."""
    about = "Probe frozen features of single frames for physical quantities."
    args = parse(ProbeArgs, argv, "probe", about, examples=("lrc probe runs/first --kinds ridge",))
    unknown = sorted(set(args.kinds) - set(PROBES))
    if unknown:
        raise BadInput(f"there is no probe {unknown[0]!r}; there is {', '.join(PROBES)}")
    opened = open_run(args.run, args.data, args.out, args.device)
    opened.check_frames()
    fit, test, quantities = _targets(opened, args)
    known, unseen = (probe_features(frame_streams(opened.model, opened.store, rows)) for rows in (fit, test))
    features = {name: (known[name], unseen[name]) for name in known}
    with progress_bar("probing", len(quantities) * len(features)) as bar:
        found = probe_table(features, quantities, args.probe.seed, list(args.kinds), bar.advance)
    stamp = opened.stamp(probe_config=asdict(args.probe), frames=[len(fit), len(test)])
    rows = [{**stamp, "kind": "probe", "metric": "probe.v1", **row} for row in found]
    opened.write(rows)
    lines = [
        [
            r["quantity"].replace("_", " "),
            r["stream"],
            "shuffled" if r["control"] else r["probe"],
            f"{r['mse']:.3f}",
            f"{r['r']:.3f}",
        ]
        for r in found
    ]
    title = f"{len(fit)} frames fitted, {len(test)} of other episodes tested"
    table(title, ["quantity", "stream", "probe", "normalised MSE", "Pearson r"], lines)
    say(f"rows in {opened.results}")
    return {"run": str(args.run), "system": stamp["system"], "probes": found}
