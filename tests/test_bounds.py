"""Values out of bounds: one sentence that names the value as it was written, before anything is changed."""

import dataclasses
import json
import shutil

import pytest
from test_cli import refused

from lrc_jepa.bounds import Range, check
from lrc_jepa.config import ClipConfig, EncoderConfig, ModelConfig, ObjectiveConfig, PlanConfig, TrainConfig
from lrc_jepa.config_tree import differences, from_dict, to_dict, with_value
from lrc_jepa.errors import BadInput
from lrc_jepa.recipes import get_recipe

TRAIN = [
    (["--train.lr", "-1"], "--train.lr must be above 0, not -1.0"),
    (["--train.steps", "-5"], "--train.steps must be at least 0, not -5"),
    (["--train.weight-decay", "-1"], "--train.weight-decay must be at least 0, not -1.0"),
    (["--train.seed", "-1"], "--train.seed must be 0 to 2147483647, not -1"),
    (["--train.batch-size", "1"], "--train.batch-size must be at least 2, not 1"),
    (["--clip.history", "0"], "--clip.history must be at least 1, not 0"),
    (["--clip.frameskip", "0"], "--clip.frameskip must be at least 1, not 0"),
    (["--clip.holdout", "1.5"], "--clip.holdout must be above 0 and below 1, not 1.5"),
    (["--model.latent", "33"], "model.context.heads must divide model.latent: 2 does not divide 33"),
    (["--model.latent", "0"], "--model.latent must be at least 1, not 0"),
    (
        ["--model.encoder.heads", "5"],
        "model.encoder.heads must divide model.encoder.width: 5 does not divide 16",
    ),
    (["--model.predictor.dropout", "2"], "--model.predictor.dropout must be at least 0 and below 1, not 2.0"),
    (["--plan.planner", "foo"], "there is no planner 'foo'; there is cem, icem"),
    (["--plan.samples", "0"], "--plan.samples must be at least 1, not 0"),
    (["--plan.elites", "17"], "of 16 samples 2 to 16 can be elites, not 17"),
    (["--plan.history", "9"], "a start of 9 frames does not fit a model that sees 1 to 3"),
    (["--nproc", "0"], "--nproc must be at least 1, not 0"),
    (["--objective.weights.sigrag", "1"], "there is no term 'sigrag' to weigh; there is prediction"),
    (["--objective.weights.sigreg", "-1"], "--objective.weights.sigreg must be at least 0, not -1.0"),
]


NO_TERMS = [f"--objective.weights.{name}=0" for name in ("prediction", "sigreg", "context", "reconstruction")]
OF_SYSTEMS = [
    ("lrc", NO_TERMS, "objective.weights must give at least one term a weight above 0"),
    (
        "c-jepa",
        ["--clip.targets", "3"],
        "the family slots predicts one frame of a clip: clip.targets is 1, not 3",
    ),
    ("dino-wm", ["--clip.targets", "3"], "the family patches predicts one frame of a clip"),
    ("c-jepa", ["--model.slots.masked", "9"], "of 4 slots at most 3 can be masked"),
]


@pytest.mark.parametrize(("system", "words", "message"), OF_SYSTEMS)
def test_what_a_system_cannot_do_is_refused_before_the_old_run_goes(
    system, words, message, store, run, capsys
):
    before = contents(run)
    data = ("--data", store.path, "--out", run, "--overwrite")
    refused("train", f"tworoom-{system}-debug", *words, *data, capsys=capsys, match=message)
    assert contents(run) == before


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(("words", "message"), TRAIN)
def test_training_refuses_and_the_old_run_stays(words, message, store, run, capsys):
    before = contents(run)
    data = ("--data", store.path, "--out", run, "--overwrite")
    refused("train", *words, "tworoom-lrc-debug", *data, capsys=capsys, match=message)
    assert contents(run) == before


