"""Variants of a recipe, trained once and measured alike: what `lrc ablate` and `lrc stress nuisance` do.

A variant is known by everything its figures depend on: the resolved configuration with its seed, the content
of the dataset, and how it is measured. Rows of other variants in the same folder are left alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from lrc_jepa.commands.train import ensure_trained
from lrc_jepa.config import RunConfig
from lrc_jepa.console import say, table
from lrc_jepa.data.store import Store
from lrc_jepa.envs import simulated
from lrc_jepa.evaluate.closed_loop import episode_rows, run
from lrc_jepa.evaluate.interventions import intervene, trajectory_rows
from lrc_jepa.evaluate.manifest import draw_manifest
from lrc_jepa.evaluate.probes import ProbeConfig, draw_frames, probe_table, stored_quantities
from lrc_jepa.evaluate.ranking import RecoveryConfig, draw_scenes, rank_scenes
from lrc_jepa.evaluate.recall import summarize_recovery
from lrc_jepa.evaluate.success import summarize
from lrc_jepa.files import digest
from lrc_jepa.library import fit_actions
from lrc_jepa.protocols import Factored
from lrc_jepa.records import Control, Recovery, of_rows, only, parsed
from lrc_jepa.records import Variant as Compared
from lrc_jepa.report.names import file_name
from lrc_jepa.report.studies import grouped, means
from lrc_jepa.rows import Row, append_rows, read_rows
from lrc_jepa.run import Run, open_run
from lrc_jepa.training.streams import frame_streams, probe_features

C = TypeVar("C", bound=Compared)


@dataclass(frozen=True)
class Protocol:
    """How every variant is measured."""

    pairs: int = 50
    """Start-goal pairs for planning; 0: do not plan."""
    scenes: int = 100
    """Scenes of expert-action recovery."""


@dataclass(frozen=True)
class Variant:
    """What to train, on what, and what to call it."""

    config: RunConfig
    data: Path
    told: Row
    """What distinguishes it in its rows, such as field and value; the seed is the configuration's."""


@dataclass(frozen=True)
class Study(Generic[C]):
    """A folder of variants, their runs and their rows."""

    kind: type[C]
    """Of its rows."""
    out: Path
    protocol: Protocol
    settings: Row
    """What all its variants share, such as the recipe that is varied: rows that differ in it are never mixed."""
    device: str = "auto"

    @property
    def study(self) -> Row:
        """What rows that may be averaged have in common."""
        return {**self.settings, **dataclasses.asdict(self.protocol)}

    @property
    def rows_file(self) -> Path:
        """Where the rows are."""
        return self.out / "results.jsonl"

    def measured(self, variants: Sequence[Variant]) -> list[C]:
        """The rows of these variants: what is missing is trained and measured first."""
        stores = {data: Store(data) for data in {variant.data for variant in variants}}
        keys = [self._key(variant, stores[variant.data]) for variant in variants]
        rows, _ = of_rows(read_rows(self.rows_file, self.kind.kind))
        known = {row.key: row for row in only(self.kind, rows)}
        for key, variant in zip(keys, variants, strict=True):
            if key not in known:
                known[key] = self._measure(key, variant, stores[variant.data])
        others = len(known) - len(set(keys))
        if others:
            say(
                f"{self.rows_file} holds {others} other rows: of other recipes, data or settings, not shown here"
            )
        return [known[key] for key in keys]

    def show(self, first: str, rows: Sequence[C], by: Callable[[C], str]) -> None:
        """Means over seeds, a line for each of what `by` tells apart."""
        groups: Mapping[str, Sequence[C]] = grouped(rows, by)
        made = means(groups, "", first)
        table(first, made.columns, made.rows)
        say(f"rows in {self.rows_file}")

    def _key(self, variant: Variant, store: Store) -> str:
        config = fit_actions(variant.config, store)
        return digest([config.digest(), store.digest(), self.kind.metric, self.study, variant.told])

    def _measure(self, key: str, variant: Variant, store: Store) -> C:
        config = fit_actions(variant.config, store)
        folder = self._folder(variant, config, store)
        ensure_trained(config, variant.data, folder, self.device)
        opened = open_run(folder, variant.data, device=self.device)
        measured = {"key": key, "study": self.study, "figures": measure(opened, self.protocol)}
        row = self.kind.of(opened.stamp(), variant.told, {"seed": config.train.seed}, measured)
        append_rows(self.rows_file, [row.row()])
        return row

    def _folder(self, variant: Variant, config: RunConfig, store: Store) -> Path:
        """Where this configuration is trained on these data: one run, whatever it is called and measured by."""
        trained = digest([config.digest(), store.digest()])[:8]
        told = "-".join(str(value) for value in variant.told.values())
        fresh = self.out / f"{file_name(told)}-seed{config.train.seed}-{trained}"
        return next(self.out.glob(f"*-{trained}"), fresh)


def measure(opened: Run, protocol: Protocol) -> dict[str, float]:
    """Recall and rank, linear probes of z, reconstruction, and planning where there is a simulator."""
    deployment, store = opened.checkpoint.deployment, opened.store
    recovery = RecoveryConfig(scenes=protocol.scenes)
    drawn = draw_scenes(store, opened.split.heldout, deployment.spec, deployment.normalizer, recovery)
    stamp = opened.stamp()
    ranked = [Recovery.of(stamp, r) for r in rank_scenes(opened.model, drawn, "gaussian", recovery)]
    found = summarize_recovery(ranked, "gaussian", recovery.horizon)
    figures = {name: value for name, value in found["model"].items() if name != "rank_error"}
    fit, test = draw_frames(store, ProbeConfig(frames=4000))
    known, unseen = (probe_features(frame_streams(opened.model, store, rows)) for rows in (fit, test))
    quantities = stored_quantities(store, fit, test)
    for row in probe_table({"z": (known["z"], unseen["z"])}, quantities, 0, ["ridge", "ridge-cv"]):
        if not row["control"]:
            figures[f"{row['probe']} r, {row['quantity']}"] = row["r"]
    if isinstance(opened.model, Factored):
        rows = trajectory_rows(store, opened.split.heldout[:16], 8)
        rebuilt = intervene(opened.model, store, rows, seed=0)[0][0]
        figures |= {name: rebuilt[name] for name in ("mse", "psnr", "ssim")}
    if protocol.pairs and simulated(store):
        figures["success"] = plan_success(opened, protocol.pairs)
    return figures


def plan_success(opened: Run, pairs: int) -> float:
    """Closed-loop success on pairs that depend on the data alone."""
    config, spec = opened.checkpoint.config, opened.checkpoint.deployment.spec
    manifest = draw_manifest(opened.store, opened.split, config.clip, config.plan, pairs)
    policy = opened.policy()
    happened = run(policy, opened.store, manifest, config.plan, spec.frameskip, spec.image_size)
    rows = episode_rows(config.system, happened, manifest, opened.stamp(), policy)
    return summarize(parsed(Control, rows)).rate


def told(rows: Sequence[Compared], *names: str) -> list[dict[str, Any]]:
    """What a command answers of each row."""
    return [{name: getattr(row, name) for name in (*names, "seed", "figures")} for row in rows]
