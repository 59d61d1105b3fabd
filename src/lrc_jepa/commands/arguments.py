"""Turning command-line arguments into typed values."""

from __future__ import annotations

import difflib
from typing import Any, TypeVar

import torch
import tyro

from lrc_jepa.errors import BadInput

T = TypeVar("T")


def parse(kind: type[T], argv: list[str], prog: str, description: str, default: T | None = None) -> T:
    """Parse `argv` into the dataclass `kind`; an unknown option is refused with a suggestion."""
    known: Any = tyro.cli(
        kind,
        args=argv,
        prog=f"lrc {prog}",
        description=description,
        default=default,
        return_unknown_args=True,
        config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitSubcommandPrefixes),
    )
    value, unknown = known
    if unknown:
        option = unknown[0]
        near = difflib.get_close_matches(option, _options(kind, default), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else f"; lrc {prog} --help lists what there is"
        raise BadInput(f"lrc {prog} does not know {option!r}{hint}")
    parsed: T = value
    return parsed


def _options(kind: type[Any], default: Any) -> list[str]:
    """All option names of a parser."""
    parser = tyro.extras.get_parser(kind, default=default) if default else tyro.extras.get_parser(kind)
    return [option for action in parser._actions for option in action.option_strings]


def first_positional(argv: list[str]) -> str | None:
    """The leading positional argument, which decides the defaults of the others."""
    return argv[0] if argv and not argv[0].startswith("-") else None


def pick_device(name: str) -> torch.device:
    """`auto` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInput(f"there is no device {name!r}; say auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput("there is no CUDA device here; use --device cpu")
    return device
