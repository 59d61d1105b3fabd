"""Random shooting: try many plans, take the best. The floor that a planner must beat."""

from __future__ import annotations

import torch
from torch import Tensor

from lrc_jepa.config import PlanConfig
from lrc_jepa.plan.search import Box, Cost, Plan, Search


def shooting(
    cost: Cost,
    box: Box,
    config: PlanConfig,
    generators: list[torch.Generator],
    start: Tensor | None = None,
) -> Plan:
    """The cheapest of `samples` x `iterations` plans (B,H,A) drawn around the start, in the box."""
    search = Search(cost, box, config, generators, start)
    while search.again():
        plans = box.clamp(search.centre[:, None] + config.std * search.noise(config.samples))
        plans[:, 0] = search.best
        search.select(plans, search.score(plans))
    return search.answer()
