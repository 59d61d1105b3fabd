"""Several datasets in one run: an action adapter for each, chosen by its name, from training to acting."""

import json
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from conftest import DEBUG
from conftest import make_store as make_tworoom
from safetensors.torch import load_file
from test_cli import lrc, refused
from training import CPU, in_processes

from lrc_jepa.commands import train as train_command
from lrc_jepa.data.datasets import Datasets
from lrc_jepa.data.synthetic import synthetic_store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import digest
from lrc_jepa.library import fit_widths, train
from lrc_jepa.models import build_model
from lrc_jepa.recipes import get_recipe
from lrc_jepa.run import Run, load
from lrc_jepa.training.assemble import assemble
from lrc_jepa.training.checkpoint import list_checkpoints, load_checkpoint
from lrc_jepa.training.feed import Feed
from lrc_jepa.training.log import read_metrics
from lrc_jepa.training.loop import fit

WORDS = ("--train.steps", 4, "--train.save-every", 2, "--train.batch-size", 12, "--device", "cpu")


def small(system="lrc", **train):
    """A debug run for any robot, without dropout, so that several processes can match one."""
    config = get_recipe(f"robot-{system}-debug")
    predictor = replace(config.model.predictor, dropout=0.0)
    known = {"batch_size": 12, "steps": 4, **train}
    return replace(
        config, model=replace(config.model, predictor=predictor), train=replace(config.train, **known)
    )


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """One with two actions and one with three, which are larger by far."""
    home = tmp_path_factory.mktemp("data")
    pair = synthetic_store(home / "pair", episodes=6, length=40, size=32)
    triple = synthetic_store(home / "triple", episodes=5, length=44, size=32, action_dim=3)
    scaled = np.load(triple.path / "action.npy") * 50 + 7
    np.save(triple.path / "action.npy", scaled.astype(np.float32))
    described = json.loads((triple.path / "meta.json").read_text())
    described |= {"action_low": [-43.0] * 3, "action_high": [57.0] * 3}
    (triple.path / "meta.json").write_text(json.dumps(described))
    return [pair.path, triple.path]


@pytest.fixture(scope="module")
def joint(datasets, tmp_path_factory):
    """A run on both, trained from the command line."""
    out = tmp_path_factory.mktemp("runs") / "joint"
    words = ("--data", *datasets, "robot-lrc-debug", *WORDS, "--out", out)
    train_command.main([*map(str, words)])
    return out


def pieces_of(config, datasets, run="unused"):
    data = Datasets.of(datasets)
    return assemble(fit_widths(config, data), data, run, CPU)


# --- batches -----------------------------------------------------------------------------------


def test_a_batch_holds_clips_of_both_each_with_its_own_normalisation(datasets):
    pieces = pieces_of(small(), datasets)
    feed = Feed(pieces.clips, pieces.config.train, CPU)
    ids, clip = feed.ids(0), feed.read(0)
    first = len(pieces.clips.parts[0])
    assert clip.sources.tolist() == [int(number >= first) for number in ids] and set(
        clip.sources.tolist()
    ) == {0, 1}
    skip = pieces.config.clip.frameskip
    assert clip.actions.shape[2] == 3 * skip and not clip.actions[clip.sources == 0][..., 2 * skip :].any()
    for row, number in enumerate(ids):
        source = int(clip.sources[row])
        part, own = pieces.clips.parts[source], number - source * first
        wanted = part.gather(np.array([own]))
        assert torch.equal(clip.frames[row], wanted.frames[0])
        assert torch.equal(clip.actions[row, :, : wanted.actions.shape[2]], wanted.actions[0])
        assert int(clip.episodes[row]) == int(wanted.episodes[0]) + 6 * source
    assert clip.actions[clip.sources == 1].abs().max() < 4  # raw ones reach 57
    seen = np.concatenate([feed.order.ids(step) for step in range(feed.order.per_epoch)])
    assert len(set(seen)) == len(seen) > 0.9 * len(pieces.clips)


# --- the model ---------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["lrc", "lwm", "lrc+split", "lwm+within", "pldm", "eb-jepa"])
def test_each_clip_is_seen_through_its_own_adapter(system, datasets):
    """What the joint model makes of a batch is what the model of each dataset alone makes of its clips."""
    config = small(system, batch_size=12)
    pieces = pieces_of(config, datasets)
    clip = Feed(pieces.clips, pieces.config.train, CPU).read(0)
    model = pieces.model.eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():  # a fresh predictor does not look at actions yet
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.3)
        together = model.outputs(clip)
        for source, (name, part) in enumerate(zip(("pair", "triple"), pieces.clips.parts, strict=True)):
            mine = clip.sources == source
            alone = model.alone(name)
            width = part.block_width
            assert alone.spec == pieces.deployments[name].spec and alone.spec.action_dim == width
            own = clip.map(lambda x, mine=mine: x[mine])
            own = replace(own, actions=own.actions[..., :width], sources=None)
            apart = alone.outputs(own)
            assert torch.allclose(together.z_pred[mine], apart.z_pred, atol=1e-5)
            if apart.action_pred is not None:
                assert torch.allclose(together.action_pred[mine][..., :width], apart.action_pred, atol=1e-5)
                assert not together.action_pred[mine][..., width:].any()
        swapped = model.outputs(replace(clip, sources=1 - clip.sources))
    assert not torch.allclose(swapped.z_pred, together.z_pred, atol=1e-3)


