"""OGBench's cube: the task, its drawing and its scripted policies."""

from lrc_jepa.envs.cube.world import WORLD

__all__ = ["WORLD"]
