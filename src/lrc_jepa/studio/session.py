"""One open page: its parts of the studio, and whose turn it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lrc_jepa.errors import BadInput
from lrc_jepa.studio.messages import Answers, Part
from lrc_jepa.studio.opened import Opened
from lrc_jepa.studio.planning import Planning


class Session:
    """What one page has in hand; the models behind it are shared by all pages."""

    def __init__(self, opened: Sequence[Opened]) -> None:
        self.opened = opened
        self.parts: dict[str, Part] = {part.name: part for part in (Planning(opened),)}

    def hello(self) -> Answers:
        """What a page is told first."""
        acts = any(one.world is not None for one in self.opened)
        names = [name for name in self.parts if acts or name != Planning.name]
        yield {"tell": "hello", "runs": [one.to_json() for one in self.opened], "parts": names}

    def answer(self, part: str, word: str, fields: Mapping[str, Any]) -> Answers:
        """Answer one question; what cannot be done is told in a sentence."""
        try:
            if part not in self.parts:
                raise BadInput(f"the studio has no part {part!r}")
            yield from self.parts[part].answer(word, fields)
        except BadInput as error:
            yield {"tell": "refused", "ask": f"{part}.{word}", "sentence": str(error)}

    @property
    def running(self) -> Part | None:
        """The part that goes on by itself, if one does."""
        return next((part for part in self.parts.values() if part.running), None)
