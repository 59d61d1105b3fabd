"""Push-T: the task, its drawing and its scripted policies."""

from lrc_jepa.envs.pusht.world import WORLD

__all__ = ["WORLD"]
