"""C-JEPA: the state is a set of slots, one per object; whole objects are hidden while it learns.

Slots have no order of their own. They are matched over time before they are predicted, and the
distance between two sets is that of the best matching.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.config import PredictorConfig, RunConfig, SlotsConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need
from lrc_jepa.models.base import Model
from lrc_jepa.models.blocks import FeedForward, MultiHeadAttention
from lrc_jepa.models.linear import Linear
from lrc_jepa.types import Clip, Outputs, Spec

EXACT = 6  # slots up to which all orders are tried at once, on the device


def pair_costs(slots: Tensor, others: Tensor) -> Tensor:
    """||a_i - b_j||^2 for slots (B,S,D) twice -> (B,S,S)."""
    return (slots[:, :, None] - others[:, None, :]).square().sum(dim=-1)


def assignment(costs: Tensor) -> Tensor:
    """The matching with the least sum: costs (B,S,S) -> for each row its column (B,S)."""
    count = costs.shape[-1]
    if count > EXACT:
        assign = need("scipy.optimize", "matching more than a few slots").linear_sum_assignment
        columns = np.stack([assign(c)[1] for c in costs.detach().cpu().numpy()])
        return torch.from_numpy(columns).to(costs.device)
    orders = torch.tensor(list(permutations(range(count))), device=costs.device)  # (P, S)
    rows = torch.arange(count, device=costs.device)
    best = costs[:, rows, orders].sum(dim=-1).argmin(dim=1)  # (B, P, S) -> (B,)
    return orders[best]


def reorder(slots: Tensor, like: Tensor) -> Tensor:
    """`slots` (B,S,D) in the order that fits `like` (B,S,D) best."""
    columns = assignment(pair_costs(like, slots))
    return slots.gather(1, columns[:, :, None].expand_as(slots))


def align(frames: Tensor) -> Tensor:
    """Slots over time (B,T,S,D), each frame in the order of the frame before."""
    aligned = [frames[:, 0]]
    for slots in frames[:, 1:].unbind(dim=1):
        aligned.append(reorder(slots, aligned[-1]))
    return torch.stack(aligned, dim=1)


class SlotAttention(nn.Module):
    """Slots compete for the patches of a frame; a later frame starts from the slots before it."""

    def __init__(self, config: SlotsConfig, token_width: int, width: int) -> None:
        super().__init__()
        self.config, self.scale = config, width**-0.5
        self.start = nn.Parameter(torch.randn(1, config.count, width))
        self.project = nn.Sequential(
            nn.LayerNorm(token_width),
            Linear(token_width, token_width),
            nn.GELU(),
            Linear(token_width, width),
            nn.LayerNorm(width),
        )
        self.norm = nn.LayerNorm(width)
        self.q = Linear(width, width, bias=False)
        self.k = Linear(width, width, bias=False)
        self.v = Linear(width, width, bias=False)
        self.cell = nn.GRUCell(width, width)
        self.mlp = FeedForward(width, config.mlp, 0.0)

    def _round(self, slots: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """One round: (B,S,D), patches (B,L,D) twice -> (B,S,D)."""
        scores = self.q(self.norm(slots)) @ keys.transpose(1, 2) * self.scale  # (B, S, L)
        shares = scores.softmax(dim=1) + 1e-8  # slots compete for each patch
        read = shares / shares.sum(dim=-1, keepdim=True) @ values
        moved = self.cell(read.flatten(0, 1), slots.flatten(0, 1)).unflatten(0, slots.shape[:2])
        out: Tensor = moved + self.mlp(moved)
        return out

    def forward(self, tokens: Tensor) -> Tensor:
        """Patch features (B,T,L,W) -> slots (B,T,S,D), each with mean 0 and variance 1.

        The scale of a slot means nothing to the decoder's loss, and would otherwise drift under the
        predictor that is trained beside it.
        """
        seen = self.project(tokens)
        keys, values = self.k(seen), self.v(seen)
        slots = self.start.expand(len(tokens), -1, -1)
        all_slots = []
        for t in range(tokens.shape[1]):
            for _ in range(self.config.iterations if t else self.config.first_iterations):
                slots = self._round(slots, keys[:, t], values[:, t])
            all_slots.append(slots)
        return F.layer_norm(torch.stack(all_slots, dim=1), slots.shape[-1:])


class SlotDecoder(nn.Module):
    """Each slot paints features on every patch, and how much it claims the patch; the claims mix them."""

    def __init__(self, width: int, hidden: int, patches: int, token_width: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(1, 1, patches, width) * 0.02)
        self.paint = nn.Sequential(
            Linear(width, hidden),
            nn.GELU(),
            Linear(hidden, hidden),
            nn.GELU(),
            Linear(hidden, token_width + 1),
        )

    def forward(self, slots: Tensor) -> Tensor:
        """(B,S,D) -> (B,L,W)."""
        painted = self.paint(slots[:, :, None] + self.positions)  # (B, S, L, W+1)
        claims = painted[..., -1:].softmax(dim=1)
        mixed: Tensor = (claims * painted[..., :-1]).sum(dim=1)
        return mixed


class SlotBlock(nn.Module):
    """Attention over all tokens without a norm before it, then a feed-forward: C-JEPA's block."""

    def __init__(self, width: int, heads: int, mlp: int, dropout: float) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(width, heads)
        self.feed_forward = FeedForward(width, mlp, dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, n, w) -> (B, n, w)."""
        x = x + self.attention(x, x)
        moved: Tensor = x + self.feed_forward(x)
        return moved


class SlotPredictor(nn.Module):
    """Not causal: every slot of every frame, seen or asked for, attends to all. 3.59M at width 128.

    What is hidden or lies ahead is a query: a mask token, its time, and its slot as it was in the
    first frame, which is always seen. One action token stands beside the slots of each past frame.
    """

    def __init__(self, config: PredictorConfig, width: int, history: int) -> None:
        super().__init__()
        self.mask_token = nn.Parameter(torch.randn(width) * 0.02)
        self.times = nn.Parameter(torch.randn(history + 1, 1, width))
        self.identity = Linear(width, width)
        self.blocks = nn.ModuleList(
            SlotBlock(width, config.heads, config.mlp, config.dropout) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(width)
        self.out = Linear(width, width)

    def forward(self, past: Tensor, actions: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Slots (B,k,S,D), encoded blocks (B,k,D), hidden (B,S) bool -> slots of all k+1 frames.

        (B,k+1,S,D); the last frame is the next one. Hidden slots are seen in the first frame only.
        """
        frames, count = past.shape[1:3]
        asked = self.mask_token + self.identity(past[:, :1])  # (B, 1, S, D)
        seen = past
        if hidden is not None:
            seen = torch.where(hidden[:, None, :, None], asked, past)
            seen = torch.cat([past[:, :1], seen[:, 1:]], dim=1)
        slots = torch.cat([seen, asked], dim=1) + self.times[: frames + 1]  # (B, k+1, S, D)
        given = actions[:, :, None] + self.times[:frames]  # (B, k, 1, D)
        x = torch.cat([slots.flatten(1, 2), given.flatten(1, 2)], dim=1)
        for block in self.blocks:
            x = block(x)
        answer: Tensor = self.out(self.norm(x[:, : (frames + 1) * count]))
        return answer.unflatten(1, (frames + 1, count))


