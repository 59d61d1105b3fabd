"""Kept results: one row for each trained run, small enough to lie in a repository.

A kept row has every outcome of the run's largest evaluation, pair by pair, so that intervals and
paired comparisons can be made from it, and what is needed to make the run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from lrc_jepa.data.store import Store
from lrc_jepa.envs.collect import command_of
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.choice import choose
from lrc_jepa.evaluate.recall import summarize_recovery
from lrc_jepa.evaluate.stats import wilson
from lrc_jepa.files import digest
from lrc_jepa.records import (
    Control,
    Group,
    Intervention,
    Kept,
    Probe,
    Record,
    Recovery,
    Speed,
    Stress,
    Training,
    of_row,
    of_rows,
    only,
)
from lrc_jepa.rows import Row, append_rows, read_rows

SHARED = (
    *("world", "appearance", "factors", "system", "variant", "storage", "size", "protocol", "steps"),
    *("episodes", "trained"),
)
ACTORS = ("random", "expert-replay", "do-nothing", "true-model")
COPIED = (
    *("world", "appearance", "system", "size", "recipe", "protocol"),
    *("manifest_hash", "config_hash", "checkpoint_hash", "data_hash"),
)  # from the rows of its evaluation


TOLD = {"recover": "recall@", "probe": "r_", "intervene": "moving_db."}
"""How the readings begin that an experiment leaves in a kept row."""


def _string(rows: Iterable[Control], criterion: str) -> str:
    counted = sorted((row for row in rows if not row.trivial), key=lambda row: row.pair)
    return "".join(str(int(row.success[criterion])) for row in counted)


def _planned(records: Sequence[Record], data: str, where: Path) -> list[Control]:
    """The largest evaluation on the run's own data, of the checkpoint that was evaluated last."""
    mine = [row for row in only(Control, records) if not row.repetition and row.data_hash == data]
    shown = choose(mine, Control)
    if shown is None or all(row.actor in ACTORS for row in shown.rows):
        raise BadInput(f"{where} has no goals reached or missed yet: lrc plan {where}")
    return shown.rows


def pairs_hash(rows: Iterable[Control]) -> str:
    """Of the pairs by episode and start; empty where the rows do not say which they were."""
    drawn = sorted((row.pair, row.episode, row.start, row.trivial) for row in rows)
    return "" if any(episode is None for _, episode, *_ in drawn) else digest(drawn)


def _stressed(records: Sequence[Record], checkpoint: str) -> dict[str, dict[str, str]]:
    """Outcomes at each level of the largest test of each stress that was measured on this checkpoint."""
    mine = [row for row in only(Stress, records) if row.checkpoint_hash == checkpoint]
    stressed: dict[str, dict[str, str]] = {}
    for kind in dict.fromkeys(row.stress for row in mine):
        shown = choose(mine, Stress, stress=kind)
        rows = [] if shown is None else shown.rows
        stressed[kind] = {f"{level:g}": _tested(rows, level) for level in sorted({row.level for row in rows})}
    return stressed


def _tested(rows: Iterable[Stress], level: float) -> str:
    at = [row for row in rows if row.level == level]
    repetitions = sorted({row.plan_seed or 0 for row in at})
    return "".join(
        _string((row for row in at if (row.plan_seed or 0) == seed), at[0].criterion) for seed in repetitions
    )


def _readings(metrics: list[Row], records: Sequence[Record], checkpoint: str) -> dict[str, float]:
    wanted = ("r2_", "episode_", "error_", "distance_rank", "effective_rank", "z_std")
    health = next((row for row in reversed(metrics) if row.get("kind") == "health"), {})
    numbers = {name: value for name, value in health.items() if type(value) in (int, float)}
    readings = {name: value for name, value in numbers.items() if name.startswith(wanted)}
    for row in only(Probe, records):  # later ones replace earlier ones
        if row.checkpoint_hash == checkpoint and row.probe == "ridge" and not row.control:
            readings[f"r_{row.stream}.{row.quantity}"] = row.r
    for altered in only(Intervention, records):
        if altered.checkpoint_hash == checkpoint and altered.psnr_moving is not None:
            readings[f"moving_db.{altered.condition}"] = altered.psnr_moving
    for timed in only(Speed, records):
        if timed.checkpoint_hash == checkpoint:
            readings |= {f"plan_s.{mode}": spent["seconds"] for mode, spent in timed.rollouts.items()}
    ranked = [row for row in only(Recovery, records) if row.checkpoint_hash == checkpoint]
    for source in sorted({row.source for row in ranked}):
        recalls = summarize_recovery(ranked, source, max(row.horizon for row in ranked))["model"]
        readings |= {f"{name}.{source}": value for name, value in recalls.items() if name != "rank_error"}
    return {name: round(float(value), 4) for name, value in readings.items()}


