"""What holds of every simulated world: restoring, replaying, drawing, collecting, gymnasium."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from lrc_jepa.data.store import Store
from lrc_jepa.envs import WORLDS, get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.base import Mover
from lrc_jepa.envs.collect import collect
from lrc_jepa.envs.coverage import Coverage
from lrc_jepa.envs.gym import GYM_IDS
from lrc_jepa.envs.trial import replay, run_expert
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.manifest import already_solved

ALL = sorted(WORLDS)
LENGTH, SIZE, EPISODES = 40, 32, 4
REPLAY = {"tworoom": 0.0, "reacher": 0.0, "cube": 1e-6, "pusht": 1e-9}
"""How far a replay of 25 actions may end from the stored state (Push-T: the agent)."""
CRITERIA = {
    "tworoom": ["reach-16px.v1", "reach-8px.v1"],
    "pusht": ["agent-block-20px-20deg.v1", "block-20px-20deg.v1", "agent-block-10px-10deg.v1"],
    "reacher": ["joints-0.05rad.v1", "joints-0.05rad-still.v1"],
    "cube": ["cube-4cm.v1", "cube-4cm-moved.v1"],
}
EXPERT = {  # episodes, least share of successes, criterion
    "tworoom": (100, 0.99, "reach-16px.v1"),
    "pusht": (40, 0.95, "block-20px-20deg.v1"),
    "reacher": (60, 0.95, "joints-0.05rad-still.v1"),
    "cube": (4, 0.9, "cube-4cm-moved.v1"),
}


def gather(name, folder, kind="varied", **changes):
    options = {"episodes": EPISODES, "size": SIZE, "seed": 5, "length": LENGTH, **changes}
    collect(get_world(name), folder, appearance=Appearance(kind), **options)
    return Store(folder)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """One small varied store per world, made when first asked for."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = gather(name, tmp_path_factory.mktemp(name) / "data")
        return made[name]

    return get


@pytest.mark.parametrize("name", ALL)
def test_a_state_is_restored_and_named_quantities_come_from_it(name):
    world = get_world(name)
    states = np.stack([world.initial(np.random.default_rng(n)) for n in range(3)])
    task = world.make(Appearance())
    task.reset_to(states, np.zeros((3, 0)))
    assert states.shape == (3, world.state_dim) and world.state_dim == task.state_dim
    np.testing.assert_allclose(task.state(), states, rtol=0, atol=1e-12)
    assert list(task.success()) == CRITERIA[name]
    assert next(iter(task.success().values())).all() and (task.distance() < 1e-9).all()
    for mover in world.movers.values():
        assert mover.quantity in world.quantities(states)
    assert len(world.factors) >= 9 and abs(sum(world.mix.values()) - 1) < 1e-9


@pytest.mark.parametrize("name", ALL)
def test_stored_actions_replay_to_the_stored_state(name, stores):
    world, store = get_world(name), stores(name)
    rows = np.array([offset + first for offset in store.ep_offset for first in (0, 6, 14)])
    frames, reached = replay(world.make(Appearance("varied")), store, rows, 25)
    stored = store.columns["state"][rows + 25]
    if name == "pusht":  # what pymunk remembers of a contact cannot be restored: see test_pusht.py
        reached, stored = reached[:, :2], stored[:, :2]
    assert np.abs(reached - stored).max() <= REPLAY[name]
    assert np.abs(frames.astype(int) - store.pixels[rows]).mean() <= 1.0


@pytest.mark.parametrize("name", ALL)
def test_row_t_holds_the_action_that_leaves_frame_t(name, stores):
    world, store = get_world(name), stores(name)
    rows = store.ep_offset + 3
    task = world.make(Appearance("varied"))
    ends = []
    for shift in (0, 1):
        task.reset_to(store.columns["state"][rows], store.appearance(np.arange(EPISODES)))
        task.step(store.action[rows + shift])
        ends.append(np.abs(task.state() - store.columns["state"][rows + 1])[:, :2].max())
    assert ends[0] < 1e-6 < ends[1]
    last = store.ep_offset + store.ep_len - 1
    assert (store.action[last] == 0).all() and (store.action[last - 1] != 0).any()


