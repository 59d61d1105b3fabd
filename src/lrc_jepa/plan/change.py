"""A limit on how far a command may lie from the one sent before it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class ChangeLimit:
    """The limit in raw units, and how to get there: raw = normalised * std + mean.

    Joined commands have a mean and a deviation each, so that equal commands differ when normalised.
    """

    change: Tensor  # (a,), of one command
    mean: Tensor  # (A,), of a block of A / a commands
    std: Tensor  # (A,)
    last: Tensor | None = None  # (B, a), the commands sent before the plans begin, where they are known

    def after(self, blocks: Tensor) -> ChangeLimit:
        """The limit for plans that follow the normalised `blocks` (B,k,A)."""
        if blocks.shape[1] == 0:
            return replace(self, last=None)
        return replace(self, last=(blocks[:, -1] * self.std + self.mean)[:, -len(self.change) :])

    def hold(self, plans: Tensor) -> Tensor:
        """Plans (B,...,H,A) walked through from the front, each command drawn towards the one before it."""
        raw = (plans * self.std + self.mean).unflatten(-1, (-1, len(self.change))).flatten(-3, -2)
        last = self.last
        if last is not None:  # (B, 1..., a)
            last = last.reshape(len(last), *[1] * (plans.ndim - 3), -1)
        held = []
        for command in raw.unbind(-2):  # H * A / a of them
            if last is not None:
                command = torch.maximum(torch.minimum(command, last + self.change), last - self.change)
            held.append(command)
            last = command
        kept = torch.stack(held, dim=-2)
        normalised = (kept.reshape(plans.shape) - self.mean) / self.std
        return torch.where((kept == raw).reshape(plans.shape), plans, normalised)  # the rest keeps its bits
