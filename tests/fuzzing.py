"""Inputs for the targets of `fuzz_targets`, made by hypothesis: by a grammar where there is one, and by
changing honest bytes."""

from __future__ import annotations

import copy
import json
import pickle
import struct
from collections import Counter
from functools import partial
from pathlib import Path

from damage import HEADERS, HOSTILE, npy_bytes
from forked import Ended, in_child
from fuzz_targets import as_json, feed, targets, zipped
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

SIZES = st.one_of(st.integers(0, 300), st.sampled_from([1 << 16, 1 << 24, (1 << 31) - 1, (1 << 32) - 1]))
WORDS = st.binary(max_size=20).map(lambda data: data.decode("latin1"))  # st.text takes 200 MB to begin with
PHASES = (Phase.generate, Phase.shrink)


@st.composite
def opcodes(draw) -> bytes:
    """One instruction of a pickle with arguments that fit it, mostly."""
    code = draw(st.sampled_from(sorted({getattr(pickle, n)[0] for n in pickle.__all__ if _is_opcode(n)})))
    text = draw(st.sampled_from([b"1", b"numpy", b"dtype", b"_reconstruct", b"os", b"'x'", b"1e5", b"L"]))
    body = draw(st.binary(max_size=12))
    size = draw(SIZES)
    tails = [b"", body, text + b"\n", text + b"\n" + text + b"\n"]
    tails += [bytes([size & 255]) + body, struct.pack("<I", size & 0xFFFFFFFF) + body]
    tails += [struct.pack("<Q", size) + body]
    return bytes([code]) + draw(st.sampled_from(tails))


def _is_opcode(name: str) -> bool:
    value = getattr(pickle, name)
    return name.isupper() and isinstance(value, bytes) and len(value) == 1


@st.composite
def changed(draw, whole: list[bytes]) -> bytes:
    """Honest bytes with a few cuts, flips and insertions."""
    data = bytearray(draw(st.sampled_from(whole)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["flip", "cut", "put", "double", "number"]))
        if how == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del data[at : at + draw(st.integers(1, 40))]
        elif how == "double":
            data[at:at] = data[at : at + draw(st.integers(1, 60))]
        elif how == "number":
            data[at : at + 4] = struct.pack("<I", draw(SIZES) & 0xFFFFFFFF)
        else:
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
    return bytes(data)


def _nodes(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _nodes(item, (*path, key))


@st.composite
def changed_json(draw, whole: bytes) -> bytes:
    """A JSON document with a few of its parts replaced."""
    anything = st.one_of(
        st.sampled_from([h for h in HOSTILE if h == h]),
        st.recursive(
            st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS),
            lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner)),
            max_leaves=6,
        ),
    )
    lines = whole.splitlines() if whole.count(b"\n{") else [whole]
    at = draw(st.integers(0, len(lines) - 1))
    value = json.loads(lines[at])
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(sorted(_nodes(value), key=str)))
        new = copy.deepcopy(draw(anything))  # later changes may go into it
        if not path:
            value = new
            break
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = new
    lines[at] = as_json(value)
    return b"\n".join(lines) + b"\n"


def inputs(name: str, whole: list[bytes]) -> st.SearchStrategy[bytes]:
    """What a target is fed."""
    kinds = [changed(whole), st.binary(max_size=200)]
    if name == "pickle":
        kinds += [
            st.lists(opcodes(), max_size=30).map(lambda parts: b"\x80\x04" + b"".join(parts) + b".")
        ] * 3
    if name in ("npz", "npy header"):
        headers = st.builds(npy_bytes, st.sampled_from(HEADERS) | WORDS, st.binary())
        kinds += [headers if name != "npz" else headers.map(lambda data: zipped({"action.npy": data}))]
    if whole[0].lstrip()[:1] == b"{":
        kinds += [changed_json(whole[0])] * 2
    return st.one_of(kinds)


def _run(name: str, folder: Path, examples: int, start: int) -> Counter[str]:
    folder.mkdir()
    target, whole = targets(folder)[name]
    outcomes: Counter[str] = Counter(feed(target, data) for data in whole)
    assert set(outcomes) == {"read"} or name == "packed", "the honest inputs are not read"

    @seed(start)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs(name, whole))
    def tried(data: bytes) -> None:
        outcomes[feed(target, data)] += 1

    tried()
    return outcomes


def fuzz(name: str, folder: Path, examples: int, start: int = 0) -> Ended:
    """Feed a target many inputs, in a child whose memory and processor time are counted."""
    return in_child(partial(_run, name, folder / "fuzzed", examples, start), seconds=3600)
