"""The server: who is let in, what is answered, and nothing that a client says can end it."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from lrc_jepa.client import Infers
from lrc_jepa.console import warn
from lrc_jepa.errors import BadInput
from lrc_jepa.wire import LARGEST, pack, unpack_table

CLIENTS = 16  # at a time
SHORTEST = 16  # letters of a token
LONGEST = 300  # letters of a reason
WARNED = 100  # different failures that are told here: a client could make up any number


def check_door(host: str, token: str) -> None:
    """Refuse to let anybody in from elsewhere without a token."""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local and len(token) < SHORTEST:
        raise BadInput(
            f"a server that others can reach needs a token of {SHORTEST} letters or more: set LRC_SERVE_TOKEN"
        )


class PolicyServer:
    """Sessions for several clients around one model, which answers one of them at a time."""

    def __init__(self, session: Callable[[], Infers], metadata: Mapping[str, Any], token: str = "") -> None:
        """`session` makes one for each client."""
        self._session, self._token, self._metadata = session, token, dict(metadata)
        # JSON has no word for infinity, which a bound may be where that was asked for by name.
        self._metadata_text = json.dumps(
            json.loads(json.dumps(self._metadata), parse_constant=lambda word: None)
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._warned: set[str] = set()
        self.clients = self.answered = self.refused = 0

    async def start(self, host: str, port: int) -> Server:
        """Begin to listen."""
        logging.getLogger("websockets.server").setLevel(logging.CRITICAL)  # whoever knocks wrongly is no news
        try:
            return await serve(
                self._talk,
                host,
                port,
                compression=None,
                max_size=LARGEST,
                max_queue=2,
                origins=[None],  # no page of a browser
                process_request=self._door,
            )
        except OSError as error:
            raise BadInput(f"port {port} of {host} cannot be used ({error.strerror})") from None

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _door(self, connection: ServerConnection, request: Request) -> Response | None:
        """Health for everybody, metadata and the policy for those who may."""
        if request.path == "/healthz":
            return connection.respond(HTTPStatus.OK, "OK\n")
        given = request.headers.get("Authorization", "").partition(" ")[2]
        if self._token and not hmac.compare_digest(given.encode(), self._token.encode()):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "this policy needs a token\n")
        if request.path == "/metadata":
            return connection.respond(HTTPStatus.OK, self._metadata_text + "\n")
        if self.clients >= CLIENTS:
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, f"{CLIENTS} clients are here already\n")
        return None

    async def _talk(self, connection: ServerConnection) -> None:
        """One client, from opening to closing."""
        self.clients += 1
        try:
            if self.clients > CLIENTS:  # several were at the door at once
                await connection.close(1013, f"{CLIENTS} clients are here already")
                return
            session = await self._think(self._session)
            await connection.send(pack(self._metadata))
            async for message in connection:
                await connection.send(await self._think(lambda said=message: self._answer(session, said)))  # type: ignore[misc]
        except ConnectionClosed:
            pass
        except Exception as error:
            self._failure(error)
            raise  # closes the connection
        finally:
            self.clients -= 1

    async def _think(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _answer(self, session: Infers, message: str | bytes) -> str | bytes:
        """Bytes to a good question, one sentence to a bad one."""
        began = time.perf_counter()
        try:
            if isinstance(message, str):
                raise BadInput("a message is msgpack, not text")
            answer = session.infer(unpack_table(message))
            self.answered += 1
            return pack({**answer, "server_timing": {"infer_ms": 1000 * (time.perf_counter() - began)}})
        except BadInput as error:
            self.refused += 1
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever one client causes, the others are served
            self.refused += 1
            return self._failure(error)

    def _failure(self, error: Exception) -> str:
        """What went wrong, in one sentence; whoever runs the server is told it too, once, and not without end."""
        reason = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")[:LONGEST]
        sentence = f"the policy failed ({reason})"
        if sentence not in self._warned and len(self._warned) < WARNED:
            self._warned.add(sentence)
            warn(sentence)
        return sentence
