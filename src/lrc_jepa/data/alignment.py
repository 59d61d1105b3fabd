"""Do the actions explain the motion as they are, or shifted by a row?

A store promises that the action of row t leads from frame t to frame t + 1. A recording that is off by
one trains without complaint, because neighbouring frames look alike. So the change from row t to t + 1
is compared with the action of row t + k for k = -1, 0, 1, by ridge regression, scored on episodes that
were not fitted:

- states: the change of the state, predicted from the action and the state itself (so that absolute
  targets are judged as fairly as steps), as the share explained beyond the state alone;
- frames: the action, predicted from how the mass of what stands out from the episode's median frame
  moves between the two frames, at a low resolution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.data.findings import Finding, numbers
from lrc_jepa.data.store import Store

SHIFTS = (-1, 0, 1)
MOST_EPISODES, ROWS_PER_EPISODE, SHORTEST = 200, 60, 5
RIDGES = (
    1e-4,
    0.03,
)  # little where columns are collinear, as targets beside states; more where they are noisy
CELLS = 16  # side of the small frames
WAVES = 6  # slow cosines along each side
BACKGROUND = 24  # frames whose median is an episode's background
WIDEST_STATE = 64
EXPLAINS = 0.05  # below this share nothing is said to explain the motion
WORST = 2.0  # an episode's error counts for no more than this many times the variance
BETTER, SURE = 0.02, 3.0  # a shift wins by this much of R^2, and by as many standard errors


@dataclass(frozen=True)
class Evidence:
    """Held-out R^2 of each shift from one source, and each episode's errors."""

    source: str
    r2: dict[int, float]
    episodes: Array  # (E,)
    errors: Array  # (E, 3): squared error of each shift as a share of the variance
    own: float = 0.0
    """Share of the variance that the row's own action explains beyond the action of the best shift."""

    @property
    def best(self) -> int:
        """The shift that explains most."""
        return max(self.r2, key=lambda shift: self.r2[shift])

    @property
    def shifted(self) -> bool:
        """Whether another shift than 0 explains clearly more, over episodes and not by luck."""
        if self.best == 0 or self.r2[self.best] - max(self.r2[0], 0) < BETTER:
            return False
        gain = self.errors[:, SHIFTS.index(0)] - self.errors[:, SHIFTS.index(self.best)]
        spread = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.inf
        return bool(gain.mean() > SURE * spread)

    def off(self) -> tuple[int, ...]:
        """Episodes in which the best shift beats 0."""
        gain = self.errors[:, SHIFTS.index(0)] - self.errors[:, SHIFTS.index(self.best)]
        return numbers(self.episodes[gain > 0])


def _rows(store: Store) -> tuple[Array, Array]:
    """Sampled rows t with t - 1 and t + 1 in the episode and t + 1 not its last, and their episodes."""
    rng = np.random.default_rng(0)
    long = np.flatnonzero(store.ep_len >= SHORTEST)
    chosen = np.sort(rng.permutation(long)[:MOST_EPISODES])
    rows, owners = [], []
    for episode in chosen:
        room = np.arange(1, store.ep_len[episode] - 2)
        taken = np.sort(rng.permutation(room)[:ROWS_PER_EPISODE])
        rows.append(store.ep_offset[episode] + taken)
        owners.append(np.full(len(taken), episode))
    if not rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate(rows), np.concatenate(owners)


def _standard(values: Array) -> Array:
    """Columns that vary, centred and scaled."""
    values = values.reshape(len(values), -1).astype(np.float64)
    spread = values.std(axis=0)
    kept = spread > 1e-9 * (1 + np.abs(values).max(initial=0.0))
    return np.asarray((values[:, kept] - values[:, kept].mean(axis=0)) / spread[kept])


