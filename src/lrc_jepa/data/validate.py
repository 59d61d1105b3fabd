"""Looking a store over before training on it: what is wrong, and in which episodes."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from lrc_jepa.arrays import Array
from lrc_jepa.config import ClipConfig
from lrc_jepa.console import OnProgress, silent
from lrc_jepa.data.alignment import WIDEST_STATE, check_alignment
from lrc_jepa.data.findings import Finding, Report, Severity, numbers
from lrc_jepa.data.jpeg import JpegFrames
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import write_bytes

Checked = tuple[list[Finding], dict[str, Any]]
BLOCK = 512  # rows read at a time
DARK = 8  # grey levels: a frame that is nowhere brighter is black
FROZEN = 0.5  # share of transitions without any change from which an episode counts as frozen
LATE = 1.5  # periods between two rows from which frames are missing
RATE_OFF = 0.02
SAME = 1e-4  # of a column's spread: equal up to rounding
MOSTLY = 0.98  # share of rows
MOST_COMPARED = 20_000  # rows


@dataclass(frozen=True)
class Survey:
    """One pass over the frames: by row and by episode."""

    darkest: Array  # (rows,) largest value of the frame
    flat: Array  # (rows,) bool: all pixels equal
    still: Array  # (rows,) bool: equal to the next frame of the episode
    prints: list[bytes]  # a hash of each episode's frames
    sha256: str  # of all frames


def survey(store: Store, progress: OnProgress) -> Survey:
    """Read every frame once."""
    rows = len(store.pixels)
    darkest, flat = np.zeros(rows, np.uint8), np.zeros(rows, bool)
    still, prints, whole = np.zeros(rows, bool), [], hashlib.sha256()
    for offset, length in zip(store.ep_offset, store.ep_len, strict=True):
        own = hashlib.sha256()
        before: Array | None = None
        for start in range(offset, offset + length, BLOCK):
            block = np.ascontiguousarray(store.pixels[start : min(start + BLOCK, offset + length)])
            data = block.tobytes()
            whole.update(data)
            own.update(data)
            part = slice(start, start + len(block))
            pixels = block.reshape(len(block), -1)
            darkest[part] = pixels.max(axis=1)
            colours = block.reshape(len(block), -1, 3)
            flat[part] = (colours == colours[:, :1]).all(axis=(1, 2))
            still[start : start + len(block) - 1] = (pixels[1:] == pixels[:-1]).all(axis=1)
            if before is not None:
                still[start - 1] = np.array_equal(before, pixels[0])
            before = pixels[-1]
            progress(start + len(block), rows)
        prints.append(own.digest())
    return Survey(darkest, flat, still, prints, whole.hexdigest())


def _owners(store: Store) -> Array:
    return np.repeat(np.arange(store.episodes), store.ep_len)


def _inner(store: Store) -> NDArray[np.bool_]:
    """Rows whose action is read: all but the last of each episode."""
    inner = np.ones(len(store.pixels), bool)
    inner[store.ep_offset + store.ep_len - 1] = False
    return inner


def check_checksums(store: Store, seen: Survey) -> Checked:
    """The columns still are what was written."""
    findings = []
    for name, described in store.meta["columns"].items():
        values = store.columns[name]
        if isinstance(values, JpegFrames):
            sha = values.digest()
        else:
            sha = seen.sha256 if name == "pixels" else hashlib.sha256(values.tobytes()).hexdigest()
        if sha != described["sha256"]:
            sentence = f"column {name} is not what was written: its checksum differs from meta.json"
            findings.append(Finding("error", "checksum", sentence))
    return findings, {}


def check_finite(store: Store, seen: Survey) -> Checked:
    """NaN and infinity."""
    findings, owners, inner = [], _owners(store), _inner(store)
    for name, values in store.columns.items():
        if values.dtype.kind != "f":
            continue
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if name == "action":
            bad &= inner
        if bad.any():
            severity: Severity = "error" if name == "action" else "warning"
            sentence = f"{name} is NaN or infinite in {int(bad.sum())} rows"
            findings.append(Finding(severity, "finite", sentence, numbers(owners[bad])))
    return findings, {}


def check_lengths(store: Store, seen: Survey) -> Checked:
    """Too few or too short episodes."""
    findings = []
    span = ClipConfig().span
    short = store.ep_len < span
    if store.episodes < 2:
        findings.append(
            Finding("error", "lengths", "there is a single episode; at least one more is held out")
        )
    if short.any():
        sentence = f"{int(short.sum())} episodes are shorter than the {span} frames of a clip"
        findings.append(Finding("warning", "lengths", sentence, numbers(np.flatnonzero(short))))
    figures = {"episodes": store.episodes, "frames": len(store.pixels)}
    lengths = store.ep_len
    figures |= {"length_min": int(lengths.min()), "length_max": int(lengths.max())}
    return findings, {**figures, "length_mean": round(float(lengths.mean()), 2)}


def check_frames(store: Store, seen: Survey) -> Checked:
    """Black, plain and frozen frames."""
    findings, owners, inner = [], _owners(store), _inner(store)
    black, plain = seen.darkest <= DARK, seen.flat & (seen.darkest > DARK)
    whole = np.add.reduceat(black, store.ep_offset) == store.ep_len
    if whole.any():
        sentence = f"{int(whole.sum())} episodes are black throughout, as from a camera that was not there"
        findings.append(Finding("error", "frames", sentence, numbers(np.flatnonzero(whole))))
    some = black & ~whole[owners]
    for mask, word in ((some, "black"), (plain, "of a single colour")):
        if mask.any():
            sentence = f"{int(mask.sum())} frames are {word}"
            findings.append(Finding("warning", "frames", sentence, numbers(owners[mask])))
    moves = np.maximum(store.ep_len - 1, 1)
    frozen = (np.add.reduceat(seen.still & inner, store.ep_offset) / moves > FROZEN) & ~whole
    if frozen.any():
        sentence = f"in {int(frozen.sum())} episodes more than half of the frames equal the next one"
        findings.append(Finding("warning", "frames", sentence, numbers(np.flatnonzero(frozen))))
    share = float((seen.still & inner).sum() / max(1, inner.sum()))
    return findings, {"black_frames": int(black.sum()), "repeated_frames": round(share, 4)}


def check_actions(store: Store, seen: Survey) -> Checked:
    """Ranges, bounds, and dimensions that never change."""
    findings: list[Finding] = []
    owners, inner = _owners(store), _inner(store)
    actions = store.action[inner].astype(np.float64)
    fine = np.isfinite(actions).all(axis=1)
    if not fine.any():
        return findings, {}
    low, high = actions[fine].min(axis=0), actions[fine].max(axis=0)
    still = np.flatnonzero(low == high)
    if len(still):
        names = ", ".join(str(d) for d in still[:8])
        sentence = (
            f"action dimension {names} never changes"
            if len(still) == 1
            else (f"{len(still)} action dimensions never change: {names}")
        )
        findings.append(Finding("warning", "actions", sentence))
    figures = {"action_min": low.round(4).tolist(), "action_max": high.round(4).tolist()}
    bounds = store.meta.get("action_low"), store.meta.get("action_high")
    if bounds[0] is not None and bounds[1] is not None:
        outside = ((actions < np.asarray(bounds[0]) - 1e-6) | (actions > np.asarray(bounds[1]) + 1e-6)).any(
            axis=1
        )
        outside &= fine
        figures["action_outside"] = round(float(outside.mean()), 6)
        if outside.any():
            sentence = f"{int(outside.sum())} actions ({outside.mean():.2%}) lie outside the bounds"
            findings.append(Finding("warning", "actions", sentence, numbers(owners[inner][outside])))
    return findings, figures


def check_times(store: Store, seen: Survey) -> Checked:
    """Time stamps that do not rise, gaps where frames were dropped, and a rate that is not as said."""
    if "timestamp" not in store.columns:
        return [], {}
    findings, inner = [], _inner(store)
    owners = _owners(store)[inner]
    times = store.columns["timestamp"].reshape(len(store.pixels), -1)[:, 0].astype(np.float64)
    steps = np.diff(times, append=np.nan)[inner]
    if len(steps) == 0 or not np.isfinite(steps).all():
        return [], {}
    backwards = steps <= 0
    if backwards.any():
        sentence = f"time does not move forward after {int(backwards.sum())} rows"
        findings.append(Finding("error", "times", sentence, numbers(owners[backwards])))
    period = float(np.median(steps))
    if period <= 0:
        return findings, {}
    late = steps > LATE * period
    missing = int((np.round(steps[late] / period) - 1).sum())
    if late.any():
        sentence = (
            f"{missing} frames were dropped in {int(late.sum())} gaps (a frame comes every {period:.3g} s)"
        )
        findings.append(Finding("warning", "times", sentence, numbers(owners[late])))
    rate = store.meta.get("frame_rate")
    if rate and abs(period * rate - 1) > RATE_OFF:
        sentence = f"the time stamps give {1 / period:.3g} frames per second, but meta.json says {rate:.3g}"
        findings.append(Finding("warning", "times", sentence))
    return findings, {"frame_rate_seen": round(1 / period, 4), "frames_dropped": missing}


def check_duplicates(store: Store, seen: Survey) -> Checked:
    """Episodes that show the same frames as one before them."""
    groups: dict[bytes, list[int]] = {}
    for episode, mark in enumerate(seen.prints):
        groups.setdefault(mark, []).append(episode)
    repeated = [episodes for episodes in groups.values() if len(episodes) > 1]
    if not repeated:
        return [], {"duplicates": 0}
    count = sum(len(episodes) - 1 for episodes in repeated)
    examples = "; ".join(" = ".join(map(str, e[:4])) for e in repeated[:4])
    sentence = f"{count} episodes repeat the frames of another one ({examples})"
    return [Finding("warning", "duplicates", sentence, numbers(n for e in repeated for n in e[1:]))], {
        "duplicates": count
    }


def _matches(action: Array, outcome: Array, turn: bool) -> tuple[list[int], Array]:
    """Dimensions of `action` that equal some dimension of `outcome` in nearly all rows, and in which rows.

    `turn` lets values differ by whole turns, as angles do.
    """
    dims, agree = [], np.ones(len(action), bool)
    outcome = outcome[:, np.isfinite(outcome).all(axis=0)]
    useful = outcome.std(axis=0) > 0
    for dim in np.flatnonzero(np.isfinite(action).all(axis=0)):
        gap = outcome[:, useful] - action[:, dim : dim + 1]  # (rows, dims of outcome)
        if turn:
            gap = (gap + np.pi) % (2 * np.pi) - np.pi
        equal = np.abs(gap) <= SAME * action[:, dim].std()
        if equal.size and action[:, dim].std() > 0 and equal.mean(axis=0).max() >= MOSTLY:
            dims.append(int(dim))
            agree &= equal[:, equal.mean(axis=0).argmax()]
    return dims, agree


def check_relabelled(store: Store, seen: Survey) -> Checked:
    """Actions that are the next state, or its difference to this one: what happened, not what was asked."""
    inner = np.flatnonzero(_inner(store))
    if len(inner) < 4:
        return [], {}
    rows = inner[np.linspace(0, len(inner) - 1, min(len(inner), MOST_COMPARED)).astype(int)]
    owners, action = _owners(store)[rows], store.action[rows].astype(np.float64)
    findings, total = [], 0
    for name in (n for n in ("state", *store.quantities) if n in store.columns):
        column = store.columns[name].reshape(len(store.pixels), -1)
        if column.shape[1] > WIDEST_STATE:
            continue
        now, then = column[rows].astype(np.float64), column[rows + 1].astype(np.float64)
        for kind, outcome in (("the change", then - now), ("the next value", then)):
            dims, agree = _matches(action, outcome, turn=kind == "the change")
            if not dims:
                continue
            total += len(dims)
            listed = ", ".join(map(str, dims[:8]))
            sentence = (
                f"action dimensions {listed} equal {kind} of {name}: they tell what happened, not what was "
                "commanded, which makes prediction easier than commanded actions would"
            )
            findings.append(Finding("warning", "relabelled", sentence, numbers(owners[agree])))
    return findings, {"relabelled_dimensions": total}


CHECKS: tuple[Callable[[Store, Survey], Checked], ...] = (
    check_checksums,
    check_lengths,
    check_finite,
    check_frames,
    check_actions,
    check_times,
    check_duplicates,
    check_relabelled,
)
ORDER = {"error": 0, "warning": 1, "note": 2}


def validate(store: Store, progress: OnProgress = silent) -> Report:
    """Run every check; the worst findings come first."""
    seen = survey(store, progress)
    findings: list[Finding] = []
    figures: dict[str, Any] = {}
    results = [check(store, seen) for check in CHECKS] + [check_alignment(store)]
    for more, measured in results:
        findings += more
        figures |= measured
    return Report(tuple(sorted(findings, key=lambda f: ORDER[f.severity])), figures)


def frame_strip(
    store: Store, path: Path, *, episodes: int = 6, frames: int = 8, picked: tuple[int, ...] = ()
) -> None:
    """Draw a sheet to look at: a line per episode (evenly spread, or `picked`), frames left to right."""
    if path.suffix.lower() != ".png":
        raise BadInput(f"{path} must end in .png")
    if any(not 0 <= number < store.episodes for number in picked):
        raise BadInput(f"there is no episode {max(picked)}; the last is {store.episodes - 1}")
    count = min(episodes, store.episodes)
    chosen = picked or numbers(np.linspace(0, store.episodes - 1, count).round())
    tile, edge, label = max(64, store.image_size), 2, 14
    width = frames * (tile + edge) + edge
    sheet = Image.new("RGB", (width, len(chosen) * (tile + edge + label) + edge), "white")
    pen = ImageDraw.Draw(sheet)
    for line, episode in enumerate(chosen):
        top = edge + line * (tile + edge + label)
        length = int(store.ep_len[episode])
        steps = numbers(np.linspace(0, length - 1, min(frames, length)).round())
        pen.text((edge, top), f"episode {episode}: frames {', '.join(map(str, steps))}", fill="black")
        for place, step in enumerate(steps):
            frame = Image.fromarray(np.asarray(store.pixels[store.ep_offset[episode] + step]))
            frame = frame.resize((tile, tile), Image.Resampling.NEAREST)
            sheet.paste(frame, (edge + place * (tile + edge), top + label))
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, buffer.getvalue())
