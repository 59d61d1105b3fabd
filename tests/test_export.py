"""An exported model answers and acts as the model it was made from, where there is no torch."""

import contextlib
import dataclasses
import io
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from planning import SMALL, Guided, Walk, unit_box
from test_cli import lrc, refused
from test_docs import blocks

import lrc_jepa
from lrc_jepa import cli
from lrc_jepa.config import PlanConfig
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.frames import to_square as pillow_square
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.errors import BadInput
from lrc_jepa.export import writing
from lrc_jepa.export.graphs import compact, graphs, write_graph
from lrc_jepa.export.vectors import golden_vectors
from lrc_jepa.files import file_digest
from lrc_jepa.models import build_model
from lrc_jepa.plan import icem as torch_icem
from lrc_jepa.plan.change import ChangeLimit
from lrc_jepa.plan.policy import Policy as TorchPolicy
from lrc_jepa.plan.problem import Problem, episode_generators
from lrc_jepa.plan.search import Search
from lrc_jepa.recipes import get_recipe
from lrc_jepa.run import Run
from lrc_jepa.runtime import Exported, Policy
from lrc_jepa.runtime.box import Box
from lrc_jepa.runtime.frames import to_square
from lrc_jepa.runtime.search import coloured, icem

CONFIG = PlanConfig(planner="icem", samples=40, iterations=5, elites=6, horizon=3, std=1.5)


PAGE = Path(__file__).parents[1] / "docs" / "export.md"


@pytest.fixture(scope="module")
def place(run, tmp_path_factory):
    """A folder as the page assumes it, every command of the page typed there, and what each said."""
    where = tmp_path_factory.mktemp("page")
    shutil.copytree(run, where / "runs" / "first")
    typed = [line for line in blocks(PAGE, "bash")[0].splitlines() if line]
    said, traced = [], where / "traced"
    traced.mkdir()

    def write_once(graph, into):
        """Tracing takes seconds, and int8 starts from the same graphs."""
        if not (traced / graph.file).exists():
            write_graph(graph, traced)
        shutil.copy(traced / graph.file, into)

    with contextlib.chdir(where), pytest.MonkeyPatch.context() as patched:
        patched.setattr(writing, "write_graph", write_once)
        for line in typed:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                assert cli.run([*shlex.split(line.replace("100", "3"))[1:], "--json"]) == 0
            said.append(json.loads(out.getvalue()))
    return where, said


@pytest.fixture(scope="module")
def folder(place):
    return place[0] / "runs" / "first" / "onnx"