def _heldout_error(inputs: Array, targets: Array, half: Array) -> Array:
    """Squared error (rows,) of ridge regression fitted on the other half of the episodes, the better of two."""
    tried = []
    design = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
    for ridge in RIDGES:
        errors = np.zeros(len(inputs))
        for side in (False, True):
            fit, test = half == side, half != side
            gram = design[fit].T @ design[fit] + ridge * fit.sum() * np.eye(design.shape[1])
            weights = np.linalg.solve(gram, design[fit].T @ targets[fit])
            errors[test] = ((targets[test] - design[test] @ weights) ** 2).mean(axis=1)
        tried.append(errors)
    return min(tried, key=np.mean)


def _evidence(source: str, owners: Array, errors: list[Array], scale: Array) -> Evidence:
    """From each shift's errors by row, and the error of knowing nothing."""
    episodes = np.unique(owners)
    total = scale.mean()
    r2 = {k: float(1 - e.mean() / total) for k, e in zip(SHIFTS, errors, strict=True)}
    by_episode = np.stack([[e[owners == n].mean() for e in errors] for n in episodes]) / total
    return Evidence(source, r2, episodes, np.minimum(by_episode, WORST))


def _small(frames: Array) -> Array:
    """(n, h, w, 3) -> (n, CELLS, CELLS, 3) means."""
    edges = np.linspace(0, frames.shape[1], min(CELLS, frames.shape[1]) + 1).astype(int)
    sums = np.add.reduceat(frames.astype(np.float32), edges[:-1], axis=1)
    sums = np.add.reduceat(sums, edges[:-1], axis=2)
    areas = np.outer(np.diff(edges), np.diff(edges))[None, :, :, None]
    return np.asarray(sums / areas)


def _waves(side: int) -> Array:
    """(side * side, WAVES * WAVES) slow cosines over a square: enough to tell where mass has moved."""
    steps = np.arange(min(WAVES, side))
    line = np.cos(np.pi * (np.arange(side)[:, None] + 0.5) * steps / side)  # (side, waves)
    return np.asarray(np.einsum("ia,jb->ijab", line, line).reshape(side * side, -1))


def _shifts_of_mass(store: Store, rows: Array, owners: Array) -> Array:
    """How the mass of what stands out from an episode's background moves from each row to the next.

    The background is the episode's median frame, so that colours do not matter.
    """
    parts = []
    for episode in np.unique(owners):
        mine = rows[owners == episode]
        begin, length = store.ep_offset[episode], store.ep_len[episode]
        spread = begin + np.linspace(0, length - 1, min(length, BACKGROUND)).astype(int)
        background = np.median(_small(store.pixels[spread]), axis=0)
        now, then = (np.abs(_small(store.pixels[at]) - background).sum(axis=3) for at in (mine, mine + 1))
        parts.append((then - now) / max(float(now.sum(axis=(1, 2)).mean()), 1e-6))
    moved = np.concatenate(parts)  # (n, side, side)
    return np.asarray(moved.reshape(len(moved), -1) @ _waves(moved.shape[1]))


def _from_frames(store: Store, rows: Array, owners: Array, half: Array) -> Evidence | None:
    moved = _standard(_shifts_of_mass(store, rows, owners))
    known = store.action[rows].astype(np.float64)
    kept = known.std(axis=0) > 1e-9
    if moved.shape[1] == 0 or not kept.any():
        return None
    spread, centre = known.std(axis=0)[kept], known.mean(axis=0)[kept]
    errors, scales = [], []
    for shift in SHIFTS:
        target = (store.action[rows + shift][:, kept] - centre) / spread
        errors.append(_heldout_error(moved, target, half))
        scales.append((target**2).mean(axis=1))
    return _evidence("frames", owners, errors, np.mean(scales, axis=0))


