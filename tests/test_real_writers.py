"""What the libraries of the field wrote themselves comes back row by row; `fixtures/make_datasets.py` made it."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_formats import episodes
from PIL import Image
from test_importers import check_rows

from lrc_jepa.data.importers import detect, import_dataset
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput

FIXTURES = Path(__file__).parent / "fixtures"

# fixture -> (path inside, format, column of the state, side, how far a grey level may be off)
WRITTEN = {
    "lerobot-0.3.3": (".", "lerobot", "observation_state", 64, 10),
    "lerobot-0.4.4": (".", "lerobot", "observation_state", 64, 10),
    "stable-worldmodel-0.1.1-hdf5": ("toy.h5", "swm-hdf5", "state", 16, 0),
    "stable-worldmodel-0.1.1-lance": ("toy.lance", "lance", "state", 16, 4),
    "stable-worldmodel-0.1.1-folder": ("toy", "swm-folder", "state", 16, 8),
    "stable-worldmodel-0.1.1-video": ("toy", "swm-folder", "state", 64, 10),
    "minari-0.5.4-arrow": (".", "minari", "observations_state", 16, 8),
    "minari-0.5.4-hdf5": (".", "minari", "observations_state", 16, 8),
    "zarr-2.18.7-replay-buffer": ("toy.zarr", "zarr", "state", 16, 0),
}


def unpacked(name: str, folder: Path) -> Path:
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        archive.extractall(folder / name)
    return folder / name


@pytest.mark.parametrize("name", WRITTEN)
def test_every_row_is_right(name, tmp_path):
    inside, expected, state, side, loss = WRITTEN[name]
    path = unpacked(name, tmp_path) / inside
    assert detect(path) == expected
    import_dataset(path, tmp_path / "out", size=side)
    store = Store(tmp_path / "out")
    check_rows(store, episodes(height=side, width=side), state, loss)
    if expected == "lerobot":
        assert store.meta["frame_rate"] == 10.0 and store.meta["source"]["camera"] == "observation.images.top"
        assert store.per_episode["ep_task"].tolist() == ["task 0", "task 1", "task 2"]
    if expected == "minari":
        assert store.meta["action_low"] == [-4.0, -4.0] and store.meta["bounds_from"] == "declared"


# fixture -> (path inside, cameras, their sides, column of the state, how far a grey level may be off)
SEVERAL = {
    "lerobot-0.4.4-cameras": (".", ("top", "wrist"), (64, 32), "observation_state", 10),
    "stable-worldmodel-0.1.1-cameras": ("toy.h5", ("front", "side"), (16, 8), "state", 0),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_one_of_several_cameras_or_both_as_one(name, tmp_path):
    inside, cameras, sides, state, loss = SEVERAL[name]
    path = unpacked(name, tmp_path) / inside
    with pytest.raises(BadInput, match="several cameras; choose one"):
        import_dataset(path, tmp_path / "no")
    first, second = (episodes(height=side, width=side) for side in sides)
    pairs = zip(first, second, strict=True)
    seen = first, [replace(large, pixels=small.pixels) for large, small in pairs]
    for camera, side, made in zip(cameras, sides, seen, strict=True):
        import_dataset(path, tmp_path / camera, camera=camera, size=side)
        check_rows(Store(tmp_path / camera), made, state, loss)
    import_dataset(path, tmp_path / "both", camera=cameras, size=sides[0])
    both = Store(tmp_path / "both")
    joined = [
        replace(
            large,
            pixels=np.stack([beside(*frames) for frames in zip(large.pixels, small.pixels, strict=True)]),
        )
        for large, small in zip(*seen, strict=True)
    ]
    check_rows(both, joined, state, loss)
    assert [camera.rpartition(".")[2] for camera in both.meta["source"]["cameras"]] == list(cameras)
    assert both.meta["source"]["frame_size"] == [sides[0], 2 * sides[0]]


def beside(large: np.ndarray, small: np.ndarray) -> np.ndarray:
    """Both as one square picture, made here in another way: each is squeezed to half its width."""
    grown = np.asarray(Image.fromarray(small).resize(large.shape[:2], Image.Resampling.BILINEAR))
    wide = Image.fromarray(np.hstack([large, grown]))
    return np.asarray(wide.resize(large.shape[:2], Image.Resampling.BILINEAR))
