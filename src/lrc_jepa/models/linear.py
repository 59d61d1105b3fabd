"""Linear maps at the full rate of a CPU."""

from __future__ import annotations

from math import gcd

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEAST = 2**23  # multiplications: below, what a convolution costs besides is more than it saves
PICTURES, FEWEST = (
    64,
    16,
)  # among which the rows are dealt out; on one thread torch asks for 16 before it calls oneDNN


class Linear(nn.Linear):
    """x W^T + b; in training on a CPU, many rows as one 1 x 1 convolution.

    The numbers are the same up to rounding. torch's matrix products are MKL's, which uses half the vector unit of a
    processor that is not its maker's; its convolutions are oneDNN's, which uses all of it. Rows (n, in) are seen as
    pictures (p, in, n/p, 1) whose colours lie innermost, so nothing is copied either way.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        if torch.compiler.is_compiling() or not self._gains(x):
            return super().forward(x)
        seen = x.reshape(self._pictures(x), -1, 1, self.in_features).permute(0, 3, 1, 2)
        mapped = F.conv2d(seen, self.weight[:, :, None, None], self.bias)
        return mapped.permute(0, 2, 3, 1).reshape(*x.shape[:-1], self.out_features)

    def _pictures(self, x: Tensor) -> int:
        return gcd(x.numel() // self.in_features, PICTURES)

    def _gains(self, x: Tensor) -> bool:
        return (
            x.numel() * self.out_features >= LEAST
            and self._pictures(x) >= FEWEST
            and torch.is_grad_enabled()
            and x.device.type == "cpu"
            and x.dtype == self.weight.dtype == torch.float32
            and not torch.is_autocast_enabled("cpu")
            and torch.backends.mkl.is_available()
            and torch.backends.mkldnn.is_available()
        )
