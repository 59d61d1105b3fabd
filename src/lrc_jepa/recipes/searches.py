"""The searches that recipes plan by, and the words for them."""

from __future__ import annotations

from dataclasses import replace

from lrc_jepa.config import PlanConfig

MICRO_PLAN = PlanConfig(planner="icem", samples=128, iterations=4, elites=10, std=1.25)
"""The planner of micro recipes: what it was chosen from, and by what figures, is in docs/planning.md."""
FEEDBACK_PLAN = replace(MICRO_PLAN, execute=1, deadline=True)
"""The same search made again after every block, for the moment at which the first plan ends, then for the next."""
THOROUGH_PLAN = replace(FEEDBACK_PLAN, samples=300, iterations=8, elites=20)
"""The same with four times the candidates, for models whose steps cost next to nothing."""
PROPOSED_PLAN = replace(FEEDBACK_PLAN, std=0.25)
"""A search near what the model proposes: farther away it finds what pleases the model and not the world."""
UNMEASURED = ("seed", "rollout", "memory_mb", "compile")
"""Fields of a search that are no part of a protocol."""
PROTOCOLS: dict[str, PlanConfig] = {
    "paper": PlanConfig(),
    "micro": MICRO_PLAN,
    "feedback": FEEDBACK_PLAN,
    "thorough": THOROUGH_PLAN,
    "proposed": PROPOSED_PLAN,
}


def by_protocol(name: str, config: PlanConfig, own: PlanConfig) -> PlanConfig:
    """A protocol's planner and budgets, with the seed and the means of `config`.

    What a plan costs belongs to the system: it is that of the system's `own` configuration.
    """
    kept = {field: getattr(config, field) for field in UNMEASURED}
    return replace(PROTOCOLS[name], cost=own.cost, **kept)


def protocol_of(config: PlanConfig, own: PlanConfig) -> str:
    """One word for how it is planned: a key of `PROTOCOLS`, or custom."""
    return next((name for name in PROTOCOLS if by_protocol(name, config, own) == config), "custom")
