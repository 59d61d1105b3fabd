"""Help without the numeric libraries.

A help text is made from the options of a command: names, types, defaults. The modules that hold them import
torch and others, which takes seconds. While help is printed, modules that do nothing stand in for those.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

HEAVY = {
    "av",
    "gymnasium",
    "h5py",
    "hdf5plugin",
    "jinja2",
    "matplotlib",
    "PIL",
    "safetensors",
    "scipy",
    "sklearn",
    "tensorboard",
    "torch",
}


class Anything:
    """Whatever a module takes from a library while it is imported: a base class, a decorator, part of a type."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """As a decorator, it leaves a function as it is."""
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, key: Any) -> Anything:
        return self

    def __or__(self, other: Any) -> Anything:
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (Anything,)


class StandIn(ModuleType):
    """A module in which everything is there."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # so that it may have modules of its own

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Finder(MetaPathFinder, Loader):
    """Finds a stand-in for each heavy library and for all of its modules."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Where the import system asks for a module."""
        heavy = fullname.partition(".")[0] in HEAVY
        return ModuleSpec(fullname, self, is_package=True) if heavy else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The stand-in."""
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


@contextmanager
def stand_ins() -> Iterator[None]:
    """Import without the heavy libraries; what met a stand-in is forgotten at the end."""
    if "torch" in sys.modules:  # it is too late to save the time
        yield
        return
    before, finder = set(sys.modules), Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in HEAVY | {"lrc_jepa"}:
                _forget(name)


def _forget(name: str) -> None:
    """Let a module be imported anew; its package holds on to it too."""
    package, _, last = name.rpartition(".")
    del sys.modules[name]
    if package in sys.modules:
        vars(sys.modules[package]).pop(last, None)
