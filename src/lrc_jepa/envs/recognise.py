"""Recognising a world in somebody else's episodes: put a recorded state back, repeat the recorded actions, compare.

Names and widths of columns say which world it may be. Then pieces of episodes are replayed, and it is that world
where whatever moves in it ends where it was recorded; and its pictures are compared with ours, for a planner is to be
shown what the model was trained on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.frames import to_square
from lrc_jepa.data.importers.base import Source
from lrc_jepa.data.importers.conversion import crop_of
from lrc_jepa.data.importers.import_options import NO_WORLD, Options
from lrc_jepa.data.importers.simulated import Simulated
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import PUBLISHED_SIDE, Appearance, Kind
from lrc_jepa.envs.base import World
from lrc_jepa.errors import BadInput
from lrc_jepa.protocols import Task

EPISODES, PIECES, STEPS = 8, 4, 10  # episodes looked at, pieces of each, and actions replayed in a piece
AGREE, AGREE_SHORT = (
    0.9,
    0.5,
)  # share of the pieces that must end where they were recorded; of states cut short
PICTURES = 3  # frames compared
NEAR = 4.0  # mean grey levels between pictures that are taken for the same
LOOKS: tuple[Kind, ...] = ("published", "clean")
BY_THEMSELVES = (
    "swm-hdf5",
    "swm-folder",
    "lance",
    "dino-wm",
)  # formats in which a world is looked for unasked


@dataclass(frozen=True)
class Layout:
    """Columns that, side by side, are the state of a world."""

    world: str
    columns: Mapping[str, int]
    """Names, with underscores between words, and how many numbers each has."""
    action: int

    def find(self, columns: Mapping[str, Array]) -> list[str] | None:
        """The names under which an episode has these columns; None where it does not."""
        known = {re.sub(r"[^A-Za-z0-9]+", "_", name): name for name in columns}
        names = [known.get(name) for name in self.columns]
        wide = [name is not None and _width(columns[name]) for name in names]
        fits = wide == list(self.columns.values()) and _width(columns["action"]) == self.action
        return [name for name in names if name] if fits else None


READINGS = {"proprio_effector_pos": 3, "proprio_effector_yaw": 1, "proprio_gripper_contact": 1}
LAYOUTS = (  # those that say most first: a part of one may look like another
    Layout("cube", {"qpos": 21, "qvel": 20, **READINGS}, 5),
    Layout("cube", {"qpos": 21, "qvel": 20}, 5),
    *(Layout("cube", {"state": width}, 5) for width in (46, 41)),
    *(Layout("pusht", {"state": width}, 2) for width in (10, 7)),
    Layout("reacher", {"qpos": 2, "qvel": 2}, 2),
    Layout("reacher", {"state": 4}, 2),
    *(Layout("tworoom", {name: 2}, 2) for name in ("state", "proprio", "pos_agent")),
)


def _width(values: Array) -> int:
    return int(np.prod(values.shape[1:], dtype=int))


def joined(columns: Mapping[str, Array], names: list[str]) -> Array:
    """Columns (T,...) side by side (T,s), as exact as they are."""
    length = len(columns[names[0]])
    if any(len(columns[name]) != length for name in names) or len(columns["action"]) < length - 1:
        raise BadInput("its columns have different numbers of rows")
    return np.concatenate([np.asarray(columns[name]).reshape(length, -1) for name in names], axis=1)


@dataclass(frozen=True)
class Agreement:
    """How far from where it was recorded one thing ended, over all pieces."""

    median: float
    largest: float
    agreed: float
    """Share of the pieces in which it is nearer than what counts as moving."""
    moved: float
    """How far it moved in the median piece."""


class Replay:
    """Pieces of a source's episodes, in a world."""

    def __init__(self, world: World, names: list[str], episodes: list[Mapping[str, Array]]) -> None:
        self.world, self.task = world, world.make(Appearance("clean"))
        lengths = [len(joined(e, names)) for e in episodes]
        self.steps = min(STEPS, max(lengths) - 1)
        if self.steps < 1:
            raise BadInput("episodes of a single frame cannot be replayed")
        starts, ends, actions = [], [], []
        for columns, length in zip(episodes, lengths, strict=True):
            states, moves = joined(columns, names), np.asarray(columns["action"], np.float64)
            for first in self._firsts(length):
                starts.append(states[first])
                ends.append(states[first + self.steps])
                actions.append(moves[first : first + self.steps].reshape(self.steps, -1))
        self.starts, self.ends, self.actions = np.stack(starts), np.stack(ends), np.stack(actions)

    def _firsts(self, length: int) -> list[int]:
        """Where pieces of an episode begin; one that is shorter has none."""
        room = length - self.steps
        return sorted({int(x) for x in np.linspace(0, room - 1, PIECES)}) if room > 0 else []

    def outside(self) -> NDArray[np.bool_]:
        """Pieces with actions that this world would cut down, or that are no numbers."""
        low, high = self.world.action_low - 1e-6, self.world.action_high + 1e-6
        return np.asarray(~((self.actions >= low) & (self.actions <= high)).all(axis=(1, 2)))

    def _quantities(self, states: Array) -> Mapping[str, Array]:
        """Of states as the world itself would tell them, however short they were recorded."""
        return self.world.quantities(put(self.task, states).state())

    def run(self) -> dict[str, Agreement]:
        """Replay, and compare what can move."""
        kept = ~self.outside()
        if not kept.any():
            raise BadInput("its actions lie outside the bounds of that world")
        starts, ends, actions = self.starts[kept], self.ends[kept], self.actions[kept]
        if not (np.isfinite(starts).all() and np.isfinite(ends).all()):
            raise BadInput("its states are not all finite numbers")
        first, wanted = self._quantities(starts), self._quantities(ends)
        put(self.task, starts)
        for step in range(self.steps):
            self.task.step(actions[:, step])
        reached = self.world.quantities(self.task.state())
        return {
            name: _agreement(first[m.quantity], reached[m.quantity], wanted[m.quantity], m.threshold)
            for name, m in self.world.movers.items()
        }

    def convincing(self, agreement: Mapping[str, Agreement]) -> bool:
        """Whether things moved, and ended where they were recorded.

        A state that leaves out what a contact remembers does not tell how a push goes on: then half must do.
        """
        share = AGREE if self.starts.shape[1] == self.world.state_dim else AGREE_SHORT
        moved = any(a.moved > self.world.movers[name].threshold for name, a in agreement.items())
        return moved and all(a.agreed >= share for a in agreement.values())


