"""One client's policy: goal and history are his own, the model is everybody's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lrc_jepa.arrays import Actions, Array, Frames
from lrc_jepa.config import PlanConfig
from lrc_jepa.data.deployment import last_part
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.policy import Policy
from lrc_jepa.run import Run

LARGEST_SIDE = 4096  # of a picture


class Session:
    """Answers observations.

    image   (h,w,3) uint8; or a picture under the name of each camera, or the last part of it: several are joined
    goal    (h,w,3) uint8, or a table with one for each camera: where to end; kept until another is sent
    proprio (P,), what the robot knows of itself, of a model that takes it (`proprio` in the metadata names it)
    done    (block,a): what was carried out since the last image, a block ago; left out: the past is not known
    ahead   (n,a), whole blocks, at most as many as a plan has: what will be carried out before the plan begins;
            left out: nothing
    plan    false: only look
    reset   true: forget the past

    The answer has `distance`, how far the image is from the goal by the model's own measure, and unless it was only a
    look, `actions` (m,a) in the robot's units and `cost`, how far from the goal they are imagined to end.
    """

    def __init__(self, run: Run, plan: PlanConfig | None = None) -> None:
        self.policy: Policy = run.policy(plan)
        self._metadata = metadata(run, plan)
        self._aimed = False

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the checkpoint says of the robot."""
        return self._metadata

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Look, and plan unless told not to; bad observations are refused and change nothing."""
        spec = self.policy.deployment.spec
        frame = self._frame(observation)
        done = _actions(observation, "done", spec.raw_action_dim, spec.frameskip)
        ahead = _actions(observation, "ahead", spec.raw_action_dim, spec.frameskip)
        if done is not None and len(done) != spec.frameskip:
            raise BadInput(f"done is one block of {spec.frameskip} actions, not {len(done)}")
        longest = self.policy.config.horizon
        if ahead is not None and len(ahead) > longest * spec.frameskip:
            raise BadInput(
                f"ahead is at most {longest} blocks of {spec.frameskip} actions, not {len(ahead)} actions"
            )
        proprio = self._proprio(observation)
        goal = self._goal(observation)
        if goal is not None:
            self.policy.reset(goal)
            self._aimed = True
        if not self._aimed:
            raise BadInput("the first observation needs a goal, a picture of where to end")
        forget = goal is not None or done is None or bool(observation.get("reset"))
        self.policy.look(frame, None if forget or done is None else done.reshape(1, -1), proprio)
        answer: dict[str, Any] = {"distance": float(self.policy.controller.distance()[0])}
        if observation.get("plan", True):
            none = np.zeros((0, spec.raw_action_dim), np.float32)
            actions = self.policy.plan_after((none if ahead is None else ahead)[None])[0]
            cost = float(self.policy.solved.imagined_cost[0]) if self.policy.solved else None
            answer |= {"actions": actions, "cost": cost}
        return answer

    def _frame(self, observation: Mapping[str, Any]) -> Frames:
        """The picture of an observation: its image, or those of the cameras joined."""
        if "image" in observation:
            return _picture(observation, "image")
        cameras = self.policy.deployment.cameras
        known = {*cameras, *map(last_part, cameras)} & set(observation)
        if not known:
            raise BadInput(f"an observation needs a picture under {' or '.join(['image', *cameras])}")
        return self.policy.deployment.join({name: _picture(observation, name) for name in known})

    def _proprio(self, observation: Mapping[str, Any]) -> Array | None:
        """What the robot knows of itself, checked before anything is changed; of no use to a model of frames alone."""
        deployment = self.policy.deployment
        if not deployment.proprio:
            return None
        values = observation.get("proprio")
        if values is not None and (not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf"):
            raise BadInput(f"proprio must be an array of {deployment.spec.proprio} numbers")
        deployment.feel(values, 1, self.policy.device)
        return values

    def _goal(self, observation: Mapping[str, Any]) -> Frames | None:
        goal = observation.get("goal")
        if isinstance(goal, dict):
            return self._frame(goal)
        return None if goal is None else _picture(observation, "goal")


def metadata(run: Run, plan: PlanConfig | None = None) -> dict[str, Any]:
    """What a client is told when it connects, as plain values."""
    checkpoint = run.checkpoint
    return {
        **checkpoint.deployment.describe(),
        "execute": (plan or run.config.plan).execute,
        "system": run.config.system,
        "world": str(checkpoint.provenance.get("world", "")),
        "checkpoint": checkpoint.digest[:16],
    }


def _picture(observation: Mapping[str, Any], key: str) -> Frames:
    frame = observation[key]
    good = (
        isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3
    )
    if not good or not min(frame.shape) > 0 or max(frame.shape) > LARGEST_SIDE:
        given = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
        raise BadInput(f"{key[:80]} must be a picture, uint8 (h, w, 3), not {given}")
    return frame


def _actions(observation: Mapping[str, Any], key: str, width: int, block: int) -> Actions | None:
    values = observation.get(key)
    if values is None:
        return None
    if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or values.ndim != 2:
        raise BadInput(f"{key} must be an array of numbers (n, {width})")
    with np.errstate(over="ignore"):
        numbers = np.asarray(values, np.float32)  # in which what was finite may not be
    if values.shape[1] != width or len(values) % block or not np.isfinite(numbers).all():
        raise BadInput(
            f"{key} must be whole blocks of {block} finite actions (n, {width}), not {values.shape}"
        )
    return numbers
