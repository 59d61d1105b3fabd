"""The studio's other parts without a browser: streams, imagination, episodes, runs."""

import json
import shlex
import shutil

import numpy as np
import pytest
import torch
from studio_model import LIMIT, ask, page, served, true_run

from lrc_jepa import cli
from lrc_jepa.bench import studio as studio_bench
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.surprise import surprise
from lrc_jepa.files import write_bytes
from lrc_jepa.lines import to_line
from lrc_jepa.models.attention import attention_maps
from lrc_jepa.models.blocks import MultiHeadAttention
from lrc_jepa.run import Run, load
from lrc_jepa.studio.contents import Collection, Contents, Validation, open_all
from lrc_jepa.studio.messages import read_picture, to_text
from lrc_jepa.studio.opened import Directions, Opened
from lrc_jepa.studio.runs import Metrics, Runs
from lrc_jepa.studio.session import Session
from lrc_jepa.training.log import MetricsLog


@pytest.fixture(scope="module")
def place(run, varied, tmp_path_factory):
    """The true model on episodes that differ in colour, in a folder that may be written beside."""
    data = shutil.copytree(varied.path, tmp_path_factory.mktemp("sets") / "varied")
    with served(true_run(run, data)) as (studio, address):
        yield studio, address


def answers(part, word, **fields):
    return list(part.answer(word, fields))


def tiles(film):
    """The pictures of a sheet."""
    sheet = read_picture(film["sheet"])
    return np.split(sheet, film["frames"], axis=1)


def dot(frame):
    """Where a frame is reddest, beyond what is usual in it, as shares."""
    score = frame[..., 0].astype(int) - frame[..., 1:].max(axis=2)
    y, x = np.unravel_index(score.argmax(), score.shape)
    return np.array([(x + 0.5) / frame.shape[1], (y + 0.5) / frame.shape[0]])


# --- streams ---------------------------------------------------------------------------------------


def test_z_of_one_frame_and_u_of_the_other_are_drawn_together(place):
    """The true model's z is where the dot is, its u the colour: so the mixed pictures say who gave what."""
    with page(place[1]) as socket:
        told = ask(socket, "streams.open", "streams.walk")
        frames = {a["side"]: read_picture(a["picture"]) for a in told if a["tell"] == "streams.frame"}
        aa, ab, ba, bb = tiles(next(a for a in told if a["tell"] == "streams.mixed")["film"])
        for mixed, z, u in ((aa, "a", "a"), (ab, "a", "b"), (ba, "b", "a"), (bb, "b", "b")):
            assert np.allclose(dot(mixed), dot(frames[z]), atol=0.06)
            background = np.median(frames[u].reshape(-1, 3), axis=0)
            assert np.allclose(np.median(mixed.reshape(-1, 3), axis=0), background, atol=3)
        swapped = ask(socket, "streams.swap", "streams.mixed")[-1]
        assert all(
            np.array_equal(x, y) for x, y in zip(tiles(swapped["film"]), (bb, ba, ab, aa), strict=True)
        )


def test_readings_come_with_the_truth_and_their_error(place):
    with page(place[1]) as socket:
        told = ask(socket, "streams.open", "streams.walk")
        frame = next(a for a in told if a["tell"] == "streams.knows")
        truth = np.array(frame["truth"]["agent_position"])
        z, u = (frame["readings"][stream]["agent_position"] for stream in ("z", "u"))
        assert np.linalg.norm(np.array(z["value"][0]) - truth) < 4 * z["error"] + 1
        assert z["error"] < 0.2 * u["error"] and z["r2"] > 0.95 > 0.5 > u["r2"]  # the colour says nothing


