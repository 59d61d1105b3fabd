"""lrc data drop, trim, merge and split: what is kept, what goes along, and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from conftest import DEBUG
from made_formats import episodes, lerobot, swm_hdf5
from test_cli import lrc, refused
from test_importers_options import imported, said

from lrc_jepa.data import edit
from lrc_jepa.data.clips import Clips, Split
from lrc_jepa.data.convert import convert
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.picking import marked, parse_episodes, read_list
from lrc_jepa.data.storage import Storage
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.data.validate import validate
from lrc_jepa.errors import BadInput

KEPT = [0, 2, 4, 5, 6, 7, 8, 9, 10, 11]


@pytest.fixture(scope="module")
def packed(varied, tmp_path_factory) -> Store:
    out = tmp_path_factory.mktemp("packed") / "jpeg"
    convert(varied, out, Storage("jpeg", 80))
    return Store(out)


def rows_of(store: Store, episode: int, name: str) -> np.ndarray:
    start = store.ep_offset[episode]
    return np.asarray(store.columns[name][start : start + store.ep_len[episode]])


def same_episode(new: Store, number: int, old: Store, episode: int) -> None:
    """Every column and every array of an episode is what it was."""
    assert set(new.columns) == set(old.columns)
    for name in old.columns:
        np.testing.assert_array_equal(rows_of(new, number, name), rows_of(old, episode, name))
    for name, values in old.per_episode.items():
        np.testing.assert_array_equal(new.per_episode[name][number], values[episode])


@pytest.mark.parametrize("kept_as", ["raw", "jpeg"])
def test_dropping_keeps_the_others_to_the_bit(kept_as, varied, packed, tmp_path, capsys):
    old = varied if kept_as == "raw" else packed
    argv = ("data", "drop", old.path, "--episodes", 3, 1, "--out", tmp_path / "new")
    err, told = said(capsys, *argv)
    new = Store(tmp_path / "new")
    assert told["dropped"] == [1, 3] and told["episodes"] == 10 and "dropped 2 episodes: 1, 3" in err
    for number, episode in enumerate(KEPT):
        same_episode(new, number, old, episode)
    assert new.per_episode["ep_from"].tolist() == KEPT
    assert new.storage == old.storage and new.world == "tworoom"
    assert new.meta["appearance"] == old.meta["appearance"] and "coverage" not in new.meta
    (step,) = new.meta["edited"]
    assert step["how"] == "drop" and step["episodes"] == "1, 3" and step["from"]["hash"] == old.digest()
    assert not validate(new).of("checksum")
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["new"]


def test_encoded_pictures_are_copied_not_made_anew(packed, tmp_path):
    edit.drop(packed, tmp_path / "new", [0])
    new, length = Store(tmp_path / "new"), int(packed.ep_len[0])
    assert [new.pixels.encoded(r) for r in range(5)] == [packed.pixels.encoded(length + r) for r in range(5)]


def test_trimming(varied, tmp_path, capsys):
    cut = ("--first", 5, "--last", 3, "--length", 40)
    _, told = said(capsys, "data", "trim", varied.path, *cut, "--out", tmp_path / "new")
    new = Store(tmp_path / "new")
    assert set(new.ep_len.tolist()) == {40} and told["trimmed"] == 12 and told["frames"] == 480
    for name in varied.columns:
        np.testing.assert_array_equal(rows_of(new, 3, name), rows_of(varied, 3, name)[5:45])
    edit.trim(varied, tmp_path / "one", [2], {"last": 1})
    assert Store(tmp_path / "one").ep_len.tolist() == [61, 61, 60] + [61] * 9
    for argv, words in (
        ((), "nothing would be cut off"),
        (("--first", 61), "nothing would be left; drop it"),
    ):
        code, _, err = lrc("data", "trim", varied.path, *argv, "--out", tmp_path / "no", capsys=capsys)
        assert code == 2 and words in " ".join(err.split()) and not (tmp_path / "no").exists()


def test_times_begin_again_where_an_episode_does(tmp_path):
    with StoreWriter(tmp_path / "old", {"world": "imported"}) as writer:
        times = np.arange(6, dtype=np.float32)[:, None] / 4
        frames, action = np.zeros((6, 8, 8, 3), np.uint8), np.zeros((6, 2), np.float32)
        writer.add({"pixels": frames, "action": action, "timestamp": times})
    edit.trim(Store(tmp_path / "old"), tmp_path / "new", [0], {"first": 2})
    assert Store(tmp_path / "new").columns["timestamp"].ravel().tolist() == [0, 0.25, 0.5, 0.75]


def test_merging_what_was_split(varied, tmp_path, capsys):
    argv = ("--share", 0.25, "--seed", 1, "--out", tmp_path / "a", "--rest", tmp_path / "b")
    _, told = said(capsys, "data", "split", varied.path, *argv)
    parts = [Store(tmp_path / name) for name in "ab"]
    assert [told["episodes"], told["rest"]["episodes"]] == [3, 9]
    origin = np.concatenate([part.per_episode["ep_from"] for part in parts])
    assert sorted(origin.tolist()) == list(range(12))
    said(capsys, "data", "merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both")
    both = Store(tmp_path / "both")
    for number, episode in enumerate(origin.tolist()):
        same_episode(both, number, varied, episode)
    assert both.per_episode["ep_dataset"].tolist() == [0] * 3 + [1] * 9
    assert [part["hash"] for part in both.meta["edited"][-1]["from"]] == [part.digest() for part in parts]
    assert both.meta["appearance"] == varied.meta["appearance"] and both.meta["frame_rate"] == 10.0


def test_merging_says_what_differs(store, varied, packed, tmp_path):
    toy = episodes()
    hdf5 = imported(swm_hdf5(tmp_path, toy), tmp_path / "hdf5")
    robot = imported(lerobot(tmp_path, toy), tmp_path / "arm", crop="pad")
    for others, words in (
        ((store, varied), "appearance: "),
        ((varied, packed), "how frames are kept: "),
        ((hdf5, robot), "frame rate: not said and 10.0"),
        ((hdf5, robot), "camera: pixels and observation.images.top"),
        ((hdf5, robot), "crop: centre and pad"),
        ((store, hdf5), "size of frames: 32 and 16"),
        ((store,), "at least two"),
        ((store, store), "named twice"),
    ):
        with pytest.raises(BadInput) as error:
            edit.merge(others, tmp_path / "out")
        assert words in str(error.value) and not (tmp_path / "out").exists()


def test_action_names_are_compared(tmp_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    paths = [lerobot(tmp_path / name, episodes()) for name in "ab"]
    info = next(paths[1].glob("meta/info.json"))
    told = json.loads(info.read_text())
    told["features"]["action"]["names"] = ["left", "right"]
    info.write_text(json.dumps(told))
    stores = [imported(path, path.with_name("out")) for path in paths]
    with pytest.raises(BadInput, match=r"action names: .* and .'left', 'right'."):
        edit.merge(stores, tmp_path / "both")
    made = stores[0], imported(paths[0], tmp_path / "again", episodes=2)
    edit.merge(made, tmp_path / "both")
    both = Store(tmp_path / "both")
    assert both.per_episode["ep_task"].tolist() == ["task 0", "task 1", "task 2", "task 0", "task 1"]
    assert both.meta["source"]["camera"] == "observation.images.top" and both.meta["frame_rate"] == 10.0


def test_columns_that_not_all_have_are_left_out(store, tmp_path, capsys):
    less = shutil.copytree(store.path, tmp_path / "less")
    told = json.loads((less / "meta.json").read_text())
    del told["columns"]["agent_position"]
    (less / "meta.json").write_text(json.dumps(told))
    argv = ("data", "merge", store.path, less, "--out", tmp_path / "both")
    err, told = said(capsys, *argv)
    assert told["left_out"] == ["agent_position"] and "agent_position" in err
    assert "agent_position" not in Store(tmp_path / "both").columns


def test_episodes_are_chosen_by_words_files_and_findings(tmp_path, capsys, varied):
    listed = tmp_path / "list.txt"
    listed.write_text("# bad ones\n2, 4-5   # wobbly\n\n9\n")
    assert parse_episodes(read_list(listed), 12, "list") == (2, 4, 5, 9)
    for word, words in (
        ("a", "neither"),
        ("5-3", "ends before"),
        ("12", "the last episode is 11"),
        ("-1", "neither"),
    ):
        with pytest.raises(BadInput, match=words):
            parse_episodes([word], 12, "list")
    with pytest.raises(BadInput, match="cannot be read"):
        read_list(tmp_path / "none")
    argv = ("data", "drop", varied.path, "--from-file", listed, "--episodes", 0, "--out", tmp_path / "new")
    assert said(capsys, *argv)[1]["dropped"] == [0, 2, 4, 5, 9]


def test_marked_episodes_are_those_that_validate_names(varied, tmp_path, capsys):
    edit.split(varied, tmp_path / "a", tmp_path / "b", [4])
    edit.merge([varied, Store(tmp_path / "a")], tmp_path / "twice")
    store = Store(tmp_path / "twice")
    assert marked(store, ["duplicates"]) == (12,) and marked(store, ["error"]) == ()
    argv = ("data", "drop", store.path, "--out", tmp_path / "new")
    assert said(capsys, *argv, "--marked", "duplicates")[1]["dropped"] == [12]
    code, _, err = lrc(*argv[:-1], tmp_path / "no", "--marked", "error", capsys=capsys)
    assert code == 2 and "nothing to drop" in err
    code, _, err = lrc(*argv[:-1], tmp_path / "no", "--marked", "ugly", capsys=capsys)
    assert code == 2 and "ugly" in err


def test_what_would_harm_is_refused(varied, tmp_path, capsys):
    for call, words in (
        (lambda: edit.drop(varied, varied.path, [0], overwrite=True), "is the dataset itself"),
        (lambda: edit.drop(varied, tmp_path / "x", range(12)), "no episode would be left"),
        (lambda: edit.split(varied, tmp_path / "x", tmp_path / "x", [0]), "a folder each"),
        (lambda: edit.split(varied, tmp_path / "x", tmp_path / "y", []), "one part empty"),
        (lambda: edit.drop(varied, tmp_path, [0], overwrite=True), "is not a dataset"),
    ):
        (tmp_path / "here").touch()
        with pytest.raises(BadInput, match=words):
            call()
    code, _, err = lrc("data", "split", varied.path, "--out", "a", "--rest", "b", capsys=capsys)
    assert code == 2 and "say which episodes" in err


def test_a_short_episode_is_left_out_of_training_and_counted(varied, tmp_path):
    edit.trim(varied, tmp_path / "short", [0, 1], {"length": 3})
    store = Store(tmp_path / "short")
    split = Split.by_episode(store, DEBUG.clip)
    everything = np.arange(store.episodes)
    clips = Clips(store, everything, DEBUG.clip, ActionNormalizer.fit(store, split.train))
    assert clips.left_out == 2 and set(clips.episode_of.tolist()) == set(range(2, 12))


@pytest.mark.parametrize("side", ["heldout", "train"])
def test_both_sides_of_a_split_have_an_episode_that_is_long_enough(side, varied, tmp_path):
    """Short episodes are no reason to refuse a dataset, on whichever side they fall."""
    clip = replace(DEBUG.clip, holdout=0.25)
    plain = Split.by_episode(varied, clip)
    edit.trim(varied, tmp_path / "short", getattr(plain, side).tolist(), {"length": 3})
    store = Store(tmp_path / "short")
    split = Split.by_episode(store, clip)
    normalizer = ActionNormalizer.fit(store, split.train)
    assert sorted([*split.train, *split.heldout]) == list(range(12)) and len(split.heldout) == len(
        plain.heldout
    )
    for part in (split.train, split.heldout):
        assert len(Clips(store, part, clip, normalizer)) > 0


def test_both_places_of_a_split_are_looked_at_before_any_episode_is(varied, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(edit, "write_pieces", lambda *words, **how: pytest.fail("something was written"))
    monkeypatch.setattr(
        "lrc_jepa.data.picking.marked", lambda *words: pytest.fail("episodes were looked over")
    )
    source, out, rest = tmp_path / "source", tmp_path / "out", tmp_path / "rest"
    shutil.copytree(varied.path, source)
    (tmp_path / "file").touch()
    for words, match in (
        (["--out", out, "--rest", source, "--overwrite"], "is the dataset itself"),
        (["--out", out, "--rest", source], "is the dataset itself"),
        (["--out", out, "--rest", out], "a folder each"),
        (["--out", out / "deeper", "--rest", out], "a folder each"),
        (["--out", out, "--rest", out / "deeper"], "a folder each"),
        (["--out", out, "--rest", tmp_path / "file"], "already exists"),
        (["--out", out, "--rest", tmp_path / "file" / "rest"], "nothing can be written"),
    ):
        refused("data", "split", source, "--marked", "error", *words, capsys=capsys, match=match)
    refused("data", "drop", source, "--marked", "error", "--out", source, capsys=capsys, match="itself")
    assert not out.exists() and not rest.exists()
