"""Each defect is planted in known episodes of a small world, and found there and nowhere else."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.data.validate import frame_strip, validate
from lrc_jepa.errors import BadInput

SIZE, LENGTH, EPISODES = 32, 40, 12


def world(seed: int = 0, episodes: int = EPISODES, memory: float = 0.6) -> list[dict[str, np.ndarray]]:
    """A bright square that moves by 2 x action over an episode's own background; actions drift."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(episodes):
        background, colour = rng.integers(20, 120, 3), rng.integers(140, 250, 3)
        position, drift = rng.uniform(8, SIZE - 12, 2), np.zeros(2)
        pixels = np.empty((LENGTH, SIZE, SIZE, 3), np.uint8)
        states, actions = np.empty((LENGTH, 2), np.float32), np.empty((LENGTH, 2), np.float32)
        for t in range(LENGTH):
            drift = memory * drift + rng.normal(size=2) * 0.6
            away = (SIZE / 2 - 2 - position) * 0.03
            action = np.clip(drift + away, -1, 1)
            pixels[t] = background
            row, column = np.round(position).astype(int)
            pixels[t, row : row + 4, column : column + 4] = colour
            states[t], actions[t] = position, action
            position = np.clip(position + 2 * action, 2, SIZE - 6)
        times = np.arange(LENGTH, dtype=np.float32) / 10
        made.append({"pixels": pixels, "action": actions, "pos": states, "timestamp": times})
    return made


def store_of(folder, made, **meta) -> Store:
    described = {"frame_rate": 10.0, "action_low": [-1.0, -1.0], "action_high": [1.0, 1.0], **meta}
    with StoreWriter(folder / "store", described) as writer:
        for columns in made:
            writer.add(columns)
    return Store(folder / "store")


def without(made, *names):
    return [{n: v for n, v in e.items() if n not in names} for e in made]


def only(report, check):
    """The one finding above a note, which must be of this check."""
    serious = [f for f in report.findings if f.severity != "note"]
    assert [f.check for f in serious] == [check], serious
    return serious[0]


def test_good_store_has_nothing_to_say(tmp_path):
    report = validate(store_of(tmp_path, world()))
    assert [f.severity for f in report.findings] == ["note", "note"]
    assert all("best as they are" in f.sentence for f in report.of("alignment"))
    assert report.figures["alignment_best_shift"] == {"states": 0, "frames": 0}
    assert report.figures["episodes"] == EPISODES and report.figures["length_mean"] == LENGTH
    assert report.errors == report.warnings == 0
    json.dumps(report.to_json())


def test_last_action_is_not_judged(tmp_path):
    made = world()
    for episode in made:
        episode["action"][-1] = np.nan
    assert validate(store_of(tmp_path, made)).warnings == 0


@pytest.mark.parametrize(("column", "severity"), [("action", "error"), ("pos", "warning")])
def test_not_finite(column, severity, tmp_path):
    made = world()
    made[3][column][5, 1], made[7][column][0, 0] = np.nan, np.inf
    finding = only(validate(store_of(tmp_path, made)), "finite")
    assert finding.severity == severity and finding.episodes == (3, 7) and "2 rows" in finding.sentence


def test_black_plain_and_frozen_frames(tmp_path):
    made = world()
    made[1]["pixels"][:] = 3
    made[2]["pixels"][4:6] = 0
    made[5]["pixels"][9] = (50, 60, 70)
    made[8]["pixels"][10:] = made[8]["pixels"][10]
    report = validate(store_of(tmp_path, made))
    found = {(f.severity, f.episodes): f.sentence for f in report.of("frames")}
    assert "black throughout" in found["error", (1,)]
    assert found["warning", (2,)] == "2 frames are black"
    assert found["warning", (5,)] == "1 frames are of a single colour"
    assert "equal the next one" in found["warning", (8,)]
    assert len(found) == 4 and report.figures["black_frames"] == LENGTH + 2


def test_actions_and_bounds(tmp_path):
    made = world()
    made[4]["action"][7] = (1.5, 0)
    made[4]["action"][-1] = 99  # never read
    report = validate(store_of(tmp_path, made))
    finding = only(report, "actions")
    assert finding.episodes == (4,) and "1 actions" in finding.sentence
    assert report.figures["action_max"][0] == 1.5


