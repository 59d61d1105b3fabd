"""The receding horizon: remember what was seen and done, plan, act, see, plan again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.plan.goals import Goal, check_frames
from lrc_jepa.plan.planners import next_horizon, shift, solve
from lrc_jepa.plan.problem import Box, Plan, Problem, Watch, join
from lrc_jepa.plan.proposals import proposed_plan
from lrc_jepa.plan.rollout import rollout
from lrc_jepa.plan.search import TooShort, now
from lrc_jepa.protocols import WorldModel, encode_states

TRIES = 5  # at a time budget, before it counts as too short: the first solves warm up, and machines stall


@dataclass(frozen=True)
class Solved:
    """A plan and what the model expects of it."""

    plan: Plan
    imagined: Tensor  # (B, H, N, D), the states along the plan
    imagined_cost: Tensor  # (B,), distance of the last one to the goal


class Controller:
    """Plans for B episodes in lock step. It sees frames and its own actions, never the true state."""

    def __init__(
        self,
        model: WorldModel,
        box: Box,
        config: PlanConfig,
        generators: list[torch.Generator],
        goal: Goal,
    ) -> None:
        """`goal` is any goal for B episodes."""
        self.model, self.box, self.config, self.generators = model, box, config, generators
        goal.check(model, len(generators))
        self.goal = goal
        self.watch: Watch | None = None
        """Told of every iteration of a search."""
        self._states: Tensor | None = None
        self._last: Plan | None = None
        self._timely = False  # a solve has met its time budget
        self._blocks: Tensor | None = None
        self._sent: Tensor | None = (
            None  # (B, 0 or 1, A): the newest block, which a model may not look back on
        )

    @torch.inference_mode()
    def begin(self, frames: Tensor, blocks: Tensor, proprio: Tensor | None = None) -> None:
        """Start from `frames` (B,k,3,h,w) and the normalised blocks (B,k-1,A) between them.

        `proprio` (B,k,P) is what the robots knew of themselves then, for a model that takes it; so in `observe`.
        """
        longest = self.model.spec.history
        if not 1 <= frames.shape[1] <= longest:
            raise BadInput(f"a start has 1 to {longest} frames, not {frames.shape[1]}")
        if blocks.shape[1] != frames.shape[1] - 1:
            raise BadInput(f"{frames.shape[1]} frames have {frames.shape[1] - 1} blocks between them")
        check_frames(self.model, frames[:, 0])
        self._states, self._blocks, self._sent = self._encode(frames, proprio), blocks, blocks[:, -1:]

    @torch.inference_mode()
    def observe(self, frame: Tensor, block: Tensor, proprio: Tensor | None = None) -> None:
        """After executing the normalised `block` (B,A), see `frame` (B,3,h,w), and be told `proprio` (B,P)."""
        if self._states is None or self._blocks is None:
            raise BadInput("a controller must begin with a frame before it observes")
        longest = self.model.spec.history
        newest = self._encode(frame[:, None], None if proprio is None else proprio[:, None])
        seen = torch.cat([self._states, newest], dim=1)
        done = torch.cat([self._blocks, block[:, None]], dim=1)
        self._states, self._blocks = seen[:, -longest:], done[:, max(0, done.shape[1] - longest + 1) :]
        self._sent = block[:, None]

    def _encode(self, frames: Tensor, proprio: Tensor | None) -> Tensor:
        """States (B,k,N,D); a model that takes proprioception is not left to guess it."""
        if (proprio is None) != (self.model.spec.proprio == 0):
            raise BadInput(
                f"the model takes {self.model.spec.proprio} numbers of proprioception with a frame"
            )
        return encode_states(self.model, frames, proprio)

    @property
    def state(self) -> Tensor:
        """The newest latent state (B,N,D)."""
        if self._states is None:
            raise BadInput("a controller must begin with a frame before it has a state")
        return self._states[:, -1]

    def cost(self, rows: slice | list[int] = slice(None)) -> LatentCost:
        """The cost of plans from the present towards the goal, for all episodes or some of them."""
        if self._states is None or self._blocks is None:
            raise BadInput("a controller must begin with a frame before it plans")
        return LatentCost(
            self.model, self._states[rows], self._blocks[rows], self.goal.part(rows), self.config
        )

    @torch.inference_mode()
    def distance(self) -> Tensor:
        """How far the newest state is from the goal (B,), by the goal's own measure."""
        return self.goal.distance(self.model, self.state[:, None], slice(None))[:, 0]

    @torch.inference_mode()
    def solve_after(self, blocks: Tensor, start: Tensor | None = None) -> Solved:
        """Plan for the time when the normalised `blocks` (B,n,A), now on their way, are carried out.

        The states after each of them are imagined from what was seen. Together with the newest states that
        were seen they are the history of the search, and are forgotten after it: what is seen goes before.
        """
        if self._states is None or self._blocks is None:
            raise BadInput("a controller must begin with a frame before it plans")
        seen, longest = (self._states, self._blocks, self._sent), self.model.spec.history
        if blocks.shape[1]:
            imagined = rollout(self.model, self._states, self._blocks, blocks, self.config.rollout)
            self._states = torch.cat([self._states, imagined], dim=1)[:, -longest:]
            done = torch.cat([self._blocks, blocks], dim=1)
            self._blocks = done[:, done.shape[1] - self._states.shape[1] + 1 :]
            self._sent = blocks[:, -1:]
        try:
            return self.solve(start)
        finally:
            self._states, self._blocks, self._sent = seen

    @torch.inference_mode()
    def solve(self, start: Tensor | None = None) -> Solved:
        """Plan from the present towards the goal; the search starts at `start` (B,H,A) where given.

        Else at what the model proposes, if it does, and with a warm start at what is left of the last plan too.

        With a time budget every episode is planned alone: the time is that of one robot.
        """
        horizon = next_horizon(self.config, self._last)
        proposals = self.config.proposals and start is None
        if start is None and self.config.warm_start and self._last is not None:
            start = shift(self._last, self.config.execute)
        config = replace(self.config, horizon=horizon, proposals=proposals)
        start = None if start is None else start[..., :horizon, :]
        alone = [slice(b, b + 1) for b in range(self.goal.problems)]
        groups = alone if self.config.time_budget_ms else [slice(None)]
        solutions = [self._search(rows, None if start is None else start[rows], config) for rows in groups]
        self._last = plan = join([plan for plan, _ in solutions]) if len(solutions) > 1 else solutions[0][0]
        imagined = torch.cat([states for _, states in solutions])  # (B, H, N, D)
        cost = self.goal.distance(self.model, imagined[:, -1:], slice(None))[:, 0]
        return Solved(plan, imagined, cost)

    def _proposed_first(self, rows: slice, box: Box, start: Tensor | None, horizon: int) -> Tensor | None:
        """Plans (b,1+E,H,A): what the model proposes, then those of `start` (b,E,H,A)."""
        assert self._states is not None and self._blocks is not None
        goal = self.goal.part(rows)
        plan = proposed_plan(self.model, self._states[rows], self._blocks[rows], goal, box, horizon)
        if plan is None:
            return start
        return plan[:, None] if start is None else torch.cat([plan[:, None], start], dim=1)

    def _search(self, rows: slice, start: Tensor | None, config: PlanConfig) -> tuple[Plan, Tensor]:
        """A plan for some episodes and the states (b,H,N,D) along it.

        A time budget that was met once can be met: if the machine stalls later, one iteration must do.
        """
        late = TooShort(0, 0)
        for _ in range(1 if self._timely else TRIES):
            try:
                solution = self._once(rows, start, config)
            except TooShort as error:
                late = error
            else:
                self._timely = True
                return solution
        if not self._timely:
            raise late
        plan, imagined = self._once(rows, start, replace(config, iterations=1, time_budget_ms=0.0))
        return replace(plan, complete=False), imagined

    def _once(self, rows: slice, start: Tensor | None, config: PlanConfig) -> tuple[Plan, Tensor]:
        """One search. Preparing its cost is part of the time it has."""
        budget, device = config.time_budget_ms, self.box.low.device
        begun, prepared = now(device), 0.0
        cost = self.cost(rows)
        box = self.box if self._sent is None else self.box.after(self._sent[rows])
        if config.proposals:
            start = self._proposed_first(rows, box, start, config.horizon)
        if budget:
            prepared = 1000 * (now(device) - begun)
            config = replace(config, time_budget_ms=max(budget - prepared, 1e-3))
        try:
            plan = solve(Problem(cost, box, config, self.generators[rows], start, self.watch))
        except TooShort as error:
            raise TooShort(budget, prepared + error.needed_ms) from None
        return plan, cost.imagine(plan.actions[:, None])[:, 0]
