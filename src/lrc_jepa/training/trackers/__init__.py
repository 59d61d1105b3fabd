"""Where the figures of a run go beside its own folder: one seam on the loop's `watch`, a file per service.

What was sent is written down in the run's `tracking.json`. A resumed run goes on in the same place, and steps
that were sent before it was interrupted are not sent again: resuming repeats them to the same numbers. What a
service could not be told is sent when it can be, or when the run is resumed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from lrc_jepa.config import RunConfig
from lrc_jepa.config_tree import to_dict
from lrc_jepa.console import warn
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need
from lrc_jepa.files import read_json, write_json
from lrc_jepa.training.log import read_metrics
from lrc_jepa.training.progress import Progress, Watcher

TRACKERS = ("wandb", "mlflow", "trackio", "tensorboard")
"""Packages, each with a file here, and in it a `Run`."""
SENT, METRICS, FILMS = "tracking.json", "metrics.jsonl", "films"
LONGEST_PAUSE = 64  # figures between two tries of a service that fails


@dataclass(frozen=True)
class Tracked:
    """What a service is told of a run."""

    folder: Path
    name: str
    config: dict[str, Any]
    id: str | None
    """Under which the service knows it already; None: it is new."""
    known_as: Callable[[str], None] = lambda name: None
    """To be told the id as soon as there is one: what fails after that goes on with the same run."""


class Tracker(Protocol):
    """A run at a service, made from a `Tracked`."""

    id: str
    """Under which it is found again."""

    def log(self, step: int, figures: dict[str, float]) -> None:
        """Send figures of a step."""

    def film(self, step: int, path: Path) -> None:
        """Send a film of a step, a GIF."""

    def finish(self) -> None:
        """Send what is left."""


def check_trackers(names: Sequence[str]) -> None:
    """Refuse, before any work, a service that is not known or whose package is missing."""
    for name in names:
        if name not in TRACKERS:
            raise BadInput(f"there is no tracker {name!r}; there is {', '.join(TRACKERS)}")
        for package in _packages(name):
            need(package, f"tracking with {name}")


def _packages(name: str) -> tuple[str, ...]:
    """What a service is told with; where no server is named, MLflow's file takes more than its own package."""
    if name == "mlflow" and not os.environ.get("MLFLOW_TRACKING_URI"):
        return (name, "sqlalchemy", "alembic")
    return (name,)


def _warn_of_silence(names: Sequence[str], folder: Path) -> None:
    """Say which services a run was tracked with that are not named now."""
    known: dict[str, Any] = {}
    with suppress(BadInput):  # a damaged file stops nothing that does not need it
        known = read_json(folder / SENT, "") if (folder / SENT).is_file() else {}
    if silent := [name for name in known if name not in names]:
        told = " and ".join(silent)
        again = " ".join((*names, *silent))
        warn(f"{told} was told of this run before, and is told no more: --track {again} goes on there")


@dataclass(frozen=True)
class Figures:
    """What is told of one step."""

    step: int
    kind: str
    """train, health or films."""
    values: dict[str, float]
    film: Path | None = None
    """In place of values."""


