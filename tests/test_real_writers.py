"""What the libraries of the field wrote themselves comes back row by row; `fixtures/make_datasets.py` made it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from made_formats import episodes
from test_importers import check_rows

from lrc_jepa.data.importers import detect, import_dataset
from lrc_jepa.data.store import Store

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
