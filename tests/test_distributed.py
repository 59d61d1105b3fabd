"""Several processes must take the steps of one: gradients, trajectories, resuming, stopping."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist
from calls import at_call
from safetensors.torch import load_file
from torch import nn
from training import CPU, in_processes, make_store, pieces_of, small_run, with_deaths

from lrc_jepa.collective import all_rows, alone, rank, total, world_size
from lrc_jepa.config import SigRegConfig
from lrc_jepa.data.batches import Batches, shard
from lrc_jepa.errors import BadInput
from lrc_jepa.models.blocks import BatchNorm
from lrc_jepa.models.filters import SIDE, Filters
from lrc_jepa.objectives.sigreg import directions, sigreg
from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.objectives.vicreg import covariance_penalty, variance_hinge
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training import checkpoint, loop, saving
from lrc_jepa.training.checkpoint import list_checkpoints, load_checkpoint
from lrc_jepa.training.distributed import check_shares, spread
from lrc_jepa.training.feed import Feed
from lrc_jepa.training.loop import fit
from lrc_jepa.training.network import Network

BATCH = 12
WORLDS = (2, 3)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "dots").path


def mine(batch):
    """This process's share of a batch."""
    return batch.chunk(world_size())[rank()]


def averaged(gradients):
    """What DDP makes of the gradients of all processes."""
    if world_size() > 1:
        dist.all_reduce(gradients)
        gradients /= world_size()
    return gradients


# --- the whole model, term by term ------------------------------------------------------------


SLOTS = ("features", "masked", "consistency")  # terms that only a model of slots has


def term_config(term):
    """LRC-JEPA with everything that a term could ask of it, or C-JEPA, under one term."""
    base = small_run()
    if term in SLOTS:
        slots = get_recipe("tworoom-c-jepa-debug")
        predictor = replace(slots.model.predictor, dropout=0.0)
        return replace(
            slots,
            model=replace(slots.model, predictor=predictor),
            objective=replace(slots.objective, weights={term: 1.0}),
            train=base.train,
        )
    recipe = get_recipe("tworoom-lrc+idm-debug")
    return replace(
        base,
        clip=replace(base.clip, far=True),
        model=replace(base.model, inverse=recipe.model.inverse, proposer=16 * (term == "proposal")),
        objective=replace(base.objective, weights={term: 1.0}),
        train=replace(base.train, per_episode=2),
    )


def hide_the_same(model):
    """Hidden slots that depend on the clip's place in the batch of all processes, not on the process."""
    draw = model._hide

    def hide(batch):
        torch.manual_seed(3)
        return mine(draw(batch * world_size()))

    model._hide = hide


def draw_the_same(model):
    """Pairs of frames that depend on the clip's place in the batch of all processes, not on the process."""
    draw = model.proposer.pairs

    def pairs(clips, *further):
        torch.manual_seed(3)
        first, left = draw(clips * world_size(), *further)
        return mine(first), mine(left)

    model.proposer.pairs = pairs


def gradients_of_every_term(data):
    """Every term's value, and its gradient in all weights through DDP, in double precision."""
    found = {}
    for term in TERMS:
        pieces = pieces_of(term_config(term), data, "unused")
        if term in SLOTS:
            hide_the_same(pieces.model)
        if term == "proposal":
            draw_the_same(pieces.model)
        pieces.model.double().train()
        network = Network(pieces.model, pieces.objective, pieces.config.train)
        network = spread(network, CPU, parts_left_out=network.may_leave_parts_out())
        clip = Feed(pieces.clips, pieces.config.train, CPU, rank(), world_size()).read(5)
        clip = replace(clip, actions=clip.actions.double())
        terms = network(clip, 5)
        terms["total"].backward()
        parts = {n: p.grad for n, p in pieces.model.named_parameters() if p.grad is not None}
        statistics = {n: b for n, b in pieces.model.named_buffers() if "running" in n}
        found[term] = {n: t.numpy() for n, t in {**parts, **statistics}.items()}
        found[term]["value"] = averaged(terms[term].clone()).numpy()
    return found


@pytest.fixture(scope="module")
def one_process(data, tmp_path_factory):
    meeting = tmp_path_factory.mktemp("one") / "meeting"
    return in_processes(1, gradients_of_every_term, data, meeting=meeting)[0]


