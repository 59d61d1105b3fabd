"""The residual context u: learned queries that pool all tokens of a frame."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lrc_jepa.config import ContextConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.blocks import Mlp, MultiHeadAttention
from lrc_jepa.models.linear import Linear


class Context(nn.Module):
    """u~ = MHA(LN(q), LN(W_u H), LN(W_u H)); u = u~ + MLP(u~).

    H holds the class token and all patch tokens; there is no residual from q.
    """

    def __init__(self, config: ContextConfig, token_width: int, width: int) -> None:
        super().__init__()
        if config.projection == "identity" and token_width != width:
            raise BadInput(f"an identity W_u needs equal widths, not {token_width} and {width}")
        linear = config.projection == "linear"
        self.project = Linear(token_width, width) if linear else nn.Identity()
        self.queries = nn.Parameter(torch.randn(config.queries, width) * 0.02)
        self.norm_query = nn.LayerNorm(width)
        self.norm_tokens = nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, config.heads)
        self.mlp = Mlp(width, config.mlp_ratio * width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, 1+L, token_width) -> (B, Q, width)."""
        queries = self.norm_query(self.queries).expand(len(tokens), -1, -1)
        pooled = self.attention(queries, self.norm_tokens(self.project(tokens)))
        u: Tensor = pooled + self.mlp(pooled)
        return u
