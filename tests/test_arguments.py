"""Words of a command line to typed values: any order, lists, tables, sections, and errors of one sentence."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from lrc_jepa.arguments import parse
from lrc_jepa.bounds import Range, Seed
from lrc_jepa.errors import BadInput
from lrc_jepa.options import Positional, Unprefixed


@dataclass(frozen=True)
class Inner:
    """Numbers below."""

    rate: Annotated[float, Range(0, open="low")] = 0.5
    """A rate."""
    deep: bool = False
    """A switch."""


@dataclass(frozen=True)
class Search:
    """Numbers without a prefix."""

    samples: int = 10
    """How many."""


@dataclass(frozen=True)
class Args:
    """Everything at once."""

    what: Positional[str]
    """A word."""
    names: tuple[str, ...] = ()
    """Words."""
    others: tuple[str, ...] = ()
    """More words."""
    levels: tuple[float, ...] = ()
    """Numbers."""
    pair: tuple[int, int] | None = None
    """Two numbers."""
    flag: bool = False
    """A switch."""
    kind: Literal["a", "b"] = "a"
    """One of two."""
    out_dir: Path | None = None
    """A folder."""
    seed: Seed = 0
    """A seed."""
    weights: dict[str, float] = field(default_factory=lambda: {"one": 1.0})
    """A table."""
    inner: Inner = Inner()
    part: Inner | None = Inner()
    search: Unprefixed[Search] = Search()


@dataclass(frozen=True)
class Many:
    """Any number of words, and more of them."""

    runs: Positional[tuple[str, ...]]
    """Words."""
    also: tuple[str, ...] = ()
    """More words."""


def read(*words, default=None):
    return parse(Args, [str(word) for word in words], "try", "Try it.", default)


def test_any_order_gives_the_same():
    pieces = [["q"], ["--names", "x"], ["--levels", "4", "8"], ["--flag"], ["--inner.rate=0.25"]]
    wanted = Args("q", ("x",), (), (4.0, 8.0), flag=True, inner=Inner(0.25))
    for order in itertools.permutations(pieces):
        assert read(*itertools.chain(*order)) == wanted, order


def test_lists_leave_the_last_word_to_what_is_missing():
    assert read("--names", "1", "2", "q").names == ("1", "2")
    assert read("--levels", "4", "8", "q", "--flag").what == "q"
    assert read("--levels", "4", "-8e-1", "12").levels == (4.0, -0.8)
    assert read("q", "--names", "1", "2").names == ("1", "2")
    assert read("--names", "1", "--", "q").what == "q"
    assert read("--names", "1", "--names", "2", "q").names == ("1", "2")
    with pytest.raises(BadInput, match="not clear which word is WHAT: write it right after lrc try"):
        read("--names", "1", "q", "--others", "2", "3")
    with pytest.raises(BadInput, match="not clear which word is RUN: write it right after lrc try"):
        parse(Many, ["--also", "a", "b", "c"], "try", "Try it.")
    assert parse(Many, ["--also", "a", "b"], "try", "Try it.") == Many(("b",), ("a",))
    assert parse(Many, ["--also", "a", "--", "b", "c"], "try", "Try it.") == Many(("b", "c"), ("a",))
    with pytest.raises(BadInput, match="needs WHAT"):
        read("--names", "1")


def test_values_of_every_type():
    assert read("q", "--pair", 1, 2).pair == (1, 2)
    assert read("q", "--out_dir", "x").out_dir == Path("x") == read("q", "--out-dir=x").out_dir
    assert read("q", "--out-dir", "None").out_dir is None
    for true in (["--inner.deep"], ["--inner.deep", "True"], ["--inner.deep=true"]):
        assert read("q", *true).inner.deep
    assert not read("q", "--flag", "False").flag and read("--flag", "q").flag
    assert read("q", "--weights.two", "2", "--samples", "3") == Args(
        "q", weights={"one": 1.0, "two": 2.0}, search=Search(3)
    )
    assert read("q", "--weights", "one", "-1", "b", "3").weights == {"one": -1.0, "b": 3.0}


def test_the_positional_chooses_the_defaults_wherever_it_stands():
    def default(words):
        return Args(words["what"], inner=Inner(0.125)) if "what" in words else None

    for words in (["q", "--seed", "3"], ["--seed", "3", "q"], ["--levels", "1", "q", "--seed", "3"]):
        found = read(*words, default=default)
        assert found.inner.rate == 0.125 and found.seed == 3


WRONG = [
    (["q", "--seed", "-1"], "--seed must be 0 to 2147483647, not -1"),
    (["q", "--seed", "x"], "--seed must be a whole number, not 'x'"),
    (["q", "--inner.rate", "0"], "--inner.rate must be above 0, not 0.0"),
    (["q", "--inner.rate", "nan"], "--inner.rate must be above 0, not nan"),
    (["q", "--inner.rate", "fast"], "--inner.rate must be a number, not 'fast'"),
    (["q", "--kind", "c"], "--kind must be one of a, b, not 'c'"),
    (["q", "--inner.deep=maybe"], "--inner.deep is true or false, not 'maybe'"),
    (["q", "--seed"], "--seed wants a value after it"),
    (["q", "--pair", "1"], "--pair wants 2 values after it"),
    (["q", "--weights", "one"], "--weights wants a name and a number"),
    (["q", "--weights.one", "x"], "--weights.one must be a number, not 'x'"),
    (["q", "r"], "lrc try does not know what to do with 'r'"),
    (["q", "--samplez", "3"], "did you mean --samples"),
    (["q", "--zzzzzz"], "lrc try --help lists what there is"),
    ([], "lrc try needs WHAT; lrc try --help tells more"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_errors_are_one_sentence(words, message):
    with pytest.raises(BadInput) as refused:
        read(*words)
    assert message in str(refused.value)


def test_a_part_that_is_not_there_cannot_be_changed():
    with pytest.raises(BadInput, match=r"--part\.rate does not apply: q has no part"):
        read("--part.rate", "1", "q", default=lambda words: Args(words["what"], part=None))
    assert read("--part.rate", "1", "q").part == Inner(1.0)


def test_help_is_short_and_help_all_is_not(capsys):
    for word, full in (("--help", False), ("--help-all", True)):
        with pytest.raises(SystemExit) as ended:
            read("q", word)
        said = capsys.readouterr().out
        assert ended.value.code == 0 and said.startswith("usage: lrc try WHAT [options]\n\nTry it.")
        assert "A rate. (above 0; default: 0.5)" in said if full else "--inner.*" in said
        assert "--samples N" in said and "--json" in said and "default: one 1" in said
