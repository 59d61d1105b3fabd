"""Every world behind gymnasium's interface: frames out, actions in, the goal image in the info."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance, Kind
from lrc_jepa.errors import BadInput

Frame = NDArray[np.uint8]
GYM_IDS = {
    "tworoom": "lrc/TwoRoom-v0",
    "pusht": "lrc/PushT-v0",
    "reacher": "lrc/Reacher-v0",
    "cube": "lrc/Cube-v0",
}


class WorldEnv(gymnasium.Env[Frame, Array]):
    """One simulated world; an episode ends when its own criterion of success is met."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self, world: str, size: int = 64, kind: Kind = "clean", render_mode: str = "rgb_array"
    ) -> None:
        self.world = get_world(world)
        self.size, self.render_mode = size, render_mode
        self.metadata = {**self.metadata, "render_fps": round(self.world.frame_rate)}
        self.task = self.world.make(Appearance(kind))
        self.appearance = Appearance(kind)
        low, high = self.world.action_low, self.world.action_high
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)

    def _frame(self) -> Frame:
        return np.asarray(self.task.render(self.size)[0])

    def _info(self) -> dict[str, Any]:
        success = {name: bool(met[0]) for name, met in self.task.success().items()}
        state = self.task.state()
        return {
            "state": state[0],
            "own": {name: self.world.feel(state, name)[0] for name in self.world.own},
            "goal_state": self.goal,
            "distance": float(self.task.distance()[0]),
            "success": success,
        }

    def _choice(self, options: dict[str, Any], key: str, drawn: Array) -> Array:
        """The state that the options give, or the one that was drawn."""
        state = np.asarray(options.get(key, drawn))
        if state.shape != drawn.shape:
            raise BadInput(f"a {key} of {self.world.name} has the shape {drawn.shape}, not {state.shape}")
        return state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frame, dict[str, Any]]:
        """Start anew; options may hold `state` and `goal`, both full states."""
        super().reset(seed=seed)
        start, goal = self.world.pair(self.np_random)
        state, self.goal = (
            self._choice(options or {}, key, drawn) for key, drawn in (("state", start), ("goal", goal))
        )
        factors = self.appearance.sample(self.np_random)[None]
        self.task.reset_to(self.goal[None], factors)
        goal_image = self._frame()
        self.task.reset_to(state[None], factors)
        self.task.set_goal(self.goal[None])
        return self._frame(), {**self._info(), "goal_image": goal_image}

    def step(self, action: Array) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """One action; terminated when the goal is reached."""
        self.task.step(np.asarray(action)[None])
        info = self._info()
        reached = bool(next(iter(info["success"].values())))
        return self._frame(), float(reached), reached, False, info

    def render(self) -> Frame:  # type: ignore[override]
        """The current frame."""
        return self._frame()


for _world, _id in GYM_IDS.items():
    gymnasium.register(_id, entry_point=WorldEnv, max_episode_steps=100, kwargs={"world": _world})  # type: ignore[arg-type]
