"""The terms an objective can be made of: one function each, and one line in TERMS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from lrc_jepa.collective import alone
from lrc_jepa.config import ObjectiveConfig
from lrc_jepa.objectives.sigreg import sigreg
from lrc_jepa.objectives.squared_error import squared_error
from lrc_jepa.objectives.vicreg import context_terms, spread_covariance, spread_hinge, time_hinge
from lrc_jepa.plugins import Table
from lrc_jepa.types import Outputs


def prediction(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """||z_pred - z_target||^2 / width of z, in the mean; the target is NOT detached.

    A number of proprioception counts as one of z does, and z as much as it would alone.
    """
    return F.mse_loss(out.z_pred.float(), out.z_target.float()) * (out.z_pred.shape[-1] / out.z.shape[-1])


def gaussianity(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """SIGReg of z at each time step."""
    return sigreg(out.z, config.sigreg, generator)


def centred_gaussianity(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """SIGReg of z minus its mean over the clip: only what changes in time must be Gaussian.

    Of T centred samples with variance 1 a share (T-1)/T is left, which is put back.
    """
    frames = out.z.shape[1]
    centred = (out.z - out.z.mean(dim=1, keepdim=True)) * (frames / (frames - 1)) ** 0.5
    return sigreg(centred, config.sigreg, generator)


def within_episodes(z: Tensor, episodes: Tensor) -> Tensor:
    """z (B,T,N,D) less the mean over all frames of its episode in the batch, episodes (B,).

    Of n centred samples with variance 1 a share (n-1)/n is left, which is put back: n counts the
    episode's frames. Whatever is the same in all of them leaves no trace.
    """
    same = (episodes[:, None] == episodes).to(z.dtype)  # (B, B)
    clips = same.sum(dim=1)
    mean = torch.einsum("bc,cnd->bnd", same, z.mean(dim=1)) / clips[:, None, None]
    frames = clips * z.shape[1]
    return (z - mean[:, None]) * (frames / (frames - 1)).sqrt()[:, None, None, None]


def gaussianity_within(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """SIGReg of z less the mean of its episode: z must be Gaussian given the episode.

    What an episode looks like contributes nothing, so z has to vary with what varies in time. All of
    an episode's clips are in one process, so the means need no exchange.
    """
    assert out.episodes is not None
    return sigreg(within_episodes(out.z.float(), out.episodes), config.sigreg, generator)


def by_episode(z: Tensor, episodes: Tensor) -> Tensor:
    """z (B,T,N,D) of E episodes with equally many clips, in any order -> (E, B/E * T, N, D)."""
    count = len(episodes.unique())
    return z[episodes.argsort(stable=True)].unflatten(0, (count, -1)).flatten(1, 2)


def gaussianity_of_episodes(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """SIGReg of the frames of each episode apart: every episode must fill the same Gaussian, mean included.

    Right where each episode visits all there is; others are better centred (`gaussianity_within`). A
    process has whole episodes, so its statistics are its own and DDP's mean is the mean over all.
    """
    assert out.episodes is not None
    rows = by_episode(out.z.float(), out.episodes).transpose(0, 1)  # (n, E, N, D): an episode as a time step
    with alone():
        return sigreg(rows, replace(config.sigreg, over_time="per_step"), generator)


def _context(u: Tensor, config: ObjectiveConfig) -> Tensor:
    parts = context_terms(u, config.context)
    weights = config.context
    return (
        weights.invariance * parts["invariance"]
        + weights.variance * parts["variance"]
        + weights.covariance * parts["covariance"]
    )


def context(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """Temporal VICReg of u: invariance, variance and covariance in the paper's weights."""
    assert out.u is not None
    return _context(out.u, config)


