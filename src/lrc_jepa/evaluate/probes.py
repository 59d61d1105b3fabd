"""Probes: how well physical quantities can be read from frozen features of single frames."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from scipy.linalg import LinAlgWarning
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.neural_network import MLPRegressor

from lrc_jepa.arrays import Array
from lrc_jepa.bounds import Checked, Count, Range, Seed
from lrc_jepa.data.quantities import measured
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput


@dataclass(frozen=True)
class ProbeConfig(Checked):
    """The paper's protocol; the split is by episode everywhere."""

    frames: Count = 10_000
    """Frames drawn from the whole dataset."""
    test_share: Annotated[float, Range(0, 1, open="both")] = 0.2
    """Share of the episodes that is tested on."""
    seed: Seed = 0
    """Seed of frames, split and MLP."""


def _ridge(seed: int) -> Any:
    return Ridge(alpha=1e-3)


def _ridge_cv(seed: int) -> Any:
    return RidgeCV(alphas=np.logspace(-3, 4, 15))


def _mlp(seed: int) -> Any:
    return MLPRegressor(hidden_layer_sizes=(256, 256), early_stopping=True, max_iter=200, random_state=seed)


PROBES: dict[str, Callable[[int], Any]] = {"ridge": _ridge, "ridge-cv": _ridge_cv, "mlp": _mlp}


@dataclass(frozen=True)
class Standard:
    """Means and scales of the training part; columns that do not vary are dropped."""

    mean: Array
    scale: Array
    varies: Array

    @classmethod
    def fit(cls, values: Array) -> Standard:
        """From training rows (n,d)."""
        scale = values.std(axis=0)
        return cls(values.mean(axis=0), np.maximum(scale, 1e-12), scale > 1e-9)

    def __call__(self, values: Array) -> Array:
        """Standardised, only the columns that vary."""
        return np.asarray(((values - self.mean) / self.scale)[:, self.varies])


def draw_frames(store: Store, config: ProbeConfig) -> tuple[Array, Array]:
    """Rows to fit on and rows to test on, from different episodes."""
    rng = np.random.default_rng(config.seed)
    rows = np.sort(rng.permutation(len(store.pixels))[: config.frames])
    episode = store.episode_of(rows)
    order = rng.permutation(store.episodes)
    tested = order[: max(1, round(config.test_share * store.episodes))]
    test = np.isin(episode, tested)
    if test.all() or not test.any():
        raise BadInput(
            f"{len(rows)} frames of {store.path} are not of episodes to fit on and of others to test on: "
            "probes need more --frames, or a dataset of more episodes"
        )
    return rows[~test], rows[test]


LOOKS = "ep_appearance"  # what the simulated worlds drew for each episode


def stored_quantities(store: Store, fit: Array, test: Array) -> dict[str, tuple[Array, Array]]:
    """Every quantity a dataset records, (n,d), on the rows to fit and to test on.

    The looks of an episode, where its factors differ between episodes, are a quantity of all its frames.
    """
    truths = measured(store, test)
    quantities = {name: (known, truths[name]) for name, known in measured(store, fit).items()}
    looks = store.per_episode.get(LOOKS)
    if looks is not None and looks.ndim == 2 and (varies := np.ptp(looks, axis=0) > 0).any():
        episodes = (store.episode_of(rows) for rows in (fit, test))
        known, truth = (looks[of][:, varies] for of in episodes)
        quantities["appearance"] = (known, truth)
    return quantities


def pearson(a: Array, b: Array) -> float:
    """Mean over columns of the correlation of a and b (n,d); a constant prediction scores 0."""
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    norm = np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))
    return float(np.mean(np.where(norm > 1e-12, (a * b).sum(axis=0) / np.maximum(norm, 1e-12), 0.0)))


def fit_probe(
    kind: str, train: tuple[Array, Array], test: tuple[Array, Array], seed: int
) -> dict[str, float]:
    """Fit on standardised features and targets -> normalised MSE and Pearson r on the test part."""
    features, targets = Standard.fit(train[0]), Standard.fit(train[1])
    if not targets.varies.any():
        return {"mse": float("nan"), "r": float("nan")}
    probe = PROBES[kind](seed)
    y = targets(train[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # early stopping decides, not the limit
        warnings.simplefilter("ignore", LinAlgWarning)  # the paper's 1e-3 is little where features repeat
        probe.fit(features(train[0]), y[:, 0] if y.shape[1] == 1 else y)
    predicted = probe.predict(features(test[0])).reshape(len(test[0]), -1)
    truth = targets(test[1])
    return {"mse": float(((predicted - truth) ** 2).mean()), "r": pearson(predicted, truth)}


def probe_table(
    features: dict[str, tuple[Array, Array]],
    quantities: dict[str, tuple[Array, Array]],
    seed: int,
    kinds: list[str],
    progress: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Every stream x quantity x probe, and for each a control with shuffled targets (ridge only).

    Features and quantities come as (train, test) pairs of (n,d) arrays.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for quantity, (known, truth) in quantities.items():
        shuffled = known[rng.permutation(len(known))]
        for stream, (train, test) in features.items():
            for kind in kinds:
                scores = fit_probe(kind, (train, known), (test, truth), seed)
                rows.append(
                    {"quantity": quantity, "stream": stream, "probe": kind, "control": False, **scores}
                )
            control = fit_probe("ridge", (train, shuffled), (test, truth), seed)
            rows.append(
                {"quantity": quantity, "stream": stream, "probe": "ridge", "control": True, **control}
            )
            progress()
    return rows
