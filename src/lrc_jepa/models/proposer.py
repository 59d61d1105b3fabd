"""From where one is to where one wants to be: how episodes that got there began."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.models.linear import Linear


class Proposer(nn.Module):
    """a_t = MLP(s_t, z_t+n - z_t, n): the block that leaves frame t in episodes that are at z_t+n after n blocks.

    What was done before t is not read: recorded blocks resemble those before them, and a network that is shown those
    repeats them, whatever the goal. Over `reach` blocks nothing was learned: more are taken as so many.
    """

    def __init__(self, state: int, seen: int, action_dim: int, hidden: int, reach: int) -> None:
        super().__init__()
        self.seen, self.reach = seen, reach
        self.layers = nn.Sequential(
            Linear(state + seen + reach, hidden),
            nn.GELU(),
            Linear(hidden, hidden),
            nn.GELU(),
            Linear(hidden, hidden),
            nn.GELU(),
            Linear(hidden, action_dim),
        )

    def forward(self, states: Tensor, goals: Tensor, left: Tensor) -> Tensor:
        """States (n,D), goals (n,D-P), blocks left (n,) of 1 or more -> blocks (n,A)."""
        way = goals - states[:, : self.seen]
        clock = F.one_hot(left.clamp_max(self.reach) - 1, self.reach).to(way.dtype)
        block: Tensor = self.layers(torch.cat([states, way, clock], dim=-1))
        return block

    def of_clip(self, states: Tensor, z: Tensor, blocks: Tensor) -> dict[str, Tensor]:
        """The fields of `Outputs` for states (B,T,D), z (B,T,D-P) and blocks (B,T-1,A): a pair of frames of each clip.

        What was proposed and what was done, (B,A).
        """
        clips = torch.arange(len(z), device=z.device)
        first, left = self.pairs(len(z), blocks.shape[1], z.device)
        proposed = self(states[clips, first], z[clips, first + left], left)
        return {"proposed": proposed, "done": blocks[clips, first]}

    @staticmethod
    def pairs(clips: int, blocks: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """For each clip a first frame and how many of the clip's blocks lie between it and the goal, (B,) each.

        How far apart is drawn first, evenly, then where the first lies.
        """
        left = torch.randint(1, blocks + 1, (clips,), device=device)
        first = (torch.rand(clips, device=device) * (blocks - left + 1)).long()
        return first, left