def test_a_walk_moves_what_the_stream_holds_and_nothing_else(place):
    with page(place[1]) as socket:
        told = ask(socket, "streams.open", "streams.walk")[-1]
        drawn = tiles(told["film"])
        read = np.array(told["readings"]["z"]["agent_position"]["value"])
        assert len(drawn) == len(read) == len(told["along"]) == 11
        assert np.linalg.norm(dot(drawn[0]) - dot(drawn[-1])) > 0.3  # the dot goes
        step = np.diff(read, axis=0)
        assert np.allclose(step, step[0], atol=1e-2 * np.abs(step).max())  # a straight line, read linearly
        colours = [np.median(one.reshape(-1, 3), axis=0) for one in drawn]
        assert np.ptp(colours, axis=0).max() <= 3  # and the background stays
        other = ask(socket, "streams.walk", "streams.walk", side="b", stream="u", component=0)[-1]
        colours = [np.median(one.reshape(-1, 3), axis=0) for one in tiles(other["film"])]
        assert np.ptp(colours, axis=0).max() > 30
        for wrong, sentence in ((99, "directions to walk"), (-1, "component must be")):
            assert sentence in ask(socket, "streams.walk", "refused", component=wrong)[-1]["sentence"]


def test_directions_are_the_principal_ones():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(500, 1, 3)) * (5.0, 0.5, 2.0)
    found = Directions.of(values)
    assert np.allclose(np.abs(found.vectors), np.eye(3)[[0, 2, 1]], atol=0.1)
    assert np.allclose(found.spread, (5.0, 2.0, 0.5), rtol=0.15)
    assert np.isclose(found.share.sum(), 1, atol=1e-4)


def test_attention_weights_are_those_that_the_model_weighs_with(run):
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 2)
    query, context = torch.randn(3, 2, 8), torch.randn(3, 5, 8)
    weights = attention.weights(query, context)  # (3, 2, 2, 5)
    values = attention.v(context).unflatten(-1, (2, 4)).transpose(1, 2)
    by_hand = attention.out((weights @ values).transpose(1, 2).flatten(2))
    assert torch.allclose(by_hand, attention(query, context), atol=1e-5)
    model = load(run).model
    maps = attention_maps(model, torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8))
    assert list(maps) == ["z 1", "u 1", "u 2"]
    assert all(
        m.shape == (2, 4, 4) and 0 < m.sum(dim=(1, 2)).min() <= m.sum(dim=(1, 2)).max() <= 1
        for m in maps.values()
    )
    assert not any(module._forward_pre_hooks for module in model.modules())  # nothing is left behind


# --- imagination -----------------------------------------------------------------------------------


def test_what_is_imagined_is_compared_with_what_the_world_did(place):
    """Where there are no walls the true model is right: it imagines what the hidden world does."""
    with page(place[1]) as socket:
        ready = ask(socket, "imagine.open", "imagine.begun")
        assert ready[0]["simulated"] and ready[0]["low"] == [-1, -1]
        start = np.array(ready[-1]["points"]["agent"])
        way = 1.0 if start[0] < 0.3 or 0.55 < start[0] < 0.7 else -1.0  # away from the walls
        for _ in range(2):
            step = ask(socket, "imagine.drive", "imagine.step", action=[way / 4, 0.0])[-1]
        assert way * (step["points"]["agent"][0] - start[0]) > 0.02
        told = ask(socket, "imagine.curtain", "imagine.truth", lifted=True)
        while told[-1]["number"] < 2:
            told.append(json.loads(socket.recv(LIMIT)))
        last = told[-1]
        assert last["gap"] < 0.1 * last["still"] and last["off"]["agent_position"] < 8
        assert np.allclose(last["points"]["agent"], step["points"]["agent"], atol=0.04)
        after = ask(
            socket, "imagine.drive", "imagine.truth", action=[0, 0]
        )  # it is up: the world is seen at once
        assert [a["tell"] for a in after] == ["imagine.step", "imagine.truth"] and after[-1]["number"] == 3
        assert "an action has 2 values" in ask(socket, "imagine.drive", "refused", action=[1])[-1]["sentence"]
        assert "must be a list" in ask(socket, "imagine.drive", "refused", action=3)[-1]["sentence"]


def test_recorded_actions_lead_to_the_recorded_frames(run, store):
    """The same with and without the simulator: a replay's truth is the recording, block by block."""
    model = Opened(true_run(run), "true")
    part = Session(Contents([model])).parts["imagine"]
    answers(part, "open")
    episode = int(model.run.split.heldout[0])
    for simulated in (True, False):
        if not simulated:
            model.world = None
        answers(part, "begin", episode=episode, frame=3)
        told = answers(part, "replay", blocks=2)
        assert [a["tell"] for a in told] == ["imagine.step", "imagine.step", "imagine.replayed"]
        truths = [a for a in answers(part, "curtain", lifted=True) if a["tell"] == "imagine.truth"]
        for at, truth in enumerate(truths):
            frame = store.pixels[store.ep_offset[episode] + 3 + 5 * at]
            assert np.abs(read_picture(truth["picture"]).astype(int) - frame).mean() < 2
    [step, unknown] = answers(part, "drive", action=[1.0, 0.0])
    assert step["tell"] == "imagine.step" and unknown["picture"] is None  # off the recording nobody knows


