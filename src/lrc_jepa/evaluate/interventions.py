"""Interventions on the two streams: shuffle, swap or walk, decode, and look."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array
from lrc_jepa.data.store import Store
from lrc_jepa.device import device_of
from lrc_jepa.evaluate.similarity import psnr, psnr_moving, ssim
from lrc_jepa.pixels import channels_first
from lrc_jepa.protocols import Factored
from lrc_jepa.types import Factors


def trajectory_rows(store: Store, episodes: Array, frames: int) -> Array:
    """Rows (E, frames) spread evenly over each episode."""
    share = np.linspace(0, 1, frames)
    return np.stack(
        [store.ep_offset[e] + np.round(share * (store.ep_len[e] - 1)).astype(int) for e in episodes]
    )


@torch.inference_mode()
def factor_rows(model: Factored, store: Store, rows: Array) -> Factors:
    """Both streams of the frames `rows` (E, T), episode by episode."""
    device = device_of(model)
    parts = [model.factor(channels_first(store.pixels[r])[None].to(device)) for r in rows]
    return Factors(z=torch.cat([p.z for p in parts]), u=torch.cat([p.u for p in parts]))


@torch.inference_mode()
def decode_all(model: Factored, factors: Factors) -> Array:
    """(E,T,h,w,3) in [0,1], one episode at a time."""
    films = [
        model.decode(Factors(z=z[None], u=u[None]))[0] for z, u in zip(factors.z, factors.u, strict=True)
    ]
    return torch.stack(films).movedim(-3, -1).cpu().numpy()


def _moved_in_time(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Every episode's frames in an order in which none keeps its place: (E,T,...) -> the same."""
    frames = x.shape[1]
    orders = []
    for _ in range(len(x)):
        cycle = rng.permutation(frames)
        order = np.empty(frames, dtype=int)
        order[cycle] = np.roll(cycle, 1)  # one cycle through all frames has no fixed point
        orders.append(order)
    index = torch.from_numpy(np.stack(orders)).to(x.device)
    return x[torch.arange(len(x), device=x.device)[:, None], index]


def altered(factors: Factors, seed: int) -> dict[str, Factors]:
    """The paper's four conditions."""
    rng = np.random.default_rng(seed)
    return {
        "unaltered": factors,
        "u shuffled in time": Factors(z=factors.z, u=_moved_in_time(factors.u, rng)),
        "u of another trajectory": Factors(z=factors.z, u=factors.u.roll(1, dims=0)),
        "z shuffled in time": Factors(z=_moved_in_time(factors.z, rng), u=factors.u),
    }


def intervene(
    model: Factored, store: Store, rows: Array, seed: int
) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """Every condition over all frames, and the decoded films (E,T,h,w,3).

    Mean squared error of values in [0,1], PSNR (of the whole picture, and where it changes) and SSIM.
    """
    factors = factor_rows(model, store, rows)
    truth = np.asarray(store.pixels[rows]) / 255.0
    figures, films = [], {}
    for name, condition in altered(factors, seed).items():
        films[name] = decode_all(model, condition)
        flat = [x.reshape(-1, *x.shape[2:]) for x in (truth, films[name])]
        p, s, moving = psnr(*flat), ssim(*flat), psnr_moving(truth, films[name])
        figures.append(
            {
                "condition": name,
                "mse": float(((flat[0] - flat[1]) ** 2).mean()),
                "psnr": float(p.mean()),
                "psnr_std": float(p.std()),
                "psnr_moving": float(moving.mean()) if len(moving) else None,
                "psnr_moving_std": float(moving.std()) if len(moving) else None,
                "ssim": float(s.mean()),
                "ssim_std": float(s.std()),
                "frames": len(p),
            }
        )
    return figures, films


def swap(model: Factored, store: Store, rows: Array) -> Array:
    """Two episodes (2,T): recorded, rebuilt, and with the other's u: (2, 3, T, h, w, 3) in [0,1]."""
    factors = factor_rows(model, store, rows)
    swapped = decode_all(model, Factors(z=factors.z, u=factors.u.flip(0)))
    recorded = np.asarray(store.pixels[rows]) / 255.0
    return np.stack([recorded, decode_all(model, factors), swapped], axis=1)


@torch.inference_mode()
def walk(
    model: Factored, store: Store, rows: Array, stream: str, component: int, reach: float, steps: int
) -> Array:
    """Decode one frame while a stream moves along a principal direction: (steps, h, w, 3) in [0,1].

    Rows (E,T) give the covariance; the walk starts from the first of them and goes from -reach to
    +reach standard deviations along the given component.
    """
    factors = factor_rows(model, store, rows)
    chosen = factors.z if stream == "z" else factors.u
    flat = chosen.flatten(2).flatten(0, 1).double()  # (E*T, d)
    _, scale, direction = torch.linalg.svd(flat - flat.mean(0), full_matrices=False)
    std = scale[component] / (len(flat) - 1) ** 0.5
    offsets = torch.linspace(-reach, reach, steps, device=flat.device) * std
    moved = (offsets[:, None] * direction[component]).float().view(1, steps, *chosen.shape[2:])
    base = {
        "z": factors.z[:1, :1].expand(-1, steps, -1, -1),
        "u": factors.u[:1, :1].expand(-1, steps, -1, -1),
    }
    base[stream] = base[stream] + moved
    return decode_all(model, Factors(**base))[0]
