import hashlib
import json

import numpy as np
import pytest

from lrc_jepa.config import ClipConfig
from lrc_jepa.data.clips import Clips, Split
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.data.validate import validate
from lrc_jepa.envs.tworoom import move
from lrc_jepa.errors import BadInput

IDENTITY = ActionNormalizer(np.zeros(2, np.float32), np.ones(2, np.float32))


def write(path, lengths=(30, 40, 50), action=None, **meta):
    """A store whose every value tells which row it is."""
    row = 0
    with StoreWriter(path, {"world": "tworoom", **meta}) as writer:
        for length in lengths:
            rows = np.arange(row, row + length)
            values = np.stack([rows, -rows], axis=1).astype(np.float32) if action is None else action(rows)
            pixels = np.broadcast_to((rows % 256).astype(np.uint8)[:, None, None, None], (length, 4, 4, 3))
            writer.add({"pixels": np.ascontiguousarray(pixels), "action": values})
            row += length
    return Store(path)


def test_a_clip_has_the_frames_and_the_actions_that_leave_them(tmp_path):
    store = write(tmp_path / "d")
    clips = Clips(store, np.array([1, 2]), ClipConfig(history=3, targets=1, frameskip=5), IDENTITY)
    assert len(clips) == (40 - 15) + (50 - 15)
    clip = clips.gather(np.array([0, 24, 25]))
    starts = [30, 54, 70]
    for b, g in enumerate(starts):
        assert clip.frames[b, :, 0, 0, 0].tolist() == [g, g + 5, g + 10, g + 15]
        blocks = clip.actions[b].reshape(3, 5, 2)
        assert blocks[:, :, 0].tolist() == [[g + 5 * t + i for i in range(5)] for t in range(3)]
        assert np.array_equal(blocks[:, :, 1], -blocks[:, :, 0])
    assert clip.episodes.tolist() == [1, 1, 2]


def test_actions_of_a_clip_explain_its_motion(store):
    """Integrating block t from frame t reaches frame t+1 exactly; one frame off it does not."""
    clips = Clips(store, np.arange(store.episodes), ClipConfig(), IDENTITY)
    ids = np.arange(0, len(clips), 37)
    clip, rows = clips.gather(ids), clips.frame_rows(ids)
    position = store.columns["state"][rows]
    off = {-1: 0.0, 0: 0.0, 1: 0.0}
    for shift in off:
        for t in (1,):
            now = position[:, t].copy()
            for a in clip.actions[:, t + shift].reshape(len(ids), 5, 2).numpy().transpose(1, 0, 2):
                now = move(now, a)
            off[shift] = float(np.abs(now - position[:, t + 1]).mean())
    assert off[0] == 0.0
    assert min(off[-1], off[1]) > 3.0


def test_no_clip_crosses_an_episode(tmp_path):
    store = write(tmp_path / "d", lengths=(16, 17, 40))
    clips = Clips(store, np.arange(3), ClipConfig(), IDENTITY)
    rows = clips.frame_rows(np.arange(len(clips)))
    episode = np.searchsorted(store.ep_offset, rows, side="right") - 1
    assert (episode == episode[:, :1]).all() and len(clips) == 1 + 2 + 25


def test_an_episode_shorter_than_a_clip_is_left_out(tmp_path):
    store = write(tmp_path / "d", lengths=(30, 15, 16))
    clips = Clips(store, np.arange(3), ClipConfig(), IDENTITY)
    assert clips.left_out == 1 and np.bincount(clips.episode_of).tolist() == [15, 0, 1]
    with pytest.raises(BadInput, match="the longest of 1 episodes has 15"):
        Clips(store, np.array([1]), ClipConfig(), IDENTITY)


def test_split_is_by_episode_disjoint_and_stable(store):
    split = Split.by_episode(store, ClipConfig(holdout=0.25))
    assert sorted([*split.train, *split.heldout]) == list(range(store.episodes)) and len(split.heldout) == 3
    assert split.digest() == Split.by_episode(store, ClipConfig(holdout=0.25)).digest()
    assert split.digest() != Split.by_episode(store, ClipConfig(holdout=0.25, split_seed=1)).digest()


def test_fewer_episodes_are_some_of_the_more_and_the_same_are_held_out(store):
    whole, more, fewer = (Split.by_episode(store, ClipConfig(holdout=0.25, episodes=n)) for n in (0, 6, 3))
    assert len(whole.train) == 9 and len(more.train) == 6 and len(fewer.train) == 3
    assert set(fewer.train) < set(more.train) < set(whole.train)
    assert fewer.digest() == more.digest() == whole.digest()
    with pytest.raises(BadInput, match=r"clip\.episodes is 10, and dataset .* has 9 episodes to train on"):
        Split.by_episode(store, ClipConfig(holdout=0.25, episodes=10))


