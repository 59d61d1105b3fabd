"""Arrow columns -> numpy arrays, for the formats built on Arrow (LeRobot's parquet files and Lance)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.errors import BadInput

Array = NDArray[Any]
DEEPEST = 3


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
