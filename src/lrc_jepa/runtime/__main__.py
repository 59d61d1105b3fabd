"""`python -m lrc_jepa.runtime FOLDER`: replay the golden vectors where there is no `lrc`."""

from __future__ import annotations

import json
import sys

from lrc_jepa.errors import BadInput
from lrc_jepa.runtime import check


def main(argv: list[str]) -> int:
    """Print what was found as JSON; 2 for what cannot be used."""
    if len(argv) != 1 or argv[0].startswith("-"):
        sys.stderr.write("usage: python -m lrc_jepa.runtime FOLDER\n")
        return 2
    try:
        sys.stdout.write(json.dumps(check(argv[0]), indent=2) + "\n")
    except BadInput as error:
        sys.stderr.write(f"lrc: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
