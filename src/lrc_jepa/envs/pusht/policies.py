"""Scripted policies for Push-T: a pusher that plans one or two pushes ahead, and a rambler.

Everything static is computed once in the block's own frame, in which the T never moves: where a disc
can touch it, what a push there does, and how far it is from one such place to another without
touching the block. A step then costs a few array operations for a whole batch of tables. Only
elementwise operations are used, so that a table's actions do not depend on the batch it is in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.envs.policies import SmoothWalk
from lrc_jepa.envs.pusht.shape import (
    AGENT_RADIUS,
    CENTRE,
    FOOT,
    HALF,
    INERTIA,
    KEEP_OFF,
    RIGHT,
    TABLE,
    THICK,
    clear,
    clearance,
    fits,
    length,
    local,
    retreat,
    turned,
    unturn,
)

APPROACH = AGENT_RADIUS + 6  # and starts a push from here
CORNER = AGENT_RADIUS + 10  # waypoints lie this far outside the block's corners
RADIAN = 57.0  # pixels an error of one radian is worth: 20 degrees weigh as much as 20 pixels


@dataclass(frozen=True)
class Map:
    """What can be known of pushing a T before seeing one; C contacts, V waypoints around the hull."""

    touch: Array  # (C, 2) points of the surface
    out: Array  # (C, 2) outward normals there
    effect: Array  # (C, 3) motion per pixel of push: right, down, and RADIAN x turn
    gram: Array  # (C, C) inner products of the effects
    before: Array  # (C, 2) where a push starts
    around: Array  # (V, 2) waypoints
    between: Array  # (V, V) shortest ways between waypoints
    onward: Array  # (V, C) shortest ways from a waypoint to the start of a push
    travel: Array  # (C, C) shortest ways from one contact to the start of the next push


def _contacts(spacing: float = 16.0) -> tuple[Array, Array]:
    """Points of the T's outline that a disc can push on, and outward normals, (C,2) each."""
    inner = APPROACH + 1  # in the corner between bar and stem a disc does not fit
    side, edge = THICK / 2, 4.0  # of the stem; at the very corners a disc slips off
    edges = [  # begin, end, outward normal; the right half is mirrored
        ((0.0, 0.0), (HALF - edge, 0.0), (0.0, -1.0)),
        ((HALF, edge), (HALF, THICK - edge), (1.0, 0.0)),
        ((side + inner, THICK), (HALF - edge, THICK), (0.0, 1.0)),
        ((side, THICK + inner), (side, FOOT - edge), (1.0, 0.0)),
        ((0.0, FOOT), (side - edge, FOOT), (0.0, 1.0)),
    ]
    points, normals = [], []
    for begin, end, normal in edges:
        count = int(np.ceil(np.hypot(end[0] - begin[0], end[1] - begin[1]) / spacing)) + 1
        for at in np.linspace(begin, end, count):
            for mirror in (1, -1) if at[0] > 0 else (1,):
                points.append((mirror * at[0], at[1]))
                normals.append((mirror * normal[0], normal[1]))
    return np.array(points), np.array(normals)


def _around() -> Array:
    """Waypoints (V,2): the outer corners of bar and stem, moved away from the block."""
    right = RIGHT + CORNER * np.array([(1, -1), (1, 1), (1, 1)])
    return np.concatenate([right, right * (-1, 1)])


@cache
def table_map() -> Map:
    """The one map, built at first use."""
    touch, out = _contacts()
    arm = touch - CENTRE
    lever = arm[:, 0] * -out[:, 1] + arm[:, 1] * out[:, 0]  # of a push against the normal
    ease = 1 / (1 + lever**2 / INERTIA)
    effect = np.column_stack([-out * ease[:, None], RADIAN * lever / INERTIA * ease])
    before, around = touch + APPROACH * out, _around()
    direct = np.where(clear(around[:, None], around[None]), length(around[:, None] - around[None]), np.inf)
    for middle in range(len(around)):
        direct = np.minimum(direct, direct[:, middle, None] + direct[None, middle])
    last = np.where(clear(around[:, None], before[None]), length(around[:, None] - before[None]), np.inf)
    onward = (direct[:, :, None] + last[None]).min(axis=1)
    straight = np.where(clear(before[:, None], before[None]), length(before[:, None] - before[None]), np.inf)
    travel = np.minimum(straight, (last[:, :, None] + onward[:, None]).min(axis=0))
    return Map(touch, out, effect, effect @ effect.T, before, around, direct, onward, travel)


