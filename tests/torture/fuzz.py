"""Coverage-guided fuzzing with atheris, which is not among the dependencies: pip install atheris

    python tests/torture/fuzz.py pickle -runs=100000 -rss_limit_mb=2048

The first word names a target of `tests/fuzz_targets.py`; the rest are libFuzzer's own options. It ends with
a traceback and the offending input when something other than an answer or a refusal comes out, and when
memory or time run over.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))
with atheris.instrument_imports(include=["lrc_jepa.data", "pickle", "csv", "zipfile", "numpy.lib"]):
    from fuzz_targets import feed, targets


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        target, whole = targets(Path(folder))[sys.argv[1]]
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, data in enumerate(whole):
            (corpus / str(number)).write_bytes(data)
        atheris.Setup([sys.argv[0], *sys.argv[2:], str(corpus)], lambda data: feed(target, data) and None)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
