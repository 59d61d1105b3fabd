"""The loss that is new: a path through latent space that does not bend."""

import torch
import torch.nn.functional as F
from torch import Tensor

from lrc_jepa.config import ObjectiveConfig
from lrc_jepa.objectives.terms import Term
from lrc_jepa.types import Outputs


def straightness(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """Mean of 1 - cosine between steps that follow each other."""
    steps = (out.z[:, 1:] - out.z[:, :-1]).float()
    return 1 - F.cosine_similarity(steps[:, 1:], steps[:, :-1], dim=-1).mean()


STRAIGHTNESS = Term(straightness, frozenset({"z"}))
"""The function, and the fields of `Outputs` that it needs."""
