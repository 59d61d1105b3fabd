"""The simulated worlds: one file and one line here for each."""

from __future__ import annotations

from importlib import import_module

from lrc_jepa.envs.base import World
from lrc_jepa.errors import BadInput

WORLDS = {
    "tworoom": "lrc_jepa.envs.tworoom",
}


def get_world(name: str) -> World:
    """The world with this name; its simulator is imported only now."""
    if name not in WORLDS:
        raise BadInput(f"there is no simulated world {name!r}; there is {', '.join(sorted(WORLDS))}")
    world: World = import_module(WORLDS[name]).WORLD
    return world