# --- episodes --------------------------------------------------------------------------------------


class Still:
    """A model for which nothing ever changes; latents are what they are given as."""

    def __init__(self, spec):
        self.spec = spec

    def step(self, past, actions):
        return past[:, -1] + actions[:, -1].sum(dim=-1)[:, None, None]

    def distance(self, state, goal):
        return (state - goal).square().sum(dim=(1, 2))


def test_surprise_is_the_error_of_predicting_each_frame_from_those_before(run):
    """z counts the actions so far: a model that adds up the block is never surprised, but by the one that lies."""
    spec = load(run).checkpoint.deployment.spec
    actions = torch.rand(40, spec.raw_action_dim)
    latents = torch.cat([torch.zeros(1), actions.sum(dim=1).cumsum(0)[:-1]])[:, None, None]
    latents[23] += 2
    found, still = surprise(Still(spec), latents, actions)
    skip = spec.frameskip
    assert np.isnan(found[:skip]).all() and np.isfinite(found[skip:]).all()
    assert np.allclose(
        found[[23, 23 + skip]], 4, atol=1e-3
    )  # it comes as a surprise, and so does what follows
    rest = np.setdiff1d(np.arange(skip, 40), [23, 23 + skip])
    assert np.allclose(found[rest], 0, atol=1e-6)
    moved = (latents[2 * skip] - latents[skip]).square().sum()
    assert np.isclose(still[2 * skip], float(moved))


def test_episodes_are_shown_scrubbed_and_marked(place, varied):
    studio, address = place
    collection = studio.contents.collections[0]
    with page(address) as socket:
        ready = ask(socket, "episodes.open", "episodes.ready")[-1]
        assert len(ready["lengths"]) == varied.episodes and ready["marked"] == [] and ready["model"]
        shown = ask(socket, "episodes.show", "episodes.surprise", episode=2, frame=7)
        told = {a["tell"]: a for a in shown}
        rows = slice(varied.ep_offset[2], varied.ep_offset[2] + varied.ep_len[2] - 1)
        actions = np.array(told["episodes.episode"]["actions"]).T
        assert np.allclose(actions, varied.action[rows], atol=1e-4)
        assert np.array_equal(read_picture(told["episodes.frame"]["picture"]), varied.pixels[rows.start + 7])
        assert len(told["episodes.surprise"]["values"]) == varied.ep_len[2]
        frame = ask(socket, "episodes.frame", "episodes.frame", episode=2, frame=30)[-1]
        assert np.array_equal(read_picture(frame["picture"]), varied.pixels[rows.start + 30])
        thumbs = ask(socket, "episodes.thumbs", "episodes.thumbs", episodes=[0, 5])[-1]
        middle = varied.ep_offset[5] + varied.ep_len[5] // 2
        assert np.array_equal(tiles(thumbs["film"])[1], varied.pixels[middle])
        for episode, drop in ((3, True), (1, True), (3, False)):
            marked = ask(socket, "episodes.drop", "episodes.marked", episode=episode, drop=drop)[-1]
        assert marked["marked"] == [1] == json.loads(collection.marks_file.read_text())
        cli.run(shlex.split(marked["command"])[1:])  # what the page says to type does what it says
        kept = Store(collection.store.path.with_name("varied-kept"))
        assert np.array_equal(kept.ep_len, np.delete(varied.ep_len, 1))
        assert (
            "no frame 0 of an episode 999"
            in ask(socket, "episodes.drop", "refused", episode=999, drop=True)[-1]["sentence"]
        )
    with page(address) as socket:  # another page, another day
        assert ask(socket, "episodes.open", "episodes.ready")[-1]["marked"] == [1]
    assert Collection(Store(collection.store.path)).marked == {1}


