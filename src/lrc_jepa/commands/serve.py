"""`lrc serve`: a trained run as a policy that robots ask over a websocket."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Annotated, Any

from lrc_jepa.arguments import command
from lrc_jepa.bounds import Positive, Range
from lrc_jepa.commands.acting import ActingArgs
from lrc_jepa.config import PlanConfig
from lrc_jepa.console import say
from lrc_jepa.extras import need
from lrc_jepa.options import Unprefixed
from lrc_jepa.plan.planners import check_planning
from lrc_jepa.run import load

ABOUT = (
    "Serve a trained run as a policy: a websocket that takes frames and a goal picture and gives actions, in the protocol "
    "of openpi's clients. It listens on this machine alone; for others a --host is named and LRC_SERVE_TOKEN set."
)
EXAMPLES = (
    "lrc serve runs/first --port 8000",
    "LRC_SERVE_TOKEN=... lrc serve runs/first --host 0.0.0.0 --port 8000",
)


@dataclass(frozen=True, kw_only=True)
class ServeArgs(ActingArgs):
    """Which run, and where."""

    host: str = "127.0.0.1"
    """Address to listen on; any but this machine's own needs a token in LRC_SERVE_TOKEN."""
    port: Annotated[int, Range(0, 65535)] = 8000
    """Port; 0 takes any that is free."""
    seconds: Positive | None = None
    """End after this time; left out: Ctrl-C ends it."""
    plan: Unprefixed[PlanConfig] = PlanConfig()
    """The search; what is left out is as the run's own recipe says:"""


def work(args: ServeArgs) -> dict[str, Any]:
    """Load, check, say where, serve."""
    for module in ("websockets", "msgpack"):
        need(module, "lrc serve")
    from lrc_jepa.serve.server import PolicyServer, check_door
    from lrc_jepa.serve.session import Session, metadata

    token = os.environ.get("LRC_SERVE_TOKEN", "")
    check_door(args.host, token)
    run = load(args.run, device=args.device, unbounded=args.unbounded, adapter=args.adapter)
    policy = run.policy(args.plan)
    check_planning(args.plan, policy.deployment.spec.history, policy.box)
    server = PolicyServer(lambda: Session(run, args.plan), metadata(run, args.plan), token)

    async def serving() -> None:
        listening = await server.start(args.host, args.port)
        async with listening:
            port = next(iter(listening.sockets)).getsockname()[1]
            say(
                f"{args.run} is served at ws://{args.host}:{port}; /healthz and /metadata say how it is. Ctrl-C ends it."
            )
            await asyncio.sleep(args.seconds or float("inf"))

    try:
        asyncio.run(serving())
    finally:
        server.close()
    return {"run": str(args.run), "answered": server.answered, "refused": server.refused}


main = command(work, ServeArgs, "serve", ABOUT, EXAMPLES, ServeArgs.of_words)
