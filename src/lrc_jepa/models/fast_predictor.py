"""The predictor's rollout with nothing computed twice: the same numbers as `Compact.step`, less work.

What is saved, all of it exact:
- the modulations of all layers are one matrix product per action block, made once and used by every
  window in which the block appears;
- while the window grows, a step computes one new token and reads what is known of the older ones;
- the oldest token of a window attends to itself alone, so W_out W_v is one matrix (`Layer.alone`);
- shares of attention add up to 1, so keys and values may be taken relative to the oldest token's,
      Attn_i = W_out W_v h_0 + W_out sum_j a_ij W_v (h_j - h_0),   a_i = softmax_j q_i W_k (h_j - h_0),
  and the oldest token needs no query, no key and no value;
- in the last layer only the newest token needs a query, an output and an MLP;
- BatchNorm is folded into its linear map, and the biases of wide products into their inputs;
- what depends on the observed history alone is computed once, before candidates are drawn.

When the window slides every token's position changes, so all but the modulations is computed anew.
Rows are kept as (B, S, ...): B histories, S candidates of each. What all candidates share has S = 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.errors import BadInput
from lrc_jepa.models.blocks import AdaLNBlock, Projector
from lrc_jepa.models.predictor import Predictor

Token = tuple[Tensor, Tensor]
"""A token's key and value relative to the oldest token's, each (B, S or 1, heads, d)."""


@dataclass(frozen=True)
class Seen:
    """What one layer knows of the window's first tokens."""

    oldest: Tensor  # (B, S or 1, w), what attention reads of the oldest token
    base: Tensor  # (B, S or 1, w), the oldest token's attention: the part common to all tokens
    tokens: tuple[Token, ...]  # the tokens after the oldest


Cache = tuple[Seen | None, ...]
"""One entry per layer; None before the window's first token."""


@dataclass(frozen=True)
class Norm:
    """A layer norm with scale and shift."""

    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """(..., w) -> (..., w)."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class NormedMlp:
    """norm, linear, GELU, linear: (..., w) -> (..., w)."""

    norm: Norm
    up: Tensor  # (hidden, w)
    down: Tensor  # (w, hidden)
    bias: Tensor  # (w,)

    def __call__(self, x: Tensor) -> Tensor:
        """The whole chain; the hidden rows are overwritten where no gradient needs them."""
        hidden = F.linear(self.norm(x), self.up)
        hidden = F.gelu(hidden) if torch.is_grad_enabled() else torch.ops.aten.gelu_(hidden)
        return F.linear(hidden, self.down, self.bias)


@dataclass(frozen=True)
class Layer:
    """One AdaLN-Zero block as the rollout uses it."""

    eps: float  # of the norms without parameters
    norm: Norm  # attention's own
    query: Tensor  # (heads * d, w)
    key_value: Tensor  # (2 * heads * d, w)
    out: Tensor  # (w, heads * d)
    alone: Tensor  # (w, w), W_out W_v
    alone_bias: Tensor  # (w,), of W_out
    mlp: NormedMlp


@dataclass(frozen=True)
class Weights:
    """All that the rollout reads, taken from the model's present weights."""

    layers: tuple[Layer, ...]
    heads: int
    positions: Tensor  # (K, w)
    encode_action: Callable[[Tensor], Tensor]  # (..., A) -> (..., w)
    modulation: Tensor  # (layers * 6 * w, w + 1); the last column is the bias
    project: NormedMlp  # the final norm and g_p


@dataclass(frozen=True)
class Carry:
    """Where a rollout stands: the window of states that the next step sees, and what is known of it."""

    weights: Weights
    states: tuple[Tensor, ...]  # up to K latents, oldest first, each (B, S or 1, w)
    modulations: tuple[Tensor, ...]  # of the blocks that left all but the newest, (B, S or 1, layers, 6, w)
    cache: Cache
    ahead: tuple[Cache, ...]  # the cache to start from after each coming slide


