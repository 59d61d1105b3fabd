"""The terms an objective can be made of: one function each, and one line in TERMS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lrc_jepa.config import ObjectiveConfig
from lrc_jepa.objectives.sigreg import sigreg
from lrc_jepa.objectives.vicreg import context_terms
from lrc_jepa.types import Outputs


def prediction(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """mean (z_pred - z_target)^2; the target is NOT detached."""
    return F.mse_loss(out.z_pred.float(), out.z_target.float())


def gaussianity(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """SIGReg of z at each time step."""
    return sigreg(out.z, config.sigreg, generator)


def context(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """Temporal VICReg of u: invariance, variance and covariance in the paper's weights."""
    assert out.u is not None
    parts = context_terms(out.u, config.context)
    weights = config.context
    return (
        weights.invariance * parts["invariance"]
        + weights.variance * parts["variance"]
        + weights.covariance * parts["covariance"]
    )


def reconstruction(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """mean (recon - frame)^2 in normalised pixels."""
    assert out.recon is not None and out.pixels is not None
    return F.mse_loss(out.recon.float(), out.pixels.float())


def inverse(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """mean (predicted block - block)^2 of the inverse-dynamics head, in normalised actions."""
    assert out.action_pred is not None
    return F.mse_loss(out.action_pred.float(), out.actions.float())


@dataclass(frozen=True)
class Term:
    """A function of the model's outputs, and the fields of `Outputs` it needs."""

    function: Callable[[Outputs, ObjectiveConfig, torch.Generator], Tensor]
    needs: frozenset[str]


TERMS: dict[str, Term] = {
    "prediction": Term(prediction, frozenset({"z_pred", "z_target"})),
    "sigreg": Term(gaussianity, frozenset({"z"})),
    "context": Term(context, frozenset({"u"})),
    "reconstruction": Term(reconstruction, frozenset({"recon", "pixels"})),
    "inverse": Term(inverse, frozenset({"action_pred", "actions"})),
}