OTHERS = [
    (["plan", "RUN", "--seed", "-1"], "--seed must be 0 to 2147483647, not -1"),
    (["plan", "RUN", "--pairs", "0"], "--pairs must be at least 1, not 0"),
    (
        ["plan", "RUN", "--pairs", "2", "--history", "9"],
        "a start of 9 frames does not fit a model that sees 1 to 3",
    ),
    (["plan", "RUN", "--pairs", "2", "--history", "0"], "--history must be at least 1, not 0"),
    (["plan", "RUN", "--pairs", "2", "--horizon", "0"], "--horizon must be at least 1, not 0"),
    (
        ["plan", "RUN", "--pairs", "2", "--execute", "6"],
        "of a plan of 5 blocks 1 to 5 can be carried out, not 6",
    ),
    (["plan", "RUN", "--pairs", "2", "--budget", "0"], "--budget must be at least 1, not 0"),
    (
        ["plan", "RUN", "--pairs", "2", "--planner", "magic"],
        "there is no planner 'magic'; there is cem, icem",
    ),
    (
        ["plan", "RUN", "--pairs", "2", "--planner", "mppi", "--temperature", "0"],
        "--temperature must be above 0, not 0.0",
    ),
    (
        ["plan", "RUN", "--pairs", "2", "--time-budget-ms", "-5"],
        "--time-budget-ms must be at least 0, not -5.0",
    ),
    (
        ["plan", "RUN", "--pairs", "2", "--time-budget-ms", "0.01"],
        "a time budget of 0.01 ms is shorter than one iteration of the planner",
    ),
    (["plan", "RUN", "--pairs", "2", "--repetitions", "0"], "--repetitions must be at least 1, not 0"),
    (
        ["plan", "RUN", "--repetitions", "2", "--manifest", "a", "b", "c"],
        "2 repetitions need as many manifests, not 3",
    ),
    (
        ["plan", "RUN", "--manifest", "a", "--pairs", "2"],
        "--manifest says which pairs there are: leave out --pairs",
    ),
    (["collect", "tworoom", "--seed", "-1", "--out", "NEW"], "--seed must be 0 to 2147483647, not -1"),
    (["intervene", "RUN", "--components", "0"], "--components must be at least 1, not 0"),
    (["intervene", "RUN", "--components", "999"], "z has 8 principal directions in "),
    (["stress", "blur", "RUN", "--levels", "-1"], "--levels must be at least 0, not -1.0"),
    (
        ["stress", "shift", "RUN", "--levels", "2"],
        "a level of shift is the largest shift, as a share of the side, not 2",
    ),
    (["stress", "fog", "RUN"], "there is no stress 'fog'; there is pca, pattern"),
    (["bench", "plan", "--rounds", "0"], "--rounds must be at least 1, not 0"),
    (["recover", "RUN", "--scenes", "0"], "--scenes must be at least 1, not 0"),
    (["probe", "RUN", "--test-share", "1"], "--test-share must be above 0 and below 1, not 1.0"),
    (["plan", "RUN", "--manifest", "NEW"], "there is no manifest at "),
    (["bench", "plan", "--systems", "NEW"], "there is no checkpoint under "),
    (["report", "CHECKPOINT"], "is a checkpoint; a report is of its run: lrc report RUN"),
]


@pytest.mark.parametrize(("words", "message"), OTHERS)
def test_commands_refuse_before_they_change_anything(words, message, run, tmp_path, capsys):
    before = contents(run)
    places = {"RUN": run, "NEW": tmp_path / "new", "CHECKPOINT": sorted((run / "checkpoints").iterdir())[-1]}
    words = [places.get(word, word) for word in words]
    refused(*words, capsys=capsys, match=message.replace("RUN", str(run)))
    assert contents(run) == before and list(tmp_path.iterdir()) == []


