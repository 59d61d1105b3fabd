"""SAM 3 as a segmenter: text prompts in, labels of gripper, moving and static objects out.

Its weights are read from a local folder and never fetched. Frames are prepared and masks read here, by the
rules of the published processor, which itself needs torchvision.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn import functional

from lrc_jepa.arrays import Array
from lrc_jepa.device import device_of
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import install
from lrc_jepa.models.backbones import transformers_library
from lrc_jepa.pixels import channels_first

WORDS = 32  # tokens of a prompt, padded
GRIPPER, MOVING, STATIC = 1, 2, 3


@dataclass(frozen=True)
class Sam3Config:
    """What to ask for, and what counts."""

    gripper: str = "robot gripper"
    """Prompt for the gripper."""
    objects: tuple[str, ...] = ("object",)
    """Prompts for things that may be moved."""
    score: float = 0.4
    """An instance counts from this score on."""
    motion: float = 0.08
    """A thing moves if its pixels differ from the episode's median frame by more than this, of 1."""
    batch: int = 4
    """Frames at a time."""


class Sam3Segmenter:
    """Labels the frames of one episode: the best gripper, moving and static instance of each frame."""

    def __init__(self, model: Any, tokenizer: Any, config: Sam3Config) -> None:
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self.device = device_of(model)

    def __call__(self, frames: Array) -> Array:
        """Frames (n,h,w,3) uint8 of one episode, in order -> labels (n,h,w) uint8."""
        still = np.median(frames, axis=0)
        change = np.abs(frames.astype(np.float32) - still).mean(axis=-1) / 255  # (n,h,w)
        labels = np.zeros(frames.shape[:3], np.uint8)
        parts = -(-len(frames) // self.config.batch)
        for part in np.array_split(np.arange(len(frames)), parts):
            instances = self.instances(frames[part], [self.config.gripper, *self.config.objects])
            for index, row in enumerate(part):
                labels[row] = _paint([prompt[index] for prompt in instances], change[row], self.config.motion)
        return labels

    @torch.inference_mode()
    def instances(self, frames: Array, prompts: list[str]) -> list[list[tuple[Array, Array]]]:
        """For each prompt and frame: masks (k,h,w) bool and scores (k,), best first."""
        side = self.model.config.image_size
        pixels = channels_first(frames).to(self.device).float() / 255
        pixels = functional.interpolate(pixels, (side, side), mode="bilinear", antialias=True)
        seen = self.model.get_vision_features(pixel_values=(pixels - 0.5) / 0.5)
        instances = []
        for prompt in prompts:
            words = self.tokenizer(
                [prompt] * len(frames),
                padding="max_length",
                max_length=WORDS,
                truncation=True,
                return_tensors="pt",
            )
            words = {name: value.to(self.device) for name, value in words.items()}
            answer = self.model(
                vision_embeds=seen, input_ids=words["input_ids"], attention_mask=words["attention_mask"]
            )
            scores = answer.pred_logits.sigmoid() * answer.presence_logits.sigmoid()  # (n,queries)
            masks = functional.interpolate(answer.pred_masks.sigmoid(), frames.shape[1:3], mode="bilinear")
            instances.append([self._kept(*pair) for pair in zip(masks, scores, strict=True)])
        return instances

    def _kept(self, masks: Tensor, scores: Tensor) -> tuple[Array, Array]:
        order = scores.argsort(descending=True)
        order = order[scores[order] > self.config.score]
        return (masks[order] > 0.5).cpu().numpy(), scores[order].float().cpu().numpy()


def _paint(instances: list[tuple[Array, Array]], change: Array, motion: float) -> Array:
    """Instances of the gripper first, then of the other prompts -> one label map (h,w)."""
    labels = np.zeros(change.shape, np.uint8)
    grips = instances[0][0]
    gripper = grips[0] if len(grips) else np.zeros(change.shape, bool)
    chosen: dict[int, tuple[float, Array]] = {}
    for masks, scores in instances[1:]:
        for mask, score in zip(masks, scores, strict=True):
            alone = mask & ~gripper
            if alone.any():
                kind = MOVING if change[alone].mean() > motion else STATIC
                if kind not in chosen or score > chosen[kind][0]:
                    chosen[kind] = (float(score), alone)
    for kind in (STATIC, MOVING):
        if kind in chosen:
            labels[chosen[kind][1]] = kind
    labels[gripper] = GRIPPER
    return labels


def load_sam3(folder: Path, config: Sam3Config, device: torch.device) -> Sam3Segmenter:
    """The segmenter from a folder with config.json, weights and the tokenizer's files."""
    library = transformers_library()
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise BadInput(
            f"there are no SAM 3 weights at {folder}: put config.json, *.safetensors and the tokenizer's files of "
            "facebook/sam3 there (its authors ask for consent to a licence)"
        )
    try:
        from transformers.models.sam3.modeling_sam3 import Sam3Model
    except ImportError:
        raise BadInput(f"SAM 3 needs a newer transformers package: {install('transformers')}") from None
    kind: Any = Sam3Model
    try:
        model, info = kind.from_pretrained(folder, local_files_only=True, output_loading_info=True)
        tokenizer = library.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise BadInput(f"SAM 3 at {folder} cannot be read ({str(error).splitlines()[0]})") from None
    if info["missing_keys"]:
        raise BadInput(
            f"SAM 3 at {folder} lacks {len(info['missing_keys'])} of the weights that its config asks for"
        )
    return Sam3Segmenter(model.eval().requires_grad_(False).to(device), tokenizer, config)
