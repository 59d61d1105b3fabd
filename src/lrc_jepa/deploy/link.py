"""Whole messages over a socket between two processes. Whoever must not wait never does.

A message is its length, four bytes, and so many bytes of `wire`. What the other side does not take is kept, up to a
limit: a process that hangs can neither stall nor fill the one that talks to it.
"""

from __future__ import annotations

import select
import socket
import struct
from typing import Any

from lrc_jepa.errors import BadInput
from lrc_jepa.wire import LARGEST, pack, unpack_table

Message = dict[str, Any]
HEAD = struct.Struct("<I")
KEPT = 4 * LARGEST  # bytes that wait to be sent, at most
PIECE = 1 << 20


class Closed(Exception):
    """The other side is gone."""


class Link:
    """One end of a pair; `send` and `receive` never wait, `wait` does."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        end.setblocking(False)
        self._out, self._in = bytearray(), bytearray()

    @classmethod
    def pair(cls) -> tuple[Link, socket.socket]:
        """This process's end, and the other's."""
        mine, other = socket.socketpair()
        return cls(mine), other

    def send(self, message: Message) -> None:
        """Send, or keep what cannot be sent yet for the next call."""
        data = pack(message)
        if len(data) > LARGEST:
            raise BadInput(f"a message of {len(data)} bytes is longer than {LARGEST}: take smaller frames")
        if len(self._out) + len(data) > KEPT:
            raise Closed("it takes no more messages")
        self._out += HEAD.pack(len(data)) + data
        self.flush()

    def flush(self) -> bool:
        """Send on what was kept; whether nothing is left."""
        try:
            while self._out:
                del self._out[: self.socket.send(self._out[:PIECE])]
        except BlockingIOError:
            return False
        except OSError as error:
            raise Closed(error.strerror or "gone") from None
        return True

    def receive(self) -> Message | None:
        """The next whole message there is; BadInput for one that is none, Closed when no more can come."""
        ended = self._fill()
        if len(self._in) >= HEAD.size:
            (length,) = HEAD.unpack_from(self._in)
            if length > LARGEST:
                raise BadInput(f"a message of {length} bytes is longer than {LARGEST}")
            if len(self._in) >= HEAD.size + length:
                data = bytes(self._in[HEAD.size : HEAD.size + length])
                del self._in[: HEAD.size + length]
                return unpack_table(data)
        if ended:
            raise Closed("gone")
        return None

    def _fill(self) -> bool:
        """Take what has come, one message ahead at most; whether the other side is gone."""
        try:
            while len(self._in) <= LARGEST + HEAD.size:
                piece = self.socket.recv(PIECE)
                if not piece:
                    return True
                self._in += piece
        except BlockingIOError:
            return False
        except OSError:
            return True
        return False

    def wait(self, seconds: float | None = None) -> Message | None:
        """The next message, waited for; None when the time has passed."""
        while True:
            done = self.flush()
            if (message := self.receive()) is not None:
                return message
            ready = select.select([self.socket], [] if done else [self.socket], [], seconds)
            if not any(ready):
                return None

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
