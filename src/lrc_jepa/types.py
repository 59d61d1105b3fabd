"""The values that flow between the parts, and the letters used for their shapes.

B batch, T frames, K history, S plan samples, H horizon in action blocks, N tokens per state,
D width of a state's tokens, P of them proprioception, A action block (frameskip x action_dim), Q context
queries, h and w image sides.
Time is always axis 1; plan samples are folded into B before a model sees them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Spec:
    """All that a planner may know of a model; saved in the checkpoint. Only what older ones lack has a default."""

    history: int
    """K, the longest history that `step` accepts."""
    tokens: int
    """N, latent tokens per frame."""
    width: int
    """D, width of a latent token."""
    action_dim: int
    """A, the width of one action block: frameskip x low-level action width."""
    frameskip: int
    """Low-level actions in one block, and frames of the recording per model step."""
    image_size: int
    """Side of the square frames that `encode` accepts."""
    proprio: int = 0
    """P, how many numbers at the end of a latent token are proprioception: given with a frame, not seen in it."""

    @property
    def seen(self) -> int:
        """D - P, the width of what a frame alone tells, and so of a goal picture's latent."""
        return self.width - self.proprio

    @property
    def raw_action_dim(self) -> int:
        """Width of one low-level action."""
        return self.action_dim // self.frameskip


@dataclass(frozen=True)
class Clip:
    """A batch of clips: frames and the action blocks between them.

    `actions[:, t]` is the normalised block that LEAVES frame t, so it explains t -> t+1.
    """

    frames: Tensor  # (B, T, 3, h, w) uint8
    actions: Tensor  # (B, T-1, A) float32, normalised
    episodes: Tensor  # (B,) int64, the episode each clip was cut from
    features: Tensor | None = None  # (B, T, L, W), stored tokens that stand in for the frames
    proprio: Tensor | None = None  # (B, T, p), what the robot knows of itself
    far: Tensor | None = None  # (B, 3, h, w) uint8, a frame from elsewhere in the episode
    sources: Tensor | None = None  # (B,) int64, which of several datasets each clip is from

    @property
    def size(self) -> int:
        """Number of clips."""
        return self.frames.shape[0]

    def map(self, change: Callable[[Tensor], Tensor]) -> Clip:
        """The same clips with every tensor changed."""
        held = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: change(x) for name, x in held.items() if x is not None})

    def to(self, device: torch.device, *, non_blocking: bool = False) -> Clip:
        """The same clips on a device."""
        return self.map(lambda x: x.to(device, non_blocking=non_blocking))


@dataclass(frozen=True)
class Outputs:
    """What a trainable model gives to the objective; absent fields are None."""

    z: Tensor  # (B, T, N, D), or (B, T, N, D-P): of the frames alone, without proprioception
    z_pred: Tensor  # (B, T-1, N, D), z_pred[:, t] predicts z_target[:, t]
    z_target: Tensor  # (B, T-1, N, D), the states at frames 1..T-1
    actions: Tensor  # (B, T-1, A)
    episodes: Tensor | None = None  # (B,), the episode of each clip
    u: Tensor | None = None  # (B, T, Q, D)
    recon: Tensor | None = None  # (B, T, 3, h, w), in normalised pixels
    pixels: Tensor | None = None  # (B, T, 3, h, w), the normalised pixels to rebuild
    action_pred: Tensor | None = None  # (B, T-1, A)
    proposed: Tensor | None = (
        None  # (B, A), the block proposed on the way from a frame of each clip to a later one
    )
    done: Tensor | None = None  # (B, A), the block that was done there
    u_far: Tensor | None = None  # (B, 1, Q, D), u of a frame elsewhere in the episode
    tokens: Tensor | None = None  # (B, T, L, W), patch features, or all that was seen, to rebuild
    tokens_recon: Tensor | None = None  # (B, T, L, W), as rebuilt from the slots, or from z
    masked_pred: Tensor | None = None  # (B, K-1, M, D), slots that were hidden from the predictor
    masked_target: Tensor | None = None  # (B, K-1, M, D), what they were


@dataclass(frozen=True)
class Factors:
    """The two streams of a factored model for the same frames."""

    z: Tensor  # (B, T, N, D)
    u: Tensor  # (B, T, Q, D)