def test_dead_action_dimension(tmp_path):
    made = world()
    for episode in made:
        episode["action"] = np.concatenate([episode["action"], np.full((LENGTH, 1), 0.25, np.float32)], 1)
    report = validate(store_of(tmp_path, made, action_low=None, action_high=None))
    assert "dimension 2 never changes" in only(report, "actions").sentence


def test_times(tmp_path):
    made = world()
    made[2]["timestamp"][20:] += 0.3  # three frames missing
    made[6]["timestamp"][11] = made[6]["timestamp"][10]
    report = validate(store_of(tmp_path, made))
    backwards, gaps = report.of("times")
    assert backwards.severity == "error" and backwards.episodes == (6,)
    assert gaps.episodes == (2, 6) and "frames were dropped in 2 gaps" in gaps.sentence
    assert report.figures["frames_dropped"] == 4
    slow = validate(store_of(tmp_path / "slow", world(), frame_rate=30.0))
    assert "give 10 frames per second, but meta.json says 30" in only(slow, "times").sentence


def test_lengths(tmp_path):
    made = world()
    made[9] = {name: values[:12] for name, values in made[9].items()}
    finding = only(validate(store_of(tmp_path, made)), "lengths")
    assert finding.episodes == (9,) and "16 frames of a clip" in finding.sentence
    single = validate(store_of(tmp_path / "single", made[:1]))
    assert single.of("lengths")[0].severity == "error"


def test_duplicates(tmp_path):
    made = world()
    made[10], made[11] = made[3], made[3]
    report = validate(store_of(tmp_path, made))
    finding = only(report, "duplicates")
    assert finding.episodes == (10, 11) and "3 = 10 = 11" in finding.sentence
    assert report.figures["duplicates"] == 2


@pytest.mark.parametrize("kind", ["change", "next value"])
def test_relabelled_actions(kind, tmp_path):
    """The Bridge port's trap, in dimension 1 of 3, through float32 and over a whole turn of an angle."""
    made = world()
    for episode in made:
        angle = np.cumsum(np.full(LENGTH, 0.9)) + episode["pos"][:, 0]
        turned = (angle + np.pi) % (2 * np.pi) - np.pi
        told = np.diff(angle, append=angle[-1:]) if kind == "change" else np.roll(turned, -1)
        told[-1] = 5
        episode["angle"] = turned.astype(np.float32)
        columns = [episode["action"][:, 0], told, episode["action"][:, 1]]
        episode["action"] = np.stack(columns, 1).astype(np.float32)
    report = validate(store_of(tmp_path, made, action_low=None, action_high=None))
    (finding,) = report.of("relabelled")
    assert f"action dimensions 1 equal the {kind} of angle" in finding.sentence
    assert finding.episodes == tuple(range(EPISODES)) and report.figures["relabelled_dimensions"] == 1


@pytest.mark.parametrize("shift", [-1, 1])
@pytest.mark.parametrize("source", ["states", "frames"])
def test_shifted_actions(shift, source, tmp_path):
    """Rolled by +1, row t + 1 holds the action that leaves frame t."""
    made = world()
    for episode in made:
        episode["action"] = np.roll(episode["action"], shift, axis=0)
    if source == "frames":
        made = without(made, "pos")
    report = validate(store_of(tmp_path, made))
    assert report.figures["alignment_best_shift"][source] == shift
    findings = [f for f in report.of("alignment") if f.severity == "warning"]
    assert findings and f"in the {source} better shifted" in findings[0].sentence
    assert ("move the actions up" in findings[0].sentence) == (shift == 1)
    assert len(findings[0].episodes) >= EPISODES - 2


def test_late_camera_is_told_apart_from_late_states(tmp_path):
    """Frames lag by one row while states are in step: the frames' finding says so, the states' does not."""
    made = world()
    for episode in made:
        episode["pixels"] = np.concatenate([episode["pixels"][:1], episode["pixels"][:-1]])
    states, frames = sorted(validate(store_of(tmp_path, made)).of("alignment"), key=lambda f: f.severity)
    assert states.severity == "note" and "states best as they are" in states.sentence
    assert frames.severity == "warning" and "follows one row after its action" in frames.sentence


