"""The pieces that the encoder, the predictor, the context and the decoder are made of."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.collective import total, world_size
from lrc_jepa.models.linear import Linear


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, n, heads*d) -> (B, heads, n, d)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, heads, n, d) -> (B, n, heads*d)."""
    return x.transpose(1, 2).flatten(2)


class MultiHeadAttention(nn.Module):
    """softmax(Q K^T / sqrt(d)) V with biased projections: 4 (w^2 + w) parameters."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads do not divide a width of {width}")
        self.heads = heads
        self.q = Linear(width, width)
        self.k = Linear(width, width)
        self.v = Linear(width, width)
        self.out = Linear(width, width)

    def forward(self, query: Tensor, context: Tensor) -> Tensor:
        """(B, n, w), (B, m, w) -> (B, n, w)."""
        q = split_heads(self.q(query), self.heads)
        k = split_heads(self.k(context), self.heads)
        v = split_heads(self.v(context), self.heads)
        return self.out(merge_heads(F.scaled_dot_product_attention(q, k, v)))

    def weights(self, query: Tensor, context: Tensor) -> Tensor:
        """softmax(Q K^T / sqrt(d)), what `forward` weighs with: (B, n, w), (B, m, w) -> (B, heads, n, m)."""
        q, k = split_heads(self.q(query), self.heads), split_heads(self.k(context), self.heads)
        return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(dim=-1)


class Mlp(nn.Sequential):
    """Linear-GELU-Linear."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(Linear(width, hidden), nn.GELU(), Linear(hidden, width))


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation whose statistics are those of the batch of all processes, on any device.

    torch's own SyncBatchNorm refuses CPU tensors. Every process must bring as many rows.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(n, w) -> (n, w)."""
        if not self.training or world_size() == 1:
            return super().forward(x)
        assert self.running_mean is not None and self.running_var is not None
        with torch.autocast(x.device.type, enabled=False):
            count = len(x) * world_size()
            # Sums about a value that all processes share keep the digits of a small variance.
            about = self.running_mean.clone()
            shifted = x.to(about.dtype) - about
            sums = total(torch.stack([shifted.sum(dim=0), shifted.square().sum(dim=0)])) / count
            mean = sums[0]
            variance = sums[1] - mean.square()
            scale = torch.rsqrt(variance + self.eps)
            normed = (shifted - mean) * scale
            if self.affine:
                normed = torch.addcmul(self.bias, normed, self.weight)
        self._track(about + mean.detach(), variance.detach() * (count / (count - 1)))
        return normed.to(x.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, unbiased: Tensor) -> None:
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None and self.momentum is not None
        self.num_batches_tracked += 1
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(unbiased, self.momentum)


class Projector(nn.Sequential):
    """g_z and g_p: Linear-BN-GELU-Linear, applied to rows of tokens.

    Always in the precision of its weights: rows are much alike, and the batch norm, which takes away what
    they share, would enlarge the rounding of bfloat16 to the size of what is left.
    """

    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__(Linear(width, hidden), BatchNorm(hidden), nn.GELU(), Linear(hidden, out))

    def forward(self, x: Tensor) -> Tensor:
        """(..., w) -> (..., out); the batch statistics run over all leading axes."""
        with torch.autocast(x.device.type, enabled=False):
            rows = x.flatten(0, -2).to(next(self.parameters()).dtype)
            return super().forward(rows).unflatten(0, x.shape[:-1])


class CausalAttention(nn.Module):
    """Norm, bias-free qkv, causal softmax, biased output: the public LeWM's attention."""

    def __init__(self, width: int, heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        inner = heads * head_dim
        self.heads, self.dropout = heads, dropout
        self.norm = nn.LayerNorm(width)
        self.qkv = Linear(width, 3 * inner, bias=False)
        self.out = nn.Sequential(Linear(inner, width), nn.Dropout(dropout))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, k, w) -> (B, k, w); position i sees positions 0..i, or those that mask (k, k) allows."""
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(self.norm(x)).chunk(3, dim=-1))
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout, is_causal=mask is None)
        out: Tensor = self.out(merge_heads(mixed))
        return out


class FeedForward(nn.Sequential):
    """Norm-Linear-GELU-Linear with dropout."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__(
            nn.LayerNorm(width),
            Linear(width, hidden),
            nn.GELU(),
            nn.Dropout(dropout),
            Linear(hidden, width),
            nn.Dropout(dropout),
        )


class AdaLNBlock(nn.Module):
    """A transformer block whose norms are shifted, scaled and gated by the action (AdaLN-Zero).

    x <- x + g1 * Attn((1 + s1) * LN(x) + b1)
    x <- x + g2 * FF((1 + s2) * LN(x) + b2),   (b1, s1, g1, b2, s2, g2) = W SiLU(e), W = 0 at first

    LN here has no parameters of its own; attention and feed-forward bring a second, affine one.
    """

    def __init__(self, width: int, heads: int, head_dim: int, mlp: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.attention = CausalAttention(width, heads, head_dim, dropout)
        self.feed_forward = FeedForward(width, mlp, dropout)
        self.modulation = nn.Sequential(nn.SiLU(), Linear(width, 6 * width))
        nn.init.zeros_(self.modulation[1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.modulation[1].bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, action: Tensor) -> Tensor:
        """(B, k, w), (B, k, w) -> (B, k, w)."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(action).chunk(6, dim=-1)
        x = x + gate1 * self.attention(torch.addcmul(shift1, 1 + scale1, self.norm(x)))
        return x + gate2 * self.feed_forward(torch.addcmul(shift2, 1 + scale2, self.norm(x)))


class EncoderBlock(nn.Module):
    """A pre-norm transformer block over all tokens of a frame."""

    def __init__(self, width: int, heads: int, mlp: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.attention = MultiHeadAttention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)
        self.mlp = Mlp(width, mlp)

    def forward(self, x: Tensor) -> Tensor:
        """(B, n, w) -> (B, n, w)."""
        normed = self.norm1(x)
        x = x + self.attention(normed, normed)
        return x + self.mlp(self.norm2(x))


class CrossBlock(nn.Module):
    """s <- s + MHA(LN(s), LN(c), LN(c)); s <- s + MLP(LN(s)): one layer of the decoder."""

    def __init__(self, width: int, heads: int, mlp: int) -> None:
        super().__init__()
        self.norm_query = nn.LayerNorm(width)
        self.norm_context = nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, heads)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = Mlp(width, mlp)

    def forward(self, queries: Tensor, context: Tensor) -> Tensor:
        """(B, n, w), (B, m, w) -> (B, n, w)."""
        queries = queries + self.attention(self.norm_query(queries), self.norm_context(context))
        return queries + self.mlp(self.norm_mlp(queries))
