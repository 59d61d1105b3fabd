"""mean w (x - y)^2 over pixels, with as few passes over them as there can be.

Frames are the largest tensors of a step. Autograd goes over them once for every operation, forth and back; here
it is twice forth (the difference; its product with itself) and once back, and once more each where there are weights:

    value = sum w d^2 / n,   gradient in x = (2 / n) w d,   d = x - y
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _SquaredError(torch.autograd.Function):
    """The value, and w d kept for the gradient."""

    @staticmethod
    def forward(ctx: Any, made: Tensor, truth: Tensor, weight: Tensor | None) -> Tensor:
        """Frames (B,T,3,h,w) twice, weights that broadcast to them -> scalar."""
        apart = made - truth
        weighted = apart if weight is None else apart * weight
        ctx.save_for_backward(weighted)
        return _products(weighted, apart).sum() / apart.numel()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Only what was made has a gradient."""
        (weighted,) = ctx.saved_tensors
        return weighted * (2 * gradient / weighted.numel()), None, None


def _products(x: Tensor, y: Tensor) -> Tensor:
    """Inner products of frame with frame, (B,T,3,h,w) twice -> (B*T,1,1); colours lie innermost in memory."""
    rows, columns = (frames.movedim(2, -1).flatten(0, 1).flatten(1) for frames in (x, y))
    return torch.bmm(rows.unsqueeze(1), columns.unsqueeze(2))


def squared_error(made: Tensor, truth: Tensor, weight: Tensor | None = None) -> Tensor:
    """mean w (made - truth)^2 in float32, w = 1 where it is left out; frames (B,T,3,h,w)."""
    with torch.autocast(made.device.type, enabled=False):
        value: Tensor = _SquaredError.apply(made.float(), truth.float(), weight)  # type: ignore[no-untyped-call]
    return value
