"""Acting towards a goal: frames in, actions out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lrc_jepa.arrays import Actions, Array, Frames
from lrc_jepa.config import PlanConfig
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.limits import UNBOUNDED
from lrc_jepa.device import device_of
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.change import ChangeLimit
from lrc_jepa.plan.goals import Goal, image_goal
from lrc_jepa.plan.mpc import Controller, Solved
from lrc_jepa.plan.problem import Box, episode_generators
from lrc_jepa.protocols import WorldModel

Proposal = Callable[[Tensor, Goal], Tensor]
"""The newest states (B,N,D) and the goal -> normalised plans (B,H,A) to start the search from."""


def action_box(deployment: Deployment, device: torch.device) -> Box:
    """The checkpoint's action limits as limits of a normalised block."""
    bounds = (deployment.action_low, deployment.action_high)
    if deployment.bounds_from != UNBOUNDED and not deployment.bounded:
        raise BadInput(
            "the checkpoint has no action bounds, so that plans could send anything: train on a dataset "
            "that has some (lrc data import --bounds), or allow it with lrc plan --unbounded"
        )
    repeat, normalizer = deployment.spec.frameskip, deployment.normalizer

    def block(values: NDArray[np.float32]) -> Tensor:
        return torch.from_numpy(np.tile(values, repeat)).to(device)

    low, high = (block(normalizer.normalize(np.asarray(bound, np.float32))) for bound in bounds)
    change = None
    if deployment.action_change is not None:
        limit = torch.tensor(deployment.action_change, device=device)
        change = ChangeLimit(limit, block(normalizer.mean), block(normalizer.std))
    return Box(low, high, repeat, change)


