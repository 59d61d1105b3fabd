"""Where the tensors are: a device by the name that a user gives."""

from __future__ import annotations

import torch

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
