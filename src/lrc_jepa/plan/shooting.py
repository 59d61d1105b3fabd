"""Random shooting: try many plans, take the best. The floor that a planner must beat."""

from __future__ import annotations

from lrc_jepa.plan.problem import Plan, Problem
from lrc_jepa.plan.search import Search


def shooting(problem: Problem) -> Plan:
    """The cheapest of `samples` x `iterations` plans (B,H,A) drawn around the start, in the box."""
    box, config, search = problem.box, problem.config, Search(problem)
    while search.again():
        plans = box.clamp(search.centre[:, None] + config.std * search.noise(config.samples))
        plans[:, 0] = search.best
        search.select(plans, search.score(plans))
    return search.answer()
