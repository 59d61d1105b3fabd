"""What a robot knows of itself, beside z: from a column of the data to every place that encodes, plans and acts."""

import json
import os
import shutil
import signal
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import DEBUG
from driving import Desk
from planning import SMALL
from safetensors.torch import load_file
from test_cached_rollout import TINY, randomise
from test_cli import lrc, refused
from test_serve import served

from lrc_jepa.client import Client, StepPolicy
from lrc_jepa.config import RunConfig
from lrc_jepa.config_tree import to_dict
from lrc_jepa.data.datasets import Datasets
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.features import write_features
from lrc_jepa.data.proprio import proprio_column, proprio_statistics
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.deploy.camera import Camera
from lrc_jepa.deploy.robot import Observation
from lrc_jepa.deploy.thinker import Thinker
from lrc_jepa.envs import WORLDS, get_world
from lrc_jepa.errors import BadInput, Interrupted
from lrc_jepa.evaluate.closed_loop import make_start, make_task
from lrc_jepa.evaluate.compare_planners import _alone as alone
from lrc_jepa.evaluate.manifest import draw_manifest
from lrc_jepa.evaluate.openloop import long_clips
from lrc_jepa.evaluate.ranking import RecoveryConfig, draw_scenes
from lrc_jepa.evaluate.speed import plan_trajectory
from lrc_jepa.export.graphs import Encoder
from lrc_jepa.export.writing import export_run
from lrc_jepa.library import fit_widths, train
from lrc_jepa.models import build_model
from lrc_jepa.objectives import Objective
from lrc_jepa.pixels import channels_first
from lrc_jepa.plan.goals import LatentGoal, image_goal
from lrc_jepa.plan.policy import Policy
from lrc_jepa.plan.rollout import rollout
from lrc_jepa.recipes import get_recipe
from lrc_jepa.run import Run, load
from lrc_jepa.runtime import Policy as RuntimePolicy
from lrc_jepa.serve.session import Session, metadata
from lrc_jepa.sharing.card import model_card
from lrc_jepa.studio.imagination import Dream
from lrc_jepa.studio.opened import Opened
from lrc_jepa.training import loop
from lrc_jepa.training.assemble import assemble
from lrc_jepa.training.checkpoint import list_checkpoints, newest_checkpoint
from lrc_jepa.training.loop import fit

CPU = torch.device("cpu")
OWN = "agent_position"
COMPACT = ("lrc", "lwm", "pldm", "eb-jepa", "vjepa2-gap-ac")
TELLING = replace(DEBUG, model=replace(DEBUG.model, proprio=OWN))
SEARCH = ("--samples", 8, "--iterations", 1, "--elites", 2)


def told(config: RunConfig, column: str = OWN) -> RunConfig:
    return replace(config, model=replace(config.model, proprio=column))


def pieces_of(config, data, run="unused"):
    datasets = Datasets.of(data)
    return assemble(fit_widths(config, datasets), datasets, run, CPU)


@pytest.fixture(scope="module")
def telling(store, tmp_path_factory):
    """A debug run whose robot tells where it is."""
    return train(TELLING, store, tmp_path_factory.mktemp("runs") / "telling", device="cpu").folder


@pytest.fixture(scope="module")
def opened(telling):
    return load(telling, device="cpu")


@pytest.fixture
def clip(store):
    pieces = pieces_of(TELLING, store)
    return pieces, pieces.clips.gather(np.array([0, 7, 40, 41, 99, 130]))


# --- what a state is -----------------------------------------------------------------------------


def test_a_state_is_z_beside_the_column_less_its_mean_over_its_deviation(store, opened):
    trained = [store.ep_offset[e] + t for e in opened.split.train for t in range(store.ep_len[e])]
    known = store.columns[OWN][np.array(trained)].astype(np.float64)
    rows = np.array([3, 50, 200, 417])
    states = opened.encode(store.pixels[rows], store.columns[OWN][rows])
    for row, state in zip(rows, states, strict=True):
        z = opened.encode(store.pixels[row][None])[0, 0]
        position = (store.columns[OWN][row] - known.mean(axis=0)) / known.std(axis=0)
        wanted = torch.cat([z, torch.from_numpy(position).float()])
        assert torch.allclose(state[0], wanted, atol=1e-5)
    assert opened.model.spec.proprio == 2 and opened.model.spec.seen == DEBUG.model.latent


