"""`lrc data show --rerun`: frames, actions and quantities in order, by a stand-in of the package, which is large."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from test_cli import lrc, refused

from lrc_jepa.extras import install


class Recording:
    """Writes down what is logged where and when."""

    made: list

    def __init__(self, name):
        self.logged, self.frame = [], None
        self.made.append(self)

    def save(self, path):
        self.path = Path(path)
        self.path.write_bytes(b"RRF")

    def set_time(self, timeline, sequence):
        assert timeline == "frame"
        self.frame = sequence

    def log(self, place, what):
        self.logged.append((self.frame, place, what))

    def disconnect(self):
        assert self.path.exists()


def test_episodes_are_written_in_order(store, tmp_path, monkeypatch, capsys):
    stand_in = SimpleNamespace(RecordingStream=Recording, Image=np.array, Scalars=np.array)
    monkeypatch.setitem(sys.modules, "rerun", stand_in)
    monkeypatch.setattr(Recording, "made", [], raising=False)
    monkeypatch.chdir(tmp_path)
    code, out, err = lrc(
        "data", "show", store.path, "--rerun", "--episodes", "2", "4", "--json", capsys=capsys
    )
    assert code == 0, err
    told = json.loads(out)
    assert told["episodes"] == [2, 4] and Path(told["out"]).read_bytes() == b"RRF"
    (made,) = Recording.made
    shown = {(frame, place): what for frame, place, what in made.logged}
    length = int(store.ep_len[2])
    assert {frame for frame, _ in shown} == set(range(length + int(store.ep_len[4])))
    first = int(store.ep_offset[4])
    assert np.array_equal(shown[length, "camera"], store.pixels[first])
    assert np.allclose(shown[length, "action"], store.action[first])
    assert np.allclose(shown[length, "agent_position"], store.columns["agent_position"][first])
    assert shown[length - 1, "episode"] == 2 and shown[length, "episode"] == 4


def test_what_cannot_be_shown_is_refused(store, tmp_path, monkeypatch, capsys):
    refused("data", "show", store.path, capsys=capsys, match="--rerun writes a recording")
    monkeypatch.setitem(sys.modules, "rerun", None)
    refused("data", "show", store.path, "--rerun", capsys=capsys, match=install("rerun"))
    monkeypatch.setitem(sys.modules, "rerun", SimpleNamespace())
    refused("data", "show", store.path, "--rerun", "--episodes", "99", capsys=capsys, match="99")
