"""Episodes: look through a dataset, see where the model is surprised, and mark what is to be dropped."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
from PIL import Image

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.bounds import Natural
from lrc_jepa.data.deployment import robot_facts
from lrc_jepa.errors import BadInput
from lrc_jepa.studio.contents import Collection
from lrc_jepa.studio.messages import Answer, Answers, Part, film, number, numbers, picture
from lrc_jepa.studio.opened import frame_row

MOST = 60  # episodes of a page of the list
THUMB = 96  # pixels a side at most, of a picture in a row of pictures
STRIP = 16  # pictures along an episode
POINTS = 1000  # of a curve
AT_ONCE = 2 * 2**30  # bytes of frames that are looked over without being asked


def _small(frames: Frames) -> Frames:
    """Frames (n,h,w,3), no larger than a thumbnail."""
    side = frames.shape[1]
    if side <= THUMB:
        return frames
    thumbs = [Image.fromarray(f).resize((THUMB, THUMB), Image.Resampling.BOX) for f in frames]
    return np.stack([np.asarray(one) for one in thumbs])


class Episodes(Part):
    """One dataset at a time, one of its episodes under the glass."""

    name = "episodes"
    pace = 0.4

    def __init__(self, collections: Sequence[Collection]) -> None:
        self.collections, self.shown = collections, collections[0]
        self._waits = False  # for what `lrc data validate` finds

    def on_open(self, number: Natural = 0) -> Answers:
        """What is in a dataset; it is looked over meanwhile."""
        if number >= len(self.collections):
            raise BadInput(f"there are {len(self.collections)} datasets here, not {number + 1}")
        self.shown = self.collections[number]
        store, large = self.shown.store, self.shown.store.pixels.nbytes > AT_ONCE
        yield {
            "tell": "episodes.ready",
            "number": number,
            "sets": [one.store.path.name for one in self.collections],
            "path": str(store.path),
            "world": store.world,
            "lengths": store.ep_len.tolist(),
            "size": store.image_size,
            "rate": store.meta.get("frame_rate"),
            "dims": store.action.shape[1],
            "names": list(robot_facts(store).get("action_names", ())),
            "heldout": sorted(self.shown.heldout),
            "model": self.shown.model.label if self.shown.model else None,
            "large": large,
            **self._marks(),
        }
        if not large or self.shown.validation.report:
            yield from self.on_validate()

    def on_validate(self) -> Answers:
        """Look the dataset over, as `lrc data validate` does."""
        self.shown.validation.start()
        self._waits = True
        yield from self.go_on()

    @property
    def running(self) -> bool:
        """Whether the page waits for findings."""
        return self._waits

    def go_on(self) -> Answers:
        """How far the dataset has been looked over, or what was found."""
        validation = self.shown.validation
        self._waits = validation.running
        progress: Answer = {"tell": "episodes.findings", "done": validation.done, "total": validation.total}
        if validation.failure:
            raise BadInput(f"the dataset could not be looked over: {validation.failure}")
        findings = None if validation.report is None else [asdict(one) for one in validation.report.findings]
        yield {**progress, "findings": findings}

    def on_thumbs(self, episodes: tuple[Natural, ...]) -> Answers:
        """A picture of each of some episodes, from its middle."""
        store, chosen = self.shown.store, episodes[:MOST]
        rows = [frame_row(store, e, 0) + int(store.ep_len[e]) // 2 for e in chosen]
        if rows:
            seen = film(_small(np.stack([store.pixels[row] for row in rows])))
            yield {"tell": "episodes.thumbs", "episodes": list(chosen), "film": seen}

    def on_show(self, episode: Natural, frame: Natural = 0) -> Answers:
        """One episode: its actions, a strip of its frames, and how surprised the model is along it."""
        store, first = self.shown.store, frame_row(self.shown.store, episode, frame) - frame
        length = int(store.ep_len[episode])
        along = np.linspace(0, length - 1, min(STRIP, length)).round().astype(int)
        actions = np.asarray(store.action[first : first + max(1, length - 1)])
        yield {
            "tell": "episodes.episode",
            "episode": episode,
            "length": length,
            "strip": film(_small(np.asarray(store.pixels[first + along]))),
            "along": along.tolist(),
            "actions": [numbers(_thin(column)) for column in actions.T],
        }
        yield from self.on_frame(episode, frame)
        yield from self._surprise(episode)

    def on_frame(self, episode: Natural, frame: Natural = 0) -> Answers:
        """One frame, as it is stored."""
        row = frame_row(self.shown.store, episode, frame)
        seen = picture(np.asarray(self.shown.store.pixels[row]))
        yield {"tell": "episodes.frame", "episode": episode, "frame": frame, "picture": seen}

    def on_drop(self, episode: Natural, drop: bool) -> Answers:
        """Mark an episode to be dropped, or not."""
        frame_row(self.shown.store, episode, 0)  # it must exist
        self.shown.mark(episode, drop)
        yield {"tell": "episodes.marked", **self._marks()}

    def _marks(self) -> Answer:
        path, file = self.shown.store.path, self.shown.marks_file
        words = [
            "lrc",
            "data",
            "drop",
            path,
            "--from-file",
            file,
            "--out",
            path.with_name(f"{path.name}-kept"),
        ]
        return {
            "marked": sorted(self.shown.marked),
            "file": str(file),
            "command": shlex.join(map(str, words)),
        }

    def _surprise(self, episode: int) -> Answers:
        model = self.shown.model
        if model is None:
            return
        usual = model.usual_surprise  # worked out once, for the first episode that is shown
        errors, still = model.surprise(episode)
        worst = int(np.nanargmax(errors)) if np.isfinite(errors).any() else None
        yield {
            "tell": "episodes.surprise",
            "episode": episode,
            "values": numbers(_thin(errors)),
            "still": number(float(np.nanmedian(still))) if np.isfinite(still).any() else None,
            "usual": number(usual),
            "worst": worst,
            "frames": len(errors),
        }


def _thin(values: Array) -> Array:
    """At most so many values of a curve, evenly spread."""
    count = len(values)
    return values if count <= POINTS else values[np.linspace(0, count - 1, POINTS).round().astype(int)]
