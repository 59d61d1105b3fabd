"""Action adapters: the parts of a model that know the actions of one dataset, for each of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Adapter(nn.Module):
    """g_a of one dataset, and its inverse-dynamics head where the model has one."""

    def __init__(self, width: int, encoder: nn.Module, inverse: nn.Module | None) -> None:
        """`width` is that of the dataset's action blocks."""
        super().__init__()
        self.width, self.encoder, self.inverse = width, encoder, inverse

    def encode(self, actions: Tensor) -> Tensor:
        """Blocks (B,T,A) of any dataset, as if they were its own -> (B,T,E)."""
        encoded: Tensor = self.encoder(actions[..., : self.width])
        return encoded

    def infer(self, pairs: Tensor, width: int) -> Tensor:
        """[z_t, z_t+1] (B,T,2D) -> blocks with zeros behind them (B,T,width)."""
        assert self.inverse is not None
        return F.pad(self.inverse(pairs), (0, width - self.width))


class Adapters(nn.ModuleList):
    """One adapter for each dataset, in the order of their names.

    Every adapter answers for the whole batch, and each clip takes the answer of its own: so all weights take part in
    every step, on every process, whichever clips it is given. An adapter is small beside the encoder.
    """

    def __init__(self, widths: Mapping[str, int], build: Callable[[int], Adapter]) -> None:
        """`widths` are those of the action blocks by the names of the datasets; `build` makes an adapter of one."""
        super().__init__(build(width) for width in widths.values())
        self.names, self.width = list(widths), max(widths.values())

    def named(self, name: str) -> Adapter:
        """The adapter of one dataset."""
        return self._each()[self.names.index(name)]

    def _each(self) -> list[Adapter]:
        return [cast(Adapter, adapter) for adapter in self]

    def encode(self, actions: Tensor, sources: Tensor) -> Tensor:
        """Blocks (B,T,A), ending in zeros where a dataset's are narrower, and datasets (B,) -> (B,T,E)."""
        return _own([adapter.encode(actions) for adapter in self._each()], sources)

    def infer(self, pairs: Tensor, sources: Tensor) -> Tensor:
        """[z_t, z_t+1] (B,T,2D) -> the blocks between them (B,T,A), ending in zeros like those that are given."""
        return _own([adapter.infer(pairs, self.width) for adapter in self._each()], sources)


def _own(answers: list[Tensor], sources: Tensor) -> Tensor:
    """What each clip's own adapter answers."""
    return torch.stack(answers)[sources, torch.arange(len(sources), device=sources.device)]