def keep(rows: Iterable[Row], metrics: list[Row], store: Store, where: Path) -> tuple[Kept, Row]:
    """The kept row of a run, from its rows, its metrics and its dataset, and the search that it planned by."""
    records, _ = of_rows(rows)
    planned = _planned(records, store.digest(), where)
    actors: dict[str, list[Control]] = {}
    for row in planned:
        actors.setdefault(row.actor, []).append(row)
    first = planned[0]
    own = next(rows for actor, rows in actors.items() if actor not in ACTORS)
    criterion = own[0].criterion
    times = [row.seconds for row in only(Training, records)]
    kept = Kept(
        **{name: getattr(first, name) for name in COPIED},
        seed=first.train_seed,
        steps=first.step,
        minutes=round(sum(times) / 60, 4) if times else None,
        criterion=criterion,
        outcomes=_string(own, criterion),
        strict={name: _string(own, name) for name in own[0].success if name != criterion},
        references={name: _string(actors[name], criterion) for name in ACTORS if name in actors},
        stressed=_stressed(records, first.checkpoint_hash),
        readings=_readings(metrics, records, first.checkpoint_hash),
        pairs_hash=pairs_hash(own),
        collected=command_of(store),
        episodes=store.episodes,
        factors=store.appearance(np.arange(store.episodes)).shape[1],
        storage=str(store.storage),
    )
    return kept, own[0].planner


def append_kept(path: Path, kept: Kept) -> None:
    """Add one run to a file of kept rows."""
    append_rows(path, [kept.row()])


def read_kept(folder: Path) -> list[Kept]:
    """All kept rows under a folder, of each evaluation the newest."""
    if not folder.is_dir():
        raise BadInput(f"there are no kept results at {folder}")
    kept = list[Kept]()
    for path in sorted(folder.glob("*.jsonl")):
        try:
            kept += only(Kept, map(of_row, read_rows(path, Kept.kind)))
        except ValueError as why:
            raise BadInput(f"{path} holds a row {why}") from None
    return newest(kept)


def newest(kept: Iterable[Kept]) -> list[Kept]:
    """Of each evaluation the newest row."""
    return list({row.key: row for row in kept}.values())


def tells(row: Kept, experiments: Iterable[str]) -> bool:
    """Whether it has readings of each of these experiments."""
    return all(_tells(row, name) for name in experiments)


def _tells(row: Kept, experiment: str) -> bool:
    if experiment == "stress":
        return bool(row.stressed)
    begin = TOLD.get(experiment)
    return begin is not None and any(name.startswith(begin) for name in row.readings)


def _rate(outcomes: str) -> float | None:
    return outcomes.count("1") / len(outcomes) if outcomes else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def by_group(kept: Iterable[Kept]) -> list[list[Kept]]:
    """Runs that differ by their seed alone, together; of a seed that was made again, on data made anew, the newest."""
    groups: dict[Group, dict[int, Kept]] = {}
    for row in kept:
        groups.setdefault(row.group, {})[row.seed] = row
    return [list(runs.values()) for _, runs in sorted(groups.items())]


def summarize_kept(kept: list[Kept]) -> list[dict[str, Any]]:
    """One entry for each world, look, system, size and protocol: means over seeds, pairs pooled."""
    lines = []
    for runs in by_group(kept):
        first = runs[0]
        outcomes = "".join(run.outcomes for run in runs)
        low, high = wilson(outcomes.count("1"), len(outcomes))
        strict = {name: _mean(_rate(run.strict.get(name, "")) for run in runs) for name in first.strict}
        lines.append(
            {
                **{name: getattr(first, name) for name in SHARED},
                "seeds": len({run.seed for run in runs}),
                "pairs": len(first.outcomes),
                "success_mean": _mean(_rate(run.outcomes) for run in runs),
                "success_by_seed": [_rate(run.outcomes) for run in sorted(runs, key=lambda run: run.seed)],
                "wilson_low": low,
                "wilson_high": high,
                "strict_mean": strict,
                "random_success": _mean(_rate(run.references.get("random", "")) for run in runs),
                "replay_success": _mean(_rate(run.references.get("expert-replay", "")) for run in runs),
                "minutes": _mean(run.minutes for run in runs),
                "stress": _summarize_stress(runs),
                "readings": {name: _mean(run.readings.get(name) for run in runs) for name in first.readings},
            }
        )
    return lines


def _summarize_stress(runs: Sequence[Kept]) -> dict[str, dict[str, dict[str, float]]]:
    """Success at each level of each stress that every seed was put to, with Wilson's interval: episodes of all seeds."""
    tested = [run.stressed for run in runs if run.stressed]
    return {
        kind: {level: _rate_of([stressed[kind][level] for stressed in tested]) for level in levels}
        for kind, levels in (tested[0] if tested else {}).items()
        if all(stressed.get(kind, {}).keys() == levels.keys() for stressed in tested)
    }


def _rate_of(outcomes: Sequence[str]) -> dict[str, float]:
    reached, episodes = "".join(outcomes).count("1"), len("".join(outcomes))
    low, high = wilson(reached, episodes)
    return {
        "success": reached / episodes,
        "low": low,
        "high": high,
        "episodes": episodes,
        "seeds": len(outcomes),
    }


def wanted(lines: Sequence[dict[str, Any]], asked: str, where: str = "results") -> list[dict[str, Any]]:
    """The lines that `field=value,value ...` asks for; refused where there are none."""
    left = list(lines)
    for word in asked.split():
        name, _, values = word.partition("=")
        if lines and name not in lines[0]:
            raise BadInput(f"{where}: kept results have no {name!r}; there is {', '.join(lines[0])}")
        left = [line for line in left if str(line[name]) in values.split(",")]
    if not left:
        raise BadInput(f"{where}: there are no kept results with {asked.strip() or 'anything in them'}")
    return left
