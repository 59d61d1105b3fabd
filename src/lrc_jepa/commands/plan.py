"""`lrc plan`: closed-loop success of a trained model, beside references on the same pairs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from lrc_jepa.commands.arguments import first_positional, parse
from lrc_jepa.commands.opened import Opened, open_run
from lrc_jepa.config import PlanConfig
from lrc_jepa.console import progress_bar, say, table
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.control import Actor, Planner, episode_rows, references, run
from lrc_jepa.evaluate.films import film, strip
from lrc_jepa.evaluate.manifest import Manifest, draw_manifest
from lrc_jepa.evaluate.openloop import decoded_strips, long_clips, open_loop_error
from lrc_jepa.evaluate.references import LatentPolicy, learned_references
from lrc_jepa.report.control import ControlSummary, summarize
from lrc_jepa.report.rows import Row
from lrc_jepa.train.checkpoint import load_checkpoint, newest_checkpoint


@dataclass(frozen=True)
class PlanArgs:
    """What to evaluate, and how."""

    run: tyro.conf.Positional[Path]
    """Folder of a run or of a checkpoint."""
    pairs: int = 100
    """Start-goal pairs that are not trivial; trivial ones met while drawing come on top."""
    manifest: Path | None = None
    """Use the pairs of this file instead of drawing them; every evaluation saves its own."""
    data: Path | None = None
    """Dataset the pairs come from; left out: the one the run was trained on."""
    out: Path | None = None
    """Where rows and films go; left out: the run's folder."""
    films: int = 6
    """Episodes to film."""
    learned: bool = False
    """Also train behaviour cloning and inverse dynamics on the model's frozen latents, and let them act."""
    protocol: bool = False
    """Plan by the paper's protocol, whatever the recipe says."""
    device: str = "auto"
    """auto, cpu or cuda."""
    plan: tyro.conf.OmitArgPrefixes[PlanConfig] = PlanConfig()


def main(argv: list[str]) -> dict[str, Any]:
    """Evaluate, write rows and films, and show the table."""
    name = first_positional(argv)
    default = None
    if name:
        checkpoint = load_checkpoint(newest_checkpoint(Path(name)))
        default = PlanArgs(run=Path(name), plan=checkpoint.config.plan)
    description = "Reach image goals of held-out episodes; options default to what the checkpoint says."
    args = parse(PlanArgs, argv, "plan", description, default)
    config = dataclasses.replace(PlanConfig(), seed=args.plan.seed) if args.protocol else args.plan
    return evaluate(open_run(args.run, args.data, args.out, args.device), args, config)


def evaluate(opened: Opened, args: PlanArgs, config: PlanConfig) -> dict[str, Any]:
    """Run the model and the references on one set of pairs."""
    checkpoint, store, split, out = opened.checkpoint, opened.store, opened.split, opened.out
    if args.manifest:
        manifest = Manifest.load(args.manifest)
        manifest.check(store, split)
    else:
        manifest = draw_manifest(store, split, checkpoint.config.clip, config, args.pairs)
    if config.goal_offset != manifest.goal_offset:
        raise BadInput(
            f"the manifest's goals lie {manifest.goal_offset} steps ahead, not {config.goal_offset}"
        )
    manifest.save(out / "manifest.json")
    system = checkpoint.config.system
    stamp = opened.stamp(manifest_hash=manifest.digest(), planner=dataclasses.asdict(config))
    spec = checkpoint.deployment.spec
    planner = Planner(checkpoint.model, checkpoint.deployment, config, list(range(len(manifest))))
    shown = list(range(min(args.films, len(manifest))))
    actors: dict[str, Actor] = {system: planner, **references(store, manifest, config, spec.frameskip)}
    if args.learned:
        pairs = list(range(len(manifest)))
        actors.update(learned_references(checkpoint, store, split.train, config, pairs))
    rows: list[Row] = []
    summaries: list[ControlSummary] = []
    with progress_bar(f"planning with {system}", len(actors)) as bar:
        for actor_name, actor in actors.items():
            mine = planner if actor is planner else None
            film_pairs = shown if mine else None
            rollouts = run(actor, store, manifest, config, spec.frameskip, spec.image_size, film_pairs)
            timed = actor if isinstance(actor, Planner | LatentPolicy) else None
            found = episode_rows(actor_name, rollouts, manifest, stamp, timed)
            if mine:
                rows += save_films(out, mine, rollouts, found, stamp)
            rows += found
            summaries.append(summarize(found))
            bar.advance()
    rows += open_loop(opened, stamp, config)
    opened.write(rows)
    show(summaries)
    say(f"rows in {out / 'results.jsonl'}, films in {out / 'films'}")
    actors_json = {s.actor: dataclasses.asdict(s) for s in summaries}
    return {"run": str(args.run), "system": system, "pairs": summaries[0].pairs, "actors": actors_json}


