"""Compact two-stream world models: learn from video, plan to image goals, see what was learned.

What is named here is the public interface, described in docs/python.md; all else may change. Nothing is
imported before it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lrc_jepa.config import PlanConfig, RunConfig
    from lrc_jepa.data.store import Store
    from lrc_jepa.envs import WORLDS, get_world
    from lrc_jepa.envs.collect import collect
    from lrc_jepa.errors import BadInput
    from lrc_jepa.library import open_dataset, recipe, train
    from lrc_jepa.plan.goals import LatentGoal, ReadoutGoal
    from lrc_jepa.plan.policy import Policy
    from lrc_jepa.recipes import recipe_names
    from lrc_jepa.run import Run, load

__version__ = "0.1.0"
__all__ = [
    "WORLDS",
    "BadInput",
    "LatentGoal",
    "PlanConfig",
    "Policy",
    "ReadoutGoal",
    "Run",
    "RunConfig",
    "Store",
    "collect",
    "get_world",
    "load",
    "open_dataset",
    "recipe",
    "recipe_names",
    "train",
]
_HOMES = {
    "config": ("PlanConfig", "RunConfig"),
    "data.store": ("Store",),
    "envs": ("WORLDS", "get_world"),
    "errors": ("BadInput",),
    "envs.collect": ("collect",),
    "library": ("open_dataset", "recipe", "train"),
    "plan.goals": ("LatentGoal", "ReadoutGoal"),
    "plan.policy": ("Policy",),
    "recipes": ("recipe_names",),
    "run": ("Run", "load"),
}
_home = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _home:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_home[name]}"), name)
    globals()[name] = value  # the next time nothing is asked
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
