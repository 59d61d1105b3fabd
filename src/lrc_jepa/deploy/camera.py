"""A camera that may hang, read in a thread of its own: the loop only ever asks for the newest frame."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.console import warn
from lrc_jepa.deploy.robot import Observation


class Camera:
    """Calls `read`, which waits for the next frame, over and over; a frame counts from when it came.

    A `read` that hangs or fails leaves the last frame to grow old, which the loop notices; why one failed is said at once.
    """

    def __init__(self, read: Callable[[], Frames], feel: Callable[[], Array] | None = None) -> None:
        """`feel` tells what the robot knows of itself (P,); it is asked as soon as a frame has come."""
        self._read, self._feel, self._newest, self._closed = read, feel, None, threading.Event()
        self.error = ""
        """Why the camera was given up, if it was."""
        self._thread = threading.Thread(target=self._watch, name="camera", daemon=True)
        self._thread.start()

    _newest: Observation | None

    def newest(self) -> Observation | None:
        """The newest frame; None before the first."""
        return self._newest

    def close(self) -> None:
        """Read no more; a `read` that hangs is left to itself."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.is_set():
            try:
                frame = self._read()
                came = time.monotonic()
                felt = None if self._feel is None else self._feel()
            except Exception as error:  # noqa: BLE001 - a driver may raise anything
                self.error = str(error) or type(error).__name__
                warn(f"the camera failed and is read no more ({self.error})")
                return
            self._newest = Observation(frame, came, felt)
