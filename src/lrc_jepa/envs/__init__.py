"""The simulated worlds: one file and one line here for each."""

from __future__ import annotations

from importlib import import_module

from lrc_jepa.data.store import Store
from lrc_jepa.envs.base import World
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import here, lacking, unbuilt
from lrc_jepa.plugins import Table

WORLDS: Table[str | World] = Table(
    "worlds",
    {
        "tworoom": "lrc_jepa.envs.tworoom",
        "pusht": "lrc_jepa.envs.pusht",
        "reacher": "lrc_jepa.envs.reacher",
        "cube": "lrc_jepa.envs.cube",
    },
)

SIMULATORS = {"reacher": "dm_control", "cube": "ogbench"}
"""Packages without a build for every Python, by the world that needs them."""


def get_world(name: str) -> World:
    """The world with this name; its simulator is imported only now."""
    if name not in WORLDS:
        raise BadInput(f"there is no simulated world {name!r}; there is {', '.join(sorted(WORLDS))}")
    try:
        entry = WORLDS[name]
        world: World = import_module(entry).WORLD if isinstance(entry, str) else entry
    except ModuleNotFoundError as error:
        raise lacking(_first(name, error), f"the world {name}") or BadInput(
            f"the world {name} cannot be loaded ({error})"
        ) from None
    return world


def _first(name: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """What to tell of first: a simulator without a build for this Python, for then nothing else would help."""
    simulator = SIMULATORS.get(name)
    if simulator is None or here(simulator) or not unbuilt(simulator):
        return error
    return ModuleNotFoundError(name=simulator)


def check_own(store: Store, column: str) -> None:
    """Refuse a column of a simulated world that is not the robot's own: it could not be told when it acts."""
    if not simulated(store):
        return
    try:
        world = get_world(store.world)
    except BadInput:  # its simulator is not installed, and training needs none
        return
    world.check_own(column)


def simulated(store: Store) -> bool:
    """Whether the states of a dataset can be put back into a world there is."""
    return store.world in WORLDS and "state" in store.columns
