"""A step of the site's build: links to files of the repository that are not pages become their names."""

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+(?!data|add-|tutorials)[^)]*\)")


def on_page_markdown(markdown: str, **build: Any) -> str:
    """The page with links that lead out of `docs/` as plain text."""
    return OUTSIDE.sub(r"\1", markdown)
