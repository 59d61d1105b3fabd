"""Pickles that want to act, and pickles that are odd; what they leave behind is the canary."""

from __future__ import annotations

import functools
import pickle
import struct
from pathlib import Path

import numpy as np

CANARY = "canary"  # a pickle that runs creates this file in the sandbox


class Acts:
    """Pickles into a call."""

    def __init__(self, call, *arguments) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def acting_pickles(sandbox: Path) -> list[bytes]:
    """Pickles that leave the canary in the sandbox when they are run, each by another way."""
    import builtins
    import os
    import subprocess

    touch = f"touch {sandbox / CANARY}"
    code = f"open({str(sandbox / CANARY)!r}, 'w')"
    return [
        pickle.dumps(Acts(os.system, touch)),
        pickle.dumps([Acts(os.system, touch)]),
        pickle.dumps({"full_state": Acts(builtins.eval, code)}),
        pickle.dumps(Acts(builtins.exec, code), protocol=0),
        pickle.dumps(Acts(subprocess.Popen, ["touch", str(sandbox / CANARY)])),
        f"cos\nsystem\n(S'{touch}'\ntR.".encode(),
        f"(S'{touch}'\nios\nsystem\n.".encode(),
        pickle.dumps(np.array([Acts(os.system, touch)], dtype=object)),
    ]


def odd_pickles(rng) -> list[bytes]:
    """Pickles that are broken, ask for much, or hold what nobody expects."""
    array = pickle.dumps(np.arange(4.0))
    return [
        pickle.dumps(Acts(functools.partial, print, "no")),
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93.",
        array.replace(b"_reconstruct", b"fromregex\0\0\0"),
        b"cnumpy\ndtype\n}S'__setstate__'\nI1\nsb.",  # changes a class instead of an object
        b"\x80\x02" + b"K\x01r" + struct.pack("<I", (1 << 32) - 1) + b".",  # a memo of 64 GB
        b"\x80\x04]\x94h\x00a.",  # a list that contains itself
        b"\x80\x02" + b"](" * 3000 + b".",
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"x.",
        b"\x80\x05\x96" + struct.pack("<Q", int(rng.integers(1 << 28, 1 << 32))) + b"x.",
        b"\x80\x04(" + b"]" * int(rng.integers(1 << 16, 1 << 18)) + b"l.",
        array.replace(struct.pack("<B", 4) + b"\x85", b"\xff\x85"),
        array.replace(b"f8", b"O8"),
        *(pickle.dumps(value) for value in (np.zeros(3, [("a", "f4")]), {1, 2, 3}, "text", [], -1)),
        *(pickle.dumps(value) for value in ([3, "4"], [0, 0], [3, -4], {"full_state": [[1, 2], [3]]})),
        *(pickle.dumps([{"actions": value}] * n) for value, n in ((None, 3), (np.zeros(2), 100))),
        rng.bytes(60),
    ]


def hostile_pickle(rng, sandbox: Path) -> bytes:
    options = acting_pickles(sandbox) + odd_pickles(rng)
    return options[int(rng.integers(len(options)))]
