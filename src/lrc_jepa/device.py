"""Where the tensors are: a device by the name that a user gives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import nn

from lrc_jepa.errors import BadInput


def pick_device(name: str) -> torch.device:
    """`auto` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInput(f"there is no device {name!r}; say auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput("there is no CUDA device here; use --device cpu")
    return device


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads for what torch computes here while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def device_of(model: object) -> torch.device:
    """Where a model's weights are; one without weights is wherever its input is, and that is the CPU."""
    weights = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return torch.device("cpu") if weights is None else weights.device


@cache
def multiplies_bfloat16() -> bool:
    """Whether the processor survives a product in bfloat16.

    A virtual machine may announce instructions that it does not let run, and who uses them is ended: so a
    child tries it.
    """
    product = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); x @ x"
    return subprocess.run([sys.executable, "-c", product], capture_output=True, check=False).returncode == 0
