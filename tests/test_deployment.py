"""A checkpoint knows its robot: camera, rate, names, units and bounds travel with it, from either format."""

import json
import shutil

import numpy as np
import pytest
from conftest import train_debug
from described import as_format_1, redescribed
from made_episodes import episodes as make_episodes
from made_formats import lerobot
from test_cli import lrc, refused
from test_limits import strict_json

from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.importers import import_dataset
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.training.checkpoint import load_checkpoint, newest_checkpoint
from lrc_jepa.types import Spec


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "copy")


def test_a_world_tells_the_checkpoint_what_its_actions_are(run):
    found = load_checkpoint(newest_checkpoint(run)).deployment
    assert (found.action_names, found.action_units) == (("right", "down"), ("5 px", "5 px"))
    assert (found.frame_rate, found.commands, found.cameras, found.bounded) == (10.0, 1, (), True)
    described = strict_json(newest_checkpoint(run) / "config.json")
    assert described["format"] == 2 and described["deployment"]["action_low"] == [-1.0, -1.0]
    assert "action_low" not in described  # one place for it


def test_what_a_client_is_told_is_plain_and_complete(run):
    told = load_checkpoint(newest_checkpoint(run)).deployment.describe()
    assert json.loads(json.dumps(told, allow_nan=False))["image_size"] == 32
    assert {"cameras", "crop", "frame_rate", "action_names", "action_units", "action_low", "block"} <= set(
        told
    )
    assert "normalizer" not in told


def test_format_1_still_loads_and_plans_the_same(run, copy):
    folder = redescribed(copy, as_format_1)
    old, new = load_checkpoint(folder).deployment, load_checkpoint(newest_checkpoint(run)).deployment
    assert (old.action_low, old.crop, old.spec) == (new.action_low, new.crop, new.spec)
    assert np.array_equal(old.normalizer.std, new.normalizer.std)
    assert old.action_names == ("action_0", "action_1") and old.action_units == ("", "")
    assert old.frame_rate is None


WRONG = {
    "names for another robot": ({"action_names": ["x"]}, "action_names has 1 entries where 2 are needed"),
    "bounds for another": ({"action_low": [0.0]}, "action_low has 1 entries where 2 are needed"),
    "no number": ({"action_high": [float("nan")] * 2}, "an action bound is not a number"),
    "means of another robot": ({"normalizer": {"mean": [0.0], "std": [1.0]}}, "mean has 1 entries"),
    "a mean that is none": (
        {"normalizer": {"mean": [0.0, None], "std": [1.0, 1.0]}},
        "means of actions are finite",
    ),
    "no deviation": ({"normalizer": {"mean": [0.0, 0.0], "std": [1.0, 0.0]}}, "deviations positive"),
    "a change backwards": ({"action_change": [-1.0]}, "a limit on changes is a positive number"),
    "no rate": ({"frame_rate": -1.0}, "a frame rate is a positive number"),
    "no size": ({"frame_size": [3]}, "a height and a width"),
    "commands that do not fit": ({"commands": 3}, "does not join 3 commands"),
    "an unknown crop": ({"crop": "round"}, "the crop a known one"),
    "numbers for names": ({"action_names": [1, 2]}, "are words"),
    "a later field": ({"temperature": 3}, "config.json is not one of a checkpoint"),
    "a missing one": ({"spec": {}}, "config.json is not one of a checkpoint"),
}


@pytest.mark.parametrize("name", WRONG)
def test_facts_that_do_not_fit_are_refused(name, copy):
    change, message = WRONG[name]

    def changed(described):
        return {**described, "deployment": {**described["deployment"], **change}}

    with pytest.raises(BadInput, match=message):
        load_checkpoint(redescribed(copy, changed))


def test_a_checkpoint_of_a_later_format_is_refused(copy):
    folder = redescribed(copy, lambda described: {**described, "format": 4})
    with pytest.raises(BadInput, match="has format 4, not 3 or before"):
        load_checkpoint(folder)


@pytest.fixture
def episodes(tmp_path):
    """Episodes as a LeRobot arm's would be: wide pictures, and names of the actions, x and y."""
    return lerobot(tmp_path, make_episodes((41, 41, 41, 41), height=24, width=40), images=True)


def test_what_lerobot_says_of_the_robot_reaches_the_checkpoint(episodes, tmp_path, capsys):
    wishes = ["--size", 32, "--crop", "pad", "--action-units", "rad"]
    assert lrc("data", "import", episodes, *wishes, "--out", tmp_path / "data", capsys=capsys)[0] == 0
    store = Store(tmp_path / "data")
    found = load_checkpoint(train_debug(store, tmp_path / "run", steps=1)).deployment
    assert found.action_names == ("x", "y") and found.action_units == ("rad", "rad")
    assert found.cameras == (store.meta["source"]["camera"],) and found.crop == "pad"
    assert found.frame_size == (24, 40) and found.frame_rate == store.meta["frame_rate"]
    shown = json.loads(lrc("data", "info", store.path, "--json", capsys=capsys)[1])
    assert shown["action_units"] == ["rad", "rad"] and shown["cameras"] == list(found.cameras)
    for words, message in (
        (["--action-names", "a"], "there are 1 action_names, the source has 2 dimensions"),
        (["--action-units", "a", "b", "c"], "action_units speaks of 3 action dimensions, the source has 2"),
    ):
        refused("data", "import", episodes, "--out", tmp_path / "no", *words, capsys=capsys, match=message)


def test_joined_commands_are_counted(episodes, tmp_path):
    import_dataset(episodes, tmp_path / "data", size=32, stride=2, action_names=("a", "b"))
    store = Store(tmp_path / "data")
    spec = Spec(history=1, tokens=1, width=1, action_dim=8, frameskip=2, image_size=32)
    found = Deployment.of(spec, store, np.arange(store.episodes))
    assert found.commands == 2 and store.action.shape[1] == 4 and found.action_names == ("a", "b")
