"""How alike two pictures are: PSNR and SSIM."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import uniform_filter

from lrc_jepa.arrays import Array

WINDOW = 7
K1, K2 = 0.01, 0.03
MOVING = 0.1  # range over a film, in any colour, above which a pixel counts as changing


def _decibels(error: Array) -> Array:
    return np.asarray(10 * np.log10(1 / np.maximum(error, 1e-12)))


def psnr(truth: Array, picture: Array) -> Array:
    """10 log10(1 / mean squared error) for pictures (n,h,w,3) in [0,1] -> (n,)."""
    return _decibels(((truth - picture) ** 2).mean(axis=(1, 2, 3)))


def psnr_moving(truth: Array, picture: Array) -> Array:
    """PSNR over the pixels that change within a film: films (E,T,h,w,3) in [0,1] -> (n,), one per frame.

    What moves is often small, and drowns in the rest of the picture. Films in which nothing changes are
    left out.
    """
    changes = np.ptp(truth, axis=1).max(axis=-1) > MOVING  # (E, h, w)
    errors = []
    for film, drawn, mask in zip(truth, picture, changes, strict=True):
        if mask.any():
            errors.append(((film - drawn)[:, mask] ** 2).mean(axis=(1, 2)))
    return _decibels(np.concatenate(errors)) if errors else np.zeros(0)


def ssim(truth: Array, picture: Array) -> Array:
    """Structural similarity over 7 x 7 windows with unbiased variances, mean over interior and colours.

    ((2 m_x m_y + c1)(2 s_xy + c2)) / ((m_x^2 + m_y^2 + c1)(s_x^2 + s_y^2 + c2)), (n,h,w,3) -> (n,).
    """
    x, y = truth.astype(np.float64), picture.astype(np.float64)
    size = (1, WINDOW, WINDOW, 1)
    unbias = WINDOW**2 / (WINDOW**2 - 1)
    mean_x, mean_y = uniform_filter(x, size), uniform_filter(y, size)
    var_x = unbias * (uniform_filter(x * x, size) - mean_x**2)
    var_y = unbias * (uniform_filter(y * y, size) - mean_y**2)
    cov = unbias * (uniform_filter(x * y, size) - mean_x * mean_y)
    c1, c2 = K1**2, K2**2
    score = ((2 * mean_x * mean_y + c1) * (2 * cov + c2)) / (
        (mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2)
    )
    edge = WINDOW // 2
    return np.asarray(score[:, edge:-edge, edge:-edge].mean(axis=(1, 2, 3)))