class SlotModel(Model):
    """Slot encoder and masked predictor. The encoder learns from rebuilding features alone: slots are
    detached before they are predicted, as if it had been trained first and frozen."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config.model)
        model, clip = config.model, config.clip
        if not model.backbone:
            raise BadInput("the family slots groups frozen features into objects: name a model.backbone")
        if model.proprio:
            raise BadInput("the family slots takes no proprioception: leave model.proprio empty")
        if not 0 <= model.slots.masked < model.slots.count:
            raise BadInput(f"of {model.slots.count} slots at most {model.slots.count - 1} can be masked")
        if clip.targets != 1:
            raise BadInput(
                f"the family slots predicts one frame of a clip: clip.targets is 1, not {clip.targets}"
            )
        self.masked = model.slots.masked
        self.spec = Spec(
            history=clip.history,
            tokens=model.slots.count,
            width=model.latent,
            action_dim=config.action_dim * clip.frameskip,
            frameskip=clip.frameskip,
            image_size=model.encoder.image_size,
        )
        patches = (model.encoder.side // model.encoder.patch) ** 2
        self.slots = SlotAttention(model.slots, model.encoder.width, model.latent)
        self.action_encoder = Linear(self.spec.action_dim, model.latent)
        self.predictor = SlotPredictor(model.predictor, model.latent, clip.history)
        self.decoder = SlotDecoder(model.latent, model.slots.decoder, patches, model.encoder.width)

    def stores_pooled(self) -> bool:
        """Every patch is needed."""
        return False

    def encode(self, frames: Tensor, proprio: Tensor | None = None) -> Tensor:
        """(B,T,3,h,w) uint8 -> (B,T,S,D)."""
        slots: Tensor = self.slots(self.tokens(frames).unflatten(0, frames.shape[:2]))
        return slots

    def _ahead(self, past: Tensor, actions: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Aligned slots (B,k,S,D), blocks (B,k,A) -> slots of all k+1 frames."""
        answer: Tensor = self.predictor(past, self.action_encoder(actions), hidden)
        return answer

    def step(self, past: Tensor, actions: Tensor) -> Tensor:
        """(B,k,S,D), (B,k,A) -> (B,S,D), in the order of the newest frame."""
        return reorder(self._ahead(align(past), actions)[:, -1], past[:, -1])

    def distance(self, state: Tensor, goal: Tensor) -> Tensor:
        """Sum of squared differences under the best matching of slots, (B,S,D) twice -> (B,)."""
        return (reorder(goal, state) - state).square().sum(dim=(1, 2))

    def _hide(self, batch: int) -> Tensor:
        """Which slots are hidden, (B,S) bool: `masked` of them in each clip, drawn afresh."""
        order = torch.rand(batch, self.spec.tokens).argsort(dim=1)
        return (order < self.masked).to(self.pixels.mean.device)

    def outputs(self, clip: Clip) -> Outputs:
        """Slots, rebuilt features, hidden slots, and the next frame from every length of history."""
        count = clip.actions.shape[1]
        tokens = self.clip_tokens(clip).unflatten(0, (-1, count + 1))
        slots = self.slots(tokens)
        fixed = align(slots.detach())
        hidden = self._hide(clip.size)
        whole = self._ahead(fixed[:, :-1], clip.actions, hidden)  # (B, K+1, S, D)
        shorter = [self._ahead(fixed[:, :k], clip.actions[:, :k])[:, -1] for k in range(1, count)]
        picked = hidden.nonzero()[:, 1].view(clip.size, 1, -1, 1).expand(-1, count - 1, -1, slots.shape[-1])
        return Outputs(
            z=slots,
            z_pred=torch.stack([*shorter, whole[:, -1]], dim=1),
            z_target=fixed[:, 1:],
            actions=clip.actions,
            tokens=tokens,
            tokens_recon=self.decoder(slots.flatten(0, 1)).unflatten(0, slots.shape[:2]),
            masked_pred=whole[:, 1:-1].gather(2, picked),
            masked_target=fixed[:, 1:-1].gather(2, picked),
        )

    def provides(self) -> frozenset[str]:
        """Names of the `Outputs` fields this model fills."""
        always = {"z", "z_pred", "z_target", "actions", "tokens", "tokens_recon"}
        hides = self.masked > 0 and self.spec.history > 1
        return frozenset(always | ({"masked_pred", "masked_target"} if hides else set()))
