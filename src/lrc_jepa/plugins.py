"""Tables by name that an installed package can add to, by entry points.

A package says in its `pyproject.toml` what it brings, and is found as soon as it is installed:

    [project.entry-points."lrc_jepa.systems"]
    residual = "lrc_residual:residual"

Names are known at once; what is behind one is imported when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar, cast

from lrc_jepa.console import warn
from lrc_jepa.errors import BadInput

T = TypeVar("T")
GROUPS = ("systems", "models", "worlds", "formats", "planners", "terms", "experiments")


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an installed package"


@cache
def installed(group: str) -> dict[str, EntryPoint]:
    """What installed packages bring to a group, by name."""
    brought: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=f"lrc_jepa.{group}"), key=lambda e: (e.name, _package(e))):
        if entry.name in brought and entry.value != brought[entry.name].value:
            both = f"{_package(brought[entry.name])} and {_package(entry)}"
            warn(f"{both} both bring {entry.name!r} to lrc_jepa.{group}; that of the first is used")
        brought.setdefault(entry.name, entry)
    return brought


class Table(MutableMapping[str, T]):
    """What there is by name: our own first, then what installed packages bring; a name of ours is never replaced."""

    def __init__(self, group: str, own: Mapping[str, T]) -> None:
        """`group` is one of GROUPS."""
        self._group = group
        self._held: dict[str, T | EntryPoint] = dict(own)
        self._taken: dict[str, EntryPoint] | None = None

    @property
    def _known(self) -> dict[str, T | EntryPoint]:
        brought = installed(self._group)  # not before it is needed: reading what is installed takes a while
        if brought is not self._taken:
            self._taken = brought
            for name, entry in brought.items():
                if name in self._held:
                    warn(
                        f"{_package(entry)} brings {name!r} to lrc_jepa.{self._group}, which there is already"
                    )
                self._held.setdefault(name, entry)
        return self._held

    def __getitem__(self, name: str) -> T:
        value = self._held[name] if name in self._held else self._known[name]
        if isinstance(value, EntryPoint):
            try:
                value = cast(T, value.load())
            except (ImportError, AttributeError) as error:
                where = f"{name!r} of {_package(cast(EntryPoint, value))}"
                raise BadInput(f"{where} cannot be loaded ({error})") from error
            self._held[name] = value
        return value

    def __setitem__(self, name: str, value: T) -> None:
        self._held[name] = value

    def __delitem__(self, name: str) -> None:
        del self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._held or name in self._known
