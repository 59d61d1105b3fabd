"""Append-only JSON lines, each with a checksum of its own, so that no damage passes for data.

A line is an object whose last field is the CRC-32 of everything before it. Lines without one, from
before there were checksums, are read as they are.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lrc_jepa.errors import BadInput
from lrc_jepa.locks import hold

Line = dict[str, Any]
CHECKED = re.compile(rb'(\{.*), "crc": "([0-9a-f]{8})"\}', re.DOTALL)


def to_line(record: Line) -> bytes:
    """A record as one line."""
    body = json.dumps(record, sort_keys=True).encode()[:-1]
    return b'%b, "crc": "%08x"}\n' % (body, zlib.crc32(body))


def from_line(line: bytes) -> Line:
    """The record of a line; ValueError if the line is not what was written."""
    if checked := CHECKED.fullmatch(line):
        if zlib.crc32(checked[1]) != int(checked[2], 16):
            raise ValueError("its checksum does not match")
        line = checked[1] + b"}"
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("it is not an object")
    return record


def read_lines(path: Path) -> tuple[list[Line], list[int]]:
    """Every whole record, and the numbers of the lines that are damaged, from 1."""
    if not path.is_file():
        return [], []
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror})") from None
    records, damaged = [], []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            records.append(from_line(line))
        except (ValueError, RecursionError):
            damaged.append(number)
    return records, damaged


def describe_damage(path: Path, damaged: list[int], records: int) -> str:
    """One sentence that names the damaged lines and counts them."""
    shown = ", ".join(map(str, damaged[:10])) + (", ..." if len(damaged) > 10 else "")
    plural = "s" if len(damaged) > 1 else ""
    return (
        f"{path}: {len(damaged)} of {len(damaged) + records} lines cannot be read and are left out "
        f"(line{plural} {shown}: damaged, or cut short when a process was killed)"
    )


def append_lines(path: Path, records: Iterable[Line]) -> None:
    """Add records, flushed to the disk: all of them, or after an error none."""
    data = b"".join(to_line(record) for record in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    with hold(path, wait=True), path.open("a+b", buffering=0) as handle:
        end = handle.seek(0, os.SEEK_END)
        try:
            if end and not _ends_whole(handle.fileno(), end):
                data = b"\n" + data  # a line cut short by a crash stays alone on its line
            while data:
                data = data[handle.write(data) :]
            os.fsync(handle.fileno())
        except BaseException:
            with suppress(OSError):
                handle.truncate(end)
            raise


def _ends_whole(descriptor: int, end: int) -> bool:
    return os.pread(descriptor, 1, end - 1) == b"\n"