def test_each_dataset_finds_its_own_adapter_again_in_whatever_order_they_were_given(datasets, tmp_path):
    """Files hold tables by the order of names: a run whose adapters had another would read one robot's for the other's."""
    pieces = pieces_of(small(steps=2), [f"robot={datasets[0]}", f"arm={datasets[0]}"], tmp_path / "r")
    trained, loaded = pieces.model, load_checkpoint(fit(pieces)).model
    for name in ("robot", "arm"):
        ours, theirs = (model.adapters.named(name).state_dict() for model in (trained, loaded))
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_systems_of_many_vectors_are_refused(datasets, tmp_path, capsys):
    refused(
        "train", "robot-c-jepa-debug", "--model.backbone", "random:0", "--data", *datasets, "--out", tmp_path / "r",
        capsys=capsys, match="c-jepa[random] is trained on one dataset at a time",
    )  # fmt: skip


def test_one_dataset_is_what_it_always_was(datasets):
    """No adapter, no other name of a tensor, no other hash."""
    config = small()
    pieces = pieces_of(replace(config, action_dim=2), [datasets[0]])
    assert pieces.config == replace(config, action_dim=2) and pieces.model.adapters is None
    plain = build_model(replace(config, action_dim=2))
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), pieces.model.parameters(), strict=True))
    assert list(plain.state_dict()) == list(pieces.model.state_dict())
    assert Feed(pieces.clips, config.train, CPU).read(0).sources is None
    before = {name: value for name, value in asdict(DEBUG).items() if name != "adapters"}
    younger = {"clip": ["episodes"], "model": ["retold", "proposer"], "plan": ["deadline", "proposals"]}
    for section, names in younger.items():
        for name in names:
            del before[section][name]
    assert DEBUG.digest() == digest(before)


# --- exactly -----------------------------------------------------------------------------------


def test_resuming_gives_the_same_weights(joint, datasets, tmp_path, capsys):
    cut = shutil.copytree(joint, tmp_path / "cut")
    shutil.rmtree(list_checkpoints(cut)[-1])
    code, _, err = lrc(
        "train", "robot-lrc-debug", *WORDS, "--resume", "--out", cut, capsys=capsys
    )  # the data are known
    assert code == 0, err
    first, second = (load_file(list_checkpoints(run)[-1] / "model.safetensors") for run in (joint, cut))
    assert all(torch.equal(first[name], second[name]) for name in first)
    refused(
        "train", "robot-lrc-debug", *WORDS, "--resume", "--data", datasets[0], "--out", cut,
        capsys=capsys, match="another configuration",
    )  # fmt: skip


def trained_on(datasets, run):
    fit(pieces_of(small(), datasets, run))


def losses(run):
    return [row["total"] for row in read_metrics(run / "metrics.jsonl") if row["kind"] == "train"]


def test_two_processes_take_the_steps_of_one(datasets, tmp_path):
    """Sorted clips of one dataset lie side by side: a process may have none of the other's."""
    trained_on(datasets, tmp_path / "one")
    in_processes(2, trained_on, datasets, tmp_path / "two", meeting=tmp_path / "meeting")
    assert np.allclose(losses(tmp_path / "one"), losses(tmp_path / "two"), rtol=1e-4)


# --- acting ------------------------------------------------------------------------------------


def test_a_run_acts_for_the_robot_that_is_named(joint):
    frame = np.zeros((32, 32, 3), np.uint8)
    for name, width, low, high in (("pair", 2, -1, 1), ("triple", 3, -43, 57)):
        run = load(joint, device="cpu", adapter=name)
        policy = run.policy(replace(run.config.plan, samples=8, iterations=1, elites=2))
        policy.reset(frame)
        action = policy.act(frame)
        assert action.shape == (width,) and (action >= low).all() and (action <= high).all()
        assert run.data.name == name and run.store.action.shape[1] == width
    by_data = Run(joint, data=run.data, device="cpu")
    assert by_data.adapter == "triple" and by_data.checkpoint.deployment.spec.raw_action_dim == 3