def test_two_studios_lose_no_mark_of_each_other(store, tmp_path):
    data = shutil.copytree(store.path, tmp_path / "data")
    first, second = Collection(Store(data)), Collection(Store(data))
    assert first.marked == second.marked == set()
    first.mark(1, True)
    second.mark(2, True)
    assert first.marked == second.marked == {1, 2}


def test_what_ends_the_looking_over_is_told(store, monkeypatch):
    def broken(*_):
        raise IndexError("it was cut off")

    monkeypatch.setattr("lrc_jepa.studio.contents.validate", broken)
    validation = Validation(store)
    validation.start()
    validation._thread.join(LIMIT)
    assert not validation.running and validation.failure == "it was cut off"


def test_a_list_that_is_not_of_this_dataset_is_refused(store, tmp_path):
    data = shutil.copytree(store.path, tmp_path / "data")
    for held in ("[1, 99]", '["1"]', "{}", "["):
        (tmp_path / "data.drop.json").write_text(held)
        with pytest.raises(BadInput, match="drop"):
            Collection(Store(data)).marked  # noqa: B018


def test_findings_of_validate_are_marked_and_a_dataset_needs_no_model(store, tmp_path):
    rng = np.random.default_rng(0)
    with StoreWriter(tmp_path / "mine", {"world": "mine"}) as writer:
        for episode in range(3):
            frames = rng.integers(0, 255, (30, 16, 16, 3), np.uint8) * np.uint8(episode != 1)
            writer.add({"pixels": frames, "action": rng.normal(size=(30, 7)).astype(np.float32)})
    contents = open_all([tmp_path / "mine"])
    session = Session(contents)
    assert list(session.parts) == ["episodes"]
    part = session.parts["episodes"]
    told = answers(part, "open")
    assert told[0]["model"] is None and told[0]["dims"] == 7
    contents.collections[0].validation._thread.join(LIMIT)
    findings = told[-1]["findings"] or list(part.go_on())[-1]["findings"]
    assert any(
        f["severity"] == "error" and f["episodes"] == (1,) and "black" in f["sentence"] for f in findings
    )
    assert not part.running
    shown = answers(part, "show", episode=1)
    assert [a["tell"] for a in shown] == ["episodes.episode", "episodes.frame"]  # nobody to be surprised
    contents.close()


# --- runs ------------------------------------------------------------------------------------------


