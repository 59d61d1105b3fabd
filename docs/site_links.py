"""A step of the site's build: links to files of the repository that are not part of the site become their names."""

import posixpath
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]*)\)")


def outside(target: str, page: str) -> bool:
    """Whether a link of the page at this place in `docs/` leads out of it."""
    if ":" in target:  # an address
        return False
    place = posixpath.join(posixpath.dirname(page), target.partition("#")[0])
    return posixpath.normpath(place).startswith("..")


def on_page_markdown(markdown: str, *, page: Any, **build: Any) -> str:
    """The page with links that lead out of `docs/` as plain text; what is wrong within it stays, for the build to see."""
    return LINK.sub(
        lambda link: link[1] if outside(link[2], page.file.src_uri) else link[0],
        markdown,
    )