def save_films(out: Path, planner: Planner, rollouts: Any, found: list[Row], stamp: Row) -> list[Row]:
    """A GIF and a strip for each filmed pair."""
    rows = []
    skip = planner.frameskip
    for pair, frames in rollouts.films.items():
        imagined = planner.imagined_frames(pair)
        panels = {"start": frames[0], "now": frames, "goal": rollouts.goals[pair]}
        every_block = [frames[::skip]]
        if imagined is not None:
            executed = imagined[:, : planner.config.execute]
            film_of = np.concatenate([np.repeat(solve, skip, axis=0) for solve in executed])
            panels["imagined"] = film_of[: len(frames)]
            blocks = executed.reshape(-1, *executed.shape[2:])
            every_block.append(np.concatenate([frames[:1], blocks])[: len(every_block[0])])
        path = out / "films" / f"pair-{pair:03d}.gif"
        film(path, panels)
        goal = np.repeat(rollouts.goals[pair][None], 1, axis=0)
        strip(path.with_suffix(".png"), [np.concatenate([row, goal]) for row in every_block])
        row = found[pair]
        rows.append(
            {
                **stamp,
                "kind": "film",
                "pair": pair,
                "file": f"films/{path.name}",
                "strip": f"films/{path.with_suffix('.png').name}",
                "success": row["success"][row["criterion"]],
                "first_success_step": row["first_success_step"],
                "trivial": row["trivial"],
            }
        )
    return rows


def open_loop(opened: Opened, stamp: Row, config: PlanConfig) -> list[Row]:
    """Latent error along recorded actions, and strips of decoded rollouts."""
    deployment = opened.checkpoint.deployment
    if opened.store.image_size != deployment.spec.image_size:
        return []
    heldout, steps = opened.split.heldout, 2 * config.horizon
    clips = long_clips(opened.store, heldout, deployment.spec, deployment.normalizer, steps)
    errors = open_loop_error(opened.model, clips, 128)
    ids = np.linspace(0, len(clips) - 1, 3).astype(int)
    pictures = decoded_strips(opened.model, clips, ids)
    rows: list[Row] = [{**stamp, "kind": "openloop", "metric": "latent-mse.v1", **e} for e in errors]
    for index, rows_of_frames in enumerate(pictures if pictures is not None else []):
        name = f"films/rollout-{index}.png"
        strip(opened.out / name, list(rows_of_frames))
        rows.append({**stamp, "kind": "rollout", "index": index, "file": name})
    return rows


def show(summaries: list[ControlSummary]) -> None:
    """The table for people."""
    first = summaries[0]
    rows = [
        [
            s.actor,
            f"{100 * s.rate:.1f}%",
            f"{100 * s.low:.1f} to {100 * s.high:.1f}",
            *(f"{100 * rate:.1f}%" for rate in s.strict_rates.values()),
            "-" if s.median_first_step is None else f"{s.median_first_step:.0f}",
            f"{s.mean_final_distance:.1f}",
            "-" if s.seconds_per_solve is None else f"{s.seconds_per_solve:.3f}",
        ]
        for s in summaries
    ]
    strict = list(first.strict_rates)
    columns = [
        "actor",
        first.criterion,
        "95% interval",
        *strict,
        "median step",
        "final distance",
        "s per solve",
    ]
    table(f"{first.pairs} pairs ({first.trivial} trivial ones left out)", columns, rows)
