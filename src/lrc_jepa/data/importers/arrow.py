"""Arrow columns -> numpy arrays, for the formats built on Arrow (LeRobot's parquet files and Lance)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.data.budget import ask
from lrc_jepa.errors import BadInput

DEEPEST = 3
# Bytes of one value in memory, by the parquet type; the others are as long as they are.
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
PER_CELL = 100  # bytes of a cell as a Python value


def ask_for(
    metadata: Any, names: Collection[str], groups: Iterable[int], what: str, per_cell: int = 0
) -> None:
    """Ask for the memory that columns of some row groups of a parquet file take.

    Runs of equal values are packed to next to nothing, so what counts is how many values there are.
    """
    needed = stored = 0
    for group in groups:
        described = metadata.row_group(group)
        for number in range(described.num_columns):
            column = described.column(number)
            path = column.path_in_schema
            if not any(path == name or path.startswith(f"{name}.") for name in names):
                continue
            width = max(WIDTHS.get(column.physical_type, 0), per_cell)
            needed += max(width * column.num_values, column.total_uncompressed_size)
            stored += column.total_compressed_size
    ask(needed, stored, what)


def row_bytes(kind: Any) -> int | None:
    """Bytes of a row of numbers or of equally long lists of them; None when Arrow's type promises neither."""
    import pyarrow as pa

    if isinstance(kind, pa.ExtensionType):
        return row_bytes(kind.storage_type)
    if pa.types.is_fixed_size_list(kind):
        inner = row_bytes(kind.value_type)
        return None if inner is None else kind.list_size * inner
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return -(-int(kind.bit_width) // 8)
    return None


def to_array(column: Any, what: str, depth: int = 0) -> Array | None:
    """(rows, ...) numbers from a column of numbers or of equally long lists; None for anything else."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # more than 2 GiB: Arrow keeps the pieces
            raise BadInput(f"{what} is too large for one file")
    kind = column.type
    if isinstance(kind, pa.ExtensionType):
        return to_array(column.storage, what, depth)
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not (lists or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return None
    if column.null_count:
        raise BadInput(f"{what} has empty cells")
    if not lists:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if depth == DEEPEST:
        return None
    rows = len(column)
    if not pa.types.is_fixed_size_list(kind) and rows and len(column.value_lengths().unique()) != 1:
        raise BadInput(f"{what} has rows of different widths")
    inner = to_array(column.flatten(), what, depth + 1)
    if inner is None or rows == 0:
        return inner
    return inner.reshape(rows, len(inner) // rows, *inner.shape[1:])
