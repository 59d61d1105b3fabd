"""TensorBoard: films, in a folder of their own under the run's; its curves are always written, by the run itself."""

from __future__ import annotations

from pathlib import Path

from lrc_jepa.training.log import Board
from lrc_jepa.training.trackers import Tracked, Tracker


class Run(Tracker):
    """The films of a run."""

    id = "films"

    def __init__(self, run: Tracked) -> None:
        self._folder = run.folder / "tensorboard" / self.id
        self._board: Board | None = None

    def log(self, step: int, figures: dict[str, float]) -> None:
        """Nothing: they are there."""

    def film(self, step: int, path: Path) -> None:
        """Add a film; TensorBoard shows a GIF as it is."""
        self._board = self._board or Board(self._folder, step)
        self._board.picture(step, "imagined", path)

    def finish(self) -> None:
        """Close the file."""
        if self._board is not None:
            self._board.close()