@pytest.mark.parametrize("world", WORLDS)
def test_the_gradient_of_every_term_is_that_of_one_process(world, data, one_process, tmp_path):
    for answer in in_processes(world, gradients_of_every_term, data, meeting=tmp_path / "meeting"):
        for term, expected in one_process.items():
            assert answer[term].keys() == expected.keys()
            largest = max(np.linalg.norm(g) for n, g in expected.items() if "running" not in n)
            assert largest > 0
            for name, reference in expected.items():
                error = np.linalg.norm(answer[term][name] - reference)
                # The losses are float32: a gradient that cancels (a bias before a batch norm) is rounding.
                assert error <= 1e-5 * np.linalg.norm(reference) + 1e-7 * largest, (term, name)


def filtered(unused):
    """What filters answer to this process's share of a batch, and the mean picture they remember."""
    pixels = torch.randn(BATCH, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0)).double()
    filters = Filters(3, 2).double()
    return {"answers": filters(mine(pixels)).numpy(), "background": filters.background.numpy()}


@pytest.mark.parametrize("world", WORLDS)
def test_filters_see_the_batch_of_all_processes(world, tmp_path):
    (alone,) = in_processes(1, filtered, None, meeting=tmp_path / "one")
    answers = in_processes(world, filtered, None, meeting=tmp_path / "meeting")
    assert np.allclose(np.concatenate([a["answers"] for a in answers]), alone["answers"], atol=1e-9)
    assert all(np.allclose(a["background"], alone["background"], atol=1e-12) for a in answers)


# --- each shared statistic by itself, with negative controls ----------------------------------


def plain_sum(value):
    """torch's own all_reduce: the right value, but nothing of the other processes flows back."""
    value = value.clone()
    if world_size() > 1:
        dist.all_reduce(value)
    return value


def plain_rows(rows):
    """torch's own all_gather, with this process's rows put back so that some gradient flows."""
    if world_size() == 1:
        return rows
    parts = [torch.empty_like(rows) for _ in range(world_size())]
    dist.all_gather(parts, rows.detach().contiguous())
    parts[rank()] = rows
    return torch.cat(parts)


def sigreg_with(summed, rows):
    """SIGReg by the plain formula over sums of all processes, however those are formed."""
    config = SigRegConfig(projections=12)
    t = torch.linspace(-5, 5, 17, dtype=rows.dtype)
    gaussian = torch.exp(-t.square() / 2)
    x = rows @ directions(rows.shape[1], config, torch.Generator().manual_seed(1)).to(rows)
    angle = x.unsqueeze(-1) * t  # (b, P, 17)
    means = summed(torch.stack([angle.cos().sum(0), angle.sin().sum(0)])) / BATCH
    gap = (means[0] - gaussian).square() + means[1].square()
    return BATCH * torch.trapezoid(gap * gaussian, t, dim=-1).mean()


def normed_with(summed, rows):
    """A function of batch-normalised rows that differs between processes."""
    if summed is total:
        torch.manual_seed(0)
        normed = BatchNorm(rows.shape[1]).double()(rows)
    else:
        mean = summed(rows.sum(0)) / BATCH
        variance = summed((rows - mean).square().sum(0)) / BATCH
        normed = (rows - mean) / (variance + 1e-5).sqrt()
    return (normed.tanh() * torch.linspace(0, 1, rows.shape[1])).square().mean()


def sliced(rows):
    config = SigRegConfig(projections=12)
    return sigreg(rows[:, None, None], config, torch.Generator().manual_seed(1))


STATISTICS = {
    "sigreg": (sliced, lambda rows: sigreg_with(plain_sum, rows), lambda rows: sigreg_with(total, rows)),
    "variance": (
        lambda rows: variance_hinge(rows, 3.0, 1e-4),
        lambda rows: torch.relu(3.0 - (plain_rows(rows).var(0) + 1e-4).sqrt()).mean(),
        lambda rows: torch.relu(3.0 - (all_rows(rows).var(0) + 1e-4).sqrt()).mean(),
    ),
    "covariance": (
        covariance_penalty,
        lambda rows: (
            (
                torch.cov(plain_rows(rows).T).square().sum()
                - torch.cov(plain_rows(rows).T).diag().square().sum()
            )
            / 5
        ),
        lambda rows: (
            (torch.cov(all_rows(rows).T).square().sum() - torch.cov(all_rows(rows).T).diag().square().sum())
            / 5
        ),
    ),
    "batch norm": (
        lambda rows: normed_with(total, rows),
        lambda rows: normed_with(plain_sum, rows),
        lambda rows: normed_with(total, rows),
    ),
}
LOCAL, PLAIN = "local", "plain"


