"""Turning command-line words into a typed dataclass.

Every field of the dataclass is an option, fields of nested dataclasses too (`--train.lr`). Options and
positional words may stand in any order: words are first sorted by what they belong to, then the first
positional word chooses the defaults, and only then are values filled in.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from lrc_jepa.bounds import check, hints_of, plain_type
from lrc_jepa.console import say
from lrc_jepa.errors import BadInput
from lrc_jepa.options import DECISIVE, POSITIONAL, UNPREFIXED
from lrc_jepa.options import Decisive as Decisive
from lrc_jepa.options import Positional as Positional
from lrc_jepa.options import Unprefixed as Unprefixed

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Option:
    """One field somewhere in the tree of dataclasses."""

    path: tuple[str, ...]
    """Names of the fields that lead to it."""
    name: str
    """As the user writes it: --train.lr, or RUN for a positional."""
    hint: Any
    """Its type, with its bounds."""
    owner: type[Any]
    """The dataclass it is a field of."""
    positional: bool = False
    decisive: bool = False
    """Whether its first word is told to whoever makes the defaults."""

    @property
    def plain(self) -> Any:
        """The type without bounds and without None."""
        return plain_type(self.hint)

    @property
    def many(self) -> bool:
        """Whether it takes any number of words."""
        parts = typing.get_args(self.plain)
        return typing.get_origin(self.plain) is dict or (bool(parts) and parts[-1] is ...)


def options_of(kind: type[Any], prefix: str = "", path: tuple[str, ...] = ()) -> Iterator[Option]:
    """Every option of a dataclass, in the order of its fields."""
    for name, hint in hints_of(kind).items():
        marks = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
        plain, here = plain_type(hint), (*path, name)
        if dataclasses.is_dataclass(plain):
            inner = prefix if UNPREFIXED in marks else f"{prefix}{name}."
            yield from options_of(typing.cast(type[Any], plain), inner, here)
        elif POSITIONAL in marks:
            word = name.removesuffix("s") if typing.get_origin(plain) is tuple else name
            yield Option(here, word.upper(), hint, kind, positional=True, decisive=True)
        else:
            decisive = DECISIVE in marks
            yield Option(here, f"--{prefix}{name}".replace("_", "-"), hint, kind, decisive=decisive)


def parse(
    kind: type[T],
    argv: list[str],
    prog: str,
    about: str,
    default: T | Callable[[dict[str, str]], T | None] | None = None,
    examples: tuple[str, ...] = (),
) -> T:
    """Read `argv` into the dataclass `kind`.

    `default` is the value that options change, or a function that makes it from the first word of each
    positional and decisive option: what it is asked for may be missing, where only help is wanted.
    """
    options, command = list(options_of(kind)), f"lrc {prog}"
    shown = [word for word in argv if word in HELP]
    values = sort_words([word for word in argv if word not in HELP], options, command)
    words = {o.path[-1]: values[o.name][0] for o in options if o.decisive and o.name in values}
    borrowed = callable(default)
    if callable(default):
        default = default(words)
    if shown:
        from lrc_jepa.arguments.helptext import Help  # which needs this module

        Help(kind, command, about, examples, default, borrowed, full=HELP[shown[0]]).show()
        raise SystemExit(0)
    chosen = {o.path: convert(o, values[o.name]) for o in options if o.name in values}
    names = {option.path: option.name for option in options}
    return Filling(chosen, names, command, " ".join(words.values())).fill(kind, default)


def command(
    work: Callable[[T], R],
    kind: type[T],
    name: str,
    about: str,
    examples: tuple[str, ...],
    default: Callable[[dict[str, str]], T | None] | None = None,
) -> Callable[[list[str]], R]:
    """The `main` of a command: its words read as `parse` does, and what `work` makes of them."""
    return lambda argv: work(parse(kind, argv, name, about, default, examples))


HELP = {"-h": False, "--help": False, "--help-all": True}
"""The words that ask for help, and whether for all of it."""


def sort_words(argv: list[str], options: list[Option], command: str) -> dict[str, list[str]]:
    """The words of each option and positional that was given, by its name.

    A list takes all words that fit it, but leaves the last ones to positionals that would be missing.
    """
    known = {option.name: option for option in options if not option.positional}
    values: dict[str, list[str]] = {}
    words: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if not _is_option(word):
            words.append(word)
            continue
        name, equals, value = word.partition("=")
        option, key = _find(name, known, command)
        taken = [value] if equals else _take(option, key, rest, name)
        if option.many:
            values[option.name] = [*values.get(option.name, []), *([key] if key else []), *taken]
        else:
            values[option.name] = taken
    positionals = [option for option in options if option.positional]
    _lend(
        words,
        [(option, values[name]) for name, option in known.items() if option.many and name in values],
        positionals,
        command,
    )
    return values | _assign(words, positionals, command)


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not re.match(r"-\.?\d|-inf|-nan", word)


def _find(name: str, known: dict[str, Option], command: str) -> tuple[Option, str]:
    """The option with this name, and the key where the name goes on into a table (--weights.KEY)."""
    wanted = name.replace("_", "-")
    if wanted in known:
        return known[wanted], ""
    for option in known.values():
        table = typing.get_origin(option.plain) is dict
        if table and wanted.startswith(f"{option.name}.") and len(wanted) > len(option.name) + 1:
            return option, name[len(option.name) + 1 :]
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else f"; {command} --help lists what there is"
    raise BadInput(f"{command} does not know {name!r}{hint}")


def _take(option: Option, key: str, rest: list[str], name: str) -> list[str]:
    """The words after an option that are its own, taken from the rest; a switch alone is true."""
    ahead = list(itertools.takewhile(lambda word: not _is_option(word), rest))
    parts = typing.get_args(option.plain)
    if option.plain is bool:
        count = int(bool(ahead) and ahead[0].lower() in TRUTH)
    elif option.many and not key:
        count = next((n for n, word in enumerate(ahead) if not _fits(parts[0], word)), len(ahead))
    else:
        count = len(parts) if typing.get_origin(option.plain) is tuple else 1
        if len(ahead) < count:
            raise BadInput(f"{name} wants {'a value' if count == 1 else f'{count} values'} after it")
    del rest[:count]
    return ahead[:count] or (["true"] if option.plain is bool else [])


def _fits(kind: Any, word: str) -> bool:
    """Whether a word can be an item of a list of this type."""
    try:
        _read(plain_type(kind), word, "")
    except BadInput:
        return False
    return True


def _lend(
    words: list[str], lists: list[tuple[Option, list[str]]], positionals: list[Option], command: str
) -> None:
    """Give the last words of a list to required positionals that are missing; which list must be plain."""
    required = [o for o in positionals if default_of(o.owner, o.path[-1]) is dataclasses.MISSING]
    missing = len(required) - len(words)
    long = [(option, own) for option, own in lists if len(own) > missing > 0]
    text = [own for option, own in long if plain_type(typing.get_args(option.plain)[0]) in (str, Path)]
    lenders = text or [own for _, own in long]
    any_number = bool(required) and required[-1].many
    if len(lenders) > 1 or (any_number and any(len(own) > missing + 1 for own in lenders)):
        raise BadInput(f"it is not clear which word is {required[-1].name}: write it right after {command}")
    for own in lenders:
        words += own[-missing:]
        del own[-missing:]


def _assign(words: list[str], positionals: list[Option], command: str) -> dict[str, list[str]]:
    """Words to positionals, in order; one that takes many takes all that are left."""
    assigned: dict[str, list[str]] = {}
    left = list(words)
    for option in positionals:
        count = len(left) if option.many else 1
        if left:
            assigned[option.name] = left[:count]
        left = left[count:]
    if left:
        raise BadInput(f"{command} does not know what to do with {left[0]!r}; {command} --help tells more")
    return assigned


TRUTH = {"true": True, "false": False}
NUMBERS = {int: "a whole number", float: "a number"}


def convert(option: Option, words: list[str]) -> Any:
    """Words to the value of an option, within its bounds."""
    kind, parts = option.plain, typing.get_args(option.plain)
    value: Any
    if words in (["None"], ["none"]):
        if type(None) in typing.get_args(option.hint):
            return None
        words = [] if option.many else words
    if typing.get_origin(kind) is dict:
        if len(words) % 2:
            raise BadInput(f"{option.name} wants a name and a number, one after the other")
        value = {
            k: _read(plain_type(parts[1]), v, f"{option.name}.{k}")
            for k, v in zip(words[::2], words[1::2], strict=True)
        }
    elif typing.get_origin(kind) is tuple:
        inner = [parts[0]] * len(words) if option.many else parts
        value = tuple(
            _read(plain_type(part), word, option.name) for part, word in zip(inner, words, strict=True)
        )
    else:
        value = _read(kind, words[0], option.name)
    check(option.hint, value, option.name)
    return value


def _read(kind: Any, word: str, name: str) -> Any:
    """One word as a value of a plain type."""
    if typing.get_origin(kind) is typing.Literal:
        return next((choice for choice in typing.get_args(kind) if str(choice) == word), word)
    if kind is bool:
        if word.lower() not in TRUTH:
            raise BadInput(f"{name} is true or false, not {word!r}")
        return TRUTH[word.lower()]
    if kind in NUMBERS:
        try:
            return kind(word)
        except ValueError:
            raise BadInput(f"{name} must be {NUMBERS[kind]}, not {word!r}") from None
    return _path(word) if kind is Path else word


def _path(word: str) -> Path:
    """A path; ./name stays one when nothing is there: a bare name may mean what comes with the library."""
    path = Path(word)
    bare = path.name == str(path) and word != path.name
    return path.absolute() if bare and not path.exists() else path


def default_of(kind: type[Any], name: str) -> Any:
    """The default of a field in its own dataclass, or MISSING."""
    field = next(field for field in dataclasses.fields(kind) if field.name == name)
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


@dataclass(frozen=True)
class Filling:
    """Puts what was chosen into the tree of dataclasses."""

    chosen: dict[tuple[str, ...], Any]
    names: dict[tuple[str, ...], str]
    command: str
    subject: str
    """What the defaults come from: a recipe or a run."""

    def fill(self, kind: type[T], default: T | None, path: tuple[str, ...] = ()) -> T:
        """The default with what was chosen; without one, fields that have no default of their own are missed."""
        values: dict[str, Any] = {}
        for name, hint in hints_of(kind).items():
            here, plain = (*path, name), plain_type(hint)
            known = default_of(kind, name) if default is None else getattr(default, name)
            below = [p for p in self.chosen if p[: len(here)] == here]
            if below and dataclasses.is_dataclass(plain):
                if known is None:
                    part = ".".join(here)
                    raise BadInput(f"{self.names[below[0]]} does not apply: {self.subject} has no {part}")
                values[name] = self.fill(typing.cast(type[Any], plain), known, here)
            elif below:
                value = self.chosen[here]
                values[name] = {**known, **value} if isinstance(value, dict) else value
            elif known is dataclasses.MISSING:
                raise BadInput(f"{self.command} needs {self.names[here]}; {self.command} --help tells more")
        return kind(**values) if default is None else dataclasses.replace(default, **values)  # type: ignore[type-var]


def choose_verb(argv: list[str], prog: str, texts: dict[str, str]) -> str:
    """The first word of a command that has commands of its own; asked for help, it lists them."""
    if argv and argv[0] in texts:
        return argv[0]
    if argv and argv[0] not in HELP:
        raise BadInput(f"there is no lrc {prog} {argv[0]!r}; there is {', '.join(texts)}")
    width = max(map(len, texts))
    lines = [f"  {name:<{width}}  {text}" for name, text in texts.items()]
    say(
        "\n".join(
            [f"usage: lrc {prog} WHAT [ARGUMENTS]", "", *lines, "", f"lrc {prog} WHAT --help tells more."]
        )
    )
    raise SystemExit(0 if argv else 2)