def _from_states(store: Store, rows: Array, owners: Array, half: Array) -> Evidence | None:
    names = ["state"] if "state" in store.columns else store.quantities
    columns = [store.columns[n].reshape(len(store.pixels), -1) for n in names]
    now, then = (
        np.concatenate([c[at] for c in columns] or [np.zeros((len(rows), 0))], axis=1)
        for at in (rows, rows + 1)
    )
    if not 0 < now.shape[1] <= WIDEST_STATE or not (np.isfinite(now).all() and np.isfinite(then).all()):
        return None
    change, state = _standard(then - now), _standard(now)
    if change.shape[1] == 0:
        return None
    alone = _heldout_error(state, change, half)
    actions = {k: _standard(store.action[rows + k]) for k in SHIFTS}
    errors = [_heldout_error(np.concatenate([actions[k], state], axis=1), change, half) for k in SHIFTS]
    evidence = _evidence("states", owners, errors, np.maximum(alone, 1e-12))
    if evidence.best == 0:
        return evidence
    both = _heldout_error(np.concatenate([actions[0], actions[evidence.best], state], axis=1), change, half)
    gain = errors[SHIFTS.index(evidence.best)].mean() - both.mean()
    return replace(evidence, own=float(gain / max(alone.mean(), 1e-12)))


def gather_evidence(store: Store) -> list[Evidence]:
    """What frames and states say; nothing where there is too little to go by."""
    rows, owners = _rows(store)
    episodes = np.unique(owners)
    if len(episodes) < 2 or len(rows) < 20:
        return []
    finite = np.isfinite([store.action[rows + k] for k in SHIFTS]).all(axis=(0, 2))
    rows, owners = rows[finite], owners[finite]
    half = np.isin(owners, episodes[::2])
    if min(half.sum(), (~half).sum()) < 10:
        return []
    sources = (_from_states(store, rows, owners, half), _from_frames(store, rows, owners, half))
    return [evidence for evidence in sources if evidence is not None]


MEANING = {
    1: "row t seems to hold the action that led to frame t rather than the one that leaves it; move the "
    "actions up by one row",
    -1: "the motion follows one row after its action, as with a camera that lags; drop each episode's "
    "first frame and last action, or know that the robot is slow to answer",
}
UNSURE = (
    "but each row's own action still adds to it, which an action of another row would not do; absolute "
    "targets with much noise look like this, so look at the recording before moving anything"
)


def _meaning(evidence: Evidence) -> str:
    """What a shift tells; an action that led to a frame tells nothing more once the next one is known."""
    return UNSURE if evidence.best == 1 and evidence.own >= BETTER else MEANING[evidence.best]


def _scores(evidence: Evidence) -> str:
    r2 = evidence.r2
    return f"R^2 {r2[-1]:.2f} at -1, {r2[0]:.2f} as they are, {r2[1]:.2f} at +1"


def check_alignment(store: Store) -> tuple[list[Finding], dict[str, Any]]:
    """What frames and states say; a camera may lag although the states are in step."""
    evidence = gather_evidence(store)
    figures: dict[str, Any] = {
        f"alignment_{e.source}_r2": {f"{shift:+d}": round(e.r2[shift], 4) for shift in SHIFTS}
        for e in evidence
    }
    if not evidence:
        return [Finding("note", "alignment", "there is too little to compare actions with motion")], figures
    telling = [e for e in evidence if max(e.r2.values()) >= EXPLAINS]
    figures["alignment_best_shift"] = {e.source: e.best for e in telling}
    if not telling:
        sentence = f"actions explain next to nothing of the motion, shifted or not ({_scores(evidence[0])})"
        return [Finding("warning", "alignment", sentence)], figures
    findings = []
    for e in telling:
        if e.shifted:
            sentence = f"actions explain the motion in the {e.source} better shifted ({_scores(e)}): "
            findings.append(Finding("warning", "alignment", sentence + _meaning(e), e.off()))
        else:
            word = "best" if e.best == 0 else "about as well"
            sentence = f"actions explain the motion in the {e.source} {word} as they are ({_scores(e)})"
            findings.append(Finding("note", "alignment", sentence))
    return findings, figures
