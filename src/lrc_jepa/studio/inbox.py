"""Questions that wait for their turn; of a drag only the newest is worth an answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from lrc_jepa.studio.messages import parse

MOST = 64  # questions that may wait: a page that asks faster is not a page of ours
EACH = {"imagine.drive", "episodes.drop"}  # of these every one counts
Question = tuple[str, str, dict[str, Any]]


class Inbox:
    """A queue in which a question replaces one of the same name that still waits."""

    def __init__(self) -> None:
        self._waiting: dict[str, Question] = {}
        self._filled = asyncio.Event()
        self._count = 0

    def put(self, text: str) -> None:
        """Take in what the page said."""
        part, word, fields = parse(text)
        name, self._count = f"{part}.{word}", self._count + 1
        name += f" {self._count}" if name in EACH else ""
        self._waiting.pop(name, None)  # the newest stands last: what came before it is answered first
        if len(self._waiting) < MOST:
            self._waiting[name] = (part, word, fields)
        self._filled.set()

    def take(self) -> Question | None:
        """The question that has waited longest, if there is one."""
        if not self._waiting:
            self._filled.clear()
            return None
        return self._waiting.pop(next(iter(self._waiting)))

    async def wait(self, seconds: float | None = None) -> Question | None:
        """The next question, however long it takes; or nothing, if none comes within so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (question := self.take()) is None:
                    await self._filled.wait()
                return question
        return None
