"""A process of this package at the other end of a link: it ends when the link does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading

from lrc_jepa.deploy.link import Link

QUIET = 5  # how much a child yields to the loop: a plan may be late, an action may not


def start(module: str) -> tuple[Link, subprocess.Popen[bytes]]:
    """Run `python -m module FD` in a process of its own, and the link to it.

    A fresh interpreter and not a fork or `multiprocessing`: it shares nothing, and a user's script needs no
    guard against being run twice.
    """
    link, other = Link.pair()
    try:
        with other:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
    except OSError:
        link.close()
        raise
    return link, process


def end(link: Link, process: subprocess.Popen[bytes]) -> None:
    """Hang up, and see that the process is gone."""
    leave(link, process).join()


def leave(link: Link, process: subprocess.Popen[bytes]) -> threading.Thread:
    """Hang up and end the process, without waiting for that: one that is stuck in the kernel takes its time."""
    link.close()
    process.kill()
    waiting = threading.Thread(target=process.wait, name="ending", daemon=True)
    waiting.start()
    return waiting


def my_link(argv: list[str], nice: int = 0) -> Link:
    """In the child: the link to whoever started it. Ctrl-C is for the parent to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(nice)
    return Link(socket.socket(fileno=int(argv[1])))
