"""Pictures of episodes: short films and strips of frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from lrc_jepa.arrays import Array

PANEL = 128  # side of one panel in a film
CAPTION = 18
GAP = 4


def _panel(frame: Array) -> Image.Image:
    return Image.fromarray(frame).resize((PANEL, PANEL), Image.Resampling.NEAREST)


def film(path: Path, panels: dict[str, Array], rate: int = 10) -> None:
    """Write a GIF with captioned panels side by side; each is (frames,h,w,3) or one still (h,w,3)."""
    length = max(len(p) for p in panels.values() if p.ndim == 4)
    width = len(panels) * (PANEL + GAP) - GAP
    pictures = []
    for index in range(length):
        canvas = Image.new("RGB", (width, PANEL + CAPTION), "white")
        draw = ImageDraw.Draw(canvas)
        for column, (caption, frames) in enumerate(panels.items()):
            left = column * (PANEL + GAP)
            frame = frames if frames.ndim == 3 else frames[min(index, len(frames) - 1)]
            draw.text((left + 2, 1), caption, fill="black", font_size=13)
            canvas.paste(_panel(frame), (left, CAPTION))
        pictures.append(canvas.quantize(64))
    path.parent.mkdir(parents=True, exist_ok=True)
    hold = [1000 // rate] * (length - 1) + [1500]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=hold, loop=0, optimize=True)


def strip(path: Path, rows: list[Array], scale: int = 1) -> None:
    """Write a PNG with rows of frames, each (n,h,w,3)."""
    height, width = rows[0].shape[1:3]
    columns = max(len(row) for row in rows)
    size = (columns * (width + GAP) - GAP, len(rows) * (height + GAP) - GAP)
    canvas = Image.new("RGB", size, "white")
    for r, frames in enumerate(rows):
        for c, frame in enumerate(frames):
            canvas.paste(
                Image.fromarray(np.ascontiguousarray(frame)), (c * (width + GAP), r * (height + GAP))
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.resize((size[0] * scale, size[1] * scale), Image.Resampling.NEAREST).save(path)