class Agenda:
    """Actions decided on, to be carried out one by one; a model looks where a block begins."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.skip = deployment, deployment.spec.frameskip
        self._actions: Actions = np.zeros((0, 0, deployment.spec.raw_action_dim), np.float32)
        self._at = 0

    @property
    def looks(self) -> bool:
        """Whether a block begins here."""
        return self._at % self.skip == 0

    @property
    def empty(self) -> bool:
        """Whether all is carried out, so that it must be decided anew."""
        return self._at == self._actions.shape[1]

    @property
    def done(self) -> Actions:
        """The raw block (B,A) that was carried out last."""
        block = self._actions[:, self._at - self.skip : self._at]
        return block.reshape(len(block), -1)

    @property
    def rest(self) -> Actions:
        """What is still to be carried out (B,m,a)."""
        return self._actions[:, self._at :]

    def fill(self, blocks: Tensor) -> None:
        """Take normalised blocks (B,m,A) as raw actions within the bounds."""
        raw = self.deployment.normalizer.denormalize(blocks.cpu().numpy())
        raw = raw.reshape(len(raw), blocks.shape[1] * self.skip, -1)
        # A bound can be missed by a rounding on the way from normalised to raw.
        self._actions, self._at = self.deployment.clip(raw), 0

    def next(self) -> Actions:
        """The next action (B,a)."""
        self._at += 1
        return self._actions[:, self._at - 1]


class Policy:
    """A world model that acts, for one robot or for B of them in lock step.

    It is given a goal, then at every low-level step the camera's frame, and answers with an action in the
    robot's own units and bounds. A plan consists of blocks of `frameskip` actions: the model looks at the
    frame that each block begins with, and plans again when `execute` blocks are carried out. Frames may
    have any size; they are cut and scaled as the training data were. A model that was trained with
    proprioception is told with each frame what the robot knows of itself, in the robot's own units.
    """

    def __init__(
        self,
        model: WorldModel,
        deployment: Deployment,
        config: PlanConfig,
        *,
        episodes: Sequence[int] | None = None,
        propose: Proposal | None = None,
    ) -> None:
        """`episodes` number the generators of the search: the same seed and number find the same plan.

        Left out, they count up from 0 with every episode begun. `propose` gives plans to start from.
        """
        self.model, self.deployment, self.config = model, deployment, config
        self.device = device_of(model)
        self.box = action_box(deployment, self.device)
        self.solved: Solved | None = None
        """The newest plan, and what the model expects of it."""
        self.decided = 0
        """Plans made since `reset`."""
        self._propose, self._episodes, self._begun_before = propose, episodes, 0
        self._controller: Controller | None = None

    def number(self, *episodes: int) -> None:
        """Number the generators of the next `reset`, as `episodes` does for all."""
        self._episodes = episodes

    @property
    def proprio(self) -> str:
        """What the robot must tell of itself, by the name of its column in the data; empty: nothing."""
        return self.deployment.proprio

    def reset(
        self,
        goal: Frames | Goal,
        frames: Frames | None = None,
        actions: Actions | None = None,
        proprio: Array | None = None,
    ) -> None:
        """Begin anew, towards a goal image (h,w,3), goal images (B,h,w,3), or any goal of `plan.goals`.

        Where a past is known it is the `frames` (B,k,h,w,3), a block apart, before the first one that
        `act` will see, the raw `actions` (B,k*frameskip,a) since, and `proprio` (B,k,P) if it is taken.
        """
        if isinstance(goal, np.ndarray):
            goal = image_goal(self.model, self._see(goal[None] if goal.ndim == 3 else goal))
        numbers = range(self._begun_before, self._begun_before + goal.problems)
        self._begun_before += goal.problems
        generators = episode_generators(self.config.seed, list(self._episodes or numbers))
        self._controller = Controller(self.model, self.box, self.config, generators, goal)
        self._past = None if frames is None or actions is None else (frames, actions, proprio)
        self._agenda, self._begun, self._alone = Agenda(self.deployment), False, False
        self.solved, self.decided = None, 0

    @property
    def controller(self) -> Controller:
        """The receding horizon behind the policy: goal, newest state and cost, for those who look into it."""
        if self._controller is None:
            raise BadInput("a policy must be reset with a goal before it acts")
        return self._controller

    @property
    def looks(self) -> bool:
        """Whether the next `act` looks at its frame; within a block it does not, and None will do."""
        return self._controller is not None and self._agenda.looks

    def act(self, frame: Frames | None, proprio: Array | None = None) -> Actions:
        """The action (a,) for a camera's frame (h,w,3), or actions (B,a) for frames (B,h,w,3).

        `proprio` (P,) or (B,P) is what the robot knows of itself at that moment, where the model takes it.
        """
        controller = self.controller
        if self._agenda.looks:
            self.observe(frame, proprio)
        if self._agenda.empty:
            start = (
                self.box.clamp(self._propose(controller.state, controller.goal)) if self._propose else None
            )
            self.solved = controller.solve(start)
            self.decided += 1
            self._agenda.fill(self.solved.plan.actions[:, : self.config.execute])
        action = self._agenda.next()
        return action[0] if self._alone else action

    def observe(self, frame: Frames | None, proprio: Array | None = None) -> None:
        """Take in the frame that a block begins with; `act` does this by itself."""
        if frame is None:
            raise BadInput("a block begins here: the policy must see a frame")
        self.look(frame, self._agenda.done if self._begun else None, proprio)

    def look(self, frame: Frames, done: Actions | None, proprio: Array | None = None) -> None:
        """Take in a frame (h,w,3) or frames (B,h,w,3), after the raw block `done` was carried out.

        `done` (B,A) is what the robot was told since the frame before; without it a past is not known, or
        is the one that `reset` was given. Who carries plans out by himself looks and plans with
        `plan_after`; `act` does both.
        """
        controller = self.controller
        self._alone = frame.ndim == 3
        seen = self._see(frame[None] if self._alone else frame)
        if len(seen) != controller.goal.problems:
            raise BadInput(f"{len(seen)} frames do not fit {controller.goal.problems} goals")
        felt = self.deployment.feel(proprio, len(seen), self.device)
        if done is not None and self._begun:
            controller.observe(seen, self._normalised(done), felt)
        else:
            self._begin(controller, seen, felt)
        self._begun, self._past = True, None

    def plan_after(self, ahead: Actions) -> Actions:
        """The raw actions (B,m,a) to send once `ahead` (B,n,a), now on their way, are carried out.

        `ahead` is whole blocks, and may be none: where the robot is by then is imagined. The answer is the
        `execute` first blocks of a plan.
        """
        blocks = self._normalised(ahead.reshape(len(ahead), -1, self.deployment.spec.action_dim))
        self.solved = self.controller.solve_after(blocks)
        self.decided += 1
        agenda = Agenda(self.deployment)
        agenda.fill(self.solved.plan.actions[:, : self.config.execute])
        return agenda.rest

    def _begin(self, controller: Controller, seen: Tensor, felt: Tensor | None) -> None:
        """Start from the newest frames (B,3,s,s), proprioception (B,P), and the past that `reset` was given."""
        if self._past is None:
            none = torch.zeros(len(seen), 0, self.deployment.spec.action_dim, device=self.device)
            controller.begin(seen[:, None], none, None if felt is None else felt[:, None])
            return
        frames, actions, proprio = self._past
        spec, count = self.deployment.spec, frames.shape[1]
        if actions.shape != (len(seen), count * spec.frameskip, spec.raw_action_dim):
            raise BadInput(
                f"{count} past frames a block apart have {count * spec.frameskip} actions since the first of "
                f"them, each {spec.raw_action_dim} wide: not an array of {actions.shape}"
            )
        before = self._see(frames.reshape(-1, *frames.shape[2:])).unflatten(0, frames.shape[:2])
        blocks = self._normalised(actions.reshape(len(seen), count, spec.action_dim))
        if felt is not None:
            felt = torch.cat([self._felt_before(proprio, frames.shape[:2]), felt[:, None]], dim=1)
        controller.begin(torch.stack([*before.unbind(dim=1), seen], dim=1), blocks, felt)

    def _felt_before(self, proprio: Array | None, shape: tuple[int, ...]) -> Tensor:
        """What the robots knew of themselves at the past frames (B,k), (B,k,P)."""
        if proprio is not None and proprio.shape[:2] != shape:
            raise BadInput(f"proprioception of {proprio.shape[:2]} frames does not fit a past of {shape}")
        rows = None if proprio is None else proprio.reshape(-1, proprio.shape[-1])
        felt = self.deployment.feel(rows, shape[0] * shape[1], self.device)
        assert felt is not None  # it is asked for where it is taken
        return felt.unflatten(0, shape)

    def _normalised(self, actions: Actions) -> Tensor:
        return torch.from_numpy(self.deployment.normalizer.normalize(actions)).to(self.device)

    def _see(self, frames: Frames) -> Tensor:
        return self.deployment.see(frames, self.device)