def _response() -> tuple[float, float]:
    """How far the disc gets in one step, per pixel of its target's distance and per unit of speed."""

    def run(target: float, speed: float) -> float:
        at = 0.0
        for _ in range(10):
            speed += (100 * (target - at) - 20 * speed) * 0.01
            at += speed * 0.01
        return at

    return run(1.0, 0.0), run(0.0, 1.0)


PER_TARGET, PER_SPEED = _response()


class Pusher:
    """Brings each block to a pose, then its disc to a place: `targets` (B,5), as in a state."""

    PUSH = 22.0  # pixels of push in one step, at most
    STEADY = 90.0  # a disc that moves sideways faster than this would slip off
    STALE = 0.3  # pixels a block may move before its plan is made anew
    LEAST = 4.0  # a push of less is none
    STRIDE = 38.0  # pixels of travel in one step, at most
    PAUSE = 4.0  # what a change of contact costs, in steps, beside the way
    RESIDUE = 0.35  # what a pixel of remaining error costs, in steps
    LOYALTY = 2.5  # steps that another contact must save to be preferred
    PLACED, LOST = 7.0, 14.0  # weighted error at which a block counts as placed, or as lost again

    def __init__(self, targets: Array) -> None:
        self.targets = np.array(targets, np.float64)
        self.map = table_map()
        self.contact = np.full(len(self.targets), -1)
        self.amount = np.zeros(len(self.targets))
        self.planned = np.full((len(self.targets), 3), np.inf)  # the error each plan was made for
        self.placed: NDArray[np.bool_] = np.zeros(len(self.targets), bool)

    def retarget(self, index: int, target: Array) -> None:
        """Give table `index` a new target (5,)."""
        self.targets[index] = target
        self.contact[index], self.placed[index], self.planned[index] = -1, False, np.inf

    def error(self, states: Array) -> Array:
        """What is left to do to each block (B,3): right, down and RADIAN x turn, in its own frame."""
        pose, goal = states[:, 2:5], self.targets[:, 2:5]
        centre = np.tile(CENTRE, (len(pose), 1))
        shift = goal[:, :2] + turned(centre, goal[:, 2]) - pose[:, :2] - turned(centre, pose[:, 2])
        angle = (goal[:, 2] - pose[:, 2] + np.pi) % (2 * np.pi) - np.pi
        return np.column_stack([unturn(shift, pose[:, 2]), RADIAN * angle])

    def act(self, states: Array) -> Array:
        """One action per table."""
        states = np.asarray(states, np.float64)
        error = self.error(states)
        size = np.sqrt(error[:, 0] ** 2 + error[:, 1] ** 2 + error[:, 2] ** 2)
        self.placed = np.where(self.placed, size < self.LOST, size < self.PLACED)
        agent = local(states[:, :2], states[:, 2:5])
        # While the disc travels the block lies still, and what was planned for it holds.
        moved = np.abs(error - self.planned).max(axis=1) > self.STALE
        stale = np.flatnonzero(moved & ~self.placed)
        if stale.size:
            self.planned[stale] = error[stale]
            plan = self._plan(agent[stale], error[stale], states[stale, 2:5], self.contact[stale])
            self.contact[stale], self.amount[stale] = plan
        pushing = self._push(agent, unturn(states[:, 5:7], states[:, 4]))
        rest = local(self.targets[:, :2], states[:, 2:5])
        way = np.where(self.placed[:, None], self._travel(agent, rest, None), pushing)
        way *= np.minimum(1, self.STRIDE / np.maximum(length(way), 1e-9))[:, None]
        step = turned(way, states[:, 4])
        action = (step - PER_SPEED * states[:, 5:7]) / (100 * PER_TARGET)
        return np.asarray(np.clip(action, -1, 1), np.float32)

    def _plan(self, agent: Array, error: Array, poses: Array, contact: Array) -> tuple[Array, Array]:
        """Each table's next contact (B,), given its present one, and how far to push there (B,)."""
        m = self.map
        gain = error[:, 0, None] * m.effect[:, 0] + error[:, 1, None] * m.effect[:, 1]
        gain = gain + error[:, 2, None] * m.effect[:, 2]  # (B, C)
        own = np.diagonal(m.gram)
        square = (error**2)[:, 0] + (error**2)[:, 1] + (error**2)[:, 2]
        alone = np.maximum(gain / own, 0)
        left = np.sqrt(np.maximum(square[:, None] - alone * gain, 0))
        one = np.where(alone > self.LEAST, 1 + alone / self.PUSH + self.RESIDUE * left, np.inf)
        # Two pushes, first i then j: the least-squares weights of their effects.
        det = own[:, None] * own - m.gram**2
        det = np.where(det < 1e-9, np.inf, det)
        first = (gain[:, :, None] * own - gain[:, None] * m.gram) / det  # (B, C, C)
        second = (gain[:, None] * own[:, None] - gain[:, :, None] * m.gram) / det
        left = np.sqrt(
            np.maximum(square[:, None, None] - first * gain[:, :, None] - second * gain[:, None], 0)
        )
        two = (first + second) / self.PUSH + m.travel / self.STRIDE + self.PAUSE + self.RESIDUE * left
        two = np.where((first > self.LEAST) & (second > self.LEAST), two, np.inf)
        best = two.argmin(axis=2)
        rows, columns = np.indices(best.shape)
        pair = two[rows, columns, best]
        cost = np.minimum(one, pair) + self._approach(agent, poses)
        amount = np.where(pair < one, first[rows, columns, best], alone)
        everyone = np.arange(len(agent))
        cost[everyone, contact] -= np.where(contact >= 0, self.LOYALTY, 0)
        chosen = cost.argmin(axis=1)
        return chosen, amount[everyone, chosen]

    def _approach(self, agent: Array, poses: Array) -> Array:
        """Steps to each contact (B,C); contacts that lie off the table are far away."""
        m = self.map
        near = length(m.touch + AGENT_RADIUS * m.out - agent[:, None])
        agent = agent + retreat(agent)
        legs = length(m.around - agent[:, None]) + np.where(clear(agent[:, None], m.around), 0, 400)
        way = (legs[:, :, None] + m.onward).min(axis=1)
        direct = length(m.before - agent[:, None])
        way = np.where(clear(agent[:, None], m.before), direct, way)
        way = np.where(near < 10, near, way)
        cos, sin = np.cos(poses[:, 2, None]), np.sin(poses[:, 2, None])
        x = poses[:, 0, None] + cos * m.before[:, 0] - sin * m.before[:, 1]
        y = poses[:, 1, None] + sin * m.before[:, 0] + cos * m.before[:, 1]
        off = (np.minimum(x, y) < TABLE[0]) | (np.maximum(x, y) > TABLE[1])
        return np.asarray(way / self.STRIDE + np.where(off, 50, 0))

    def _push(self, agent: Array, speed: Array) -> Array:
        """Ways (B,2): push where the disc is at its contact, else go there."""
        m = self.map
        touch, out = m.touch[self.contact], m.out[self.contact]
        offset = agent - touch
        gap = offset[:, 0] * out[:, 0] + offset[:, 1] * out[:, 1]
        slide = np.abs(offset[:, 0] * out[:, 1] - offset[:, 1] * out[:, 0])
        astray = np.abs(speed[:, 0] * out[:, 1] - speed[:, 1] * out[:, 0])
        ready = (slide < 7) & (gap > 5) & (gap < APPROACH + 5) & (astray < self.STEADY)
        goal = touch + out * (AGENT_RADIUS - np.minimum(self.amount, self.PUSH))[:, None]
        travel = self._travel(agent, m.before[self.contact], m.onward[:, self.contact].T)
        return np.where(ready[:, None], goal - agent, travel)

    def _travel(self, agent: Array, goal: Array, onward: Array | None) -> Array:
        """Ways (B,2) towards `goal` (B,2), around the block where it is in between.

        `onward` (B,V) is how far the goal is from each waypoint, where that is known.
        """
        m = self.map
        if onward is None:
            last = length(m.around - goal[:, None]) + np.where(clear(m.around, goal[:, None]), 0, 400)
            onward = (m.between + last[:, None]).min(axis=2)
        legs = length(m.around - agent[:, None])
        # A waypoint that is already reached is no way on.
        legs = legs + np.where((legs < 8) | ~clear(agent[:, None], m.around), 400, 0)
        via = m.around[(legs + onward).argmin(axis=1)]
        way = np.where(np.asarray(clear(agent, goal))[:, None], goal, via) - agent
        back = retreat(agent)
        return np.where(back.any(axis=1, keepdims=True), back, way)