def test_predictions_are_steps_from_whole_states_each_by_the_actions_that_leave_it(clip):
    pieces, batch = clip
    model = randomise(pieces.model).eval()
    out = model.outputs(batch)
    states = model.encode(batch.frames, batch.proprio)
    assert torch.allclose(out.z_target, states[:, 1:], atol=1e-5)
    for t in range(batch.actions.shape[1]):
        first = max(0, t + 1 - model.spec.history)
        step = model.step(states[:, first : t + 1], batch.actions[:, first : t + 1])
        assert torch.allclose(out.z_pred[:, t], step, atol=1e-4)


def test_a_number_of_proprioception_counts_as_one_of_z_and_takes_nothing_from_it(clip):
    pieces, batch = clip
    out = randomise(pieces.model).eval().outputs(batch)
    width, term = DEBUG.model.latent, Objective(TELLING.objective, pieces.model, 0)(out, 0)["prediction"]
    summed = sum(
        float((out.z_pred[b, t, 0, d] - out.z_target[b, t, 0, d]).detach() ** 2)
        for b in range(out.z.shape[0])
        for t in range(out.z_pred.shape[1])
        for d in range(width + 2)
    )
    assert float(term.detach()) == pytest.approx(
        summed / (out.z.shape[0] * out.z_pred.shape[1] * width), rel=1e-4
    )


