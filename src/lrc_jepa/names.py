"""Names that come from outside, made fit for a page, for files, for LaTeX and for Markdown: here and nowhere else.

A run's folder, a row's system or a quantity of an imported dataset may be called anything. Figures need no
function of their own: the canvas does not read mathematics into text.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

LONGEST = 80  # characters of a file's name: file systems end at 255 bytes, suffixes included
LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "%_&#${}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": "$<$", ">": "$>$", "²": "$^2$", "±": r"$\pm$", "×": r"$\times$", "⊕": r"$\oplus$", "–": "--"},
    }
)


def readable(text: str) -> str:
    """The text on one line, without control characters and halves of characters."""
    whole = text.encode("utf-8", "replace").decode()
    return "".join(c if c.isprintable() else " " for c in whole)


def readable_row(value: Any) -> Any:
    """A value read from JSON with all its texts readable."""
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {readable(key): readable_row(inner) for key, inner in value.items()}
    return [readable_row(inner) for inner in value] if isinstance(value, list) else value


def file_name(text: str, taken: Container[str] = ()) -> str:
    """A plain name of one file or folder that is not hidden, leads nowhere else, and is not taken."""
    plain = re.sub(r"[^A-Za-z0-9._+*=-]+", "-", text)[:LONGEST].strip(".-") or "unnamed"
    name, count = plain, 1
    while name in taken:
        count += 1
        name = f"{plain}-{count}"
    return name


def column_name(text: str) -> str:
    """What a column of a dataset is called, whatever it was called elsewhere: observation.state -> observation_state."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")[:60] or "column"


def latex(text: str) -> str:
    """The text as LaTeX prints it."""
    return text.translate(LATEX)


def markdown(text: str) -> str:
    """The text within a cell of a pipe table."""
    return text.replace("\\", "\\\\").replace("|", "\\|")


def percent(value: float | None) -> str:
    """A share in percent, or a dash where there is none."""
    return "–" if value is None else f"{100 * value:.1f}%"
