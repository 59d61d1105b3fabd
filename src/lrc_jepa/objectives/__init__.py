"""An objective is a table of weighted terms over a model's outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from lrc_jepa.config import ObjectiveConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.protocols import Trainable
from lrc_jepa.types import Outputs


class Objective:
    """Sum of weight x term; what a term needs and the model lacks is refused here, before training."""

    def __init__(self, config: ObjectiveConfig, model: Trainable, seed: int) -> None:
        self.config, self.seed = config, seed
        provided = model.provides()
        for name, weight in config.weights.items():
            if name not in TERMS:
                raise BadInput(f"there is no objective term {name!r}; there is {', '.join(TERMS)}")
            lacking = sorted(TERMS[name].needs - provided)
            if weight and lacking:
                raise BadInput(
                    f"the term {name!r} needs {', '.join(lacking)}, which this model does not give"
                )
        self.active = {name: weight for name, weight in config.weights.items() if weight}

    def __call__(self, out: Outputs, step: int) -> dict[str, Tensor]:
        """Every active term unweighted, and `total`; random directions depend on (seed, step) only."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + step) % 2**63)
        terms = {name: TERMS[name].function(out, self.config, generator) for name in self.active}
        total = torch.stack([self.active[name] * value for name, value in terms.items()]).sum()
        return {**terms, "total": total}
