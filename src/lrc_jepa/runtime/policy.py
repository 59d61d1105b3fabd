"""Acting towards a goal image with an exported model: the interface and the behaviour of `plan.policy.Policy`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lrc_jepa.arrays import Actions, Array, Frames
from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.runtime.box import Plans
from lrc_jepa.runtime.exported import Exported, Latents
from lrc_jepa.runtime.search import Solution, icem
from lrc_jepa.senses import felt


@dataclass(frozen=True)
class Episode:
    """What was seen and done since a goal was given."""

    goal: Latents  # (B, D-P), what a picture tells
    past: Latents  # (B, k, D), at most K states, the newest last
    blocks: Plans  # (B, k-1, A), normalised
    sent: Plans | None = None  # (B, A), the newest block, which a model may not look back on

    def seen(self, state: Latents, block: Plans, longest: int) -> Episode:
        """After the normalised `block` (B,A) the state is (B,D)."""
        past = np.concatenate([self.past, state[:, None]], axis=1)[:, -longest:]
        blocks = np.concatenate([self.blocks, block[:, None]], axis=1)
        return replace(self, past=past, blocks=blocks[:, max(0, blocks.shape[1] - longest + 1) :], sent=block)


class Policy:
    """An exported model that acts, for one robot or for B of them in lock step.

    It is given a goal, then at every low-level step the camera's frame, and answers with an action in the
    robot's own units and bounds. It looks where a block of `frameskip` actions begins, and plans again when
    `execute` blocks are carried out. With each frame it is told what the robot knows of itself, if it takes that.
    """

    def __init__(
        self, model: Exported, config: PlanConfig | None = None, *, episodes: Sequence[int] | None = None
    ) -> None:
        """`config` is the exported one where left out; the search is always iCEM.

        `episodes` number the generators: the same seed and number find the same plan. Left out, they count
        up from 0 with every episode begun.
        """
        self.model, self.box, self.config = model, model.box, config or model.metadata.plan
        self.solution: Solution | None = None
        """The newest plan."""
        self.decided = 0
        """Plans made since `reset`."""
        self._episodes, self._begun_before = episodes, 0
        self._goal: Latents | None = None
        self._episode: Episode | None = None
        self._actions: Actions = np.zeros((0, 0, 0), np.float32)
        self._at, self._alone = 0, False

    @property
    def proprio(self) -> str:
        """What the robot must tell of itself, by the name of its column in the data; empty: nothing."""
        return self.model.metadata.proprio

    def reset(
        self,
        goal: Frames,
        frames: Frames | None = None,
        actions: Actions | None = None,
        proprio: Array | None = None,
    ) -> None:
        """Begin anew, towards a goal image (h,w,3) or goal images (B,h,w,3).

        Where a past is known it is the `frames` (B,k,h,w,3), a block apart, before the first one that
        `act` will see, the raw `actions` (B,k*frameskip,a) since, and `proprio` (B,k,P) if it is taken.
        """
        self._goal = self.model.encode(goal[None] if goal.ndim == 3 else goal)
        count = len(self._goal)
        numbers = self._episodes or range(self._begun_before, self._begun_before + count)
        self._begun_before += count
        self._generators = [np.random.default_rng([self.config.seed, number]) for number in numbers]
        self._known = (frames, actions, proprio) if frames is not None and actions is not None else None
        if frames is not None and not frames.shape[1]:
            self._known = None
        self._episode = self.solution = None
        self._actions = np.zeros((count, 0, self.model.shape.action_dim // self.box.steps), np.float32)
        self._at = self.decided = 0

    @property
    def looks(self) -> bool:
        """Whether the next `act` looks at its frame; within a block it does not, and None will do."""
        return self._goal is not None and self._at % self.box.steps == 0

    def act(self, frame: Frames | None, proprio: Array | None = None) -> Actions:
        """The action (a,) for a camera's frame (h,w,3), or actions (B,a) for frames (B,h,w,3).

        `proprio` (P,) or (B,P) is what the robot knows of itself at that moment, where the model takes it.
        """
        if self._goal is None:
            raise BadInput("a policy must be reset with a goal before it acts")
        if self.looks:
            self._episode = self._look(frame, proprio, self._goal)
        if self._at == self._actions.shape[1]:
            assert self._episode is not None  # plans end where blocks do
            self.solution = self._solve(self._episode)
            self._actions, self._at = self.box.raw(self.solution.actions[:, : self.config.execute]), 0
            self.decided += 1
        self._at += 1
        action = self._actions[:, self._at - 1]
        return action[0] if self._alone else action

    def _states(self, frames: Frames, proprio: Array | None) -> Latents:
        """Whole states (n,D) at frames (n,h,w,3), told (n,P) what the robots know of themselves."""
        metadata = self.model.metadata
        return self.model.encode(frames, felt(proprio, metadata.proprio, metadata.proprio_width, len(frames)))

    def _look(self, frame: Frames | None, proprio: Array | None, goal: Latents) -> Episode:
        """Take in the frame that a block begins with."""
        if frame is None:
            raise BadInput("a block begins here: the policy must see a frame")
        self._alone = frame.ndim == 3
        state = self._states(frame[None] if self._alone else frame, proprio)
        if len(state) != len(goal):
            raise BadInput(f"{len(state)} frames do not fit {len(goal)} goals")
        if self._episode is None:
            return self._begin(goal, state)
        done = self._actions[:, self._at - self.box.steps : self._at].reshape(len(state), -1)
        return self._episode.seen(state, self.box.normalize(done), self.model.shape.history)

    def _begin(self, goal: Latents, state: Latents) -> Episode:
        """Start from the newest states (B,D) and the past that `reset` was given."""
        shape = self.model.shape
        if self._known is None:
            return Episode(goal, state[:, None], np.zeros((len(state), 0, shape.action_dim), np.float32))
        frames, actions, proprio = self._known
        count, width = frames.shape[1], shape.action_dim // shape.frameskip
        if count >= shape.history:
            raise BadInput(
                f"a start of {count + 1} frames does not fit a model that sees 1 to {shape.history}"
            )
        if actions.shape != (len(state), count * shape.frameskip, width):
            raise BadInput(
                f"{count} past frames a block apart have {count * shape.frameskip} actions since the first of "
                f"them, each {width} wide: not an array of {actions.shape}"
            )
        blocks = self.box.normalize(actions.reshape(len(state), count, shape.action_dim))
        told = None if proprio is None else proprio.reshape(-1, proprio.shape[-1])
        before = self._states(frames.reshape(-1, *frames.shape[2:]), told)
        past = np.concatenate([before.reshape(len(state), count, -1), state[:, None]], axis=1)
        return Episode(goal, past, blocks, blocks[:, -1])

    def _solve(self, episode: Episode) -> Solution:
        """Plan from the present towards the goal."""
        config, horizon = self.config, self._next_horizon()
        shape = (horizon, self.model.shape.action_dim)

        def noise(count: int) -> Plans:
            drawn = [g.standard_normal((count, *shape), np.float32) for g in self._generators]
            return np.stack(drawn)

        def cost(plans: Plans) -> Array:
            states = self.model.imagine(episode.past, episode.blocks, plans)[..., : self.model.seen]
            away = np.square(states - episode.goal[:, None, None]).sum(axis=3)  # (B, S, H)
            effort = config.action_penalty * np.square(plans).sum(axis=(2, 3))
            far: Array = (away.sum(axis=2) if config.cost == "sum" else away[:, :, -1]) + effort
            return far

        return icem(cost, self.box, config, noise, self._starts(episode, horizon), episode.sent)

    def _starts(self, episode: Episode, horizon: int) -> Plans:
        """Plans (B,E,H,A) to search around and to try: what is proposed, and what is left of the last plan."""
        config, starts = self.config, list[Plans]()
        if config.proposals and self.model.proposes:
            starts.append(self._proposed(episode, horizon)[:, None])
        if config.warm_start and self.solution is not None:
            left = self.solution.shifted(config.execute)
            starts += [] if left is None else [left[:, :, :horizon]]
        if not starts:
            width = self.model.shape.action_dim
            return np.zeros((len(episode.goal), 1, horizon, width), np.float32)
        return np.concatenate(starts, axis=1)

    def _proposed(self, episode: Episode, horizon: int) -> Plans:
        """A plan (B,H,A) in the box, each block proposed in the state that is imagined by then."""
        model, state = self.model, episode.past[:, -1]
        plan: Plans = np.zeros((len(state), 0, model.shape.action_dim), np.float32)
        for left in range(horizon, 0, -1):
            block = model.propose(state, episode.goal, left)
            plan = self.box.clamp(np.concatenate([plan, block[:, None]], axis=1), episode.sent)
            if left > 1:
                state = model.imagine(episode.past, episode.blocks, plan[:, None])[:, 0, -1]
        return plan

    def _next_horizon(self) -> int:
        """Blocks of the next plan: with a deadline those that are left of the last, or as few as are carried out."""
        if self.solution is None or not self.config.deadline:
            return self.config.horizon
        return max(self.solution.actions.shape[1] - self.config.execute, self.config.execute)
