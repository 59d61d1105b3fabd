"""A studio to test in: a model of TwoRoom that is right, served as `lrc studio` does it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn
from websockets.sync.client import connect

from lrc_jepa.envs.tworoom import SIDE, SPEED
from lrc_jepa.run import Run
from lrc_jepa.studio.contents import Collection, Contents
from lrc_jepa.studio.opened import Opened
from lrc_jepa.studio.server import Studio, serving
from lrc_jepa.types import Factors

LIMIT = 120  # seconds that any answer may take


class TrueModel(nn.Module):
    """z is where the red dot is, u the colour around it; walls do not exist for it."""

    def __init__(self, deployment):
        super().__init__()
        self.spec, self.normalizer = deployment.spec, deployment.normalizer
        self.anchor = nn.Parameter(torch.zeros(1))

    def _positions(self, frames):
        """(B,T,3,h,w) uint8 -> where the dot is (B,T,2), as shares of the side."""
        red = frames.float()
        red = red[:, :, 0] - red[:, :, 1:].amax(dim=2)  # (B, T, h, w)
        weight = (red - red.flatten(2).median(dim=2).values[..., None, None] - 60).clamp_min(0)
        weight = weight / weight.sum(dim=(2, 3), keepdim=True).clamp_min(1e-6)
        at = (torch.arange(frames.shape[-1]) + 0.5) / frames.shape[-1]
        return torch.stack([(weight.sum(dim=2) * at).sum(-1), (weight.sum(dim=3) * at).sum(-1)], dim=-1)

    def encode(self, frames):
        z = torch.zeros(*frames.shape[:2], 1, self.spec.width)
        z[:, :, 0, :2] = self._positions(frames)
        return z + self.anchor

    def step(self, past, actions):
        block = actions[:, -1]
        raw = torch.from_numpy(self.normalizer.denormalize(block.detach().numpy()))
        moved = SPEED / SIDE * raw.view(len(raw), self.spec.frameskip, -1).clamp(-1, 1).sum(dim=1)
        state = past[:, -1].clone()
        state[:, 0, :2] += moved
        return state

    def distance(self, state, goal):
        return (state - goal).square().sum(dim=(1, 2))

    def factor(self, frames):
        colour = frames.float().flatten(3).median(dim=3).values / 255  # (B, T, 3)
        u = torch.zeros(*frames.shape[:2], 1, self.spec.width)
        u[:, :, 0, :3] = colour
        return Factors(z=self.encode(frames), u=u)

    def decode(self, factors):
        size = self.spec.image_size
        at = (torch.arange(size) + 0.5) / size
        where = factors.z[:, :, 0, :2]
        dot = torch.exp(
            -((at - where[..., 1:]) ** 2)[..., :, None] * 500
            - ((at - where[..., :1]) ** 2)[..., None, :] * 500
        )
        behind = factors.u[:, :, 0, :3, None, None]
        red = torch.tensor([1.0, 0.0, 0.0])[:, None, None]
        return behind + dot[:, :, None] * (red - behind)


def true_run(folder, data=None):
    """A debug run whose model is replaced by the true one."""
    run = Run(folder, data=data)
    run.__dict__["checkpoint"] = replace(run.checkpoint, model=TrueModel(run.checkpoint.deployment).eval())
    return run


@contextmanager
def served(*runs, token=None):
    """A studio of these runs in a thread of its own; gives it and its address."""
    models = [Opened(run, f"{run.config.system} {index}") for index, run in enumerate(runs)]
    collections = {model.run.store.path: Collection(model.run.store, model) for model in models}
    folders = [*dict.fromkeys(run.folder for run in runs)]
    studio = Studio(Contents(models, list(collections.values()), folders), token)
    with serving(studio) as address:
        yield studio, address


@contextmanager
def page(address):
    """A page that is open, once it was greeted."""
    with connect(address.replace("http", "ws") + "talk", open_timeout=LIMIT, max_size=None) as socket:
        assert json.loads(socket.recv(LIMIT))["tell"] == "hello"
        yield socket


def ask(socket, name, until, **fields):
    """Ask, and take answers until one is called `until`."""
    socket.send(json.dumps({"ask": name, **fields}))
    found = []
    while not found or found[-1]["tell"] != until:
        found.append(json.loads(socket.recv(LIMIT)))
        if until != "refused":
            assert found[-1]["tell"] != "refused", found[-1]
    return found
