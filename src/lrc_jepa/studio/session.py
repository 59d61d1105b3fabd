"""One open page: its parts of the studio, and whose turn it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lrc_jepa.errors import BadInput
from lrc_jepa.studio.contents import Contents
from lrc_jepa.studio.episodes import Episodes
from lrc_jepa.studio.imagination import Imagination
from lrc_jepa.studio.messages import Answers, Part
from lrc_jepa.studio.planning import Planning
from lrc_jepa.studio.runs import Runs
from lrc_jepa.studio.streams import Streams


class Session:
    """What one page has in hand; the models behind it are shared by all pages."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        models, parts = contents.models, list[Part]()
        if any(one.world is not None for one in models):
            parts.append(Planning(models))
        if models:
            parts += [Streams(models), Imagination(models)]
        if contents.collections:
            parts.append(Episodes(contents.collections))
        if contents.folders:
            parts.append(Runs(contents.folders))
        self.parts = {part.name: part for part in parts}

    def hello(self) -> Answers:
        """What a page is told first."""
        runs = [one.to_json() for one in self.contents.models]
        yield {"tell": "hello", "runs": runs, "title": self.contents.title, "parts": list(self.parts)}

    def answer(self, part: str, word: str, fields: Mapping[str, Any]) -> Answers:
        """Answer one question; what cannot be done is told in a sentence."""
        if part in self.parts:
            yield from _or_refused(f"{part}.{word}", self.parts[part].answer(word, fields))
        else:
            yield {"tell": "refused", "ask": f"{part}.{word}", "sentence": f"the studio has no part {part!r}"}

    @property
    def running(self) -> Part | None:
        """The part that goes on by itself, if one does; of several, the one in the greatest hurry."""
        return min((p for p in self.parts.values() if p.running), key=lambda p: p.pace, default=None)

    def go_on(self, part: Part) -> Answers:
        """The next piece of what a part does by itself."""
        yield from _or_refused(part.name, part.go_on())


def _or_refused(name: str, answers: Answers) -> Answers:
    try:
        yield from answers
    except BadInput as error:
        yield {"tell": "refused", "ask": name, "sentence": str(error)}
