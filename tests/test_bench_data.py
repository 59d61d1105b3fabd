"""The benchmark of storage reads the same clips from each kind."""

import json

import numpy as np
from test_cli import lrc

from lrc_jepa.bench import data
from lrc_jepa.data.convert import convert
from lrc_jepa.data.storage import Storage
from lrc_jepa.data.store import Store


def test_every_kind_of_storage_gives_the_same_frames(store, tmp_path):
    convert(store, tmp_path / "jpeg", Storage("jpeg", 95))
    packed = Store(tmp_path / "jpeg")
    for rows in data._clips(store).frame_rows(np.array([0, 7, 100])):
        assert np.array_equal(data._hdf5(store, folder(tmp_path, rows))(rows), store.pixels[rows])
        assert np.array_equal(data._lance(packed, folder(tmp_path, rows))(rows), packed.pixels[rows])


def folder(tmp_path, rows):
    made = tmp_path / f"{rows[0]}"
    made.mkdir(exist_ok=True)
    return made


def test_the_command_gives_the_figures_of_each_size(capsys):
    words = ("bench", "data", 32, "--episodes", 2, "--batches", 1, "--rounds", 1, "--readers", 2, "--json")
    code, out, error = lrc(*words, capsys=capsys)
    assert code == 0, error
    figures = json.loads(out)["sizes"]["32"]
    rates = [name for name in figures if "clips_per_s" in name]
    assert {"raw_clips_per_s", "jpeg_clips_per_s", "hdf5_clips_per_s", "lance_clips_per_s"} < set(rates)
    assert all(figures[name] > 0 for name in rates)
    assert figures["bytes_ratio"] == figures["raw_bytes"] / figures["jpeg_bytes"] > 1
