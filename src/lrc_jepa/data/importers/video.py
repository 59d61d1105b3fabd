"""Decoding videos with PyAV, frame by frame."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.data.budget import ask
from lrc_jepa.data.importers.base import reading
from lrc_jepa.data.importers.images import MOST_PIXELS
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import later

av = later("av", "reading videos")

Frame = NDArray[np.uint8]
PER_PIXEL = 30  # bytes: a decoder keeps up to sixteen earlier frames, and the one shown becomes RGB
SUFFIXES = frozenset({".mp4", ".mkv", ".avi", ".mov", ".webm", ".m4v"})
# Playlists and the like would let a file name other files or addresses: only real containers are read.
CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi"
OPTIONS = {"format_whitelist": CONTAINERS, "protocol_whitelist": "file"}


@contextmanager
def _opened(file: Path | bytes, what: str) -> Iterator[tuple[Any, Any]]:
    with reading(what):
        # A path is given as an open file, so that FFmpeg never parses its name as an address.
        handle = io.BytesIO(file) if isinstance(file, bytes) else file.open("rb")
    with handle:
        with reading(what):
            container = av.open(handle, options=OPTIONS)
        try:
            with reading(what):
                if not container.streams.video:
                    raise BadInput(f"{what} holds no video")
                stream = container.streams.video[0]
                if stream.width * stream.height > MOST_PIXELS or stream.width * stream.height < 1:
                    raise BadInput(f"{what} claims frames of {stream.width} x {stream.height} pixels")
                size = len(file) if isinstance(file, bytes) else file.stat().st_size
                ask(PER_PIXEL * stream.width * stream.height, size, what)
                # FFmpeg's own threads may wait for Python's lock while Python waits for them to end.
                stream.thread_type, stream.codec_context.thread_count = "NONE", 1
            yield container, stream
        finally:
            container.close()


def _decoded(container: Any, stream: Any, what: str) -> Iterator[Any]:
    frames = container.decode(stream)
    while True:
        with reading(what):
            frame = next(frames, None)
            if frame is None:
                return
            if frame.width * frame.height > max(MOST_PIXELS // 8, stream.width * stream.height):
                raise BadInput(f"{what} holds a frame of {frame.width} x {frame.height} pixels")
        yield frame


def _rgb(frame: Any, what: str) -> Frame:
    with reading(what):
        return np.asarray(frame.to_ndarray(format="rgb24"))


def count_frames(file: Path, what: str) -> tuple[int, float]:
    """Number of frames, from the container's index or by walking its packets, and frames per second."""
    with _opened(file, what) as (container, stream), reading(what):
        rate = float(stream.average_rate or 0)
        count = stream.frames or sum(1 for packet in container.demux(stream) if packet.size)
        return int(count), rate


def all_frames(file: Path | bytes, what: str) -> Iterator[Frame]:
    """Every frame (h, w, 3) from the first to the last."""
    with _opened(file, what) as (container, stream):
        for frame in _decoded(container, stream, what):
            yield _rgb(frame, what)


def frames_at(file: Path, times: NDArray[np.float64], rate: float, what: str) -> Iterator[Frame]:
    """The frame shown at each of the rising `times`, in seconds from the start of the file.

    A frame counts as shown at a time when it lies within half a period of it; where there is none, the
    video and the table it belongs to do not fit, and that is refused.
    """
    with _opened(file, what) as (container, stream):
        with reading(what):
            base = float(stream.time_base or 0)
            begin = int(stream.start_time or 0)
            fastest = max(rate, float(stream.average_rate or rate))
            tolerance = 0.495 / fastest
            if times[0] > 2 * tolerance:
                container.seek(begin + int((times[0] - tolerance) / base), stream=stream)
        wanted = 0
        for frame in _decoded(container, stream, what):
            if frame.pts is None:
                raise BadInput(f"{what} holds a frame without a time")
            at = (frame.pts - begin) * base
            if at > times[wanted] + tolerance:
                raise BadInput(f"{what} has no frame for row {wanted} at {times[wanted]:.3f} s")
            if at >= times[wanted] - tolerance:
                yield _rgb(frame, what)
                wanted += 1
                if wanted == len(times):
                    return
        raise BadInput(f"{what} ends before row {wanted} of {len(times)}")