class Retargeting:
    """A pusher that is given one random target after another; noise is added to every action.

    Each episode draws its own noise up to `noise`. A target lies at most 160 pixels and 1.2 radians
    away; every other time the disc also visits a place of its own when the block is where it should be.
    """

    PATIENCE = 50  # steps after which a target is given up

    def __init__(self, rngs: list[np.random.Generator], noise: float = 0.3) -> None:
        self.rngs = rngs
        self.noise = np.array([rng.uniform(0, noise) for rng in rngs])[:, None]
        self.pusher = Pusher(np.zeros((len(rngs), 5)))
        self.since = np.full(len(rngs), self.PATIENCE)
        self.visits = np.zeros(len(rngs), bool)

    def act(self, states: Array) -> Array:
        """Push on; a target that was reached, or not within PATIENCE steps, is replaced."""
        there = length(states[:, :2] - self.pusher.targets[:, :2]) < AGENT_RADIUS
        done = self.pusher.placed & (there | ~self.visits)
        for index in np.flatnonzero(done | (self.since >= self.PATIENCE)):
            rng = self.rngs[index]
            self.pusher.retarget(int(index), random_target(rng, states[index, 2:5]))
            self.since[index], self.visits[index] = 0, rng.random() < 0.5
        self.since += 1
        noise = np.stack([rng.standard_normal(2) for rng in self.rngs])
        return np.clip(self.pusher.act(states) + self.noise * noise, -1, 1).astype(np.float32)


