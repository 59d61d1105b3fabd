"""mean w (x - y)^2 over pixels, with as few passes over them as there can be.

Frames are the largest tensors of a step. Autograd goes over them once for every operation, forth and back; here
it is twice forth (the difference; its product with itself) and once back, and once more each where there are weights:

    value = sum w d^2 / n,   gradient in x = (2 / n) w d,   d = x - y
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _SquaredError(torch.autograd.Function):
    """The value, and w d kept for the gradient."""

    generate_vmap_rule = True  # many small networks are trained as one by vmap (evaluate/theory)

    @staticmethod
    def forward(rebuilt: Tensor, truth: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Frames (B,T,3,h,w) twice, weights that broadcast to them -> scalar, and w d."""
        apart = rebuilt - truth
        weighted = apart if weight is None else apart * weight
        return _products(weighted, apart).sum() / apart.numel(), weighted

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep w d."""
        _, weighted = output
        ctx.mark_non_differentiable(weighted)
        ctx.set_materialize_grads(
            False
        )  # w d has no gradient: zeros as large as the frames would stand for it
        ctx.save_for_backward(weighted)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, _: None) -> tuple[Tensor | None, None, None]:
        """Only what was rebuilt has a gradient."""
        if gradient is None:
            return None, None, None
        (weighted,) = ctx.saved_tensors
        return weighted * (2 * gradient / weighted.numel()), None, None


def _products(x: Tensor, y: Tensor) -> Tensor:
    """Inner products of frame with frame, (B,T,3,h,w) twice -> (B*T,1,1); colours lie innermost in memory."""
    rows, columns = (frames.movedim(2, -1).flatten(0, 1).flatten(1) for frames in (x, y))
    return torch.bmm(rows.unsqueeze(1), columns.unsqueeze(2))


def squared_error(rebuilt: Tensor, truth: Tensor, weight: Tensor | None = None) -> Tensor:
    """mean w (rebuilt - truth)^2 in float32, w = 1 where it is left out; frames (B,T,3,h,w)."""
    with torch.autocast(rebuilt.device.type, enabled=False):
        error = _SquaredError.apply(rebuilt.float(), truth.float(), weight)  # type: ignore[no-untyped-call]
    value: Tensor = error[0]
    return value
