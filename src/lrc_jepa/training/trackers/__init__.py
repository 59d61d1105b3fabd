"""Where the figures of a run go beside its own folder: one seam on the loop's `watch`, a file per service.

What was sent is written down in the run's `tracking.json`. A resumed run goes on in the same place, and steps
that were sent before it was interrupted are not sent again: resuming repeats them to the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from lrc_jepa.config import RunConfig
from lrc_jepa.config_tree import to_dict
from lrc_jepa.console import warn
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need
from lrc_jepa.files import read_json, write_json
from lrc_jepa.training.progress import Progress, Watcher

TRACKERS = ("wandb", "mlflow", "trackio")
"""Packages, each with a file here, and in it a `Run`."""
SENT = "tracking.json"


@dataclass(frozen=True)
class Tracked:
    """What a service is told of a run."""

    folder: Path
    name: str
    config: dict[str, Any]
    id: str | None
    """Under which the service knows it already; None: it is new."""


class Tracker(Protocol):
    """A run at a service, made from a `Tracked`."""

    id: str
    """Under which it is found again."""

    def log(self, step: int, figures: dict[str, float]) -> None:
        """Send figures of a step."""

    def finish(self) -> None:
        """Send what is left."""


def check_trackers(names: Sequence[str]) -> None:
    """Refuse, before any work, a service that is not known or whose package is missing."""
    for name in names:
        if name not in TRACKERS:
            raise BadInput(f"there is no tracker {name!r}; there is {', '.join(TRACKERS)}")
        need(name, f"tracking with {name}")


class Sender:
    """A watcher that sends losses and health to one service; a service that fails is left, the run goes on."""

    def __init__(
        self, service: str, tracker: Tracker, sent: dict[str, int], keep: Callable[[], None]
    ) -> None:
        """`sent` is the last step of each kind, train and health; `keep` writes it down."""
        self._service, self._tracker, self._sent, self._keep = service, tracker, sent, keep
        self._before, self._failed = dict(sent), False

    def __call__(self, progress: Progress) -> None:
        """Send what was not sent before the run was interrupted."""
        for kind, figures in (("train", progress.losses), ("health", progress.health)):
            if figures and progress.step > self._before.get(kind, 0) and not self._failed:
                named = {f"{kind}/{name}": value for name, value in figures.items()}
                self._try(lambda named=named: self._tracker.log(progress.step, named))  # type: ignore[misc]
                self._sent[kind] = progress.step
                self._keep()

    def close(self) -> None:
        """Let the service send what is left."""
        if not self._failed:
            self._try(self._tracker.finish)

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever a service raises must not end the training
            self._failed = True
            reason = " ".join(str(error).split()) or type(error).__name__
            warn(f"{self._service} failed ({reason}); training goes on without it")


def _open_all(names: Sequence[str], folder: Path, config: RunConfig, opened: ExitStack) -> list[Sender]:
    """A sender for each service; what they were told before is in the run's folder."""
    known = read_json(folder / SENT, f"run {folder}") if (folder / SENT).is_file() else {}
    senders = []
    for name in names:
        own = known.setdefault(name, {"id": None, "sent": {}})
        run = Tracked(folder.resolve(), folder.resolve().name, to_dict(config), own["id"])
        tracker: Tracker = import_module(f"lrc_jepa.training.trackers.{name}").Run(run)
        own["id"] = tracker.id
        write_json(folder / SENT, known)
        senders.append(Sender(name, tracker, own["sent"], lambda: write_json(folder / SENT, known)))
        opened.callback(senders[-1].close)
    return senders


@contextmanager
def tracking(names: Sequence[str], folder: Path, config: RunConfig, watch: Watcher) -> Iterator[Watcher]:
    """`watch` and every service named as one watcher, for the time of the block.

    Services are opened with the first figures: a run that is refused has told nobody.
    """
    with ExitStack() as opened:
        senders: list[Sender] = []

        def all_watch(progress: Progress) -> None:
            watch(progress)
            if names and not senders and (progress.losses or progress.health):
                senders.extend(_open_all(names, folder, config, opened))
            for sender in senders:
                sender(progress)

        yield all_watch
