"""Services that figures are sent to: W&B itself in offline mode, the others by a stand-in of their package."""

import io
import json
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import wandb
from conftest import DEBUG
from PIL import Image
from test_cli import refused

import lrc_jepa
from lrc_jepa.errors import BadInput, Interrupted
from lrc_jepa.evaluate.films import film
from lrc_jepa.extras import here, install
from lrc_jepa.training import loop
from lrc_jepa.training.progress import Progress
from lrc_jepa.training.trackers import Sender, check_trackers, tracking


class StandIn:
    """Keeps what a service was told, run by run."""

    def __init__(self):
        self.runs, self.configs, self.ended = {}, {}, []
        self.down = 0  # times that it cannot be told the configuration

    def log(self, run, figures, step):
        for name, value in figures.items():
            self.runs[run].append((step, name, value))

    def measure(self, run, metrics):
        for m in metrics:
            self.log(run, {m.key: m.value}, m.step)

    def describe(self, run, params):
        """What mlflow does with parameters: so many at once, and none may change."""
        assert len(params) <= 100 and not {p.key for p in params} & set(self.configs[run])
        if params and self.down:
            self.down -= 1
            raise OSError("no route")
        self.configs[run] |= {p.key: p.value for p in params}


def trackio(kept):
    def init(project, name, config, resume):
        assert (name in kept.runs) == (resume == "must")
        kept.runs.setdefault(name, [])
        kept.configs[name] = config
        kept.open = name

    return SimpleNamespace(
        init=init,
        log=lambda figures, step: kept.log(kept.open, figures, step),
        finish=lambda: kept.ended.append(kept.open),
        Video=lambda path, format: path,
    )


@pytest.fixture(autouse=True)
def a_server_is_named(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:1")


def mlflow(kept):
    class Client:
        def get_experiment_by_name(self, name):
            return None

        def create_experiment(self, name):
            return "1"

        def create_run(self, experiment, run_name):
            name = "abc"[len(kept.runs)]
            kept.runs[name], kept.configs[name] = [], {}
            return SimpleNamespace(info=SimpleNamespace(run_id=name))

        def update_run(self, run, status):
            assert run in kept.runs and status == "RUNNING"

        def get_run(self, run):
            return SimpleNamespace(data=SimpleNamespace(params=dict(kept.configs[run])))

        def log_batch(self, run, metrics=(), params=()):
            kept.describe(run, params)
            kept.measure(run, metrics)

        def log_artifact(self, run, path, folder):
            kept.log(run, {"imagined": path}, int(path[-12:-4]))

        def set_terminated(self, run):
            kept.ended.append(run)

    def metric(key, value, timestamp, step):
        return SimpleNamespace(key=key, value=value, step=step)

    entities = SimpleNamespace(Metric=metric, Param=lambda key, value: SimpleNamespace(key=key, value=value))
    return SimpleNamespace(MlflowClient=Client, entities=entities)


def interrupted_and_resumed(store, out, name, monkeypatch):
    """A run that stops between checkpoints, after figures were sent beyond the last one, and goes on."""
    saved = loop.save_run

    def save(pieces, step):
        if step > 4:
            raise KeyboardInterrupt
        saved(pieces, step)

    with monkeypatch.context() as patch, pytest.raises((KeyboardInterrupt, Interrupted)):
        patch.setattr(loop, "save_run", save)
        lrc_jepa.train(DEBUG, store, out, track=[name])
    lrc_jepa.train(DEBUG, store, out, track=[name], resume=True)
    recorded = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return sorted({(r["step"], f"{r['kind']}/total") for r in recorded if r["kind"] == "train"})


@pytest.mark.parametrize(("name", "made"), [("trackio", trackio), ("mlflow", mlflow)])
def test_a_resumed_run_goes_on_in_the_same_place_without_doubled_steps(
    name, made, store, tmp_path, monkeypatch
):
    kept = StandIn()
    monkeypatch.setitem(sys.modules, name, made(kept))
    expected = interrupted_and_resumed(store, tmp_path / "run", name, monkeypatch)
    assert len(kept.runs) == 1 and len(kept.ended) == 2
    ((run, told),) = kept.runs.items()
    assert sorted((step, figure) for step, figure, _ in told if figure == "train/total") == expected
    places = [(step, figure) for step, figure, _ in told]
    assert len(places) == len(set(places)) and any(figure.startswith("health/") for _, figure in places)
    films = [(step, path) for step, figure, path in told if figure == "imagined"]
    assert [step for step, _ in films] == sorted(
        {step for step, name in places if name.startswith("health/")}
    )
    assert all(Image.open(path).n_frames > 1 for _, path in films)
    config = kept.configs[run]
    assert (config.get("train") or {"lr": float(config.get("train.lr", 0))})["lr"] == DEBUG.train.lr
    lrc_jepa.train(DEBUG, store, tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "tracking.json").exists()


def test_a_service_that_fails_once_it_has_the_run_gets_no_second_one(store, tmp_path, monkeypatch):
    kept = StandIn()
    kept.down = 1
    monkeypatch.setitem(sys.modules, "mlflow", mlflow(kept))
    lrc_jepa.train(DEBUG, store, tmp_path / "run", track=["mlflow"])
    assert list(kept.runs) == ["a"] and kept.runs["a"] and "train.lr" in kept.configs["a"]


@pytest.mark.skipif(not here("mlflow"), reason="mlflow is no part of [dev]")
def test_mlflow_itself_where_no_server_is_named(store, tmp_path, monkeypatch, capsys):
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.chdir(tmp_path)
    expected = interrupted_and_resumed(store, tmp_path / "run", "mlflow", monkeypatch)
    assert "failed" not in capsys.readouterr().out and (tmp_path / "mlflow.db").is_file()
    name = json.loads((tmp_path / "run" / "tracking.json").read_text())["mlflow"]["id"]
    told = MlflowClient().get_metric_history(name, "train/total")
    assert sorted((m.step, m.key) for m in told) == expected
    assert MlflowClient().get_run(name).info.status == "FINISHED" and MlflowClient().list_artifacts(
        name, "films"
    )


def test_mlflow_without_what_its_own_file_takes_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace())
    check_trackers(["mlflow"])
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(BadInput, match=r"needs the package sqlalchemy; .*\[mlflow\]"):
        check_trackers(["mlflow"])


