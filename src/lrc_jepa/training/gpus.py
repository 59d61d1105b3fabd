"""What a run would cost on a GPU that is not here: its operations are counted, its rates are published.

A step takes as long as the slower of two things, the arithmetic and the memory:

    seconds = max(operations / (share * rate), PASSES * kept / bandwidth)

where `kept` are the bytes of all tensors that the backward pass needs, in bfloat16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lrc_jepa.config import RunConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.base import Model
from lrc_jepa.objectives import Objective
from lrc_jepa.training.estimate import PROBES, Cost, at_batch, random_clip

SHARES = (0.4, 0.1)  # of the published rate: what wide networks reach, and what narrow ones often do
PASSES = 3  # a kept tensor is written once, and read by the next layer and by the backward pass
FREE = 0.9  # of the memory: the rest is the driver's, and what allocators waste


@dataclass(frozen=True)
class GPU:
    """Published figures of one GPU."""

    teraflops: float
    """Dense bfloat16 products with float32 sums, in 10^12 operations a second."""
    memory_gb: float
    gb_per_s: float
    """Of its memory."""


GPUS = {
    "rtx3090": GPU(71, 24, 936),
    "rtx4090": GPU(165, 24, 1008),
    "rtx5090": GPU(209, 32, 1792),
    "l4": GPU(121, 24, 300),
    "l40s": GPU(362, 48, 864),
    "a100": GPU(312, 80, 2039),
    "h100": GPU(989, 80, 3350),
    "h200": GPU(989, 141, 4800),
    "b200": GPU(2250, 180, 8000),
}


def get_gpu(name: str) -> GPU:
    """The published figures of a GPU."""
    if name not in GPUS:
        raise BadInput(f"there are no figures of a GPU {name!r}; there is {', '.join(GPUS)}")
    return GPUS[name]


def operations(config: RunConfig, model: Model, clips: int) -> int:
    """Multiplications and additions of one step's matrix products, forward and backward."""
    objective = Objective(config.objective, model, config.train.seed)
    # Attention is counted where it is written out as products.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        objective(model.outputs(random_clip(config, model, clips)), 0)["total"].backward()
    return counter.get_total_flops()


@dataclass(frozen=True)
class GPUCost:
    """What training would take on one GPU."""

    operations_per_step: float
    seconds_per_step: tuple[float, float]
    """At best, and with a tenth of the published rate."""
    hours: tuple[float, float]
    memory_gb: float
    chunks: int
    """`train.chunks`: 1 where a whole batch fits."""
    frames_per_s: float
    """What readers must deliver for the best time."""


def gpu_cost(config: RunConfig, model: Model, cost: Cost, gpu: GPU) -> GPUCost:
    """From what a step keeps (`cost`) and does."""
    model.train()
    small, large = (float(operations(config, model, clips)) for clips in PROBES)
    count = at_batch(small, large, config.train.batch_size)
    kept = cost.activations_gb / 2
    memory = PASSES * kept / gpu.gb_per_s
    seconds = tuple(max(count / (share * gpu.teraflops * 1e12), memory) for share in SHARES)
    best, usual = seconds
    room = FREE * gpu.memory_gb - cost.state_gb
    if room <= 0:
        raise BadInput(
            f"the weights and their moments alone take {cost.state_gb:.0f} GB of {gpu.memory_gb:.0f}"
        )
    chunks = math.ceil(kept / room)
    clip = config.clip.history + config.clip.targets
    return GPUCost(
        operations_per_step=count,
        seconds_per_step=(best, usual),
        hours=(best * cost.steps / 3600, usual * cost.steps / 3600),
        memory_gb=cost.state_gb + kept / chunks,
        chunks=chunks,
        frames_per_s=config.train.batch_size * clip / best,
    )