@pytest.mark.parametrize("name", ALL)
def test_episodes_do_not_depend_on_what_is_collected_beside_them(name, stores, tmp_path):
    world = replace(get_world(name), batch=1)
    collect(
        world,
        tmp_path / "one",
        episodes=EPISODES,
        size=SIZE,
        seed=5,
        length=LENGTH,
        appearance=Appearance("varied"),
    )
    alone, together = Store(tmp_path / "one"), stores(name)
    assert alone.digest() == together.digest()
    np.testing.assert_array_equal(alone.per_episode["ep_policy"], together.per_episode["ep_policy"])


def test_processes_change_nothing(stores, tmp_path):
    store = gather("pusht", tmp_path / "two", processes=2)
    assert store.digest() == stores("pusht").digest()
    assert store.meta["coverage"] == stores("pusht").meta["coverage"]


@pytest.mark.parametrize("name", ["tworoom", "pusht"])
def test_the_same_motion_in_every_appearance(name, stores, tmp_path):
    clean, varied = gather(name, tmp_path / "clean", kind="clean"), stores(name)
    np.testing.assert_array_equal(clean.columns["state"], varied.columns["state"])
    assert (clean.pixels != varied.pixels).mean() > 0.5
    assert clean.per_episode["ep_appearance"].shape == (EPISODES, 0)
    assert varied.per_episode["ep_appearance"].shape == (EPISODES, 9)
    assert varied.meta["appearance_factors"] == list(get_world(name).factors[:9])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kind", ["varied", "patterned"])
def test_each_factor_changes_the_picture_and_nothing_else_does(name, kind):
    world = get_world(name)
    look = Appearance(kind, factors=len(world.factors), cells=2)
    task, state = world.make(look), world.initial(np.random.default_rng(3))
    count = look.width
    factors = np.tile(np.float32(0.35), (count + 2, count))
    factors[np.arange(count), np.arange(count)] = 0.9
    task.reset_to(np.tile(state, (count + 2, 1)), factors)
    frames = task.render(48).astype(int)
    np.testing.assert_array_equal(frames[-1], frames[-2])
    changed = np.abs(frames[:-2] - frames[-1]).max(axis=(1, 2, 3))
    assert (changed >= 3).all(), [n for n, c in zip(world.factors, changed, strict=False) if c < 3]
    np.testing.assert_array_equal(task.render(48), frames)


@pytest.mark.parametrize("name", ALL)
def test_a_world_without_varied_factors_looks_clean(name):
    world = get_world(name)
    state, pictures = world.initial(np.random.default_rng(4))[None], []
    for look in (Appearance("clean"), Appearance("varied", factors=0)):
        task = world.make(look)
        task.reset_to(state, np.zeros((1, 0)))
        pictures.append(task.render(32))
    np.testing.assert_array_equal(*pictures)
    with pytest.raises(BadInput, match="factors of appearance"):
        world.make(Appearance("varied", factors=99))


@pytest.mark.parametrize("name", ALL)
def test_frames_of_two_sizes_show_the_same(name):
    world = get_world(name)
    task = world.make(Appearance())
    task.reset_to(world.initial(np.random.default_rng(8))[None], np.zeros((1, 0)))
    small, large = task.render(32)[0].astype(int), task.render(64)[0].astype(int)
    halved = large.reshape(32, 2, 32, 2, 3).mean(axis=(1, 3))
    assert np.abs(halved - small).mean() < 3
    assert np.abs(halved[::-1] - small).mean() > np.abs(halved - small).mean()


