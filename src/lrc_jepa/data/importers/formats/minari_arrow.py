"""Minari datasets in its Arrow or Parquet storage: a folder per episode with one table in it.

    data/metadata.json, data/0/metadata.json, data/0/part-0.arrow, data/1/...

A table has a row per observation; the last row's action, reward and ends are filling. Spaces within spaces
are structs. Pictures are one JPEG per row, or flat lists of numbers whose shape the observation space tells.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.importers.arrow import ask_for, to_array
from lrc_jepa.data.importers.base import (
    Source,
    checked_lengths,
    choose_camera,
    numeric,
    read_described,
    reading,
)
from lrc_jepa.data.importers.images import converter, decode_image, is_image
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need

STORAGES = ("arrow", "parquet")
DEEPEST = 8  # levels of nested spaces
KEPT = ("observations", "actions", "infos")


def is_compressed(metadata: bytes) -> bool:
    """Whether the buffers of a record batch are packed, by the flatbuffer that describes it."""

    def at(kind: str, place: int) -> int:
        return int(struct.unpack_from(kind, metadata, place)[0])

    def field(table: int, number: int) -> int:
        """Where a field of a table lies; 0 when it is not there."""
        vtable, entry = table - at("<i", table), 4 + 2 * number
        offset = at("<H", vtable + entry) if entry < at("<H", vtable) else 0
        return table + offset if offset else 0

    header = field(at("<I", 0), 2)  # of the message
    return bool(header) and field(header + at("<I", header), 3) != 0  # compression of the batch


def read_arrow(path: Path, what: str) -> Any:
    """An uncompressed Arrow file as a table over the mapped file, which takes no memory of its own."""
    pa = need("pyarrow", "reading Minari's Arrow storage")
    with reading(what):
        source = pa.memory_map(str(path))
        if bytes(source.read(8)) != b"ARROW1\0\0":
            raise BadInput(f"{what} is not an Arrow file")
        messages = pa.ipc.MessageReader.open_stream(source)
        schema = pa.ipc.read_schema(messages.read_next_message())
        batches = []
        for message in messages:
            if message.type != "record batch" or is_compressed(bytes(message.metadata)):
                raise BadInput(f"{what} is compressed or holds dictionaries, which Minari does not write")
            batches.append(pa.ipc.read_record_batch(message, schema))
            batches[-1].validate(full=True)  # offsets of a damaged file could lead anywhere
        return pa.Table.from_batches(batches, schema)


def read_parquet(path: Path, what: str) -> Any:
    """A Parquet file as a table."""
    pq = need("pyarrow.parquet", "reading Minari's Parquet storage")
    with reading(what):
        file = pq.ParquetFile(path)
        names = [name for name in KEPT if name in file.schema_arrow.names]
        ask_for(file.metadata, names, range(file.num_row_groups), what)
        return file.read(columns=names)


def flat_columns(column: Any, name: str, what: str, depth: int = 0) -> dict[str, Any]:
    """The columns inside a column of structs, named by their paths."""
    import pyarrow as pa

    if not pa.types.is_struct(column.type):
        return {name: column}
    if depth > DEEPEST:
        raise BadInput(f"{what}: columns are nested too deeply")
    columns: dict[str, Any] = {}
    for field, inner in zip(column.type, column.flatten(), strict=True):
        columns |= flat_columns(inner, f"{name}/{field.name}", what, depth + 1)
    return columns


def space_shape(space: Any, path: list[str]) -> tuple[int, ...]:
    """The shape of the space at the end of a path through Dict and Tuple spaces; () where none is told."""
    for part in path:
        inner = space.get("subspaces") if isinstance(space, dict) else None
        if isinstance(inner, list):
            inner = {str(number): item for number, item in enumerate(inner)}
        space = inner.get(part) if isinstance(inner, dict) else None
    shape = space.get("shape") if isinstance(space, dict) else None
    if isinstance(shape, list) and all(type(side) is int and 0 < side < 1 << 20 for side in shape):
        return tuple(shape)
    return ()


class MinariArrow(Source):
    """A `data` folder with a folder per episode."""

    def __init__(self, folder: Path, metadata: dict[str, Any], camera: str | None, what: str) -> None:
        self.what, self.folder, self.storage = what, folder, str(metadata["data_format"])
        try:
            self.space: Any = json.loads(metadata.get("observation_space", "null"))
        except (TypeError, ValueError, RecursionError):
            self.space = None
        numbers = sorted(int(p.name) for p in folder.iterdir() if p.is_dir() and p.name.isdecimal())
        if not numbers or numbers != list(range(len(numbers))):
            raise BadInput(f"{what}: the episodes are not numbered from 0 on without a gap")
        claimed = metadata.get("total_episodes", len(numbers))
        if claimed != len(numbers):
            raise BadInput(f"{what} has {len(numbers)} episodes, but its metadata says {str(claimed)[:40]}")
        self.lengths = checked_lengths(np.asarray([self._length(n) for n in numbers]), what)
        self._read: tuple[int, dict[str, Any]] | None = None
        first = self._columns(0)
        cameras = [n for n in first if n.startswith("observations") and self._is_camera(n, first[n])]
        self.camera = choose_camera(cameras, camera, what)
        self.info = {"camera": self.camera, "dataset": str(metadata.get("dataset_id", ""))[:200]}
        self.leave_out(*(name for name in cameras if name != self.camera))

    def _length(self, episode: int) -> int:
        steps = read_described(self.folder / str(episode) / "metadata.json", self.what).get("total_steps")
        if type(steps) is not int or not 0 <= steps < 1 << 40:
            raise BadInput(f"{self.what}: episode {episode} does not say how many steps it has")
        return steps + 1

    def _columns(self, episode: int) -> dict[str, Any]:
        """The columns of an episode, spaces within spaces by their paths; the last one asked for is kept."""
        if self._read is None or self._read[0] != episode:
            what = f"{self.what}, episode {episode}"
            files = sorted((self.folder / str(episode)).glob(f"*.{self.storage}"))
            if len(files) != 1:
                raise BadInput(f"{what} has {len(files)} files *.{self.storage}, not one")
            table = (read_arrow if self.storage == "arrow" else read_parquet)(files[0], what)
            if table.num_rows != self.lengths[episode]:
                raise BadInput(f"{what} has {table.num_rows} rows, but {self.lengths[episode]} observations")
            columns: dict[str, Any] = {}
            with reading(what):
                for name in (name for name in KEPT if name in table.column_names):
                    columns |= flat_columns(table.column(name).combine_chunks(), name, what)
            self._read = episode, columns
        return self._read[1]

    def _shape(self, name: str) -> tuple[int, ...]:
        return space_shape(self.space, name.split("/")[1:])

    def _is_camera(self, name: str, column: Any) -> bool:
        import pyarrow as pa

        if pa.types.is_binary(column.type):
            return True
        raw = pa.types.is_fixed_size_list(column.type) and column.type.value_type == pa.uint8()
        return raw and is_image(self._shape(name), np.dtype(np.uint8))

    def frames(self, episode: int) -> Iterator[NDArray[np.uint8]]:
        """Every observed frame, the one after the last action included."""
        what = f"{self.what}, episode {episode}"
        column = self._columns(episode).get(self.camera)
        if column is None:
            raise BadInput(f"{what} has no {self.camera}")
        convert, shape = None, self._shape(self.camera)
        for row in range(len(column)):
            with reading(what):
                cell = column[row]
                picture = cell.as_py() if hasattr(cell, "as_buffer") else to_array(cell.values, what)
            if isinstance(picture, bytes):
                yield decode_image(picture, what)
                continue
            if picture is None or picture.size != np.prod(shape, dtype=np.int64):
                raise BadInput(f"{what} lacks pictures of the shape that its space tells")
            convert = convert or converter(shape, picture.dtype, 255.0, what)
            yield convert(picture.reshape(shape))

    def columns(self, episode: int) -> Mapping[str, Array]:
        """Actions, and every number that is recorded for each frame."""
        what = f"{self.what}, episode {episode}"
        columns: dict[str, Array] = {}
        actions = []
        for name, column in sorted(self._columns(episode).items()):
            if name == self.camera or self._is_camera(name, column):
                continue
            with reading(f"{what}: {name}"):
                values = numeric(to_array(column, f"{what}: {name}"))
            if name.partition("/")[0] == "actions":
                if values is None:
                    raise BadInput(f"{what}: {name} does not hold numbers")
                actions.append(
                    values[:-1].reshape(len(values) - 1, int(np.prod(values.shape[1:], dtype=int)))
                )
            elif values is None:
                self.leave_out(name)
            else:
                columns[name] = values
        if not actions:
            raise BadInput(f"{what} has no actions")
        return {"action": np.concatenate(actions, axis=1), **columns}
