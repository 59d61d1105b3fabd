"""What `--help` says: of every command, with examples that can be run, and without loading torch."""

import json
import re
import shlex
import subprocess
import sys

import pytest
from test_cli import lrc, refused

from lrc_jepa import arguments, cli

GROUPS = {
    "data": ("info", "show", "validate", "import", "export", "features", "masks"),
    "bench": ("train", "plan", "worlds"),
}
LEAVES = [
    *((name,) for name in cli.COMMANDS if name not in GROUPS),
    *((group, verb) for group, verbs in GROUPS.items() for verb in verbs),
    ("stress", "nuisance"),
]


def printed(words, capsys):
    code, out, err = lrc(*words, capsys=capsys)
    assert code in (0, None), err
    return out


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_help_begins_with_what_it_does_and_examples(words, capsys):
    said = printed([*words, "--help"], capsys)
    lines = said.splitlines()
    assert lines[0].startswith(f"usage: lrc {' '.join(words)}") and lines[2] and lines[2][0].isupper()
    assert "\nexamples:\n  lrc " in said
    for word in ("--json", "--help"):
        assert f"  {word} " in said
    assert "STR" not in lines[0] and len(lines) < 80 and max(map(len, lines)) <= 120


@pytest.mark.parametrize("group", GROUPS)
def test_groups_list_what_there_is(group, capsys):
    said = printed([group, "--help"], capsys)
    assert all(f"\n  {verb} " in said for verb in GROUPS[group])
    refused(group, "dance", capsys=capsys, match=f"there is no lrc {group} 'dance'; there is ")


class UnderstoodError(Exception):
    """The words of a command line were all understood; carries what they mean."""


def understood(words, run, monkeypatch):
    """What a command would be asked to do: the words are read and nothing is done."""
    fill = arguments.Filling.fill

    def stop(self, kind, default, path=()):
        filled = fill(self, kind, default, path)
        if not path:
            raise UnderstoodError(filled)
        return filled

    with monkeypatch.context() as patched:
        patched.setattr(arguments.Filling, "fill", stop)
        with pytest.raises(UnderstoodError) as meant:
            cli.run([str(run) if re.match(r"(RUN|runs/.*)$", word) else word for word in words])
    return meant.value.args[0]


def orders(words, meant):
    """The same words with the positional ones in front, behind, and among the options."""
    options = list(arguments.options_of(type(meant)))
    given = arguments.sort_words(words, options, "lrc")
    place = [word for o in options if o.positional for word in given.get(o.name, [])]
    named = [[o.name, *given[o.name]] for o in options if not o.positional and o.name in given]
    half, last = len(named) // 2, [["--"], place] if len(place) > 1 else [place]
    for parts in ([place, *named], [*named, *last], [*named[:half], place, *named[half:]]):
        yield [word for part in parts for word in part]


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_examples_are_understood_in_any_order(words, run, capsys, monkeypatch):
    said = printed([*words, "--help"], capsys).splitlines()
    examples = [
        shlex.split(line.replace("--json", ""), comments=True)[1:]
        for line in said
        if line.startswith("  lrc ")
    ]
    for example in examples:
        verbs = [word for word in words if word in example[: len(words)]]
        meant = understood(example, run, monkeypatch)
        for order in orders(example[len(verbs) :], meant):
            assert understood([*verbs, *order], run, monkeypatch) == meant, order


ALONE = """
import contextlib, io, json, sys
from lrc_jepa import cli
found = {}
for words in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        cli.run([*words, "--help-all"])
    found[" ".join(words)] = said.getvalue()
loaded = [name for name in ("torch", "sklearn", "matplotlib", "scipy") if name in sys.modules]
print(json.dumps([found, loaded]))
"""


def test_help_loads_no_torch_and_says_the_same(run, capsys, monkeypatch):
    """Stand-ins print to the letter what the libraries themselves would, and leave nothing behind."""
    asked = [*LEAVES, ("train", "tworoom-lrc-micro"), ("plan", str(run)), ("stress", "blur", str(run))]
    monkeypatch.setenv("COLUMNS", "100")
    program = [sys.executable, "-c", ALONE, json.dumps(asked)]
    ran = subprocess.run(program, capture_output=True, text=True, check=True)
    found, loaded = json.loads(ran.stdout)
    assert loaded == []
    for words in asked:
        assert found[" ".join(words)] == printed([*words, "--help-all"], capsys), words


def test_help_shows_the_values_of_the_recipe_or_run(run, capsys):
    def said_of(option, *words):  # lines are folded to the width of the terminal
        after = printed(list(words), capsys).partition(option)[2]
        return " ".join(after.partition(" --")[0].split())

    assert "(at least 1; default: 8)" in said_of(
        "--model.latent N", "train", "tworoom-lrc-debug", "--help-all"
    )
    assert "default: 16" in said_of("--samples N", "plan", run, "--help")
    assert "default" not in said_of("--samples N", "plan", "--help")


def test_the_units_of_stress_levels_are_written(capsys):
    said = " ".join(printed(["stress", "--help"], capsys).split())
    assert (
        "blur: width in pixels at 64 a side" in said
        and "shift: largest shift, as a share of the side" in said
    )