def _normed_mlp(norm: nn.LayerNorm, up: Tensor, bias: Tensor, down: nn.Linear) -> NormedMlp:
    """Scale, shift and bias moved into the first matrix.

    A normalised row n adds up to 0, so (U + u 1^T)(n + 1) = U n + U 1 + width u: the constant
    direction is free to carry the bias, and a product without bias writes its wide output once.
    """
    scale, shift = norm.weight.detach(), norm.bias.detach()
    bias = bias + up @ shift
    up = up * scale
    up = up + ((bias - up.sum(dim=1)) / len(scale))[:, None]
    ones = torch.ones_like(scale)
    return NormedMlp(Norm(ones, ones, norm.eps), up, down.weight.detach(), down.bias.detach())


def _layer(block: AdaLNBlock) -> Layer:
    attention, (mlp_norm, up, _, _, down, _) = block.attention, block.feed_forward
    linear = attention.out[0]
    assert isinstance(linear, nn.Linear) and isinstance(up, nn.Linear) and isinstance(down, nn.Linear)
    assert isinstance(mlp_norm, nn.LayerNorm)
    qkv, out = attention.qkv.weight.detach(), linear.weight.detach()
    query, _, value = qkv.chunk(3)
    norm = Norm(attention.norm.weight.detach(), attention.norm.bias.detach(), attention.norm.eps)
    return Layer(
        eps=block.norm.eps,
        norm=norm,
        query=query * (len(query) // attention.heads) ** -0.5,
        key_value=qkv[len(query) :],
        out=out,
        alone=out @ value,
        alone_bias=linear.bias.detach(),
        mlp=_normed_mlp(mlp_norm, up.weight.detach(), up.bias.detach(), down),
    )


def _modulation(blocks: list[AdaLNBlock]) -> Tensor:
    """All layers' modulations in one matrix; the 1 of `1 + scale` goes into its bias column."""
    stacked = []
    for block in blocks:
        linear = block.modulation[1]
        assert isinstance(linear, nn.Linear)
        bias = linear.bias.detach().view(6, -1).clone()
        bias[[1, 4]] += 1
        stacked.append(torch.cat([linear.weight.detach(), bias.view(-1, 1)], dim=1))
    return torch.cat(stacked)


def _projection(norm: nn.LayerNorm, projector: Projector) -> NormedMlp:
    """The final norm and g_p, BatchNorm (running statistics) folded into the map before it."""
    up, batch_norm, _, down = projector
    assert isinstance(up, nn.Linear) and isinstance(down, nn.Linear)
    assert isinstance(batch_norm, nn.BatchNorm1d)
    mean, variance = batch_norm.running_mean, batch_norm.running_var
    assert mean is not None and variance is not None
    gain = batch_norm.weight.detach() * (variance + batch_norm.eps).rsqrt()
    bias = (up.bias.detach() - mean) * gain + batch_norm.bias.detach()
    return _normed_mlp(norm, up.weight.detach() * gain[:, None], bias, down)


def take_weights(predictor: Predictor, action_encoder: nn.Module, projector: Projector) -> Weights:
    """What the rollout needs, derived from the weights as they are now."""
    blocks = [block for block in predictor.blocks if isinstance(block, AdaLNBlock)]
    return Weights(
        layers=tuple(_layer(block) for block in blocks),
        heads=blocks[0].attention.heads,
        positions=predictor.positions.detach()[0],
        encode_action=action_encoder,
        modulation=_modulation(blocks),
        project=_projection(predictor.norm, projector),
    )


def _modulate(weights: Weights, action: Tensor) -> Tensor:
    """Blocks (B,S,A) -> every layer's shifts, scales and gates (B,S,layers,6,w), one product."""
    encoded = F.pad(F.silu(weights.encode_action(action)), (0, 1), value=1.0)
    return F.linear(encoded, weights.modulation).view(*action.shape[:2], len(weights.layers), 6, -1)


def _affine_each(
    start: Sequence[Tensor], factor: Sequence[Tensor], x: Sequence[Tensor], into: Tensor
) -> Tensor:
    """start + factor * x for each token -> (m,B,S,w), written over `into` where no gradient flows."""
    if torch.is_grad_enabled():
        return torch.stack([torch.addcmul(*parts) for parts in zip(start, factor, x, strict=True)])
    for a, b, c, target in zip(start, factor, x, into, strict=True):
        torch.addcmul(a, b, c, out=target)
    return into


def _condition(x: Tensor, eps: float, mods: list[Tensor], which: int) -> Tensor:
    """(1 + scale) LN(x) + shift for tokens x (m,B,S,w); `which` is 0 for attention, 3 for the MLP."""
    plain = F.layer_norm(x, x.shape[-1:], eps=eps)
    shifts, scales = ([mod[..., i, :] for mod in mods] for i in (which, which + 1))
    return _affine_each(shifts, scales, plain.unbind(), plain)


def _mix(query: Tensor, tokens: tuple[Token, ...], into: Tensor | None) -> Tensor:
    """sum_j a_j v_j over the tokens after the oldest, whose own score is 0; all (B,S,heads,d).

    A window holds a handful of tokens: products and sums over whole rows beat a batch of B*S*heads
    tiny matrix products. `into`, where given, is scratch first and the answer in the end.
    """
    scores = [torch.zeros_like(query[..., 0])]
    for key, _ in tokens:
        scores.append(torch.mul(query, key, out=into).sum(dim=-1))
    shares = torch.stack(scores).softmax(dim=0).unsqueeze(-1)  # (1 + tokens, B, S, heads, 1)
    mixed = torch.mul(shares[1], tokens[0][1], out=into)
    for share, (_, value) in zip(shares[2:], tokens[1:], strict=True):
        mixed = torch.addcmul(mixed, share, value, out=into)
    return mixed


def _mix_all(queries: Tensor, tokens: tuple[Token, ...]) -> Tensor:
    """The newest tokens' queries (n,B,S,heads,d), each over the tokens up to itself -> (n,B,S,heads*d)."""
    before = len(tokens) - len(queries) + 1
    if torch.is_grad_enabled():
        mixed = torch.stack([_mix(query, tokens[: before + i], None) for i, query in enumerate(queries)])
    else:
        mixed = torch.empty_like(queries)
        for i, (query, into) in enumerate(zip(queries, mixed, strict=True)):
            _mix(query, tokens[: before + i], into)
    return mixed.flatten(-2)


def _attend(layer: Layer, heads: int, h: Tensor, seen: Seen | None, wanted: int) -> tuple[list[Tensor], Seen]:
    """Attention of the last `wanted` of the new tokens h (m,B,S,w), and the window as it is now known."""
    if seen is None:
        seen = Seen(h[0], F.linear(h[0], layer.alone, layer.alone_bias), ())
        answers, h = ([seen.base] if wanted > len(h) - 1 else []), h[1:]
    else:
        answers = []
    if not len(h):
        return answers, seen
    pairs = F.linear(h - seen.oldest, layer.key_value).view(*h.shape[:3], 2, heads, -1)
    tokens = (*seen.tokens, *((pair[..., 0, :, :], pair[..., 1, :, :]) for pair in pairs))
    seen = Seen(seen.oldest, seen.base, tokens)
    count = wanted - len(answers)
    if count:
        queries = F.linear(h[-count:], layer.query).view(count, *h.shape[1:3], heads, -1)
        answers.extend(F.linear(_mix_all(queries, tokens), layer.out).add_(seen.base).unbind())
    return answers, seen


def _block(
    layer: Layer, heads: int, x: Tensor, mods: list[Tensor], seen: Seen | None, wanted: int
) -> tuple[Tensor, Seen]:
    """One block over new tokens x (m,B,S,w); only the last `wanted` come out."""
    h = layer.norm(_condition(x, layer.eps, mods, 0))
    moved, seen = _attend(layer, heads, h, seen, wanted)
    x, mods = x[len(x) - wanted :], mods[len(mods) - wanted :]
    if wanted:
        x = _affine_each(x.unbind(), [mod[..., 2, :] for mod in mods], moved, x)
        moved = list(layer.mlp(_condition(x, layer.eps, mods, 3)))
        x = _affine_each(x.unbind(), [mod[..., 5, :] for mod in mods], moved, x)
    return x, seen


def _extend(
    weights: Weights,
    cache: Cache,
    states: tuple[Tensor, ...],
    modulations: tuple[Tensor, ...],
    start: int,
    answer: bool,
) -> tuple[Tensor, Cache]:
    """Run the tokens at positions `start` on; give the newest one's output (1,B,S,w) and the longer cache."""
    rows = modulations[-1].shape[:2]
    x = torch.stack(
        [(state + weights.positions[start + i]).expand(*rows, -1) for i, state in enumerate(states)]
    )  # (m, B, S, w)
    longer: list[Seen | None] = []
    for index, (layer, seen) in enumerate(zip(weights.layers, cache, strict=True)):
        last = index == len(weights.layers) - 1
        mods = [modulation[:, :, index] for modulation in modulations]
        x, seen = _block(layer, weights.heads, x, mods, seen, int(answer) if last else len(x))
        longer.append(seen)
    return x, tuple(longer)


def _known(cache: Cache) -> int:
    """Tokens in a cache."""
    return 0 if cache[0] is None else 1 + len(cache[0].tokens)


def prepare(weights: Weights, past: Tensor, past_actions: Tensor) -> Carry:
    """Everything that depends on the history alone: past (B,k,w), past_actions (B,k-1,A)."""
    history, count = len(weights.positions), past.shape[1]
    if not 1 <= count <= history:
        raise BadInput(f"a history of {count} frames does not fit a model that sees 1 to {history}")
    if past_actions.shape[1] != count - 1:
        raise BadInput(
            f"{count} past frames have {count - 1} action blocks between them, not {past_actions.shape[1]}"
        )
    states = tuple(state[:, None] for state in past.unbind(dim=1))  # each (B, 1, w)
    mods = tuple(_modulate(weights, block[:, None]) for block in past_actions.unbind(dim=1))
    empty: Cache = (None,) * len(weights.layers)
    # After s slides the window starts at frame s; the frames up to k-2 have been left by known blocks.
    caches = [_extend(weights, empty, states[s:-1], mods[s:], 0, answer=False)[1] for s in range(count - 1)]
    return Carry(weights, states, mods, caches[0] if caches else empty, tuple(caches[1:]))


def advance(carry: Carry, action: Tensor) -> tuple[Carry, Tensor]:
    """One step: blocks (B*S, A) leave the newest state -> the carry after it, and the next state (B*S, w).

    Rows b*S to (b+1)*S - 1 are the candidates of history b. The given carry stays valid, so that any
    number of rollouts can start from it.
    """
    weights, start = carry.weights, _known(carry.cache)
    mods = (
        *carry.modulations,
        _modulate(weights, action.reshape(len(carry.states[0]), -1, action.shape[-1])),
    )
    x, cache = _extend(weights, carry.cache, carry.states[start:], mods[start:], start, answer=True)
    moved = weights.project(x[0])  # (B, S, w)
    states, ahead = (*carry.states, moved), carry.ahead
    if len(states) > len(weights.positions):  # the next window slides
        states, mods = states[1:], mods[1:]
        cache, ahead = (ahead[0], ahead[1:]) if ahead else ((None,) * len(weights.layers), ())
    return Carry(weights, states, mods, cache, ahead), moved.flatten(0, 1)