def context_episode(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """The same over the clip and a frame from elsewhere in its episode."""
    assert out.u is not None and out.u_far is not None
    return _context(torch.cat([out.u, out.u_far], dim=1), config)


def context_within(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """The same over all frames of an episode in the batch: u must not tell one time from another."""
    assert out.u is not None and out.episodes is not None
    return _context(by_episode(out.u, out.episodes), config)


def reconstruction(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """mean (recon - frame)^2 in normalised pixels."""
    assert out.recon is not None and out.pixels is not None
    return squared_error(out.recon, out.pixels)


def moving_reconstruction(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """(recon - frame)^2 weighted by how much a pixel changes within its clip.

    The weight is the pixel's variance over time, summed over colours, as a share of the clip's; a
    clip in which nothing changes counts 0.
    """
    assert out.recon is not None and out.pixels is not None
    return squared_error(
        out.recon, out.pixels, _share_of_change(out.pixels.float()) * out.pixels[0, 0, 0].numel()
    )


@torch.no_grad()
def _share_of_change(frames: Tensor) -> Tensor:
    """(B,T,3,h,w) -> (B,1,1,h,w), which sums to 1 over the pixels of each clip in which anything changes."""
    # `var` over an axis that is not the last takes one number at a time: a third of a whole step.
    apart = frames - frames.mean(dim=1, keepdim=True)
    change = apart.square_().sum(dim=(1, 2), keepdim=True)  # the variance, but for a factor that cancels
    floor = 1e-8 * max(1, frames.shape[1] - 1)
    return change / change.sum(dim=(3, 4), keepdim=True).clamp_min(floor)


def inverse(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """mean (predicted block - block)^2 of the inverse-dynamics head, in normalised actions."""
    assert out.action_pred is not None
    return F.mse_loss(out.action_pred.float(), out.actions.float())


def proposal(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """mean (proposed block - block)^2 of the proposer, in normalised actions."""
    assert out.proposed is not None and out.done is not None
    return F.mse_loss(out.proposed.float(), out.done.float())


def temporal(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """mean (z_t+1 - z_t)^2: neighbours in time are close."""
    return F.mse_loss(out.z[:, 1:].float(), out.z[:, :-1].float())


def std(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """Hinge on the standard deviation of every dimension of z over the batch."""
    return spread_hinge(out.z, config.variance)


def std_time(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """Hinge on the standard deviation of every dimension of z over the clip."""
    return time_hinge(out.z, config.variance)


def covariance(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """Squared covariance between dimensions of z over the batch."""
    return spread_covariance(out.z, config.variance)


def features(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """mean (rebuilt - feature)^2 of the patch features that slots must explain, or of what z must retell."""
    assert out.tokens is not None and out.tokens_recon is not None
    return F.mse_loss(out.tokens_recon.float(), out.tokens.float())


def masked(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """mean (predicted - slot)^2 of the slots that were hidden from the predictor."""
    assert out.masked_pred is not None and out.masked_target is not None
    return F.mse_loss(out.masked_pred.float(), out.masked_target.float())


def consistency(out: Outputs, config: ObjectiveConfig, generator: torch.Generator) -> Tensor:
    """Cross-entropy of finding each token of a frame again among those of the next, by cosine."""
    unit = F.normalize(out.z.float(), dim=-1)
    scores = unit[:, :-1] @ unit[:, 1:].transpose(-1, -2) / config.temperature  # (B, T-1, N, N)
    same = torch.arange(scores.shape[-1], device=scores.device).expand(scores.shape[:-1])
    return F.cross_entropy(scores.flatten(0, 2), same.flatten())


@dataclass(frozen=True)
class Term:
    """A function of the model's outputs, and the fields of `Outputs` it needs."""

    function: Callable[[Outputs, ObjectiveConfig, torch.Generator], Tensor]
    needs: frozenset[str]


TERMS: Table[Term] = Table(
    "terms",
    {
        "prediction": Term(prediction, frozenset({"z_pred", "z_target"})),
        "sigreg": Term(gaussianity, frozenset({"z"})),
        "sigreg_centred": Term(centred_gaussianity, frozenset({"z"})),
        "sigreg_within": Term(gaussianity_within, frozenset({"z", "episodes"})),
        "sigreg_episode": Term(gaussianity_of_episodes, frozenset({"z", "episodes"})),
        "std": Term(std, frozenset({"z"})),
        "std_time": Term(std_time, frozenset({"z"})),
        "covariance": Term(covariance, frozenset({"z"})),
        "temporal": Term(temporal, frozenset({"z"})),
        "inverse": Term(inverse, frozenset({"action_pred", "actions"})),
        "proposal": Term(proposal, frozenset({"proposed", "done"})),
        "context": Term(context, frozenset({"u"})),
        "context_episode": Term(context_episode, frozenset({"u", "u_far"})),
        "context_within": Term(context_within, frozenset({"u", "episodes"})),
        "reconstruction": Term(reconstruction, frozenset({"recon", "pixels"})),
        "reconstruction_moving": Term(moving_reconstruction, frozenset({"recon", "pixels"})),
        "features": Term(features, frozenset({"tokens", "tokens_recon"})),
        "masked": Term(masked, frozenset({"masked_pred", "masked_target"})),
        "consistency": Term(consistency, frozenset({"z"})),
    },
)
