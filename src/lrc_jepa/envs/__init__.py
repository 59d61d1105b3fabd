"""The simulated worlds: one file and one line here for each."""

from __future__ import annotations

from importlib import import_module

import gymnasium

from lrc_jepa.data.store import Store
from lrc_jepa.envs.base import World
from lrc_jepa.errors import BadInput

WORLDS = {
    "tworoom": "lrc_jepa.envs.tworoom",
    "pusht": "lrc_jepa.envs.pusht",
    "reacher": "lrc_jepa.envs.reacher",
    "cube": "lrc_jepa.envs.cube",
}
GYM_IDS = {
    "tworoom": "lrc/TwoRoom-v0",
    "pusht": "lrc/PushT-v0",
    "reacher": "lrc/Reacher-v0",
    "cube": "lrc/Cube-v0",
}


def get_world(name: str) -> World:
    """The world with this name; its simulator is imported only now."""
    if name not in WORLDS:
        raise BadInput(f"there is no simulated world {name!r}; there is {', '.join(sorted(WORLDS))}")
    try:
        world: World = import_module(WORLDS[name]).WORLD
    except ModuleNotFoundError as error:
        raise BadInput(f"the world {name} needs {error.name}: pip install 'lrc-jepa[envs]'") from None
    return world


def simulated(store: Store) -> bool:
    """Whether the states of a dataset can be put back into a world there is."""
    return store.world in WORLDS and "state" in store.columns


for _name in WORLDS:
    gymnasium.register(
        GYM_IDS[_name],
        entry_point="lrc_jepa.envs.gym:WorldEnv",
        max_episode_steps=100,
        kwargs={"world": _name},
    )
