"""The studio's server: this machine only, a secret in the address, models in a thread of their own."""

from __future__ import annotations

import asyncio
import secrets
import socket as sockets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from lrc_jepa.errors import BadInput
from lrc_jepa.studio.contents import Contents
from lrc_jepa.studio.inbox import Inbox
from lrc_jepa.studio.messages import Answers, to_text
from lrc_jepa.studio.session import Session

T = TypeVar("T")
HOST = "127.0.0.1"
NAMES = {"127.0.0.1", "localhost", "[::1]"}  # by which a browser may call this machine
PAGE = Path(__file__).parent / "page"
LARGEST = 16 * 2**20  # bytes of one question: a picture as a goal
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Studio:
    """What is shown, and the pages that look at it."""

    def __init__(self, contents: Contents, token: str | None = None) -> None:
        self.contents = contents
        self.token = token or secrets.token_urlsafe(18)
        self.sessions: set[Session] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    async def think(self, work: Callable[[], T]) -> T:
        """Do something with a model or a world, in the one thread that may: pages take turns."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Let the threads end."""
        self.contents.close()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def application(self) -> Starlette:
        """The routes, all behind the token."""
        inside = f"/{self.token}"
        return Starlette(
            routes=[
                Route(f"{inside}/", partial(_file, "index.html")),
                WebSocketRoute(f"{inside}/talk", self._talk),
                Route(f"{inside}/{{name}}", _named),
            ],
            middleware=[Middleware(Guard, inside=inside)],
        )

    async def _talk(self, socket: WebSocket) -> None:
        """One page, from opening to closing."""
        await socket.accept()
        session, inbox = Session(self.contents), Inbox()
        self.sessions.add(session)
        reading = asyncio.create_task(_read(socket, inbox))
        answering = asyncio.create_task(self._answer(socket, session, inbox))
        try:
            await asyncio.wait({reading, answering}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, answering):
                task.cancel()
            ended = await asyncio.gather(reading, answering, return_exceptions=True)
            self.sessions.discard(session)
        for failure in ended:
            if isinstance(failure, Exception) and not isinstance(failure, WebSocketDisconnect):
                raise failure  # a defect: the server says where

    async def _answer(self, socket: WebSocket, session: Session, inbox: Inbox) -> None:
        """Answer questions as they come; between them, go on with what runs by itself."""
        await self._send(socket, session.hello())
        while True:
            running = session.running
            question = await inbox.wait(running.pace if running else None)
            if question is not None:
                await self._send(socket, session.answer(*question))
            elif running is not None:
                await self._send(socket, session.go_on(running))

    async def _send(self, socket: WebSocket, answers: Answers) -> None:
        """Send answers as they are found; another page may have its turn after each."""
        while (text := await self.think(partial(_next, answers))) is not None:
            await socket.send_text(text)


def _next(answers: Answers) -> str | None:
    answer = next(answers, None)
    return None if answer is None else to_text(answer)


async def _read(socket: WebSocket, inbox: Inbox) -> None:
    with suppress(WebSocketDisconnect):
        while True:
            text = await socket.receive_text()
            with suppress(BadInput):  # not a page of ours
                inbox.put(text)


async def _file(name: str, request: Request) -> Response:
    return FileResponse(PAGE / name)


async def _named(request: Request) -> Response:
    """A file of the page itself."""
    known = {path.name for path in PAGE.iterdir()}
    name = request.path_params["name"]
    return FileResponse(PAGE / name) if name in known else PlainTextResponse("not here", 404)


class Guard:
    """Nobody passes without the token, under another name of this machine, or from another page."""

    def __init__(self, app: ASGIApp, inside: str) -> None:
        self.app, self.inside = app, inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let through, or refuse."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                extra = [(n.lower().encode(), v.encode()) for n, v in HEADERS.items()]
                message["headers"] = [*message["headers"], *(e for e in extra if e[0] not in present)]
            await send(message)

        if self._allowed(scope):
            await self.app(scope, receive, sending)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await PlainTextResponse("the address of this studio has a token that you lack", 403)(
                scope, receive, sending
            )

    def _allowed(self, scope: Scope) -> bool:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        given = scope["path"].partition("/")[2].partition("/")[0]
        return (
            secrets.compare_digest(given.encode(), self.inside[1:].encode())
            and host.rpartition(":")[0] in NAMES
            and origin in (None, f"http://{host}")  # a page from elsewhere may not talk to this one
        )


def listen(port: int) -> sockets.socket:
    """A socket on this machine alone; port 0 takes any that is free."""
    listening = sockets.socket()
    listening.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()  # whoever calls before the server runs waits
    except OSError as error:
        listening.close()
        raise BadInput(
            f"port {port} cannot be used ({error.strerror}); pass --port 0 for any that is free"
        ) from None
    return listening


def address(studio: Studio, listening: sockets.socket) -> str:
    """Where the page is."""
    return f"http://{HOST}:{listening.getsockname()[1]}/{studio.token}/"


def server(studio: Studio) -> uvicorn.Server:
    """What serves the pages, once it is told to run on a socket."""
    return uvicorn.Server(
        uvicorn.Config(
            studio.application(),
            log_level="error",
            ws_max_size=LARGEST,
            timeout_graceful_shutdown=2,
            lifespan="off",
        )
    )


def serve(studio: Studio, listening: sockets.socket) -> None:
    """Serve until interrupted; then close what is open."""
    try:
        server(studio).run(sockets=[listening])
    finally:
        studio.close()


@contextmanager
def serving(studio: Studio) -> Iterator[str]:
    """Serve from a thread of its own as long as the block lasts; gives the address."""
    served = server(studio)
    with listen(0) as listening:
        thread = threading.Thread(target=served.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield address(studio, listening)
        finally:
            served.should_exit = True
            thread.join()
            studio.close()
