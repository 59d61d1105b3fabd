"""Model and objective as one module, which is what DDP and torch.compile want."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lrc_jepa.config import TrainConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.base import Model
from lrc_jepa.objectives import Objective
from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.types import Clip

GIVEN = {"actions", "episodes"}  # outputs that come from the clip as they are, from no weight
CHUNKED = ("encoder", "decoder")  # the parts whose activations fill the memory


class Network(nn.Module):
    """A clip and a step in, the terms of the loss out; only `total` carries a gradient."""

    def __init__(self, model: Model, objective: Objective, config: TrainConfig) -> None:
        super().__init__()
        self.model, self.objective = model, objective
        self._outputs = torch.compile(model.outputs) if config.compile else model.outputs
        if config.chunks > 1:
            for name in CHUNKED:
                if isinstance(getattr(model, name, None), nn.Module):
                    compute_in_chunks(name, getattr(model, name), config.chunks)

    def forward(self, clip: Clip, step: int) -> dict[str, Tensor]:
        """Every active term, unweighted, and their weighted total."""
        terms = self.objective(self._outputs(clip), step)
        return {name: value if name == "total" else value.detach() for name, value in terms.items()}

    def may_leave_parts_out(self) -> bool:
        """Whether a part of the model feeds no active term, so that some weights get no gradient."""
        needed = {field for name in self.objective.active for field in TERMS[name].needs}
        return bool(self.model.provides() - needed - GIVEN)


def compute_in_chunks(name: str, module: nn.Module, chunks: int) -> None:
    """Let a module take its batch in chunks and keep no activations: the same numbers, less memory.

    Each chunk is computed again in the backward pass. Regularisers and batch norms, which come after
    it, still see the whole batch; a module with a batch norm inside cannot be split like that.
    """
    if any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules()):
        raise BadInput(
            f"train.chunks must be 1 here: the {name} normalises over the batch, and a chunk is not the batch"
        )
    whole = module.forward

    def forward(*inputs: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return whole(*inputs)  # type: ignore[no-any-return]
        parts = zip(*(tensor.chunk(chunks) for tensor in inputs), strict=True)
        return torch.cat([checkpoint(whole, *part, use_reentrant=False) for part in parts])

    module.forward = forward  # type: ignore[method-assign]