@pytest.mark.parametrize("system", ["lrc+idm", "pldm", "eb-jepa", "lwm+within"])
def test_what_regularises_z_reads_and_moves_z_alone(store, system):
    pieces = pieces_of(told(get_recipe(f"tworoom-{system}-debug")), store)
    batch = pieces.clips.gather(np.arange(0, 120, 10))
    batch = replace(batch, episodes=torch.arange(len(batch.episodes)) // 3)  # as per_episode would have it
    other = replace(batch, proprio=batch.proprio.flip(0) * 3 + 50)
    model = randomise(pieces.model).eval()
    first, second = (pieces.objective(model.outputs(c), 0) for c in (batch, other))
    assert {name for name in pieces.objective.active if not torch.equal(first[name], second[name])} == {
        "prediction"
    }
    assert len(pieces.objective.active) > 1


def test_proprioception_is_given_not_learned(clip):
    pieces, batch = clip
    pieces.objective(pieces.model.train().outputs(batch), 0)["total"].backward()
    assert not list(pieces.model.proprio.parameters())
    assert pieces.model.g_p[3].weight.grad[-2:].abs().sum() > 0  # predicting it is learned


def test_without_proprioception_encode_says_what_is_seen_and_a_state_is_refused(opened, store, clip):
    frames = channels_first(store.pixels[:2])[None]
    assert opened.model.encode(frames).shape[-1] == opened.model.spec.seen
    with pytest.raises(BadInput, match="has proprioception, 2 numbers a frame"):
        opened.model.outputs(replace(clip[1], proprio=None))
    with pytest.raises(BadInput, match="is 2 numbers a frame, not 3"):
        opened.model.encode(frames, torch.zeros(1, 2, 3))
    with pytest.raises(BadInput, match="takes no proprioception"):
        build_model(DEBUG).encode(frames, torch.zeros(1, 2, 2))


# --- which row belongs to which frame ------------------------------------------------------------


def drawn(positions, store, size=32):
    """TwoRoom as it looks with the agent at these places (n,2)."""
    task = make_task(store)
    task.reset_to(np.asarray(positions), store.appearance(np.zeros(len(positions), int)))
    return task.render(size)


def test_clips_pair_every_frame_with_what_the_robot_knew_at_it(store, opened):
    """Drawn where the robot says it is, the world looks as the frame does: one row off, it would not."""
    spec, normalizer = opened.checkpoint.deployment.spec, opened.checkpoint.deployment.normalizer
    columns, held = opened.checkpoint.deployment.columns(store), opened.split.heldout
    recovery = RecoveryConfig(scenes=5, candidates=4, horizon=3)
    ids = np.array([2, 9, 17])
    for batch in (
        pieces_of(TELLING, store).clips.gather(ids),
        long_clips(store, held, spec, normalizer, 4, columns).gather(ids),
        draw_scenes(store, held, spec, normalizer, recovery, columns).clip,
    ):
        frames = batch.frames.movedim(2, -1).flatten(0, 1).numpy()
        assert np.array_equal(drawn(batch.proprio.flatten(0, 1).numpy(), store), frames)
        assert not np.array_equal(drawn(batch.proprio.roll(1, dims=1).flatten(0, 1).numpy(), store), frames)


def test_in_a_simulated_world_the_policy_is_told_what_goes_with_its_frame(store, opened, monkeypatch):
    from lrc_jepa.evaluate import closed_loop

    plan = replace(opened.config.plan, samples=8, iterations=1, elites=2, budget=20, history=2, execute=2)
    manifest = draw_manifest(store, opened.split, opened.config.clip, plan, 3)
    began, looks = [], []
    policy, begin, observe = opened.policy(plan), Policy._begin, Policy.look
    monkeypatch.setattr(Policy, "_begin", lambda self, *a: (began.append(self._past), begin(self, *a)))
    monkeypatch.setattr(Policy, "look", lambda self, *a: (looks.append(a), observe(self, *a))[1])
    closed_loop.run(policy, store, manifest, plan, 5, 32)
    ((frames, _, proprio),) = began
    assert np.array_equal(drawn(proprio[:, 0], store), frames[:, 0]) and len(looks) == 4
    for frame, _, position in looks:
        assert np.array_equal(drawn(position, store), frame)
    assert len({position.tobytes() for _, _, position in looks}) == 4  # the robot moved meanwhile


def test_a_start_tells_what_was_recorded_at_its_frames(store, opened):
    manifest = draw_manifest(store, opened.split, opened.config.clip, opened.config.plan, 3)
    start = make_start(store, manifest, make_task(store), 32, 5, 1, OWN)
    rows = manifest.start_rows(store)
    assert np.allclose(start.proprio[:, 0], store.columns[OWN][rows])
    assert make_start(store, manifest, make_task(store), 32, 5, 1).proprio is None


# --- the column ----------------------------------------------------------------------------------

WRONG = {
    "nothing": "has no column 'nothing' of proprioception; it has agent_position, state",
    "pixels": "has no column 'pixels' of proprioception",
    "action": "has no column 'action' of proprioception",
    "state": "state is not the robot's own in tworoom, and is not told; there is agent_position",
}


@pytest.mark.parametrize("column", WRONG)
def test_a_wrong_column_is_refused_before_anything_is_written(column, store, tmp_path, capsys):
    words = ("train", "tworoom-lrc-debug", "--data", store.path, "--out", tmp_path / "r")
    refused(*words, "--model.proprio", column, capsys=capsys, match=WRONG[column])
    assert not (tmp_path / "r").exists()


def test_a_column_that_is_no_table_of_numbers_is_refused():
    columns = {"words": np.array([["a"], ["b"]]), "deep": np.zeros((2, 3, 3)), "flat": np.zeros(2)}
    made = SimpleNamespace(path="d", columns=columns)
    for name, sentence in {
        "words": "holds no numbers, but <U1",
        "deep": r"is \(2, 3, 3\): proprioception is \(rows, numbers\)",
        "flat": r"is \(2,\): proprioception is",
    }.items():
        with pytest.raises(BadInput, match=sentence):
            proprio_column(made, name)


def robot_store(path, columns, episodes=6, length=40):
    """Somebody's episodes: noise, two actions, and what their robot tells."""
    rng = np.random.default_rng(0)
    with StoreWriter(path, {"world": "robot", "action_low": [-1, -1], "action_high": [1, 1]}) as writer:
        for _ in range(episodes):
            frames = rng.integers(0, 255, (length, 32, 32, 3), dtype=np.uint8)
            actions = rng.uniform(-1, 1, (length, 2)).astype(np.float32)
            writer.add(
                {"pixels": frames, "action": actions, **{n: make(rng, length) for n, make in columns.items()}}
            )
    return Store(path)


def joints(width, scale=1.0, offset=0.0):
    return lambda rng, length: (offset + scale * rng.standard_normal((length, width))).astype(np.float64)


def test_what_is_not_finite_is_refused_and_what_never_changes_is_only_centred(tmp_path):
    def still(rng, length):
        return np.full((length, 1), 7, np.int64)

    def broken(rng, length):
        return np.full((length, 1), np.nan, np.float32)

    made = robot_store(tmp_path / "d", {"still": still, "broken": broken})
    mean, std = proprio_statistics(made, "still", np.arange(4))
    assert (mean.tolist(), std.tolist()) == ([7.0], [1.0])
    with pytest.raises(BadInput, match=r"'broken' holds NaN or infinity \(first in episode 2, frame 0\)"):
        proprio_statistics(made, "broken", np.array([2, 3]))


def test_several_datasets_have_statistics_of_their_own_and_one_width(tmp_path):
    near = robot_store(tmp_path / "near", {"joints": joints(3)})
    far = robot_store(tmp_path / "far", {"joints": joints(3, 50, 1000)})
    wide = robot_store(tmp_path / "wide", {"joints": joints(4)})
    recipe = get_recipe("robot-lrc-debug")
    config = told(replace(recipe, train=replace(recipe.train, batch_size=12, steps=2)), "joints")
    pieces = pieces_of(config, [near.path, far.path])
    batch = pieces.clips.gather(np.array([0, 5, len(pieces.clips) - 1, len(pieces.clips) - 7]))
    normal = pieces.model.state(torch.zeros(4, 4, 1, DEBUG.model.latent), batch.proprio, batch.sources)
    assert normal[..., -3:].abs().max() < 5
    assert [bool(part.min() > 700) for part in batch.proprio] == [True, True, False, False]  # far comes first
    run = train(config, [near.path, far.path], tmp_path / "run", device="cpu")
    for name, value in (("near", 0.0), ("far", 1000.0)):
        alone = Run(run.folder, adapter=name, device="cpu")
        state = alone.encode(near.pixels[:1], np.full((1, 3), value))
        assert state[..., -3:].abs().max() < 0.5 and alone.checkpoint.deployment.proprio == "joints"
    with pytest.raises(BadInput, match="joints has not the same width in all datasets: 3 in near, 4 in wide"):
        pieces_of(config, [near.path, wide.path])


# --- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", COMPACT)
def test_every_compact_system_trains_plans_and_rolls_out_with_it(system, store, tmp_path):
    recipe = get_recipe(f"tworoom-{system}-debug")
    config = told(replace(recipe, train=replace(recipe.train, steps=2)))
    run = train(config, store, tmp_path / "run", device="cpu")
    spec, latent = run.checkpoint.deployment.spec, recipe.model.latent
    assert (spec.width, spec.proprio, run.config.model.proprio_dim) == (latent + 2, 2, 2)
    policy = run.policy(SMALL)
    policy.reset(store.pixels[25])
    action = policy.act(store.pixels[0], store.columns[OWN][0])
    assert action.shape == (2,) and policy.solved.imagined.shape[-1] == latent + 2


def test_the_cached_rollout_has_the_numbers_of_the_plain_one():
    model = randomise(
        build_model(replace(TINY, model=replace(TINY.model, proprio="p", proprio_dim=3)))
    ).eval()
    generator = torch.Generator().manual_seed(0)
    past, blocks, plan = (
        torch.randn(*shape, generator=generator) for shape in ((4, 2, 1, 27), (4, 1, 10), (4, 6, 10))
    )
    with torch.no_grad():
        plain, cached = (rollout(model, past, blocks, plan, mode) for mode in ("plain", "cached"))
    assert torch.allclose(plain, cached, atol=1e-4) and plain.shape == (4, 6, 1, 27)


def test_stored_features_train_the_same_states(store, tmp_path):
    data = Store(shutil.copytree(store.path, tmp_path / "data"))
    config = told(get_recipe("tworoom-vjepa2-gap-ac-debug"))
    seen = pieces_of(config, data)
    write_features(data, seen.model, CPU)
    stored = pieces_of(config, data)
    ids = np.array([4, 60])
    first, second = (p.model.eval().outputs(p.clips.gather(ids)) for p in (seen, stored))
    assert "features" in stored.clips.columns
    assert torch.allclose(first.z_target, second.z_target, atol=2e-2)  # features are kept as float16
    assert torch.equal(first.z_target[..., -2:], second.z_target[..., -2:])


def test_resuming_changes_no_weight_and_no_statistic(store, telling, tmp_path, monkeypatch):
    calls, real = [], loop.train_step

    def step(pieces, clip, number):
        calls.append(number)
        if len(calls) == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(pieces, clip, number)

    monkeypatch.setattr(loop, "train_step", step)
    with pytest.raises(Interrupted):
        fit(pieces_of(TELLING, store, tmp_path / "r"))
    fit(pieces_of(TELLING, store, tmp_path / "r"), resume=True)
    ours, theirs = (
        load_file(newest_checkpoint(path) / "model.safetensors") for path in (tmp_path / "r", telling)
    )
    assert len(list_checkpoints(tmp_path / "r")) and "proprio.mean" in ours
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_runs_without_it_are_written_and_read_as_before(run, telling):
    described = json.loads((newest_checkpoint(run) / "config.json").read_text())
    assert "proprio" not in described["deployment"] and "proprio" not in described["deployment"]["spec"]
    plain = Deployment.from_json(described["deployment"])
    assert (plain.proprio, plain.spec.proprio, plain.spec.seen) == ("", 0, plain.spec.width)
    assert to_dict(DEBUG)["model"]["proprio"] == "" and load(run, device="cpu").model.proprio is None
    mine = json.loads((newest_checkpoint(telling) / "config.json").read_text())["deployment"]
    assert (
        json.loads(json.dumps(Deployment.from_json(mine).to_json())) == mine and mine["spec"]["proprio"] == 2
    )
    with pytest.raises(BadInput, match="has a name or a width"):
        Deployment.from_json({**mine, "proprio": ""})


def test_other_families_say_what_they_do_with_it(store):
    with pytest.raises(BadInput, match="slots takes no proprioception"):
        pieces_of(told(get_recipe("tworoom-c-jepa-debug")), store)
    with pytest.raises(BadInput, match="how wide agent_position is the data tell"):
        build_model(TELLING)
    assert pieces_of(told(get_recipe("tworoom-dino-wm-debug"), "state"), store).deployments


# --- acting --------------------------------------------------------------------------------------


def test_a_policy_is_not_left_to_guess(opened, store, run):
    policy, frame = opened.policy(SMALL), store.pixels[0]
    policy.reset(store.pixels[25])
    for proprio, sentence in (
        (None, r"must be told what the robot knows of itself \(agent_position, 2 numbers a frame\)"),
        (np.zeros(3), r"are finite numbers, not an array of \(3,\)"),
        (np.array([np.nan, 0]), "are finite numbers"),
    ):
        with pytest.raises(BadInput, match=sentence):
            policy.act(frame, proprio)
    assert policy.act(frame, store.columns[OWN][0]).shape == (2,)
    blind = load(run, device="cpu").policy(SMALL)
    blind.reset(store.pixels[25])
    with pytest.raises(BadInput, match="takes no proprioception"):
        blind.act(frame, store.columns[OWN][0])


def test_what_the_robot_knows_changes_what_is_imagined_and_not_the_distance_to_a_picture(opened, store):
    policy = opened.policy(SMALL)
    policy.reset(store.pixels[25])
    imagined, apart = [], []
    for position in ([20.0, 20.0], [200.0, 200.0]):
        policy.look(store.pixels[0], None, np.array(position))
        apart.append(float(policy.controller.distance()))
        imagined.append(policy.controller.solve().imagined)
    assert apart[0] == apart[1] and not torch.equal(*imagined)


def test_a_goal_may_have_it_too(opened, store):
    model, spec = opened.model, opened.model.spec
    here, there = torch.randn(2, 1, spec.width, generator=torch.Generator().manual_seed(0))
    for width in (spec.width, spec.seen):
        goal = LatentGoal(there[None, :, :width])
        goal.check(model, 1)
        wanted = sum(float(here[0, d] - there[0, d]) ** 2 for d in range(width))
        assert float(goal.distance(model, here[None, None], slice(None))) == pytest.approx(wanted, rel=1e-4)
    assert image_goal(model, channels_first(store.pixels[:3])).latent.shape == (3, 1, spec.seen)
    with pytest.raises(BadInput, match="a goal latent has shape"):
        LatentGoal(there[None, :, :-1]).check(model, 1)


def test_a_place_is_a_goal_read_from_z(opened, store):
    policy = opened.policy(SMALL)
    policy.reset(opened.goal_where(OWN, [40, 180], frames=100))
    assert policy.act(store.pixels[0], store.columns[OWN][0]).shape == (2,)


def test_robots_in_lock_step_act_as_each_would_alone(opened, store):
    rows = np.array([0, 70])
    both = opened.policy(SMALL)
    both.reset(store.pixels[rows + 25])
    together = both.act(store.pixels[rows], store.columns[OWN][rows])
    for number, row in enumerate(rows):
        alone = opened.policy(SMALL)
        alone.number(number)
        alone.reset(store.pixels[row + 25])
        assert np.allclose(alone.act(store.pixels[row], store.columns[OWN][row]), together[number], atol=1e-5)


def test_worlds_tell_what_is_the_robots_own_and_nothing_else():
    for name in WORLDS:
        world = get_world(name)
        state = world.initial(np.random.default_rng(0))[None]
        assert world.own and set(world.own) <= set(world.quantities(state))
        assert not [quantity for quantity in world.own if "block" in quantity]
        for quantity in world.own:
            assert world.feel(state, quantity).shape[0] == 1
        with pytest.raises(BadInput, match="is not the robot's own"):
            world.feel(state, "block_position")


COMMANDS = {
    "plan": ("--pairs", 2, *SEARCH, "--budget", 10, "--films", 1, "--learned", "--explain", "--history", 2),
    "imagine": (),
    "recover": ("--scenes", 4, "--candidates", 5),
    "probe": ("--kinds", "ridge", "--frames", 100),
    "intervene": ("--episodes", 2),
    "stress": ("pca", "--pairs", 2, *SEARCH, "--budget", 10, "--levels", 2, 8),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_experiments_work_on_such_a_run(command, telling, tmp_path, capsys):
    run = shutil.copytree(telling, tmp_path / "run")
    words = (
        ("stress", "pca", run, *COMMANDS[command][1:])
        if command == "stress"
        else (command, run, *COMMANDS[command])
    )
    code, _, err = lrc(*words, "--json", capsys=capsys)
    assert code == 0, err


def test_it_is_driven_against_a_simulator(telling, tmp_path, capsys):
    search = ("--plan.samples", 8, "--plan.elites", 2, "--plan.iterations", 1, "--plan.budget", 10)
    calm = ("--threads", 1, "--patience", 500, "--stale", 50, "--pairs", 1, "--log", tmp_path / "log.jsonl")
    code, out, err = lrc("drive", telling, *search, *calm, "--json", capsys=capsys)
    assert code == 0 and json.loads(out)["actions"] == 10, err


def test_the_loop_tells_the_planner_and_bridges_garbage():
    desk = Desk(facts={"proprio_width": 2})
    seen, felt = desk.robot.observe, [np.zeros(2)]
    desk.robot.observe = lambda: replace(seen(), proprio=felt[0])
    assert isinstance(desk.robot.observe(), Observation)
    desk.at(6, lambda: felt.__setitem__(0, np.array([np.inf, 0])))
    desk.at(9, lambda: felt.__setitem__(0, np.ones(2)))
    desk.at(12, lambda: felt.__setitem__(0, None))
    desk.at(14, lambda: felt.__setitem__(0, np.ones(2)))
    summary = desk.loop.run()
    assert summary.why["proprioception is garbage"] == 5 and summary.actions == 20
    assert all(told.dtype == np.float32 and np.isfinite(told).all() for told in desk.planner.told)
    assert {told.tolist()[0] for told in desk.planner.told} == {0.0, 1.0}


def test_a_robot_that_never_tells_is_refused_by_its_planner(opened, store):
    thinker = Thinker()
    thinker.policy = opened.policy(SMALL)
    thinker.answer({"do": "begin", "number": 1, "goal": {"image": store.pixels[25]}, "episode": 0})
    seen = {"do": "see", "number": 2, "frame": store.pixels[0], "done": None}
    assert "must be told what the robot knows" in thinker.answer({**seen, "proprio": None})["refused"]
    assert thinker.answer({**seen, "proprio": np.array(store.columns[OWN][0])})["distance"] >= 0


def test_a_camera_asks_what_the_robot_knows_when_a_frame_has_come():
    asked, more = [], threading.Event()

    def read():
        asked.append("frame")
        assert len(asked) == 1 or more.wait(60)
        return np.full((4, 4, 3), len(asked), np.uint8)

    camera = Camera(read, lambda: asked.append("self") or np.array([len(asked)]))
    while camera.newest() is None:
        time.sleep(0.01)
    seen = camera.newest()
    camera.close()
    more.set()
    camera._thread.join()
    assert asked[:2] == ["frame", "self"] and (seen.frame[0, 0, 0], seen.proprio[0]) == (1, 2)


def test_a_served_run_asks_for_it_and_answers_as_the_policy_does(opened, store):
    observation = {"image": store.pixels[0], "goal": store.pixels[25]}
    position = np.array(store.columns[OWN][0])
    with (
        served(lambda: Session(opened, SMALL), metadata(opened, SMALL)) as (_, port),
        Client(f"ws://127.0.0.1:{port}") as client,
    ):
        assert (client.metadata["proprio"], client.metadata["proprio_width"]) == (OWN, 2)
        with pytest.raises(BadInput, match="must be told what the robot knows of itself"):
            client.infer(observation)
        with pytest.raises(BadInput, match="proprio must be an array of 2 numbers"):
            client.infer({**observation, "proprio": "here"})
        answer = client.infer({**observation, "proprio": position})
        policy = opened.policy(SMALL)
        policy.reset(store.pixels[25])
        assert np.allclose(answer["actions"][0], policy.act(store.pixels[0], position), atol=1e-5)
        step = StepPolicy(client, store.pixels[25])
        with pytest.raises(BadInput, match="must be told agent_position"):
            step.select_action({"image": store.pixels[0]})
        batch = {"image": store.pixels[0], "agent.position": torch.from_numpy(position)[None]}
        policy.reset(store.pixels[25])  # the second episode, here as there
        wanted = policy.act(store.pixels[0], position)
        assert np.allclose(step.select_action(batch), wanted, atol=1e-5)


def test_a_run_of_frames_alone_is_served_whatever_a_robot_says(run, store):
    session = Session(load(run, device="cpu"), SMALL)
    observation = {"image": store.pixels[0], "goal": store.pixels[25], "proprio": np.zeros(7)}
    assert "actions" in session.infer(observation) and session.metadata["proprio_width"] == 0


def test_an_exported_model_takes_it_and_acts_the_same(opened, store, tmp_path):
    exported = export_run(opened, tmp_path / "onnx")
    rows = np.array([0, 30, 61])
    frames, positions = np.array(store.pixels[rows]), np.array(store.columns[OWN][rows])
    with torch.no_grad():
        state, _ = Encoder(opened.model)(torch.from_numpy(frames), torch.from_numpy(positions))
    assert np.abs(exported.encode(frames, positions) - state.numpy()).max() < 1e-4
    assert exported.encode(frames).shape == (3, opened.model.spec.seen)
    policy = RuntimePolicy(exported)
    policy.reset(store.pixels[25])
    with pytest.raises(BadInput, match="must be told what the robot knows of itself"):
        policy.act(frames[0])
    assert policy.act(frames[0], positions[0]).shape == (2,) and policy.proprio == OWN


def test_a_card_says_what_the_policy_is_told(telling, run):
    assert "policy.act(camera_image, agent_position)" in model_card(telling, {}, "somebody/telling")
    assert "policy.act(camera_image)" in model_card(run, {}, "somebody/blind")


def test_planners_are_compared_and_timed_on_it(opened):
    plan = replace(opened.config.plan, samples=8, iterations=1, elites=2, budget=5, history=2)
    manifest = draw_manifest(opened.store, opened.split, opened.config.clip, plan, 2)
    assert alone(opened, manifest, plan)().imagined.shape[-1] == opened.model.spec.width
    assert len(plan_trajectory(opened, replace(plan, history=1), int(opened.split.heldout[0]), 0, 0)) == 1


def test_the_studio_dreams_from_whole_states(opened, store):
    shown = Opened(opened, "telling")
    dream = Dream(shown, int(opened.split.heldout[0]), 3)
    wanted = opened.encode(store.pixels[dream.row][None], store.columns[OWN][dream.row][None])
    assert torch.allclose(dream.states[0], wanted, atol=1e-5)
    dream.go(dream.recorded_block(), recorded=True)
    assert dream.imagined(1)["readings"] and dream.truth(1)["gap"] is not None
    errors, _ = shown.surprise(int(opened.split.heldout[0]))
    assert np.isfinite(errors[5:]).all()
