"""A policy that is watched: how long its decisions take, what it imagined, and where its plans come from."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from lrc_jepa.arrays import Actions, Array, Frames
from lrc_jepa.evaluate.actor import Deciding
from lrc_jepa.pixels import channels_first, pictures
from lrc_jepa.plan.explanation import Explanation, explain, part_of
from lrc_jepa.plan.mpc import Solved
from lrc_jepa.plan.policy import Policy
from lrc_jepa.protocols import Factored
from lrc_jepa.types import Factors

POINTS = 17  # along each direction of an explained plan


class Timed:
    """Anything that decides, with the seconds that each decision took, its encodings included."""

    def __init__(self, policy: Deciding) -> None:
        self.policy = policy
        self.seconds: list[float] = []
        self._spent = 0.0

    @property
    def looks(self) -> bool:
        """Whether the next `act` looks at its frames."""
        return self.policy.looks

    @property
    def proprio(self) -> str:
        """What it must be told of the robot."""
        return self.policy.proprio

    def reset(
        self,
        goal: Frames,
        frames: Frames | None = None,
        actions: Actions | None = None,
        proprio: Array | None = None,
    ) -> None:
        """Begin anew; encoding the goal is part of the first decision."""
        began = time.perf_counter()
        self.policy.reset(goal, frames, actions, proprio)
        self._spent = time.perf_counter() - began
        self.seconds = []

    def act(self, frames: Frames | None, proprio: Array | None = None) -> Actions:
        """The next actions (B,a), and a look at the clock."""
        before, began = self.policy.decided, time.perf_counter()
        actions = self.policy.act(frames, proprio)
        self._spent += time.perf_counter() - began
        if self.policy.decided > before:
            self.seconds.append(self._spent)
            self._spent = 0.0
            self._note(frames)
        return actions

    def _note(self, frames: Frames | None) -> None:
        """A decision was just made, looking at these frames (B,h,w,3)."""


class Watched(Timed):
    """A planning policy, with what each of its solves found and imagined."""

    policy: Policy

    def __init__(self, policy: Policy, explained: list[int] | None = None) -> None:
        """The first solve of the `explained` rows is explained."""
        super().__init__(policy)
        self.explained = explained or []

    def reset(
        self,
        goal: Frames,
        frames: Frames | None = None,
        actions: Actions | None = None,
        proprio: Array | None = None,
    ) -> None:
        """Begin anew; what was noted before is forgotten."""
        super().reset(goal, frames, actions, proprio)
        self.explanation: Explanation | None = None
        self.solved: list[Solved] = []
        self.contexts: list[Tensor | None] = []
        self.reached: list[Tensor] = []  # the state each further solve started from, (B, N, D)
        self.acted: list[Actions] = []  # every action (B, a)
        self.distances: list[Array] = []  # from the goal where each solve began, (B,)
        self.expected: list[Array] = []  # and after each block of its plan, (B, H)

    def act(self, frames: Frames | None, proprio: Array | None = None) -> Actions:
        """The next actions (B,a), which are noted too."""
        actions = super().act(frames, proprio)
        self.acted.append(actions)
        return actions

    def _note(self, frames: Frames | None) -> None:
        policy, solved = self.policy, self.policy.solved
        assert solved is not None and frames is not None  # a decision has both
        if self.solved:
            self.reached.append(policy.controller.state)
        elif self.explained:
            cost = policy.controller.cost(self.explained)
            self.explanation = explain(cost, policy.box, part_of(solved.plan, self.explained), points=POINTS)
        self.solved.append(solved)
        goal, states = policy.controller.goal, solved.imagined
        with torch.inference_mode():
            self.distances.append(policy.controller.distance().cpu().numpy())
            self.expected.append(goal.distance(policy.model, states, slice(None)).cpu().numpy())
        self.contexts.append(self._context(frames))

    @torch.inference_mode()
    def _context(self, frames: Frames) -> Tensor | None:
        """u of the newest frames, to show imagined states; it takes no part in planning."""
        model = self.policy.model
        if not isinstance(model, Factored):
            return None
        return model.factor(channels_first(frames)[:, None].to(self.policy.device)).u

    @torch.inference_mode()
    def imagined_frames(self, pair: int) -> list[Frames] | None:
        """The film (H, h, w, 3) uint8 that each solve imagined for one pair; H is that of its plan."""
        model, films = self.policy.model, []
        if not isinstance(model, Factored):
            return None
        for solved, u in zip(self.solved, self.contexts, strict=True):
            assert u is not None  # the model is factored
            z = solved.imagined[pair : pair + 1]  # (1, H, N, D)
            shared = u[pair : pair + 1].expand(-1, z.shape[1], -1, -1)
            films.append(pictures(model.decode(Factors(z=z, u=shared))[0]))
        return films

    @torch.inference_mode()
    def imagination(self) -> dict[str, Array]:
        """After the first solve was executed: how far the model's expectation was from what it then saw."""
        if not self.reached:
            return {}
        policy, seen = self.policy, self.reached[0]
        executed = self.solved[0].imagined[:, policy.config.execute - 1]
        goal, model = policy.controller.goal, policy.model
        costs = [goal.distance(model, states[:, None], slice(None))[:, 0] for states in (executed, seen)]
        figures = [*costs, model.distance(executed, seen)]
        names = ("imagined_cost", "reached_cost", "imagination_gap")
        return {name: value.cpu().numpy() for name, value in zip(names, figures, strict=True)}