def test_curves_grow_while_a_run_trains(tmp_path):
    log = MetricsLog(tmp_path, 0)
    found = Metrics(tmp_path / "metrics.jsonl")
    assert not found.refresh()
    log.write(10, "train", {"total": 2.0})
    log.write(10, "health", {"effective_rank": 3.0})
    assert found.refresh() and not found.refresh()
    log.write(20, "train", {"total": 1.0})
    with (tmp_path / "metrics.jsonl").open("ab") as handle:
        handle.write(b'{"step": 30, "kind": "tr')  # still being written
    assert found.refresh()
    assert found.curves("train") == {"steps": [10, 20], "series": {"total": [2.0, 1.0]}}
    assert found.curves("health")["series"] == {"effective_rank": [3.0]}
    MetricsLog(tmp_path, 10).close()  # a run that was resumed from step 10
    assert found.refresh() and found.curves("train")["steps"] == [10]
    log.close()
    longer = b"".join(to_line({"step": step, "kind": "train", "total": 5.0}) for step in (1, 2, 3, 4, 5))
    write_bytes(tmp_path / "metrics.jsonl", longer)  # another run in its place, and a longer one
    assert found.refresh() and found.curves("train")["steps"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("train", [[], None, {"steps": float("nan"), "seed": {}}, "x"])
def test_a_strange_run_beside_ones_own_does_not_end_the_page(run, tmp_path, train):
    mine, odd = (shutil.copytree(run, tmp_path / name) for name in ("mine", "odd"))
    described = json.loads((odd / "config.json").read_text())
    described["config"]["train"] = train
    (odd / "config.json").write_text(json.dumps(described))
    rows = [{"kind": "train", "step": step, "total": 10**400} for step in (None, float("nan"), 3)]
    deep = b'{"kind": ' + b"[" * 100_000
    (odd / "metrics.jsonl").write_bytes(
        b"".join(json.dumps(row).encode() + b"\n" for row in rows) + deep + b"\n"
    )
    part = Runs([mine])
    told = [*answers(part, "open"), *answers(part, "choose", names=["odd"])]
    assert all(map(to_text, told)) and [r["name"] for r in told[0]["runs"]] == ["mine", "odd"]
    assert told[-1]["train"] == {"steps": [None, None, 3], "series": {"total": [None] * 3}}


def test_runs_beside_each_other_are_listed_and_no_others(run, tmp_path):
    first, second = (shutil.copytree(run, tmp_path / "runs" / name) for name in ("first", "second"))
    (tmp_path / "elsewhere").mkdir()
    part = Runs([first])
    told = answers(part, "open")
    assert [line["name"] for line in told[0]["runs"]] == ["first", "second"] and not told[0]["runs"][0][
        "live"
    ]
    assert told[-1]["tell"] == "runs.curves" and told[-1]["train"]["series"]["total"]
    both = answers(part, "choose", names=["first", "second"])
    assert [a["name"] for a in both if a["tell"] == "runs.curves"] == ["first", "second"]
    assert part.running and list(part.go_on()) == []  # nothing new
    for outside in ("../elsewhere", "elsewhere", "/etc", str(tmp_path)):
        with pytest.raises(BadInput, match="no run"):
            answers(part, "choose", names=[outside])
    answers(part, "leave")
    assert not part.running and second.is_dir()


def test_films_outside_of_the_runs_folder_are_not_shown(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "runs" / "first")
    (tmp_path / "secret.png").write_bytes(b"\x89PNG secret")
    inside = folder / "films" / "rollout-0.png"
    inside.parent.mkdir(exist_ok=True)
    inside.write_bytes(b"\x89PNG ours")
    (folder / "films" / "link.png").symlink_to(tmp_path / "secret.png")
    opened = Run(folder)
    stamp = opened.stamp()
    opened.write(
        [
            {**stamp, "kind": "rollout", "index": index, "file": file}
            for index, file in enumerate(("films/rollout-0.png", "../../secret.png", "films/link.png"))
        ]
    )
    part = Runs([folder])
    answers(part, "open")
    view = next(a for a in answers(part, "report") if a["tell"] == "runs.view")
    assert len(view["rollouts"]) == 1


def test_a_run_that_has_just_begun_shows_its_training(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "runs" / "new")
    shutil.rmtree(folder / "checkpoints")
    with Run(folder).writing():
        contents = open_all([folder])
        session = Session(contents)
        assert list(session.parts) == ["runs"] and contents.title == "new"
        assert answers(session.parts["runs"], "open")[0]["runs"][0]["name"] == "new"


def test_a_checkpoint_that_was_sent_without_its_data_has_new_episodes(run, tmp_path):
    """As a shipped one has: nothing but the checkpoint's own folder is there."""
    sent = shutil.copytree(next((run / "checkpoints").iterdir()), tmp_path / "checkpoints" / "sent")
    contents = open_all([sent])
    store = contents.collections[0].store
    assert store.world == "tworoom" and store.image_size == 32 and store.episodes == 24
    session = Session(contents)
    assert list(session.parts) == ["plan", "streams", "imagine", "episodes"]
    assert [a["tell"] for a in answers(session.parts["plan"], "open")][-1] == "plan.thought"
    contents.close()
    assert not store.path.exists()


def test_the_parts_are_those_that_a_run_has(run, store):
    model = Opened(true_run(run), "true")
    whole = Contents([model], [Collection(store, model)], [run])
    assert list(Session(whole).parts) == ["plan", "streams", "imagine", "episodes", "runs"]
    model.world = None  # as robot data have none
    assert list(Session(whole).parts) == ["streams", "imagine", "episodes", "runs"]


# --- how long it takes -----------------------------------------------------------------------------


def test_the_bench_asks_as_the_page_does(run, store):
    told = studio_bench.main([str(run), "--times", "2"])
    assert all(len(spent) == 2 and min(spent) > 0 for spent in told["milliseconds"].values())
    assert set(studio_bench.TARGETS) <= set(told["milliseconds"]) and told["size"] == "debug"
