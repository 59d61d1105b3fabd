"""Planning split by pairs: parts that processes or machines work on side by side, and one result.

Noise, of candidates and of random actions, is a function of the seed and the number of a pair: what is planned beside it
changes a plan by no more than rounding.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from lrc_jepa.config import PlanConfig
from lrc_jepa.console import Bar
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.actor import Actor
from lrc_jepa.evaluate.closed_loop import episode_rows
from lrc_jepa.evaluate.closed_loop import run as act
from lrc_jepa.evaluate.manifest import Manifest
from lrc_jepa.evaluate.plan_pictures import save_explanations, save_films
from lrc_jepa.evaluate.plan_recording import save_recording
from lrc_jepa.evaluate.references import learned_references, references
from lrc_jepa.evaluate.true_model import TrueModel
from lrc_jepa.evaluate.watched import Watched
from lrc_jepa.jobs.pieces import Workers
from lrc_jepa.records import Control, Record
from lrc_jepa.rows import Row
from lrc_jepa.run import Run

Acted = list[tuple[str, list[Record]]]
"""Every actor's name with its rows."""
LARGEST = 16  # pairs of a part that another process plans


@dataclass(frozen=True)
class Part:
    """Pairs of one repetition that follow each other."""

    run: Run
    config: PlanConfig
    manifest: Manifest
    """All pairs of the repetition."""
    pairs: range
    """The numbers of those that belong to this part."""
    stamp: Row
    filmed: int = 0
    """Pairs of the repetition to film: the first ones."""
    explained: int = 0
    """And to explain."""
    recorded: bool = False
    """Whether what is filmed is recorded for the Rerun viewer too."""
    learned: bool = False
    """Whether references that learn act too."""
    true_model: bool = False
    """Whether the same search with the world as its model acts too."""
    threads: int = 1
    """Threads of the process that this part is sent to."""

    def first(self, count: int) -> list[int]:
        """Which of the first `count` pairs of the repetition are here, by their place in this part."""
        return list(range(len(range(self.pairs.start, min(self.pairs.stop, count)))))


def cut(pairs: int, processes: int) -> list[range]:
    """The numbers of the pairs in parts of nearly the same size, enough for so many processes."""
    parts = min(pairs, max(processes, -(-pairs // LARGEST)))
    ends = [pairs * part // parts for part in range(parts + 1)]
    return [range(begin, end) for begin, end in pairwise(ends)]


def act_on(part: Part) -> Iterator[tuple[str, list[Record]]]:
    """Every actor's name with its rows, and before those of the model films and explanations."""
    run, config, first = part.run, part.config, part.pairs.start
    manifest = part.manifest.part(slice(first, part.pairs.stop))
    spec, shown, explained = (
        run.checkpoint.deployment.spec,
        part.first(part.filmed),
        part.first(part.explained),
    )
    policy = run.policy(config)
    policy.number(*part.pairs)
    planner = Watched(policy, explained)
    actors: dict[str, Actor] = {run.config.system: planner}
    actors |= references(run.store, manifest, config, first)
    if part.learned:
        actors |= learned_references(run.checkpoint, run.store, run.split.train, config, pairs=part.pairs)
    if part.true_model:
        actors["true-model"] = TrueModel(run.store, manifest, config, run.checkpoint.deployment, first)
    for name, actor in actors.items():
        filmed = sorted({*shown, *explained}) if actor is planner else None
        rollouts = act(actor, run.store, manifest, config, spec.frameskip, spec.image_size, filmed)
        control = [Control.of(r) for r in episode_rows(name, rollouts, manifest, part.stamp, actor, first)]
        rows = list[Record]()
        if actor is planner:
            rows += save_films(run.out, planner, rollouts, control, part.stamp, shown)
            for pair in shown if part.recorded else ():
                name_of = f"pair-{first + pair:03d}.rrd"
                save_recording(run.out / "films" / name_of, planner, rollouts, pair)
            rows += save_explanations(run.out, planner, rollouts, control, part.stamp)
        yield name, [*rows, *control]


def act_elsewhere(part: Part) -> Acted:
    """The same in a process that has nothing else to do."""
    torch.set_num_threads(part.threads)
    try:
        return list(act_on(part))
    except BadInput as error:  # a special one may not survive the way back
        raise BadInput(str(error)) from None


def worked_out(parts: list[Part], workers: Workers, bar: Bar) -> Generator[Acted, None, None]:
    """What every actor did in each part, in their order, from this process or from others."""
    share = bar.total / len(parts)
    if workers.several:
        for acted in workers.answers(act_elsewhere, parts):
            bar.advance(share)
            yield acted
        return
    for part in parts:
        acted = Acted()
        for one in act_on(part):
            acted.append(one)
            bar.advance(
                share / (4 + 3 * part.learned + part.true_model)
            )  # the model and its references, those that learn
        yield acted


def joined(acted: Iterable[tuple[str, list[Record]]]) -> list[Record]:
    """The rows of all parts as one part would have them: by actor, by kind, by pair."""
    by_kind: dict[tuple[str, str], list[Record]] = {}
    for name, rows in acted:
        for row in rows:
            by_kind.setdefault((name, row.kind), []).append(row)
    # The first part has every kind that there is: what is filmed or explained begins with the first pair.
    return [row for rows in by_kind.values() for row in rows]
