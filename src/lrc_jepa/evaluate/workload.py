"""Planning as a load for clocks: random weights, histories and goals, and the matrix products that a search makes.

An untrained model's gates are closed, which is neither slower nor faster, but would hide a wrong answer: here they are open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from lrc_jepa.config import PlanConfig
from lrc_jepa.models import build_model
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.plan.planners import solve
from lrc_jepa.plan.problem import Box, Plan, Problem, episode_generators
from lrc_jepa.recipes import get_recipe


@torch.no_grad()
def open_model(size: str, seed: int = 0) -> Any:
    """A model of this size with random weights, all gates open, in evaluation mode."""
    model: nn.Module = build_model(get_recipe(f"tworoom-lrc-{size}")).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        fan = parameter.shape[-1] if parameter.ndim > 1 else 4
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * fan**-0.5)
    return model


class Workload:
    """Random histories and goals for a number of environments."""

    def __init__(self, size: str, environments: int = 1, history: int = 1, seed: int = 0) -> None:
        self.model = open_model(size)
        spec = self.model.spec
        generator = torch.Generator().manual_seed(seed)
        self.past = torch.randn(environments, history, spec.tokens, spec.width, generator=generator)
        self.blocks = torch.randn(environments, history - 1, spec.action_dim, generator=generator)
        self.goal = torch.randn(environments, spec.tokens, spec.width, generator=generator)
        bound = torch.full((spec.action_dim,), 2.0)
        self.box = Box(-bound, bound, spec.frameskip)
        self.environments = environments

    def cost(self, config: PlanConfig) -> LatentCost:
        """The cost as a solve makes it: history and goal prepared once."""
        return LatentCost(self.model, self.past, self.blocks, self.goal, config)

    def solve(self, config: PlanConfig) -> Plan:
        """One solve for all environments."""
        with torch.inference_mode():
            generators = episode_generators(0, list(range(self.environments)))
            return solve(Problem(self.cost(config), self.box, config, generators))

    def candidates(self, config: PlanConfig) -> Tensor:
        """One iteration's plans."""
        shape = (self.environments, config.samples, config.horizon, len(self.box.low))
        return self.box.clamp(torch.randn(shape, generator=torch.Generator().manual_seed(1)))


class Products(TorchDispatchMode):
    """Notes every matrix product: its rows, and the matrix they are multiplied with."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[int, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and look at it first."""
        if func.overloadpacket.__name__ in ("mm", "addmm"):
            left, right = args[-2:]
            self.products.append((len(left), right))
        return func(*args, **(kwargs or {}))


def bare_products(workload: Workload, config: PlanConfig, times: int) -> Callable[[], None]:
    """A function that makes the matrix products of so many iterations, in their order, and nothing else.

    The right sides are the model's own weights: reading them is part of a product's price.
    """
    cost, products = workload.cost(config), Products()
    with torch.no_grad(), products:  # in inference mode the products would hide behind `linear`
        cost(workload.candidates(config))
    shapes = {(rows, *right.shape) for rows, right in products.products}
    buffers = {(m, k, n): (torch.randn(m, k), torch.empty(m, n)) for m, k, n in shapes}

    @torch.inference_mode()
    def run() -> None:
        for _ in range(times):
            for rows, right in products.products:
                left, out = buffers[rows, right.shape[0], right.shape[1]]
                torch.mm(left, right, out=out)

    return run


def count_work(workload: Workload, config: PlanConfig) -> tuple[int, Tensor]:
    """Floating-point operations of one iteration's matrix products, and the costs it found."""
    cost, plans = workload.cost(config), workload.candidates(config)
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        costs = cost(plans)
    return counter.get_total_flops(), costs
