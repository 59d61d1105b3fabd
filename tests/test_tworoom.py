"""TwoRoom: walls, the drawing, and its two definitions of success."""

import os
import subprocess
import sys

import numpy as np
import pytest

from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.tworoom import RADIUS, SIDE, TwoRoom, move, wall_cover


def task_at(*positions, kind="clean", factors=0):
    task = TwoRoom(Appearance(kind))
    task.reset_to(np.array(positions), np.full((len(positions), factors), 0.5))
    return task


def test_the_wall_stops_the_agent_except_at_the_door():
    before = np.array([[98.0, 150.0], [126.0, 150.0], [98.0, 49.0]], np.float32)
    after = move(before, np.array([[1, 0], [-1, 0], [1, 0]], np.float32))
    np.testing.assert_allclose(after, [[99.5, 150.0], [124.5, 150.0], [103.0, 49.0]])
    np.testing.assert_allclose(move(np.array([[22.0, 202.0]]), np.array([[-1, 1]])), [[21.0, 203.0]])


def test_success_is_strictly_within_16_and_8_pixels():
    task = task_at([50, 50], [50, 50], [50, 50], [50, 50])
    task.set_goal(np.array([[50, 57.9], [50, 58], [65.9, 50], [66, 50]]))
    met = task.success()
    assert met["reach-16px.v1"].tolist() == [True, True, True, False]
    assert met["reach-8px.v1"].tolist() == [True, False, False, False]


@pytest.mark.parametrize("size", [16, 64, 224])
def test_the_dot_is_a_whole_gaussian_at_the_agents_place(size):
    """What is drawn in a window equals the dot drawn over the whole image, to rounding."""
    positions = np.array([[60.3, 150.8], [21.0, 203.0], [203.0, 21.0]], np.float32)
    frames = task_at(*positions).render(size)
    centre = (np.arange(size) + 0.5) * (SIDE / size) - 0.5
    cover = wall_cover(size)[..., None]
    for frame, (x, y) in zip(frames, positions, strict=True):
        across, down = (np.exp(-((centre - at) ** 2) / (2 * RADIUS**2)) for at in (x, y))
        dot = np.outer(down / down.max(), across / across.max())[..., None]
        expected = 255 * ((1 - cover) * (1 - dot) + dot * np.array([1.0, 0, 0]))
        assert np.abs(frame - expected).max() <= 1.01
        assert np.abs(frame - expected).mean() < 0.3


def test_red_is_where_the_agent_is():
    frame = task_at([170.0, 60.0]).render(56)[0].astype(int)
    redness = frame[..., 0] - frame[..., 1]
    row, column = np.unravel_index(redness.argmax(), redness.shape)
    assert abs(column - 170 / 4) <= 1 and abs(row - 60 / 4) <= 1


def test_frames_do_not_depend_on_the_processor():
    """Rooms in all looks, drawn with the instructions of a newer processor and without: byte for byte.

    With exponentials of 32 bits as they come a level in millions differed, and with it the dataset's name.
    """
    drawing = (
        "import hashlib, numpy as np; from lrc_jepa.envs.appearance import Appearance; "
        "from lrc_jepa.envs.tworoom import TwoRoom; rng = np.random.default_rng(0); names = []\n"
        "for kind, width in (('clean', 0), ('varied', 9), ('patterned', 192)):\n"
        "    for _ in range(40):\n"
        "        task = TwoRoom(Appearance(kind))\n"
        "        task.reset_to(rng.uniform(21, 203, (100, 2)), rng.random((100, width)))\n"
        "        names.append(hashlib.sha256(task.render(64).tobytes()).hexdigest())\n"
        "print(names)"
    )
    newer = "AVX512_SPR AVX512_ICL AVX512_CNL AVX512_CLX AVX512_SKX AVX512CD AVX512F FMA3 AVX2 X86_V4 X86_V3"
    said = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", drawing],
            env={**os.environ, "NPY_DISABLE_CPU_FEATURES": without},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for without in ("", newer)
    ]
    assert said[0] == said[1] and said[0].count(",") == 119