def random_target(rng: np.random.Generator, pose: Array) -> Array:
    """A place for the disc and a pose for the block (5,), near the block's present one (3,)."""
    for _ in range(100):
        way, turn = rng.uniform(40, 160), rng.uniform(0, 2 * np.pi)
        block = pose + np.array([way * np.cos(turn), way * np.sin(turn), rng.uniform(-1.2, 1.2)])
        agent = rng.uniform(50, 450, 2)
        if fits(block[None])[0] and clearance(local(agent[None], block[None]))[0] > KEEP_OFF:
            return np.concatenate([agent, block])
    # A block that has left the table is to come back to its middle.
    return np.array([256.0, 100.0, 256.0, 256.0, pose[2]])


class Rambler:
    """Pushes at random: uniform actions, kept within a square around the block so that they meet it.

    Each episode draws the square's half width. A disc that nothing stops can shove the block through
    a wall; where the block has left the table, it is pushed back first.
    """

    def __init__(self, rngs: list[np.random.Generator], widths: tuple[float, float] = (50.0, 110.0)) -> None:
        self.rngs = rngs
        self.width = np.array([rng.uniform(*widths) for rng in rngs])[:, None]
        self.pusher = Pusher(np.zeros((len(rngs), 5)))
        self.lost: NDArray[np.bool_] = np.zeros(len(rngs), bool)

    def act(self, states: Array) -> Array:
        """A random move near the block, or a step of the rescue."""
        centre = states[:, 2:4] + turned(np.tile(CENTRE, (len(states), 1)), states[:, 4])
        drawn = np.stack([rng.uniform(-1, 1, 2) for rng in self.rngs])
        aim = np.clip(states[:, :2] + 100 * drawn, centre - self.width, centre + self.width)
        action = np.clip((aim - states[:, :2]) / 100, -1, 1)
        inside = fits(states[:, 2:5], slack=10)
        for index in np.flatnonzero(~inside & ~self.lost):
            self.pusher.retarget(int(index), random_target(self.rngs[index], states[index, 2:5]))
        self.lost = np.where(inside & (self.pusher.placed | ~self.lost), False, self.lost | ~inside)
        if self.lost.any():
            action = np.where(self.lost[:, None], self.pusher.act(states), action)
        return np.asarray(action, np.float32)


class Wanderer:
    """A drifting random walk that turns back at the edge of the table, which does not stop a disc."""

    EDGE = 40.0

    def __init__(self, rngs: list[np.random.Generator]) -> None:
        self.walk = SmoothWalk(rngs, width=2)

    def act(self, states: Array) -> Array:
        """The next drifting action, turned inwards near the edge."""
        action, at = self.walk.act(states), states[:, :2]
        inwards = np.where(at < TABLE[0] + self.EDGE, np.abs(action), action)
        return np.where(at > TABLE[1] - self.EDGE, -np.abs(action), inwards)