def test_a_recipe_of_another_world_is_refused(store, capsys, tmp_path):
    pusht = shutil.copytree(store.path, tmp_path / "pusht")
    meta = json.loads((pusht / "meta.json").read_text())
    (pusht / "meta.json").write_text(json.dumps({**meta, "world": "pusht"}))
    match = f"dataset {pusht} comes from pusht, the recipe is for tworoom: choose a recipe pusht-..., or robot-..."
    words = ("train", "tworoom-lrc-debug", "--data", pusht, "--out", tmp_path / "run")
    refused(*words, capsys=capsys, match=match)
    assert not (tmp_path / "run").exists()


def test_python_and_files_are_held_to_the_same_bounds():
    with pytest.raises(BadInput, match=r"^TrainConfig\.lr must be above 0, not -1$"):
        TrainConfig(lr=-1)
    with pytest.raises(BadInput, match=r"^PlanConfig\.cost must be one of terminal, sum, not 'last'$"):
        PlanConfig(cost="last")
    with pytest.raises(BadInput, match="must be a number"):
        ClipConfig(history="3")
    with pytest.raises(BadInput, match=r"ObjectiveConfig\.weights\.sigreg must be at least 0, not nan"):
        ObjectiveConfig(weights={"sigreg": float("nan")})
    with pytest.raises(BadInput, match="5 does not divide 192"):
        ModelConfig(encoder=EncoderConfig(heads=5))
    recipe = get_recipe("tworoom-lrc-debug")
    with pytest.raises(BadInput, match=r"^train\.lr must be above 0, not -1\.0$"):
        with_value(recipe, "train.lr", -1)
    plain = to_dict(recipe)
    plain["train"]["keep"] = 0
    with pytest.raises(BadInput, match=r"^config\.train\.keep must be at least 1, not 0$"):
        from_dict(type(recipe), plain)


def test_a_word_for_a_table_is_refused():
    with pytest.raises(BadInput, match=r"weights must be names with values, not 'reconstruction 5'"):
        ObjectiveConfig(weights="reconstruction 5")
    with pytest.raises(BadInput, match=r"must be a list, not 'ab'"):
        check(tuple[int, ...], "ab", "levels")


def test_ranges_say_what_they_hold():
    assert str(Range(0, open="low")) == "above 0" and not Range(0, open="low").holds(0)
    assert str(Range(0, 1)) == "0 to 1" and Range(0, 1).holds(1)
    assert str(Range(0, 1, open="high")) == "at least 0 and below 1" and not Range(0, 1, open="high").holds(1)
    assert str(Range(high=3)) == "at most 3" and str(Range()) == "a finite number"
    assert not any(Range().holds(value) for value in (float("inf"), float("nan")))


def test_differences_name_every_field():
    old = get_recipe("tworoom-lrc-debug")
    new = with_value(with_value(old, "train.lr", 0.5), "model.context.queries", 5)
    new = dataclasses.replace(new, objective=dataclasses.replace(new.objective, weights={"prediction": 2.0}))
    assert differences(old, old) == []
    assert differences(old, new) == [
        "model.context.queries was 2, now 5",
        "objective.weights.prediction was 1.0, now 2.0",
        "objective.weights.sigreg was 0.05, now None",
        "objective.weights.context was 0.05, now None",
        "objective.weights.reconstruction was 0.2, now None",
        "train.lr was 0.001, now 0.5",
    ]
    other = get_recipe("tworoom-lwm-debug")
    assert any(line.startswith("model.context was ContextConfig(") for line in differences(old, other))


def test_another_configuration_is_named_when_resuming(store, varied, run, capsys):
    def there():
        return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    before = there()
    words = ("train", "tworoom-lrc-debug", "--out", run, "--resume", "--data")
    match = "another configuration (train.lr was 0.001, now 0.5); it cannot be resumed"
    refused(*words, store.path, "--train.lr", "0.5", capsys=capsys, match=match)
    refused(*words, varied.path, capsys=capsys, match="was trained on another dataset; it cannot be resumed")
    assert there() == before  # what the run says of itself and of its data is still true
