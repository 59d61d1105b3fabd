"""The training step as one would first write it from the paper: what the real one is measured against.

Frame by frame and formula by formula, with torch's defaults, and with the same weights, batch and
loss: a test holds that both give the same number.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from lrc_jepa.config import RunConfig
from lrc_jepa.data.clips import Clips
from lrc_jepa.models.linear import Linear
from lrc_jepa.models.vit import PIXEL_MEAN, PIXEL_STD
from lrc_jepa.objectives.sigreg import sigreg_reference


class PlainClips(Dataset[tuple[Tensor, Tensor]]):
    """One clip at a time: frames as normalised floats (T,3,h,w), blocks (T-1,A)."""

    def __init__(self, clips: Clips) -> None:
        self.clips = clips
        self.mean = torch.tensor(PIXEL_MEAN).view(3, 1, 1)
        self.std = torch.tensor(PIXEL_STD).view(3, 1, 1)

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        store, skip = self.clips.store, self.clips.config.frameskip
        start, count = int(self.clips.starts[index]), self.clips.frames
        frames = []
        for t in range(count):
            pixels = torch.tensor(store.pixels[start + t * skip]).permute(2, 0, 1)
            frames.append((pixels.float() / 255 - self.mean) / self.std)
        raw = store.action[start : start + (count - 1) * skip].reshape(count - 1, -1)
        return torch.stack(frames), torch.from_numpy(self.clips.normalizer.normalize(raw))


class PlainStep:
    """Forward, backward and update of a compact model, with or without the second stream."""

    def __init__(self, config: RunConfig, model: Any, clips: Clips) -> None:
        """Of the `model` only its parts are used, by their names."""
        self.config, self.model = config, model
        for module in model.modules():
            if isinstance(module, Linear):
                module.__class__ = nn.Linear  # type: ignore[assignment]
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.train.lr, weight_decay=config.train.weight_decay
        )
        self.loader = DataLoader(PlainClips(clips), config.train.batch_size, shuffle=True, drop_last=True)
        self.batches = iter(self.loader)

    def __call__(self, step: int) -> float:
        """Read a batch and train on it -> the loss."""
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        frames, actions = batch
        return self.update(frames, actions, step)

    def update(self, frames: Tensor, actions: Tensor, step: int) -> float:
        """Train on frames (B,T,3,h,w) and blocks (B,T-1,A)."""
        loss = self.loss(frames, actions, step)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.train.clip_norm)
        self.optimizer.step()
        return loss.item()

    def loss(self, frames: Tensor, actions: Tensor, step: int) -> Tensor:
        """The weighted sum of all terms."""
        model, weights, count = self.model, self.config.objective.weights, frames.shape[1]
        tokens = [model.encoder(frames[:, t]) for t in range(count)]
        z = model.g_z(torch.stack([h[:, 0] for h in tokens], dim=1))  # (B, T, D)
        predicted = model.g_p(model.predictor(z[:, :-1], model.action_encoder(actions)))
        loss = weights["prediction"] * F.mse_loss(predicted, z[:, 1:])
        generator = torch.Generator().manual_seed((self.config.train.seed * 1_000_003 + step) % 2**63)
        gaussianity = sigreg_reference(z.unsqueeze(2), self.config.objective.sigreg, generator)
        loss = loss + weights["sigreg"] * gaussianity
        if "context" not in weights:
            return loss
        u = torch.stack([model.context(h) for h in tokens], dim=1)  # (B, T, Q, D)
        loss = loss + weights["context"] * self.context_loss(u)
        rebuilt = [model.decoder(z[:, t, None], u[:, t]) for t in range(count)]
        error = sum(F.mse_loss(rebuilt[t], frames[:, t]) for t in range(count)) / count
        return loss + weights["reconstruction"] * error

    def context_loss(self, u: Tensor) -> Tensor:
        """Temporal VICReg with the covariance matrix written out."""
        config = self.config.objective.context
        flat = u.flatten(2)  # (B, T, Q*D)
        mean = flat.mean(dim=1)
        invariance = (flat - mean.unsqueeze(1)).square().mean()
        variance = F.relu(config.gamma - torch.sqrt(mean.var(dim=0) + config.epsilon)).mean()
        covariance = torch.cov(mean.T)
        off_diagonal = covariance - torch.diag(covariance.diag())
        penalty = off_diagonal.square().sum() / mean.shape[1]
        return config.invariance * invariance + config.variance * variance + config.covariance * penalty
