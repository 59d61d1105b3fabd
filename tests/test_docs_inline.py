"""Commands within sentences and tables are understood too, as is every fenced one; what sweeps' files ask for is there.

A mention may leave out what it is not about: `lrc plan` needs no run, `--out` may be unsaid. What it does name has to be
there: the command, its verb, its options, and, where nothing is left out, values of the right kind. Nothing is done.
"""

import re
import shlex
from dataclasses import replace
from itertools import product

import pytest
from test_docs import FENCE, PAGES, ROOT, blocks
from test_help import understood

from lrc_jepa.errors import BadInput
from lrc_jepa.sweeps.grid import cells_of, of_words

INLINE = re.compile(r"`(?:\.venv/bin/)?(lrc [^`]+)`")
STANDS_FOR = {
    "--section.field VALUE": "--train.lr 1e-3",
    "FIELD": "train.lr",
    "NAME": "tworoom",
    "RECIPE": "tworoom-lrc-micro",
    "SYSTEM": "lrc",
    "WORLD": "tworoom",
    '"$RUN"': "RUN",
    "$RESUME": "--resume",
    "residual": "lrc",  # what the pages about systems and worlds add: they have tests of their own
    "bead": "tworoom",
}
OF_A_PACKAGE = "lrc shade"  # docs/add-an-experiment.md makes it: likewise
ADDRESS = re.compile(r"\b(s3|gs|hf|https?)://\S+")  # nothing elsewhere is asked for
LEFT_OUT = re.compile(r"lrc [\w -]+ needs [\w-]+; lrc ")
LISTS = (["bench"], ["data"])  # alone they list what there is
UNTRIED = {  # lines of shell that are no commands of `lrc`, and what stands for them
    "make ": ".ci/run does them",
    "pip install ": "the workflows do: a test fetches nothing",
    "python3 -m ": "docs/releasing.md: the workflow `wheel` does the same",
    "/tmp/try/": "the same",
    "cd /tmp ": "the same",
    "source ": "of the shell",
    "sudo apt-get ": "of the system: .ci/run does it",
    "sbatch ": "needs a scheduler; test_cluster.py runs docs/slurm.sh",
    "RUN=": "of the shell, as the two below, in a script for a scheduler",
    "HEAD=": "of the shell",
    "[ -e ": "of the shell",
}


def alternatives(typed):
    """`a|b c [d] e...` as the commands that it stands for: `a c d e` and `b c d e`."""
    for name, word in STANDS_FOR.items():
        typed = re.sub(rf"(?<![A-Za-z]){re.escape(name)}(?![A-Za-z])", word, typed)
    typed = ADDRESS.sub("RUN", typed)
    typed = re.sub(r"\.\.\.|[\[\]]", " ", typed.replace("\\|", "|"))
    return [
        list(words) for words in product(*(word.split("|") for word in shlex.split(typed, comments=True)))
    ]


def shell_lines(page, *languages):
    """Fenced lines; a command that is started in many processes is the command."""
    for block in blocks(page, *languages):
        for line in block.replace("\\\n", " ").splitlines():
            typed = line.strip().removeprefix(".venv/bin/")
            yield re.sub(r"^(srun )?torchrun .* -m lrc_jepa\.cli ", "lrc ", typed)


def mentions():
    """Every command that README and docs name, by page."""
    found = {}
    for page in PAGES:
        inline = INLINE.findall(FENCE.sub("", page.read_text()))
        fenced = [line for line in shell_lines(page, "", "bash", "sh") if line.startswith("lrc ")]
        for typed in inline + fenced:
            if not typed.startswith(OF_A_PACKAGE):
                found[f"{page.relative_to(ROOT)}: {typed}"] = typed
    return found


MENTIONS = mentions()


@pytest.mark.parametrize("typed", MENTIONS.values(), ids=MENTIONS)
def test_mentions_are_understood(typed, run, monkeypatch):
    for words in alternatives(typed):
        if words[1:] in LISTS:
            continue
        try:
            understood(words[1:], run, monkeypatch)
        except SystemExit as end:
            assert end.code == 0 and words[-1].startswith("--help")
        except BadInput as error:
            assert LEFT_OUT.match(str(error)), error


@pytest.mark.parametrize(
    "typed", ["lrc plam", "lrc data shov", "lrc plan --protocl", "lrc bench plan --sise a|b"]
)
def test_a_wrong_mention_is_noticed(typed, run, monkeypatch):
    with pytest.raises(AssertionError):
        test_mentions_are_understood(typed, run, monkeypatch)


def test_there_are_mentions_to_check():
    assert len(MENTIONS) > 250


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_line_of_shell_is_tried_or_listed(page):
    for line in shell_lines(page, "bash", "sh"):
        assert not line or line.startswith(("#", "lrc ", *UNTRIED)), line


@pytest.mark.parametrize("file", sorted((ROOT / "docs").glob("*.yaml")), ids=lambda file: file.name)
def test_sweeps_of_the_docs_have_their_runs(file, monkeypatch):
    monkeypatch.chdir(ROOT)
    args = replace(of_words({"file": str(file.relative_to(ROOT))}), file=file)
    assert args.out.parts[0] == "sweeps"
    cells = cells_of(args)
    assert len(cells) > 2 and all(cell.name and cell.data for cell in cells.values())
