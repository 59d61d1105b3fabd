"""`lrc data features`: compute a frozen backbone's features once, beside the frames."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, parse
from lrc_jepa.bounds import Count
from lrc_jepa.console import progress_bar, say
from lrc_jepa.data.features import write_features
from lrc_jepa.data.store import Store
from lrc_jepa.device import pick_device
from lrc_jepa.folders import check_writable
from lrc_jepa.library import fit_widths
from lrc_jepa.models import build_model
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training.assemble import check_data


@dataclass(frozen=True)
class FeaturesArgs:
    """Which frames, for which system."""

    dataset: Positional[Path]
    """Folder of the dataset."""
    recipe: Positional[str]
    """Recipe whose backbone sees the frames, such as tworoom-dino-wm-micro."""
    backbone: str = ""
    """Use this backbone in place of the recipe's; pass the same to lrc train as --model.backbone."""
    batch: Count = 64
    """Frames at a time."""
    device: str = "auto"
    """auto, cpu or cuda."""


def features(argv: list[str]) -> dict[str, Any]:
    """`lrc data features`: compute a frozen backbone's features of every frame, once."""
    about = "Compute a frozen backbone's features of every frame once; lrc train then reads those."
    examples = ("lrc data features datasets/tworoom-clean tworoom-dino-wm-micro",)
    args = parse(FeaturesArgs, argv, "data features", about, examples=examples)
    config = get_recipe(args.recipe)
    if args.backbone:
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, backbone=args.backbone))
    store, device = Store(args.dataset), pick_device(args.device)
    check_writable(store.path)
    config = fit_widths(config, store)
    check_data(config, store)
    model = build_model(config).to(device).eval()
    with progress_bar("computing features", len(store.pixels)) as bar:
        path = write_features(store, model, device, args.batch, bar.to)
    shape = [len(store.pixels), *(model.feature_shape() or ())]
    say(f"{' x '.join(map(str, shape))} features of {model.backbone} in {path}; lrc train uses them")
    return {"features": str(path), "shape": shape, "backbone": model.backbone}