def gradients_of_statistics():
    """For every statistic: value and gradient of ours, of the plain all_reduce, and of local ones."""
    found = {}
    for name, (ours, plain, _) in STATISTICS.items():
        for kind, function in {"ours": ours, PLAIN: plain, LOCAL: ours}.items():
            torch.manual_seed(7)
            rows = torch.randn(BATCH, 5, dtype=torch.float64) * 1.7 + 0.4
            weight = torch.eye(5, dtype=torch.float64).add(0.1).requires_grad_()
            if kind == LOCAL:
                share = mine(rows)
                with alone():
                    value = function(share @ weight)
            else:
                value = function(mine(rows) @ weight)
            value.backward()
            found[name, kind] = averaged(value.detach().clone()).numpy(), averaged(weight.grad).numpy()
    return found


def off(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("world", WORLDS)
def test_shared_statistics_are_exact_and_the_plain_all_reduce_is_not(world, tmp_path):
    torch.set_num_threads(1)
    expected = gradients_of_statistics()
    for answer in in_processes(world, gradients_of_statistics, meeting=tmp_path / "meeting"):
        for name in STATISTICS:
            value, gradient = expected[name, "ours"]
            assert off(answer[name, "ours"][0], value) < 1e-5
            assert off(answer[name, "ours"][1], gradient) < 1e-5
            # The negative controls: the value can be right while the gradient is not.
            assert off(answer[name, PLAIN][0], value) < 1e-5
            assert off(answer[name, PLAIN][1], gradient) > 0.1, f"plain all_reduce passes for {name}"
            assert off(answer[name, LOCAL][1], gradient) > 0.01, f"local statistics pass for {name}"


def test_the_plain_forms_used_as_controls_are_right_in_one_process():
    for name, (ours, plain, global_form) in STATISTICS.items():
        torch.manual_seed(7)
        rows = torch.randn(BATCH, 5, dtype=torch.float64) * 1.7 + 0.4
        assert torch.allclose(ours(rows), plain(rows), rtol=1e-6), name
        assert torch.allclose(ours(rows), global_form(rows), rtol=1e-6), name


def test_batch_norm_alone_is_torchs_own():
    torch.manual_seed(0)
    rows = torch.randn(9, 4)
    ours, theirs = BatchNorm(4), nn.BatchNorm1d(4)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours(rows), theirs(rows))
    assert torch.equal(ours.running_var, theirs.running_var)
    assert torch.equal(ours.eval()(rows), theirs.eval()(rows))


# --- sharing the work -------------------------------------------------------------------------


