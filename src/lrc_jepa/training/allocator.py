"""What the process does with memory that is freed."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# glibc's names for what mallopt changes, and how far it would go by itself when large blocks are freed.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4
USUAL = {TRIM_THRESHOLD: 2**26, TOP_PAD: 2**17, MMAP_THRESHOLD: 2**25, MMAP_MAX: 2**16}
KEPT = {TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 2**26, MMAP_MAX: 0}


@contextmanager
def memory_kept(device: torch.device) -> Iterator[None]:
    """Freed memory stays with the process while the block runs on a CPU.

    Every training step asks for tensors of the same sizes. glibc gives the larger ones back to the system when they are
    freed, and a step takes a quarter longer for the pages that are zeroed again. Other C libraries are left as they are.
    """
    if device.type != "cpu":
        yield
        return
    libc = ctypes.CDLL(None)
    change = getattr(libc, "mallopt", lambda name, value: 0)
    for name, value in KEPT.items():
        change(name, value)
    try:
        yield
    finally:
        for name, value in USUAL.items():
            change(name, value)
        getattr(libc, "malloc_trim", lambda pad: 0)(0)