def put(task: Task, states: Array) -> Task:
    """The task in these states, in its one look."""
    task.reset_to(states, np.zeros((len(states), 0), np.float32))
    return task


def _agreement(first: Array, reached: Array, wanted: Array, near: float) -> Agreement:
    off, way = (
        np.linalg.norm((wanted - other).reshape(len(wanted), -1), axis=1) for other in (reached, first)
    )
    return Agreement(
        float(np.median(off)), float(off.max()), float((off < near).mean()), round(float(np.median(way)), 6)
    )


class WorldFinder:
    """Looks for the world of a source, the one that is named or any; `said` is what came of it."""

    def __init__(self) -> None:
        self.said = ""

    def __call__(self, source: Source, options: Options) -> Simulated | None:
        """The world; one that was asked for by name and does not fit is refused."""
        asked = options.world if options.world != NO_WORLD else ""
        if options.world == NO_WORLD or not (asked or source.info.get("format") in BY_THEMSELVES):
            return None
        try:
            return self._find(source, options, asked)
        except BadInput as error:
            if asked:
                raise BadInput(f"this cannot be planned in as {asked}: {error}") from None
            self.said = f"imported as a recording, without a simulator: {error}"
            return None

    def _find(self, source: Source, options: Options, asked: str) -> Simulated | None:
        if asked:
            get_world(asked)
        episodes = list(self._episodes(source, options))
        candidates = [layout for layout in LAYOUTS if asked in ("", layout.world)]
        fitting = [
            (layout, names) for layout in candidates if episodes and (names := layout.find(episodes[0][1]))
        ]
        if not fitting:
            if asked:
                raise BadInput(f"no columns have the names and widths of its state ({_wanted(candidates)})")
            return None
        if options.stride > 1:
            raise BadInput(f"a world is stepped by single actions; leave out --stride {options.stride}")
        refusals = []
        for layout, names in fitting:
            try:
                return self._try(get_world(layout.world), names, source, options, episodes)
            except BadInput as error:
                refusals.append(error)
        raise refusals[0]

    def _try(
        self,
        world: World,
        names: list[str],
        source: Source,
        options: Options,
        episodes: list[tuple[int, Mapping[str, Array]]],
    ) -> Simulated:
        """The source as this world, with these columns for its state."""
        replay = Replay(world, names, [columns for _, columns in episodes])
        agreement = replay.run()
        if not replay.convincing(agreement):
            raise BadInput(
                f"replayed in {world.name}, {_in_words(agreement, world)} after {replay.steps} actions"
            )
        look, apart = self._look(world, source, options, episodes, names)
        left = int(replay.outside().sum())
        self.said = (
            f"recognised as {world.name}: of {len(replay.starts) - left} pieces of {replay.steps} actions replayed, "
            f"{_in_words(agreement, world)}; its pictures are {apart:.2g} grey levels from ours ({look.kind})"
            + (f"; {left} pieces were not replayed, their actions leave the bounds" if left else "")
        )
        figures = {name: asdict(a) for name, a in agreement.items()}
        recognised = {
            "columns": names,
            "steps": replay.steps,
            "pieces": len(replay.starts) - left,
            "off": figures,
        }
        return Simulated(
            world.name,
            world.frame_rate,
            (world.action_low.tolist(), world.action_high.tolist()),
            lambda columns: derived(world, columns, names),
            {"appearance": asdict(look), "recognised": {**recognised, "pictures_off": apart}},
        )

    def _episodes(self, source: Source, options: Options) -> Iterator[tuple[int, Mapping[str, Array]]]:
        """Numbers and columns of a few episodes; those that cannot be read are told of when they are imported."""
        count = min(options.episodes or len(source.lengths), len(source.lengths))
        longer = [e for e in range(count) if source.lengths[e] > 1]
        if not longer:
            return
        for place in sorted({int(x) for x in np.linspace(0, len(longer) - 1, EPISODES)}):
            try:
                columns = source.columns(longer[place])
            except BadInput:
                continue
            if "action" in columns:
                yield longer[place], columns

    def _look(
        self,
        world: World,
        source: Source,
        options: Options,
        episodes: list[tuple[int, Mapping[str, Array]]],
        names: list[str],
    ) -> tuple[Appearance, float]:
        """Which look the first frames of some episodes have, and how far from it they are in grey levels."""
        shown, states, side = [], [], PUBLISHED_SIDE
        for number, columns in episodes[:PICTURES]:
            frame = next(source.frames(number), None)
            if frame is None:
                raise BadInput(f"episode {number} has no frames")
            shown.append(to_square(frame, options.size, crop_of(source, options)).astype(np.float64))
            states.append(joined(columns, names)[0])
            side = min(side, frame.shape[0])
        apart = []
        for kind in LOOKS:
            look = Appearance(kind, recorded=max(8, side))
            drawn = put(world.make(look), np.stack(states)).render(options.size)
            apart.append(float(np.abs(drawn - np.stack(shown)).mean()))
            if apart[-1] < NEAR:
                return look, apart[-1]
        raise BadInput(
            f"replays agree with {world.name}, but its pictures are {min(apart):.3g} grey levels from ours"
        )


def derived(world: World, columns: Mapping[str, Array], names: list[str]) -> dict[str, Array]:
    """The state of an episode's rows, and what probes read of it, where the state says all."""
    states = joined(columns, names)
    whole = states if states.shape[1] == world.state_dim else _widened(world, states)
    quantities = {} if whole is None else world.quantities(whole)
    return {**{name: np.asarray(v) for name, v in quantities.items() if name not in columns}, "state": states}


def _widened(world: World, states: Array) -> Array | None:
    """States with fewer numbers, where those that are missing tell of nothing that is read: Push-T's speeds."""
    return states if world.name == "pusht" else None


def _wanted(layouts: list[Layout]) -> str:
    return "; ".join(" and ".join(f"{name} of {width}" for name, width in o.columns.items()) for o in layouts)


def _in_words(agreement: Mapping[str, Agreement], world: World) -> str:
    unit = world.distance_unit
    return ", ".join(
        f"the {name} is {a.median:.2g} {unit} off in the median and {a.largest:.2g} {unit} at most "
        f"({a.agreed:.0%} within {world.movers[name].threshold:g})"
        for name, a in agreement.items()
    )
