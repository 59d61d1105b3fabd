"""`python -m lrc_jepa` is `lrc`."""

from lrc_jepa.cli import main

main()