def test_which_one_must_be_said_and_known(joint, capsys):
    with pytest.raises(
        BadInput, match="trained on several datasets: say with --adapter whose actions are meant, pair"
    ):
        load(joint, device="cpu")
    for command in ("imagine", "export", "serve"):
        refused(
            command, joint, "--adapter", "none", capsys=capsys, match="called 'none'; it has pair, triple"
        )


def test_the_adapter_that_is_named_is_exported(joint, tmp_path, capsys):
    words = ("--adapter", "triple", "--out", tmp_path / "onnx", "--json")
    code, out, err = lrc("export", joint, *words, capsys=capsys)
    assert code == 0 and json.loads(out)["max_abs_diff"] < 1e-4, err
    described = json.loads((tmp_path / "onnx" / "export.json").read_text())
    assert described["deployment"]["action_high"] == [57.0] * 3


def test_evaluations_take_the_adapter(tmp_path, capsys):
    """Two datasets of one world: planning in the simulator, and driving, as the one that is named."""
    first, second = (
        make_tworoom(tmp_path / name, kind=kind) for name, kind in (("clean", "clean"), ("looks", "varied"))
    )
    run = train(
        replace(DEBUG, train=replace(DEBUG.train, steps=2)), [first, second], tmp_path / "run", device="cpu"
    )
    values = {"samples": 8, "elites": 2, "iterations": 1, "budget": 5}
    search = [word for name, value in values.items() for word in (f"--{name}", value)]
    driven = [word for name, value in values.items() for word in (f"--plan.{name}", value)]
    for words in (("--adapter", "looks"), ("--data", second.path)):
        code, out, err = lrc(
            "plan", run.folder, *words, *search, "--pairs", 2, "--films", 0, "--json", capsys=capsys
        )
        assert code == 0, err
    rows = Run(run.folder, adapter="looks").rows("control")
    assert {row["data_hash"] for row in rows} == {second.digest()} and {
        row["appearance"] for row in rows
    } == {"varied"}
    code, out, err = lrc(
        "drive",
        run.folder,
        "--adapter",
        "looks",
        *driven,
        "--pairs",
        1,
        "--rate",
        20,
        "--json",
        capsys=capsys,
    )
    assert code == 0 and json.loads(out)["pairs"] == 1, err
    refused(
        "plan", run.folder, capsys=capsys, match="say with --adapter whose actions are meant, clean, looks"
    )


# --- starting from a trained model --------------------------------------------------------------


def test_a_new_dataset_gets_a_fresh_adapter(joint, datasets, tmp_path):
    other = shutil.copytree(datasets[1], tmp_path / "arm")
    pieces = assemble(fit_widths(small(), Datasets.of(other)), Datasets.of(other), tmp_path / "r", CPU, joint)
    initial = pieces.initial
    assert initial.adapters == ["arm"] and "new: the action adapter of arm" in initial.sentences()
    assert {name.partition(".")[0] for name in initial.new} == {"action_encoder"}
    assert {name.partition(".")[0] for name in initial.unused} == {"adapters"}
    fresh = build_model(pieces.config).state_dict()
    assert torch.equal(pieces.model.state_dict()["action_encoder.0.weight"], fresh["action_encoder.0.weight"])


def test_a_known_name_gets_the_adapter_it_had(joint, datasets, tmp_path):
    """From several to one, by the name given; and from one to several."""
    given = load_checkpoint(list_checkpoints(joint)[-1]).alone("triple").model.state_dict()
    data = Datasets.of(f"triple={shutil.copytree(datasets[1], tmp_path / 'later')}")
    pieces = assemble(fit_widths(small(), data), data, tmp_path / "r", CPU, joint)
    assert pieces.initial.adapters == [] and pieces.initial.new == []
    assert all(torch.equal(value, given[name]) for name, value in pieces.model.state_dict().items())
    one = train(small(steps=1), data, tmp_path / "one", init=joint, device="cpu")
    both = Datasets.of([datasets[0], data.stores["triple"]])
    assert list(both.stores) == ["later", "pair"]
    named = Datasets.of([datasets[0], f"triple={tmp_path / 'later'}"])
    wider = assemble(fit_widths(small(), named), named, tmp_path / "w", CPU, one.folder)
    assert wider.initial.adapters == ["pair"]
    wanted = one.model.state_dict()["action_encoder.0.weight"]
    assert torch.equal(wider.model.alone("triple").state_dict()["action_encoder.0.weight"], wanted)


def test_two_of_one_name_are_refused(datasets, tmp_path):
    twin = shutil.copytree(datasets[0], tmp_path / "pair")
    with pytest.raises(BadInput, match="two datasets are called pair"):
        Datasets.of([datasets[0], twin])