def test_a_run_that_is_resumed_without_its_service_says_so(store, tmp_path, monkeypatch, capsys):
    kept, run = StandIn(), tmp_path / "run"
    monkeypatch.setitem(sys.modules, "mlflow", mlflow(kept))
    lrc_jepa.train(DEBUG, store, run, track=["mlflow"])
    sentence = "mlflow was told of this run before, and is told no more: --track mlflow goes on there"
    assert sentence not in capsys.readouterr().out
    lrc_jepa.train(DEBUG, store, run, resume=True)
    assert capsys.readouterr().out.count(sentence) == 1
    (run / "tracking.json").write_text("{")
    lrc_jepa.train(DEBUG, store, run, resume=True)  # a damaged file is not needed
    lrc_jepa.train(DEBUG, store, run, overwrite=True)
    assert sentence not in capsys.readouterr().out


def test_wandb_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB__SERVICE_WAIT", "250")  # seconds: a busy machine takes its time to start it
    seen, drawn = [], tmp_path / "drawn.gif"
    film(
        drawn,
        {"now": np.arange(3, dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(8, 2).repeat(3, 3)},
    )
    for first in (1, 3):  # the second goes on: steps 3 and 4 alone are new, though 1 to 4 are told
        with tracking(["wandb"], tmp_path, DEBUG, seen.append) as watch:
            for step in range(1, first + 2):
                watch(Progress(step, 8, losses={"total": 1.0 / step}))
                watch(Progress(step, 8, film=drawn) if step == first + 1 else Progress(step, 8))
        known = json.loads((tmp_path / "tracking.json").read_text())["wandb"]
        assert known["sent"] == {"train": first + 1, "films": first + 1}
    wandb.teardown()  # its service has written everything once it has ended
    kept = sorted((tmp_path / "wandb").glob("offline-run-*"))
    # Named by the second in which they began, and numbered where that is the same.
    assert len(kept) == 2 and all(f"-{known['id']}" in folder.name for folder in kept)
    steps = [sorted(history_steps(next(folder.glob("*.wandb")))) for folder in kept]
    assert steps == [[1, 2], [3, 4]] and len(seen) == 12
    videos = [list((folder / "files" / "media" / "videos").glob("imagined_*.gif")) for folder in kept]
    assert [[path.read_bytes() for path in of_run] for of_run in videos] == [[drawn.read_bytes()]] * 2


def test_tensorboard_shows_films_beside_its_curves(store, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = lrc_jepa.train(DEBUG, store, tmp_path / "run", track=["tensorboard"])
    curves, films = (
        EventAccumulator(str(run.folder / place)) for place in ("tensorboard", "tensorboard/films")
    )
    for events in (curves, films):
        events.Reload()
    assert "train/total" in curves.Tags()["scalars"] and films.Tags()["scalars"] == []
    shown = films.Images("imagined")
    assert [event.step for event in shown] == [e.step for e in curves.Scalars("health/effective_rank")]
    picture = Image.open(io.BytesIO(shown[-1].encoded_image_string))
    assert picture.format == "GIF" and picture.n_frames > 1 and picture.size == (3 * 132 - 4, 146)
    weights = lrc_jepa.train(DEBUG, store, tmp_path / "other").checkpoint.digest
    assert run.checkpoint.digest == weights  # looking changes nothing


def history_steps(path):
    """The steps of the history in a small file of W&B: a header of seven bytes, then records as LevelDB logs them."""
    from wandb.proto import wandb_internal_pb2

    data, at = path.read_bytes(), 7
    assert len(data) < 32768  # one block: no record is in parts
    while at + 7 <= len(data):
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        assert kind == 1
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data[at + 7 : at + 7 + length])
        if record.WhichOneof("record_type") == "history":
            yield record.history.step.num
        at += 7 + length


class Flaky:
    """A service that cannot be opened, or told anything, while it is down."""

    def __init__(self):
        self.down, self.told, self.tries, self.finished = {"open", "log"}, [], 0, 0
        self.id = "x"

    def open_run(self, told=None):
        return self._answer("open") or self

    def log(self, step, figures):
        self._answer("log")
        self.told += [(step, name) for name in figures]

    def film(self, step, path):
        self._answer("log")
        self.told.append((step, "films/imagined"))

    def finish(self):
        self.finished += 1

    def _answer(self, call):
        self.tries += 1
        if call in self.down:
            raise ConnectionError("no route")


def test_a_service_that_fails_is_told_later_what_it_missed(capsys):
    service, sent = Flaky(), {}
    sender = Sender("wandb", service.open_run, sent, lambda: None)
    for step in range(1, 6):
        sender(Progress(step, 9, losses={"total": 1.0}))
    assert sent == {} and service.told == [] and 1 < service.tries < 5  # not at every step
    service.down = {"log"}
    for step in range(6, 100):
        sender(Progress(step, 9, losses={"total": 1.0}, health={"rank": 1.0} if step == 6 else None))
    assert sent == {}  # what was not taken is not counted as sent
    service.down = set()
    sender.close()
    losses = [(step, "train/total") for step in range(1, 100)]
    assert service.told == [*losses[:6], (6, "health/rank"), *losses[6:]] and service.finished == 1
    assert sent == {"train": 99, "health": 6}
    said = capsys.readouterr().out
    assert said.count("wandb failed (no route); training goes on") == 1 and "was not told" not in said


def test_a_run_goes_on_without_its_service_and_sends_everything_when_it_is_resumed(
    store, tmp_path, monkeypatch, capsys
):
    service = Flaky()
    monkeypatch.setitem(sys.modules, "trackio", SimpleNamespace())
    monkeypatch.setattr("lrc_jepa.training.trackers.trackio.Run", service.open_run)
    run = lrc_jepa.train(DEBUG, store, tmp_path / "run", track=["trackio"])
    assert run.checkpoint.step == DEBUG.train.steps and service.told == []
    said = capsys.readouterr().out
    assert said.count("trackio failed (no route)") == 1 and "--resume with --track trackio sends them" in said
    service.down = set()
    lrc_jepa.train(DEBUG, store, tmp_path / "run", track=["trackio"], resume=True)
    recorded = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [
        (r["step"], kind)
        for r in recorded
        for kind in {"train": ["train"], "health": ["health", "films"]}.get(r["kind"], [])
    ]
    assert list(dict.fromkeys((step, name.partition("/")[0]) for step, name in service.told)) == steps
    before = list(service.told)
    lrc_jepa.train(DEBUG, store, tmp_path / "run", track=["trackio"], resume=True)
    assert service.told == before  # and never twice


def test_what_is_not_known_or_not_installed_is_refused_before_anything_is_made(
    store, tmp_path, monkeypatch, capsys
):
    words = ("train", "tworoom-lrc-debug", "--data", store.path, "--out", tmp_path / "run", "--track")
    refused(
        *words,
        "dance",
        capsys=capsys,
        match="there is no tracker 'dance'; there is wandb, mlflow, trackio, tensorboard",
    )
    monkeypatch.setitem(sys.modules, "trackio", None)
    refused(*words, "trackio", capsys=capsys, match=install("trackio"))
    assert not (tmp_path / "run").exists()
