"""OGBench's scripted oracles for the cube, made deterministic and fed from states alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.envs.cube.state import BLOCK, READINGS, block_yaw, gripper_opening
from lrc_jepa.extras import need

NOISE_SCALE = np.array([1.0, 1.0, 1.0, 3.0, 10.0])  # of x, y, z, yaw and gripper
NOISE = 0.1  # stable-worldmodel's: each episode draws its own level up to this
STEP = 0.05  # seconds


class Body:
    """The three things an oracle asks of its environment."""

    _arm_sampling_bounds = np.array([[0.25, -0.35, 0.20], [0.6, 0.35, 0.35]])
    _control_timestep = STEP
    _range = np.array([0.05, 0.05, 0.05, 0.3, 1.0])
    TARGETS = np.array([[0.3, -0.3], [0.55, 0.3]])

    @property
    def unwrapped(self) -> Body:
        """Itself."""
        return self

    def normalize_action(self, action: Array) -> Array:
        """Metres and radians -> [-1, 1]."""
        return np.asarray(np.clip(action / self._range, -1, 1))


@contextmanager
def drawing_from(rng: np.random.Generator) -> Iterator[None]:
    """Let code that uses NumPy's global generator draw from an episode's own."""
    saved = np.random.get_state()
    np.random.seed(rng.integers(2**32))
    try:
        yield
    finally:
        np.random.set_state(saved)


def describe(states: Array, targets: Array, step: int) -> list[dict[str, Any]]:
    """States (B,46) and target poses (B,4: position and yaw) in the words of OGBench's oracles."""
    readings, yaws, openings = states[:, READINGS], block_yaw(states), gripper_opening(states)
    return [
        {
            "proprio/effector_pos": reading[:3],
            "proprio/effector_yaw": reading[3:4],
            "proprio/gripper_opening": openings[b : b + 1],
            "proprio/gripper_contact": reading[4:5],
            "privileged/target_block": 0,
            "privileged/block_0_pos": states[b, BLOCK][:3],
            "privileged/block_0_yaw": yaws[b : b + 1],
            "privileged/target_block_pos": targets[b, :3],
            "privileged/target_block_yaw": targets[b, 3:],
            "time": np.array([step * STEP]),
        }
        for b, reading in enumerate(readings)
    ]


def oracle(plans: bool, noise: float = NOISE) -> Any:
    """One of OGBench's two: it follows a plan with smooth noise in it, or decides anew each step."""
    oracles = "ogbench.manipspace.oracles"
    if plans:
        planning = need(f"{oracles}.plan.cube_plan", "the world cube")
        return planning.CubePlanOracle(env=Body(), noise=noise, noise_smoothing=0.5)
    markov = need(f"{oracles}.markov.cube_markov", "the world cube")
    return markov.CubeMarkovOracle(env=Body(), min_norm=0.4)


class Oracle:
    """Carries the cube from one random target to the next."""

    def __init__(self, rngs: list[np.random.Generator], plans: bool) -> None:
        self.rngs = rngs
        self.oracles = [oracle(plans) for _ in rngs]
        self.targets = np.stack([random_target(rng) for rng in rngs])
        noise = [0.0 if plans else rng.uniform(0, NOISE) for rng in rngs]
        self.noise = np.array(noise)[:, None] * NOISE_SCALE
        self.fresh, self.step = np.ones(len(rngs), bool), 0
        self.finished: list[tuple[int, bool]] = []
        """Episode and outcome of every subtask that an oracle has called done."""

    def act(self, states: Array) -> Array:
        """One action per scene; a subtask that is done is followed by another."""
        for index in np.flatnonzero(
            [not fresh and o.done for fresh, o in zip(self.fresh, self.oracles, strict=True)]
        ):
            off = np.linalg.norm(states[index, BLOCK][:3] - self.targets[index, :3])
            self.finished.append((int(index), bool(off <= 0.04)))
            self.targets[index], self.fresh[index] = random_target(self.rngs[index]), True
        infos = describe(states, self.targets, self.step)
        for index in np.flatnonzero(self.fresh):
            with drawing_from(self.rngs[index]):
                self.oracles[index].reset(None, infos[index])
        self.fresh[:] = False
        self.step += 1
        chosen = np.stack([o.select_action(None, info) for o, info in zip(self.oracles, infos, strict=True)])
        noise = np.stack([rng.standard_normal(5) for rng in self.rngs])
        return np.asarray(np.clip(chosen + self.noise * noise, -1, 1), np.float32)


class Expert:
    """Carries each cube to the pose it has in the goal state, without noise."""

    def __init__(self, goals: Array) -> None:
        goals = np.asarray(goals, np.float64)
        self.targets = np.column_stack([goals[:, BLOCK][:, :3], block_yaw(goals)])
        self.oracles = [oracle(plans=False) for _ in goals]
        self.step = 0

    def act(self, states: Array) -> Array:
        """One action per scene."""
        infos = describe(states, self.targets, self.step)
        if self.step == 0:
            for index, info in enumerate(infos):
                with drawing_from(np.random.default_rng(index)):
                    self.oracles[index].reset(None, info)
        self.step += 1
        chosen = [o.select_action(None, info) for o, info in zip(self.oracles, infos, strict=True)]
        return np.stack(chosen).astype(np.float32)


def random_target(rng: np.random.Generator) -> Array:
    """A place on the table and a yaw (4,), as OGBench draws them."""
    return np.array([*rng.uniform(*Body.TARGETS), 0.02, rng.uniform(0, 2 * np.pi)])
