"""Health of a model in training: collapse, what z and u say, and whether actions matter.

A falling loss can hide a collapse, and frames paired with the wrong actions. These figures cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array, spans
from lrc_jepa.config import SigRegConfig
from lrc_jepa.data.clips import Clips, Split
from lrc_jepa.data.quantities import CIRCLE, measured
from lrc_jepa.data.store import Store
from lrc_jepa.device import device_of
from lrc_jepa.models.base import Model
from lrc_jepa.models.compact import Compact
from lrc_jepa.objectives.sigreg import GAUSSIAN_FLOOR, sigreg
from lrc_jepa.readout import Readout, effective_rank, r_squared, rank_correlation
from lrc_jepa.training.streams import clip_states, frame_streams

COLLAPSED_RANK = 1.5  # effective rank below which z is a line or a point
SETTLED = 50  # steps before which BatchNorm's running statistics are not yet those of the data
COLLAPSED_STD = 0.2  # mean standard deviation of z below which it is a point


def _rows_of(store: Store, episodes: Array) -> Array:
    return spans(store.ep_offset[episodes], store.ep_len[episodes])


def _distance_rank(z: Array, truths: dict[str, Array]) -> float:
    """Spearman correlation of latent with true distance over random pairs of frames.

    Each column of what was measured counts by its own spread; an angle counts as a point of the circle.
    """
    parts = [values for name, values in truths.items() if name + CIRCLE not in truths]
    state = np.concatenate(parts, axis=1)
    state = state / np.maximum(state.std(axis=0), 1e-8)
    order = np.random.default_rng(0).permutation(len(z))
    latent = np.linalg.norm(z - z[order], axis=1)
    return rank_correlation(latent, np.linalg.norm(state - state[order], axis=1))


def _pick(rng: np.random.Generator, items: Array, count: int) -> Array:
    return np.sort(rng.choice(items, min(count, len(items)), replace=False))


@dataclass(frozen=True)
class HealthCheck:
    """A fixed set of frames and clips on which a model is examined again and again."""

    store: Store
    clips: Clips
    clip_ids: Array
    fit_rows: Array
    test_rows: Array
    identity_rows: Array  # (episodes, frames): the first half is fitted on, the second tested

    CLIPS, FIT, TEST, EPISODES, FRAMES = 256, 1024, 512, 16, 16

    @classmethod
    def prepare(cls, store: Store, split: Split, clips: Clips) -> HealthCheck:
        """Choose held-out clips and frames once; `clips` are the held-out ones."""
        rng = np.random.default_rng(0)
        episodes = _pick(rng, split.heldout, cls.EPISODES)
        share = np.linspace(0, 1, cls.FRAMES)
        rows = [store.ep_offset[e] + (share * (store.ep_len[e] - 1)).astype(int) for e in episodes]
        return cls(
            store=store,
            clips=clips,
            clip_ids=_pick(rng, np.arange(len(clips)), cls.CLIPS),
            fit_rows=_pick(rng, _rows_of(store, split.train), cls.FIT),
            test_rows=_pick(rng, _rows_of(store, split.heldout), cls.TEST),
            identity_rows=np.stack(rows),
        )

    def _streams(self, model: Model, rows: Array) -> dict[str, Array]:
        """Features of single frames, flat: z, and u where the model has it."""
        streams = frame_streams(model, self.store, rows)
        return {name: value.reshape(len(value), -1) for name, value in streams.items()}

    def readouts(self, model: Model) -> dict[str, float]:
        """Held-out R^2 of every physical quantity, linear in z and in u."""
        fit = self._streams(model, self.fit_rows)
        test = self._streams(model, self.test_rows)
        figures = {}
        truths = measured(self.store, self.test_rows)
        for name, known in measured(self.store, self.fit_rows).items():
            for stream in fit:
                readout = Readout.fit(fit[stream], known)
                figures[f"r2_{stream}.{name}"] = r_squared(readout(test[stream]), truths[name])
        if truths:
            figures["distance_rank"] = _distance_rank(test["z"], truths)
        figures["effective_rank"] = effective_rank(test["z"])
        figures["z_std"] = float(test["z"].std(0).mean())
        return figures

    def identity(self, model: Model) -> dict[str, float]:
        """How often a linear read-out of z or u names the episode a later frame comes from."""
        episodes, frames = self.identity_rows.shape
        streams = self._streams(model, self.identity_rows.ravel())
        label = np.repeat(np.arange(episodes), frames)
        early = np.tile(np.arange(frames) < frames // 2, episodes)
        figures = {"episode_chance": 1 / episodes}
        for name, features in streams.items():
            readout = Readout.fit(features[early], np.eye(episodes)[label[early]], ridge=1e-2)
            named = readout(features[~early]).argmax(axis=1)
            figures[f"episode_{name}"] = float((named == label[~early]).mean())
        return figures

    def actions(self, model: Model, device: torch.device, config: SigRegConfig) -> dict[str, float]:
        """Prediction error with true, shuffled and shifted actions; SIGReg over its floor."""
        clip = self.clips.gather(self.clip_ids)
        actions = clip.actions.to(device)
        states = clip_states(model, clip.to(device), 64)
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(states))).to(device)
        window = min(model.spec.history, actions.shape[1])

        def error(blocks: Tensor) -> float:
            predicted = model.step(states[:, :window], blocks[:, :window])
            return float((predicted - states[:, window]).square().mean())

        z = states[..., : model.spec.seen]
        statistic = float(sigreg(z, config, torch.Generator().manual_seed(0)))
        return {
            "error_true_actions": error(actions),
            "error_shuffled_actions": error(actions[order]),
            "error_shifted_actions": error(actions.roll(1, dims=1)),
            "sigreg_over_floor": statistic / GAUSSIAN_FLOOR,
        }

    @torch.no_grad()
    def __call__(self, model: Model, config: SigRegConfig) -> dict[str, float]:
        """All figures; the model is put back into the mode it was in."""
        device = device_of(model)
        training = model.training
        model.eval()
        try:
            return {
                **self.readouts(model),
                **self.identity(model),
                **self.actions(model, device, config),
            }
        finally:
            model.train(training)


@dataclass(frozen=True)
class JoinedHealth:
    """The same on every dataset of a run, by their names: the first one's figures under their own names."""

    checks: dict[str, HealthCheck]

    @property
    def left_out(self) -> int:
        """Held-out episodes that are shorter than a clip."""
        return sum(check.clips.left_out for check in self.checks.values())

    def __call__(self, model: Model, config: SigRegConfig) -> dict[str, float]:
        """All figures."""
        if not isinstance(model, Compact) or model.adapters is None:
            (check,) = self.checks.values()
            return check(model, config)
        first, *others = ((name, check(model.alone(name), config)) for name, check in self.checks.items())
        return first[1] | {
            f"{key}@{name}": value for name, figures in others for key, value in figures.items()
        }


def collapse_alarm(figures: dict[str, float], step: int) -> str | None:
    """A sentence if z has collapsed, else None."""
    if step < SETTLED:
        return None
    if figures["z_std"] < COLLAPSED_STD:
        return f"z has collapsed to a point: its standard deviation is {figures['z_std']:.3f}"
    if figures["effective_rank"] < COLLAPSED_RANK:
        return f"z has collapsed: its effective rank is {figures['effective_rank']:.2f}"
    return None