@pytest.mark.parametrize("name", ALL)
def test_the_scripted_expert_reaches_its_goals(name):
    episodes, least, criterion = EXPERT[name]
    met = run_expert(get_world(name), episodes, seed=777)
    assert met[criterion].mean() >= least, {key: ok.mean() for key, ok in met.items()}


@pytest.mark.parametrize("name", ALL)
def test_gymnasium(name):
    env = gymnasium.make(GYM_IDS[name], size=32)
    check_env(env.unwrapped, skip_render_check=True)
    frame, info = env.reset(seed=1)
    again, _ = env.reset(seed=1)
    np.testing.assert_array_equal(frame, again)
    assert info["goal_image"].shape == (32, 32, 3) and not info["success"][CRITERIA[name][0]]
    env.reset(options={"state": info["goal_state"], "goal": info["goal_state"]})
    _, reward, done, _, _ = env.step(np.zeros(env.action_space.shape, np.float32))
    assert done and reward == 1.0
    with pytest.raises(BadInput, match="shape"):
        env.unwrapped.reset(options={"state": np.zeros(3)})


def test_coverage_counts_motion_and_pairs_that_ask_for_nothing():
    world = replace(get_world("tworoom"), movers={"agent": Mover("agent_position", 0.5)})
    still, moving = np.zeros((30, 2), np.float32), np.zeros((30, 2), np.float32)
    moving[:, 0] = 2.0 * np.arange(30)
    coverage = Coverage(world)
    coverage.add("lazy", {"state": still, "agent_position": still})
    coverage.add("busy", {"state": moving, "agent_position": moving})
    report = coverage.report()
    assert report["pairs"] == 10 and report["trivial"] == 0.5
    assert report["movers"]["agent"] == {"moves": 0.5, "displacement": 25.0}
    assert report["policies"]["busy"]["movers"]["agent"] == {"moves": 1.0, "displacement": 50.0}
    assert report["policies"]["lazy"]["trivial"] == 1.0


def test_bad_requests_are_refused_in_one_sentence(tmp_path):
    world = get_world("tworoom")
    good = {"episodes": 2, "size": 16, "appearance": Appearance(), "seed": 0, "length": 4}
    for change, words in [
        ({"processes": 0}, "processes"),
        ({"episodes": 1}, "at least 2"),
        ({"size": 4}, "pixels"),
        ({"mix": {"nobody": 1.0}}, "unknown policy"),
        ({"mix": {"walk": 0.0}}, "positive share"),
        ({"appearance": Appearance("varied", factors=10)}, "factors"),
    ]:
        with pytest.raises(BadInput, match=words):
            collect(world, tmp_path / "no", **{**good, **change})
        assert not (tmp_path / "no").exists()
    with pytest.raises(BadInput, match="registered"):
        collect(replace(world, batch=1), tmp_path / "no", **good, processes=2)
    with pytest.raises(BadInput, match="no simulated world"):
        get_world("chess")


def test_a_world_whose_package_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setitem(WORLDS, "pusht", "pymunk.of_nowhere")
    with pytest.raises(BadInput, match=r"pip install .*\[envs\]"):
        get_world("pusht")


@pytest.mark.parametrize("name", ALL)
def test_trivial_pairs_are_found_from_states_as_the_simulator_finds_them(name, stores):
    store, world = stores(name), get_world(name)
    near = (store.ep_offset[:, None] + np.arange(0, LENGTH - 6, 3)).ravel()
    rows = np.concatenate([near, near])
    goals = np.concatenate([near + 2, np.roll(near, len(near) // 2)])  # soon after, and of other episodes
    task = world.make(Appearance("varied"))
    task.reset_to(store.columns["state"][rows], store.appearance(rows // LENGTH))
    task.set_goal(store.columns["state"][goals])
    simulated = next(iter(task.success().values()))
    assert simulated.any() and not simulated.all()
    assert np.array_equal(already_solved(store, rows, goals), simulated)