class Sender:
    """A watcher that sends losses, health and films to one service. What cannot be sent waits, and the run goes on."""

    def __init__(
        self,
        service: str,
        open_run: Callable[[], Tracker],
        sent: dict[str, int],
        keep: Callable[[], None],
        unsent: Iterable[Figures] = (),
    ) -> None:
        """`sent` is the last step of each kind that the service has; `keep` writes it down.

        `unsent` are figures that it could not be told when they were new.
        """
        self._service, self._open, self._sent, self._keep = service, open_run, sent, keep
        self._queued, self._waiting = dict(sent), deque[Figures]()
        self._tracker: Tracker | None = None
        self._failures = self._pause = 0  # in a row; figures until it is tried again
        self._warned = False
        for figures in unsent:
            self._queue(figures)

    def __call__(self, progress: Progress) -> None:
        """Send what is new, and what has waited; steps that are repeated after an interruption are not."""
        for kind, values in (("train", progress.losses), ("health", progress.health)):
            if values:
                self._queue(Figures(progress.step, kind, values))
        if progress.film is not None:
            self._queue(Figures(progress.step, FILMS, {}, progress.film))
        if self._pause:
            self._pause -= 1
        else:
            self._try(self._send)

    def close(self) -> None:
        """Send what is left, and let the service do so too."""
        if self._waiting:
            self._try(self._send)
        if self._tracker is not None:
            self._try(self._tracker.finish)
        if self._waiting:
            warn(
                f"{self._service} was not told {len(self._waiting)} of the run's figures, which are in {METRICS}: "
                f"--resume with --track {self._service} sends them"
            )

    def _queue(self, figures: Figures) -> None:
        if figures.step > self._queued.get(figures.kind, 0):
            self._queued[figures.kind] = figures.step
            self._waiting.append(figures)

    def _send(self) -> None:
        tracker = self._tracker = self._tracker or self._open()
        while self._waiting:
            figures = self._waiting[0]
            if figures.film is None:
                tracker.log(figures.step, {f"{figures.kind}/{n}": v for n, v in figures.values.items()})
            else:
                tracker.film(figures.step, figures.film)
            self._waiting.popleft()
            self._sent[figures.kind] = figures.step
            self._keep()

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
            self._failures = 0
        except Exception as error:  # noqa: BLE001 - whatever a service raises must not end the training
            self._failures += 1
            # One that is gone must not slow the run down.
            self._pause = min(2**self._failures, LONGEST_PAUSE) - 1
            if not self._warned:
                reason = " ".join(str(error).split()) or type(error).__name__
                warn(
                    f"{self._service} failed ({reason}); training goes on, and it is tried again now and then"
                )
            self._warned = True


def _recorded(folder: Path) -> list[Figures]:
    """The figures and films of a run so far, by their steps."""
    lines = [
        Figures(
            r["step"], r["kind"], {n: v for n, v in r.items() if n != "step" and isinstance(v, int | float)}
        )
        for r in read_metrics(folder / METRICS)
        if r.get("kind") in ("train", "health") and isinstance(r.get("step"), int)
    ]
    films = [Figures(int(path.stem[5:]), FILMS, {}, path) for path in (folder / FILMS).glob("step-*.gif")]
    return sorted(lines + films, key=lambda figures: figures.step)


def _senders(names: Sequence[str], folder: Path, config: RunConfig) -> list[Sender]:
    """A sender for each service; what they were told before is in the run's folder."""
    known = read_json(folder / SENT, f"run {folder}") if (folder / SENT).is_file() else {}

    def keep() -> None:
        write_json(folder / SENT, known)

    def opening(name: str) -> Tracker:
        own = known[name]

        def known_as(name: str) -> None:
            own["id"] = name
            keep()

        run = Tracked(folder.resolve(), folder.resolve().name, to_dict(config), own["id"], known_as)
        tracker: Tracker = import_module(f"lrc_jepa.training.trackers.{name}").Run(run)
        known_as(tracker.id)
        return tracker

    senders = []
    for name in names:
        unsent = _recorded(folder) if name in known else []
        own = known.setdefault(name, {"id": None, "sent": {}})
        senders.append(Sender(name, partial(opening, name), own["sent"], keep, unsent))
    keep()
    return senders


@contextmanager
def tracking(names: Sequence[str], folder: Path, config: RunConfig, watch: Watcher) -> Iterator[Watcher]:
    """`watch` and every service named as one watcher, for the time of the block.

    Services are opened with the first figures: a run that is refused has told nobody. Those of a run that is
    complete are opened at the end of the block, if they were not told everything before.
    """
    _warn_of_silence(names, folder)
    with ExitStack() as opened:
        senders: list[Sender] = []

        def begin() -> None:
            senders.extend(_senders(names, folder, config))
            for sender in senders:
                opened.callback(sender.close)

        def all_watch(progress: Progress) -> None:
            watch(progress)
            if names and not senders and (progress.losses or progress.health):
                begin()
            for sender in senders:
                sender(progress)

        yield all_watch
        if names and not senders and (folder / SENT).is_file():
            begin()