def test_normaliser_sees_training_episodes_only_and_no_last_action(tmp_path):
    def action(rows):
        values = np.random.default_rng(rows[0]).normal(size=(len(rows), 2)).astype(np.float32)
        if rows[0] == 30:  # the held-out episode lies far away
            values += 100
        values[-1] = 1e6  # leaves towards nothing
        return values

    store = write(tmp_path / "d", action=action)
    fitted = ActionNormalizer.fit(store, np.array([0, 2]))
    used = np.concatenate([store.action[0:29], store.action[70:119]])
    assert np.allclose(fitted.mean, used.mean(0), atol=1e-5) and np.allclose(
        fitted.std, used.std(0), atol=1e-5
    )
    block = np.random.default_rng(0).normal(size=(4, 10)).astype(np.float32)
    assert np.allclose(fitted.denormalize(fitted.normalize(block)), block, atol=1e-4)


def test_nan_actions_are_refused_with_their_place(tmp_path):
    def action(rows):
        values = np.zeros((len(rows), 2), np.float32)
        if rows[0] == 30:
            values[7] = np.nan
        return values

    store = write(tmp_path / "d", action=action)
    with pytest.raises(BadInput, match="episode 1, frame 7"):
        ActionNormalizer.fit(store, np.arange(3))
    assert validate(store).errors


def test_a_store_appears_only_when_whole(tmp_path):
    with pytest.raises(RuntimeError), StoreWriter(tmp_path / "d", {}) as writer:
        writer.add({"pixels": np.zeros((3, 4, 4, 3), np.uint8), "action": np.zeros((3, 2), np.float32)})
        raise RuntimeError("interrupted")
    assert list(tmp_path.iterdir()) == []
    write(tmp_path / "d")
    with pytest.raises(BadInput, match=r"already exists; .* --overwrite \(in Python overwrite=True\)"):
        write(tmp_path / "d")


def test_damage_is_noticed(tmp_path):
    store = write(tmp_path / "d")
    assert not validate(store).of("checksum")
    path = tmp_path / "d" / "pixels.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "checksum differs" in validate(Store(tmp_path / "d")).of("checksum")[0].sentence
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput):
        Store(tmp_path / "d")
    path.unlink()
    with pytest.raises(BadInput, match="column 'pixels' is missing"):
        Store(tmp_path / "d")


def with_index(store, **changed):
    """Write the index again with other arrays, as damage or a careless hand would."""
    arrays = {"ep_len": store.ep_len, "ep_offset": store.ep_offset, **store.per_episode, **changed}
    np.savez(store.path / "index.npz", **arrays)


def test_the_index_is_part_of_what_is_checked_and_of_the_datasets_name(tmp_path):
    def made(name, policies):
        with StoreWriter(tmp_path / name, {"world": "tworoom"}) as writer:
            for number, policy in enumerate(policies):
                rows = np.full((5, 2), number, np.float32)
                writer.add({"pixels": np.zeros((5, 4, 4, 3), np.uint8), "action": rows}, policy=policy)
        return Store(tmp_path / name)

    store, same, other = made("a", [0, 1]), made("b", [0, 1]), made("c", [1, 0])
    assert store.digest() == same.digest() != other.digest()
    for changed in ({"ep_policy": np.array([1, 1])}, {"ep_extra": np.zeros(2)}):
        with_index(store, **changed)
        with pytest.raises(BadInput, match=r"index.npz is damaged: it does not match meta.json"):
            Store(store.path)
    with_index(store)
    assert Store(store.path).digest() == same.digest()


def test_a_store_from_before_the_index_was_hashed_opens_under_its_old_name(tmp_path):
    store = write(tmp_path / "d")
    meta = json.loads((store.path / "meta.json").read_text())
    del meta["index"]
    (store.path / "meta.json").write_text(json.dumps(meta))
    shas = {name: column["sha256"] for name, column in meta["columns"].items()}
    shas["index"] = hashlib.sha256(store.ep_len.tobytes()).hexdigest()
    old = hashlib.sha256(repr(sorted(shas.items())).encode()).hexdigest()[:16]
    assert Store(store.path).digest() == old != store.digest()


def test_only_a_dataset_is_overwritten(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter.txt").write_text("dear")
    meta = {"world": "tworoom"}
    with pytest.raises(BadInput, match="is not a dataset of this library"):
        StoreWriter(home, meta, overwrite=True)
    assert (home / "letter.txt").read_text() == "dear"


def test_columns_are_plain_npy_files(tmp_path):
    store = write(tmp_path / "d")
    loaded = np.load(tmp_path / "d" / "action.npy")
    assert loaded.shape == (120, 2) and np.array_equal(loaded, store.action)
