"""From a trained run to a robot that moves: a loop of fixed rate around a planner in a process of its own."""

from __future__ import annotations

from lrc_jepa.deploy.camera import Camera
from lrc_jepa.deploy.log import Log
from lrc_jepa.deploy.loop import Loop
from lrc_jepa.deploy.planner import PlannerProcess
from lrc_jepa.deploy.robot import Observation, Robot
from lrc_jepa.deploy.settings import Settings
from lrc_jepa.deploy.summary import Summary

__all__ = ["Camera", "Log", "Loop", "Observation", "PlannerProcess", "Robot", "Settings", "Summary"]