def test_it_says_files_bytes_difference_and_what_it_reached(place, folder):
    made, checked, small = place[1]
    files = {"encoder.onnx", "predictor.onnx", "decoder.onnx", "golden.npz", "export.json"}
    assert set(made["files"]) == files == {path.name for path in folder.iterdir()}
    assert {**made, "bytes": checked["bytes"]} == {**checked, "success": made["success"]}
    assert checked["max_abs_diff"] <= checked["tolerance"] == 1e-4
    assert checked["bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    answers = {"seen", "z", "u", "picture", "first_imagined", "full_imagined"}
    assert set(checked["vectors"]) == answers and max(checked["vectors"].values()) == checked["max_abs_diff"]
    kept = json.loads((folder / "export.json").read_text())["success"]
    assert kept == made["success"] and kept["pairs"] == 3 and kept["seconds_per_plan"]["exported"] > 0
    assert small["precision"] == "int8" and 1e-4 < small["max_abs_diff"] < small["tolerance"]


def test_the_page_s_python_runs(place, monkeypatch):
    monkeypatch.chdir(place[0])
    names: dict = {}
    for block in blocks(PAGE, "python"):
        exec(compile(block, PAGE.name, "exec"), names)
    assert names["action"].shape == (2,) and names["picture"].shape == (1, 32, 32, 3)


def test_no_graph_tells_where_it_was_made(folder):
    for path in folder.glob("*.onnx"):
        assert str(Path(lrc_jepa.__file__).parent).encode() not in path.read_bytes(), path


ALONE = """
import sys
from importlib.abc import MetaPathFinder

class Only(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("numpy", "onnxruntime", "lrc_jepa"):
            raise ModuleNotFoundError(f"{name} is not here", name=top)

sys.meta_path.insert(0, Only())
import numpy as np
from lrc_jepa import runtime
from lrc_jepa.runtime.__main__ import main
assert main([sys.argv[1]]) == 0
policy = runtime.Policy(runtime.load(sys.argv[1], threads=1))
with np.load(sys.argv[1] + "/golden.npz") as golden:
    frames = golden["frames"]
policy.reset(frames[0])
acted = [policy.act(frames[1]) for _ in range(7)]
np.save(sys.argv[2], np.stack(acted))
"""


def test_it_checks_and_acts_with_numpy_and_onnxruntime_alone(folder, tmp_path):
    """Every other package is refused, torch among them; the plans are those of a process that has it."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE, folder, tmp_path / "acted.npy"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["max_abs_diff"] <= 1e-4
    policy = Policy(Exported(folder, threads=1))
    frames = np.load(folder / "golden.npz")["frames"]
    policy.reset(frames[0])
    assert np.allclose(np.load(tmp_path / "acted.npy"), [policy.act(frames[1]) for _ in range(7)], atol=1e-5)


def noises(shape):
    """The same noise for both searches: count -> (B, count, H, A), drawn afresh at each call."""

    def make():
        rng = np.random.default_rng(3)
        return lambda count: rng.standard_normal((shape[0], count, *shape[1:]), np.float32)

    return make


@pytest.mark.parametrize("change", [None, [0.4, 0.3]])
@pytest.mark.parametrize("warm", [False, True])
def test_the_same_noise_finds_the_plan_that_torch_finds(monkeypatch, change, warm):
    """Colour, clamping, elites, momentum, the shrinking population, warm starts and infinite costs."""
    mean, std = [0.1, -0.2], [0.5, 2.0]
    known = {"low": [-0.5, -1.0], "high": [0.6, 1.0], "mean": mean, "std": std}
    ours = Box.of({**known, **({"change": change} if change else {})}, 2)
    theirs = dataclasses.replace(
        unit_box(),
        low=torch.from_numpy(ours.normalize(ours.low)),
        high=torch.from_numpy(ours.normalize(ours.high)),
        change=change and ChangeLimit(torch.tensor(change), *(torch.tensor(x * 2) for x in (mean, std))),
    )
    target = np.random.default_rng(0).standard_normal((2, 1, 3, 4)).astype(np.float32)

    def cost(plans, lib):
        """Bumpy, and not a number in a corner."""
        far = ((plans - lib.asarray(target)) ** 2).sum((2, 3)) + lib.sin(4 * plans).sum((2, 3))
        return lib.where(plans[:, :, 0, 0] > 0.9, lib.asarray(np.float32(np.nan)), far)

    start = np.random.default_rng(1).standard_normal((2, 4, 3, 4)).astype(np.float32) if warm else None
    sent = np.random.default_rng(2).standard_normal((2, 4)).astype(np.float32)
    make = noises((2, 3, 4))
    drawn = make()
    monkeypatch.setattr(Search, "noise", lambda self, count: torch.from_numpy(drawn(count)))
    problem = Problem(
        lambda plans: cost(plans, torch),
        theirs.after(torch.from_numpy(sent[:, None])),
        CONFIG,
        episode_generators(0, [0, 1]),
        start if start is None else torch.from_numpy(start),
    )
    wanted = torch_icem.icem(problem)
    begin = np.zeros((2, 1, 3, 4), np.float32) if start is None else start
    found = icem(lambda plans: cost(plans, np), ours, CONFIG, make(), begin, sent)
    assert np.allclose(found.actions, wanted.actions, atol=1e-5)
    assert np.allclose(found.elites, wanted.elites, atol=1e-5)
    assert np.allclose(found.best_cost, wanted.best_cost, atol=1e-4) and found.complete


def test_noise_is_coloured_as_torch_colours_it():
    white = np.random.default_rng(0).standard_normal((1, 4, 5, 10)).astype(np.float32)
    wanted = torch_icem.coloured(torch.from_numpy(white), unit_box(10, 5), 2.0)
    assert np.allclose(coloured(white, 5, 2.0), wanted, atol=1e-5)


def test_a_time_budget_ends_the_search_with_a_plan():
    box = Box.of({"low": [-1], "high": [1], "mean": [0], "std": [1]}, 1)
    config = dataclasses.replace(CONFIG, iterations=10_000, time_budget_ms=20, samples=12)
    rng = np.random.default_rng(0)
    start = np.zeros((1, 1, 2, 1), np.float32)
    found = icem(
        lambda plans: np.square(plans - 0.5).sum((2, 3)),
        box,
        config,
        lambda count: rng.standard_normal((1, count, 2, 1), np.float32),
        start,
    )
    assert not found.complete and np.isfinite(found.actions).all()


@pytest.mark.parametrize("crop", ["centre", "pad", "squash"])
@pytest.mark.parametrize("shape", [(48, 80), (33, 20), (7, 5), (64, 32), (97, 101), (32, 90), (90, 20)])
def test_frames_are_cut_and_scaled_to_the_bit_as_pillow_does(crop, shape):
    frame = np.random.default_rng(sum(shape)).integers(0, 256, (*shape, 3), np.uint8)
    assert np.array_equal(to_square(frame, 32, crop), pillow_square(frame, 32, crop))


class Walking(Exported):
    """The world of the planning tests in place of graphs."""

    def __init__(self, deployment, config, model):
        self.model, self.shape = model, dataclasses.replace(model.spec)
        known = {
            "plan": config,
            "rows": 7,
            "deployment": {"crop": "centre"},
            "proprio": "",
            "proprio_width": 0,
            "files": {"proposer.onnx": ""} if isinstance(model, Guided) else {},
        }
        self.metadata = type("Known", (), known)
        change = deployment.action_change
        lists = {
            "low": deployment.action_low,
            "high": deployment.action_high,
            "mean": deployment.normalizer.mean,
            "std": deployment.normalizer.std,
        }
        self.box = Box.of({**lists, **({"change": change} if change else {})}, model.spec.frameskip)

    def encode(self, frames, proprio=None):
        seen = torch.from_numpy(np.moveaxis(self.see(frames), -1, 1).copy())
        return self.model.encode(seen[:, None])[:, 0, 0].numpy()

    def step(self, past, actions):
        moved = self.model.step(torch.from_numpy(past)[:, :, None], torch.from_numpy(actions))
        return moved[:, 0].numpy()

    def propose(self, state, goal, left):
        return self.model.propose(
            torch.from_numpy(state)[:, None], torch.from_numpy(goal)[:, None], left
        ).numpy()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cost": "sum", "action_penalty": 0.1},
        {"execute": 1, "warm_start": True},
        {"execute": 1, "warm_start": True, "deadline": True},
        {"execute": 1, "proposals": False},
    ],
)
@pytest.mark.parametrize("limit", [None, [0.3, 0.2]])
@pytest.mark.parametrize("model", [Walk(), Guided()])
def test_the_policy_acts_as_torch_s_does(monkeypatch, changes, limit, model):
    """The same noise, frame by frame: history, agenda, replanning, units and limits."""
    config = dataclasses.replace(SMALL, planner="icem", **changes)
    normalizer = ActionNormalizer(np.float32([0.1, -0.2]), np.float32([0.5, 2.0]))
    deployment = Deployment(model.spec, normalizer, [-0.5, -1.0], [0.6, 1.0], action_change=limit)
    theirs, ours = TorchPolicy(model, deployment, config), Policy(Walking(deployment, config, model))
    make = noises((2, config.horizon, 4))
    drawn, again = make(), make()
    monkeypatch.setattr(
        Search, "noise", lambda self, count: torch.from_numpy(drawn(count)[:, :, : self.config.horizon])
    )

    def same_noise(cost, box, config, _, start, sent):
        return icem(cost, box, config, lambda count: again(count)[:, :, : start.shape[2]], start, sent)

    monkeypatch.setattr("lrc_jepa.runtime.policy.icem", same_noise)
    goals, frames = np.zeros((2, 8, 8, 3), np.uint8), np.zeros((9, 2, 8, 8, 3), np.uint8)
    goals[0, ..., :2], goals[1, ..., 0], frames[..., :2] = 9, 3, np.arange(36).reshape(9, 2, 1, 1, 2) % 7
    past, actions = frames[:2].swapaxes(0, 1), np.full((2, 4, 2), 0.2, np.float32)
    for policy in (theirs, ours):
        policy.reset(goals, past, actions)
    for frame in frames:
        wanted, found = theirs.act(frame), ours.act(frame)
        assert found.dtype == np.float32 and np.allclose(found, wanted, atol=2e-5)
        assert ours.looks == theirs.looks and ours.decided == theirs.decided


def test_what_the_policy_cannot_act_on_is_refused(folder):
    policy = Policy(Exported(folder))
    frame = np.zeros((32, 32, 3), np.uint8)
    for given, match in ((None, "reset with a goal"), (frame.astype(float), "uint8")):
        with pytest.raises(BadInput, match=match):
            policy.act(frame) if given is None else policy.reset(given)
    policy.reset(frame)
    with pytest.raises(BadInput, match="2 frames do not fit 1 goals"):
        policy.act(np.stack([frame] * 2))
    assert policy.act(frame).shape == (2,)


def test_a_folder_that_is_not_as_it_was_is_refused(folder, tmp_path, capsys):
    code, out, _ = lrc("export", "--check", folder, "--json", capsys=capsys)
    assert code == 0 and json.loads(out)["tolerance"] == 1e-4
    broken = shutil.copytree(folder, tmp_path / "broken")
    meta = json.loads((broken / "export.json").read_text())
    with np.load(broken / "golden.npz") as file:
        vectors = {**file, "z": file["z"] + 0.01}
    np.savez(broken / "golden.npz", **vectors)
    refused("export", "--check", broken, capsys=capsys, match="golden.npz is not the file that was exported")
    meta["files"]["golden.npz"] = file_digest(broken / "golden.npz")
    (broken / "export.json").write_text(json.dumps(meta))
    refused("export", "--check", broken, capsys=capsys, match="z differs from its golden vector by 0.01")
    (broken / "export.json").write_text(json.dumps({**meta, "format": 9}))
    refused("export", "--check", broken, capsys=capsys, match="has format 9, not 1")
    del meta["shape"]
    (broken / "export.json").write_text(json.dumps(meta))
    refused("export", "--check", broken, capsys=capsys, match="not one of an exported model")
    refused("export", "--check", tmp_path, capsys=capsys, match="has no export.json")


def test_what_cannot_be_exported_is_refused(run, folder, capsys):
    refused("export", run, "--out", folder, capsys=capsys, match="already exists")
    patches = build_model(get_recipe("tworoom-dino-wm-debug"))
    with pytest.raises(BadInput, match="only systems with one vector a frame can be exported"):
        compact(patches)


def test_every_compact_system_has_graphs_that_answer_as_it_does(run):
    """In torch alone, which is quick; `make torture` writes each of them as ONNX."""
    known = Run(run).checkpoint.deployment
    for system in ("lrc", "lrc-z", "lwm", "pldm", "eb-jepa", "lwm+points+proposals"):
        model = compact(build_model(get_recipe(f"tworoom-{system}-debug")).eval())
        deployment = dataclasses.replace(known, spec=model.spec)
        vectors = golden_vectors(model, deployment)
        listed = {graph.file: graph for graph in graphs(model, vectors["u"].shape[1])}
        assert ("decoder.onnx" in listed) == (model.decoder is not None) == ("picture" in vectors)
        assert ("proposer.onnx" in listed) == (model.proposer is not None) == ("proposed" in vectors)
        z = model.encode(torch.from_numpy(np.moveaxis(vectors["frames"], -1, 1))[:, None])[:, 0, 0]
        assert np.allclose(vectors["z"], z.detach(), atol=1e-6)