@pytest.mark.parametrize("world", [1, 2, 3, 4, 6])
def test_shards_make_up_the_batch_of_one_process(world):
    for step in (0, 3, 17):
        whole = Batches(np.arange(100), BATCH, 1).ids(step)
        parts = [shard(whole, number, world) for number in range(world)]
        assert all(len(part) == BATCH // world for part in parts)
        assert np.array_equal(np.concatenate(parts), whole)
        assert len(set(whole.tolist())) == BATCH


@pytest.mark.parametrize(("batch", "world"), [(12, 5), (12, 7), (4, 4)])
def test_a_batch_that_cannot_be_shared_is_refused(batch, world):
    with pytest.raises(BadInput, match="cannot be shared evenly"):
        check_shares(small_run(batch_size=batch).train, world)


def trained(data, run, steps, resume):
    """Train `steps` of 6 steps, as if stopped there by a signal, or to the end."""
    pieces = pieces_of(small_run(steps=6, save_every=2, log_every=2, health_every=3), data, run)

    def watch(progress):
        if progress.step == steps < 6:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        fit(pieces, resume=resume, watch=watch)
    except Exception as stop:  # noqa: BLE001 - the test looks at what it was
        return type(stop).__name__, getattr(stop, "signal_number", 0), str(stop)
    return "done", pieces.steps, ""


def weights(run):
    newest = sorted((run / "checkpoints").glob("[0-9]*"))[-1]
    return load_file(newest / "model.safetensors")


def apart(run, reference, start):
    """Distance of two runs' weights, over how far the reference moved.

    Not entry by entry: Adam makes a step of full size out of the rounding noise of a gradient that
    is truly zero, such as that of an attention's key bias.
    """
    ends = [torch.cat([v.double().flatten() for v in map(x.get, sorted(x))]) for x in (run, reference, start)]
    return float((ends[0] - ends[1]).norm() / (ends[1] - ends[2]).norm())


def test_two_processes_train_as_one_does_and_either_can_resume_the_other(data, tmp_path):
    in_processes(1, trained, data, tmp_path / "one", 6, False, meeting=tmp_path / "m")
    in_processes(2, trained, data, tmp_path / "two", 6, False, meeting=tmp_path / "m")
    start = pieces_of(small_run(), data, "unused").model.state_dict()
    one = weights(tmp_path / "one")
    assert apart(weights(tmp_path / "two"), one, start) < 0.01

    # Stopped on 2 processes at the same step, gone on with on 3, then compared with 1.
    stopped = in_processes(2, trained, data, tmp_path / "moved", 2, False, meeting=tmp_path / "m")
    assert {answer[:2] for answer in stopped} == {("Interrupted", signal.SIGTERM)}
    assert len({answer[2] for answer in stopped}) == 1
    assert "of 6" in stopped[0][2]
    in_processes(3, trained, data, tmp_path / "moved", 6, True, meeting=tmp_path / "m")
    assert apart(weights(tmp_path / "moved"), one, start) < 0.01

    lines = [json.loads(line) for line in (tmp_path / "moved" / "metrics.jsonl").read_text().splitlines()]
    reference = [json.loads(line) for line in (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()]
    steps = [(line["step"], line["kind"]) for line in lines if line["kind"] == "train"]
    assert len(set(steps)) == len(steps)  # rank 0 alone writes, and only once
    assert (lines[-2]["step"], lines[-2]["kind"]) == (6, "train")
    assert lines[-2]["total"] == pytest.approx(reference[-2]["total"], rel=1e-4)


PHASES = {  # where a rank is killed: the rank, the module, the function, and which call of it
    "the first rank before the first step": (0, loop, "start_run", 1),
    "another rank before the first step": (1, loop, "start_run", 1),
    "another rank within a step": (1, loop, "train_step", 4),
    "the first rank within a step": (0, loop, "train_step", 4),
    "the first rank while it examines": (0, loop, "collapse_alarm", 1),
    "the first rank while it saves": (0, checkpoint, "file_digest", 3),
    "the first rank while it prunes": (0, saving, "prune", 2),
    "another rank while the first one saves": (1, loop, "wait_for_all", 1),
}


def trained_until_killed(data, run, phase):
    """Train on 2 processes, one of which is killed on the way -> what the other one says."""
    victim, module, name, number = PHASES[phase]
    if rank() == victim:
        die = partial(os.kill, os.getpid(), signal.SIGKILL)
        setattr(module, name, at_call(getattr(module, name), number, die))
    return trained(data, run, 6, False)


@pytest.fixture(scope="module")
def on_two(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    in_processes(2, trained, data, folder / "run", 6, False, meeting=folder / "m")
    return folder / "run"


@pytest.mark.parametrize("phase", PHASES)
def test_a_rank_that_is_killed_ends_the_run_and_it_resumes_to_the_same_weights(phase, data, on_two, tmp_path):
    run = tmp_path / "run"
    found, codes = with_deaths(2, trained_until_killed, data, run, phase, meeting=tmp_path / "m")
    victim = PHASES[phase][0]
    assert codes[victim] == -signal.SIGKILL
    told = "another process of this run ended, so this one stops; --resume continues"
    assert found[1 - victim] in (("BadInput", 0, told), ("done", 6, ""))
    for path in list_checkpoints(run):
        load_checkpoint(path)
    in_processes(2, trained, data, run, 6, True, meeting=tmp_path / "again")
    assert (
        load_checkpoint(list_checkpoints(run)[-1]).digest
        == load_checkpoint(list_checkpoints(on_two)[-1]).digest
    )
    assert not list(run.rglob("*.partial")) and not list(run.rglob("*.lock"))


def test_the_command_starts_processes_and_gives_one_answer(data, tmp_path):
    arguments = ["train", "tworoom-lrc-debug", "--data", str(data), "--out", str(tmp_path / "run")]
    options = ["--nproc", "2", "--train.steps", "2", "--json"]
    code = "import sys; from lrc_jepa.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["steps"] == 2
    assert (tmp_path / "run" / "checkpoints" / "00000002" / "manifest.json").is_file()
    assert "Traceback" not in done.stderr
