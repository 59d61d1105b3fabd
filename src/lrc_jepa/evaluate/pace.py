"""What an experiment will cost, so that a bar over many of them can tell the time left."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lrc_jepa.config import PlanConfig
from lrc_jepa.device import device_of
from lrc_jepa.evaluate.components import Components, Projected
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.run import Run

PLANS, FRAMES = 128, 32  # in one measurement
RIDGE_S, MLP_S = 4e-6, 5e-4  # a fit per frame; scikit-learn on one core, all networks alike
REFIT_S = 8e-3  # one refit of the logistic trend


@dataclass(frozen=True)
class Pace:
    """Seconds that this model takes here."""

    plan: float
    """To imagine one plan and score it."""
    projected: float
    """The same without the cached rollout, as stress tests of the latent need it."""
    frame: float
    """To encode one frame."""

    def solves(self, config: PlanConfig, frameskip: int, pairs: int, *, projected: bool = False) -> float:
        """To plan whole episodes."""
        solves = -(-config.budget // (config.execute * frameskip))
        each = config.samples * config.iterations * (self.projected if projected else self.plan)
        return pairs * (solves * each + 2 * solves * config.execute * self.frame)


def _fastest(work: Callable[[], Any], rounds: int = 2) -> float:
    work()
    spent = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return min(spent)


@torch.inference_mode()
def measure_pace(opened: Run) -> Pace:
    """Time a few plans and frames."""
    model, spec = opened.model, opened.checkpoint.deployment.spec
    device = device_of(model)
    config = PlanConfig()
    past = torch.zeros(1, 1, spec.tokens, spec.width, device=device)
    plans = torch.randn(1, PLANS, config.horizon, spec.action_dim, device=device)
    none = plans.new_zeros(1, 0, spec.action_dim)
    frames = torch.zeros(FRAMES, 1, 3, spec.image_size, spec.image_size, dtype=torch.uint8, device=device)
    width = spec.tokens * spec.seen
    some = Components.of(np.random.default_rng(0).normal(size=(8, width)).astype(np.float32))
    narrow = Projected(model, some, 1)
    costs = [LatentCost(m, past, none, past[:, 0], config) for m in (model, narrow)]
    cached, plain = (_fastest(lambda c=c: c(plans)) / PLANS for c in costs)  # type: ignore[misc]
    return Pace(cached, plain, _fastest(lambda: model.encode(frames)) / FRAMES)
