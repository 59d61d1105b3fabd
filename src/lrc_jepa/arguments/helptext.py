"""What `--help` prints: what a command does, examples, its words and options, each with its default."""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Option, default_of, options_of
from lrc_jepa.bounds import Range, plain_type
from lrc_jepa.console import say
from lrc_jepa.options import texts_of

COLUMN = 26  # where the texts begin
WORDS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
COMMON = (
    ("--json", "Print the result as JSON, and nothing else on standard output."),
    ("--help", "Show this text; --help-all shows every option there is."),
)


@dataclass(frozen=True)
class Help:
    """The help of one command."""

    kind: type[Any]
    command: str
    about: str
    examples: tuple[str, ...]
    default: Any
    """The value that options change, where it is known."""
    borrowed: bool
    """Whether the defaults of the sections come from a recipe or a run."""
    full: bool
    """Whether every section is shown option by option."""

    def show(self) -> None:
        """Print it."""
        options = list(options_of(self.kind))
        words = [o for o in options if o.positional]
        named = " ".join(f"{o.name} ..." if o.many else o.name for o in words)
        say(f"usage: {self.command} {named} [options]".replace("  ", " ") + "\n")
        say(_wrapped(self.about, 0) + "\n")
        if self.examples:
            say("\n".join(["examples:", *(f"  {example}" for example in self.examples)]) + "\n")
        if words:
            say("\n".join(self._line(option) for option in words) + "\n")
        own = [self._line(o) for o in options if not o.positional and len(o.path) == 1]
        say("\n".join(["options:", *own, *(_two_columns(*common) for common in COMMON)]))
        for name, section in _sections(options).items():
            self._show_section(name, section)

    def _show_section(self, name: str, options: list[Option]) -> None:
        nested = plain_type(typing.get_type_hints(self.kind)[name])
        text = texts_of(self.kind).get(name) or " ".join((nested.__doc__ or "").split())
        if options[0].name.startswith(f"--{name}.") and not self.full:
            say(_two_columns(f"--{name}.*", f"{text} ({len(options)} options: --help-all)"))
            return
        say("\n" + _wrapped(text, 0))
        say("\n".join(self._line(o) for o in options if self.full or "." not in o.name))

    def _line(self, option: Option) -> str:
        return _two_columns(f"{option.name} {_word(option)}".rstrip(), self._text(option))

    def _text(self, option: Option) -> str:
        """The field's own text, its bounds and its default."""
        notes = [str(bound) for bound in _bounds(option.hint)]
        value = self._value(option)
        if value not in (None, dataclasses.MISSING, "", (), False) and not option.positional:
            notes.append(f"default: {_shown(value)}")
        text = texts_of(option.owner).get(option.path[-1], "")
        return f"{text} ({'; '.join(notes)})" if notes else text

    def _value(self, option: Option) -> Any:
        """What an option is when it is left out, where that is known."""
        if self.default is None:
            unknown = self.borrowed and len(option.path) > 1
            return None if unknown else default_of(option.owner, option.path[-1])
        value = self.default
        for name in option.path:
            value = getattr(value, name, None)
        return value


def _sections(options: list[Option]) -> dict[str, list[Option]]:
    """Options of nested dataclasses, by the field of the outermost."""
    sections: dict[str, list[Option]] = {}
    for option in options:
        if len(option.path) > 1:
            sections.setdefault(option.path[0], []).append(option)
    return sections


def _word(option: Option) -> str:
    """What stands after an option."""
    if option.positional or option.plain is bool:
        return ""
    kind, parts = option.plain, typing.get_args(option.plain)
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return "|".join(map(str, parts))
    if origin is dict:
        return "NAME X ..."
    if origin is tuple:
        inner = [WORDS.get(plain_type(part), "WORD") for part in parts if part is not ...]
        return f"{inner[0]} ..." if option.many else " ".join(inner)
    return WORDS[kind]


def _bounds(hint: Any) -> list[Range]:
    return [
        bound
        for part in typing.get_args(hint)
        for bound in ([part] if isinstance(part, Range) else _bounds(part))
    ]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {number:g}" for name, number in value.items())
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _two_columns(left: str, right: str) -> str:
    """`  left   right`, the right side wrapped; below the left one if that is long."""
    wrapped = _wrapped(right, COLUMN)
    if len(left) + 4 > COLUMN:
        return f"  {left}\n{wrapped}"
    return f"  {left:<{COLUMN - 2}}{wrapped.lstrip()}"


def _wrapped(text: str, indent: int) -> str:
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    space = " " * indent
    return textwrap.fill(
        text,
        max(width, indent + 30),
        initial_indent=space,
        subsequent_indent=space,
        break_long_words=False,
        break_on_hyphens=False,
    )