def test_absolute_targets_are_judged_fairly(tmp_path):
    """Actions that name the position to go to, in the right rows, are not called shifted."""
    made = world()
    for episode in made:
        goal = episode["pos"] + 6 * episode["action"]
        episode["action"] = goal.astype(np.float32)
    report = validate(store_of(tmp_path, made, action_low=None, action_high=None))
    assert report.figures["alignment_best_shift"]["states"] == 0 and report.warnings == 0


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("memory", [0.6, 0.95])
@pytest.mark.parametrize("shift", [0, 1])
def test_targets_that_are_the_next_state(noise, memory, shift, tmp_path):
    """action_t = state_t+1, to the bit or nearly: right as it is, and found when it is truly a row late."""
    rng = np.random.default_rng(3)
    made = world(memory=memory)
    for episode in made:
        goal = np.roll(episode["pos"], -1, axis=0) + noise * rng.normal(size=episode["pos"].shape)
        episode["action"] = np.roll(goal, shift, axis=0).astype(np.float32)
    report = validate(store_of(tmp_path, made, action_low=None, action_high=None))
    told = [f.sentence for f in report.of("alignment") if "in the states" in f.sentence]
    assert any("move the actions up" in sentence for sentence in told) == bool(shift), told


def test_noisy_targets_are_not_advised_to_move(tmp_path):
    """Noise larger than a step hides which row is right: the finding says so instead of what to do."""
    rng = np.random.default_rng(3)
    made = world(memory=0.95)
    for episode in made:
        goal = np.roll(episode["pos"], -1, axis=0) + 1.5 * rng.normal(size=episode["pos"].shape)
        episode["action"] = goal.astype(np.float32)
    report = validate(store_of(tmp_path, made, action_low=None, action_high=None))
    (finding,) = [f for f in report.of("alignment") if "in the states" in f.sentence]
    assert "look at the recording" in finding.sentence and "move the actions up" not in finding.sentence


def test_unrelated_actions(tmp_path):
    made = world()
    rng = np.random.default_rng(5)
    for episode in made:
        episode["action"] = rng.uniform(-1, 1, (LENGTH, 2)).astype(np.float32)
    assert "next to nothing" in only(validate(store_of(tmp_path, made)), "alignment").sentence


def test_changed_bytes(tmp_path):
    store = store_of(tmp_path, world())
    with (store.path / "pixels.npy").open("r+b") as handle:
        handle.seek(5000)
        byte = handle.read(1)
        handle.seek(5000)
        handle.write(bytes([byte[0] ^ 1]))
    assert "column pixels" in only(validate(Store(store.path)), "checksum").sentence


def test_many_episodes_in_words(tmp_path):
    made = world()
    for episode in made:
        episode["pixels"][3] = 0
    finding = only(validate(store_of(tmp_path, made)), "frames")
    assert finding.where() == "episodes 0, 1, 2, 3, 4, 5, 6, 7 and 4 more"


def test_frame_strip(tmp_path):
    store = store_of(tmp_path, world())
    frame_strip(store, tmp_path / "sheet.png", episodes=3, frames=4)
    with Image.open(tmp_path / "sheet.png") as sheet:
        picture = np.asarray(sheet.convert("RGB"))
    assert picture.shape == (3 * (64 + 2 + 14) + 2, 4 * 66 + 2, 3)
    last = picture[2 + 2 * 80 + 14 :, 2 + 3 * 66 :][:64, :64][::2, ::2]
    assert np.array_equal(last, store.pixels[-1])  # the last frame of the last episode
    frame_strip(store, tmp_path / "one.png", picked=(5,))
    for path, options, words in (
        ("sheet.jpg", {}, "end in .png"),
        ("x.png", {"picked": (99,)}, "no episode 99"),
    ):
        with pytest.raises(BadInput, match=words):
            frame_strip(store, tmp_path / path, **options)
