"""The process that plans: it loads a run, looks at frames and answers with actions until nobody asks any more."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lrc_jepa.config import PlanConfig
from lrc_jepa.config_tree import from_dict
from lrc_jepa.deploy import child
from lrc_jepa.deploy.link import Closed, Link, Message
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.goals import Goal, LatentGoal, ReadoutGoal
from lrc_jepa.plan.planners import check_planning
from lrc_jepa.plan.policy import Policy
from lrc_jepa.run import load


class Thinker:
    """One robot's planner, a message at a time."""

    def __init__(self) -> None:
        self.policy: Policy | None = None
        self.known: dict[str, Callable[[Message], Message | None]] = {
            "open": self._open,
            "begin": self._begin,
            "see": self._see,
            "plan": self._plan,
        }

    def answer(self, message: Message) -> Message | None:
        """Do what is asked; what cannot be done is answered with one sentence."""
        try:
            answer = self.known[str(message["do"])](message)
        except BadInput as error:
            return {"refused": str(error)}
        return None if answer is None else {"number": message["number"], **answer}

    def _open(self, message: Message) -> Message:
        if message["threads"]:
            torch.set_num_threads(int(message["threads"]))
        options = {name: message[name] for name in ("device", "unbounded", "adapter")}
        run = load(message["run"], **options)
        plan = from_dict(PlanConfig, message["plan"], "plan") if message["plan"] else run.config.plan
        self.policy = run.policy(plan)
        check_planning(plan, self.policy.deployment.spec.history, self.policy.box)
        execute = {"execute": plan.execute, "bounded": self.policy.deployment.bounded}
        return {"facts": {**self.policy.deployment.describe(), **execute}}

    def _ready(self) -> Policy:
        if self.policy is None:
            raise BadInput("no run is open")
        return self.policy

    def _begin(self, message: Message) -> None:
        policy, goal = self._ready(), message["goal"]
        policy.number(int(message["episode"]))
        policy.reset(goal["image"] if "image" in goal else _goal(goal, policy.device))

    def _see(self, message: Message) -> Message:
        policy, done = self._ready(), message["done"]
        policy.look(message["frame"], None if done is None else done.reshape(1, -1), message.get("proprio"))
        return {"distance": float(policy.controller.distance()[0])}

    def _plan(self, message: Message) -> Message:
        began, policy = time.perf_counter(), self._ready()
        actions = policy.plan_after(message["ahead"][None])[0]
        cost = float(policy.solved.imagined_cost[0]) if policy.solved else float("nan")
        return {"actions": actions, "cost": cost, "seconds": time.perf_counter() - began}


def _goal(arrays: dict[str, Any], device: torch.device) -> Goal:
    tensors = {name: torch.from_numpy(np.array(values)).to(device) for name, values in arrays.items()}
    return LatentGoal(**tensors) if "latent" in tensors else ReadoutGoal(**tensors)


def converse(link: Link, thinker: Thinker) -> None:
    """Answer until the other side is gone."""
    try:
        while (message := link.wait()) is not None:
            if (answer := thinker.answer(message)) is not None:
                link.send(answer)
    except Closed:
        pass


if __name__ == "__main__":
    converse(child.my_link(sys.argv, child.QUIET), Thinker())
