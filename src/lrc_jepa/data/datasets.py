"""The datasets of a run, by their names: mostly one. The actions of each have bounds, a normaliser and an adapter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import digest

Given = Store | Path | str
NAMED = re.compile(r"([A-Za-z0-9_.-]+)=(.+)")


def name_of(place: Path | str) -> str:
    """What a dataset is called where nobody says otherwise: the last part of its folder or URL."""
    return str(place).rstrip("/").rpartition("/")[2]


@dataclass(frozen=True)
class Datasets:
    """Datasets that are trained on together."""

    stores: dict[str, Store]
    """In the order of their names, which is that of tables in files: what is trained is found again under its name."""

    @classmethod
    def of(cls, given: Given | Datasets | Sequence[Given]) -> Datasets:
        """One or several, each a store or where one lies; NAME=PLACE says what it is called."""
        if isinstance(given, Datasets):
            return given
        stores: dict[str, Store] = {}
        for one in [given] if isinstance(given, Store | Path | str) else given:
            name, store = _opened(one)
            if name in stores:
                raise BadInput(
                    f"two datasets are called {name}: give one another name, as in other={store.place}"
                )
            stores[name] = store
        if not stores:
            raise BadInput("a run needs a dataset")
        return cls(dict(sorted(stores.items())))

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self.stores) > 1

    @property
    def widths(self) -> dict[str, int]:
        """How wide the actions of each are, where there are several; nothing where there is one."""
        return {name: store.action.shape[1] for name, store in self.stores.items()} if self.several else {}

    @property
    def places(self) -> str | dict[str, str]:
        """Where it is found again, or where each is."""
        places = {name: store.place for name, store in self.stores.items()}
        return places if self.several else next(iter(places.values()))

    def digest(self) -> str:
        """Hash of the content."""
        named = [[name, store.digest()] for name, store in self.stores.items()]
        return digest(named) if self.several else named[0][1]


def _opened(one: Given) -> tuple[str, Store]:
    if isinstance(one, Store):
        return name_of(one.place), one
    named = None if Path(one).exists() else NAMED.fullmatch(str(one))
    name, place = named.groups() if named else ("", one)
    store = Store(place)
    return name or name_of(store.place), store
