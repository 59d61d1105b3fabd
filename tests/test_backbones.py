"""Frozen backbones: tiny random checkpoints of the real classes, a run's own tokens, stored features."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lrc_jepa import cli
from lrc_jepa.config import EncoderConfig
from lrc_jepa.data import features
from lrc_jepa.data.features import find_features, write_features
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import file_digest
from lrc_jepa.models import build_model, count_parameters
from lrc_jepa.models.backbones import HUB, BackboneName, load_backbone, original_name
from lrc_jepa.models.vit import Pixels
from lrc_jepa.recipes import get_recipe, reported_name
from lrc_jepa.training.assemble import assemble
from lrc_jepa.training.checkpoint import load_checkpoint, newest_checkpoint
from lrc_jepa.training.loop import fit, train_step

transformers = pytest.importorskip("transformers")

DINO = EncoderConfig(image_size=32, resize=42, patch=14, layers=2, heads=2, width=32, mlp=64, pool="mean")
VJEPA = EncoderConfig(image_size=32, resize=48, patch=16, layers=2, heads=2, width=32, mlp=64, pool="mean")


def saved(folder, kind, patch, **more):
    """A small network of a family, with weights of its own, as the hub would have it."""
    torch.manual_seed(0)
    blocks = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "mlp_ratio": 2}
    shape = getattr(transformers, f"{kind}Config")(**blocks, patch_size=patch, **more)
    getattr(transformers, f"{kind}Model")(shape).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("weights") / "dinov2", "Dinov2", 14, image_size=70)


@pytest.fixture(scope="module")
def vjepa2(tmp_path_factory):
    predictor = {"pred_hidden_size": 24, "pred_num_attention_heads": 2, "pred_num_hidden_layers": 1}
    folder = tmp_path_factory.mktemp("weights") / "vjepa2"
    return saved(folder, "VJEPA2", 16, crop_size=48, frames_per_clip=4, **predictor)


def on(recipe, encoder, backbone, latent=32):
    config = get_recipe(recipe)
    model = dataclasses.replace(config.model, encoder=encoder, backbone=backbone, latent=latent)
    return dataclasses.replace(config, model=model)


def frames(count=2, length=4, side=32):
    g = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, length, 3, side, side), dtype=torch.uint8, generator=g)


@torch.no_grad()
def test_dino_wm_sees_the_patch_tokens_of_the_real_class(dinov2):
    model = build_model(on("tworoom-dino-wm-debug", DINO, f"dinov2:{dinov2}"))
    z = model.encode(frames())
    assert z.shape == (2, 4, 9, 32) and model.spec.tokens == 9
    theirs = transformers.Dinov2Model.from_pretrained(dinov2).eval()
    pixels = Pixels(42)(frames().flatten(0, 1))
    told = theirs(pixel_values=pixels).last_hidden_state
    assert torch.allclose(z.flatten(0, 1), told[:, 1:], atol=1e-5)  # the class token is left out


@torch.no_grad()
def test_gap_ac_averages_the_patch_tokens_of_the_real_class(vjepa2):
    model = build_model(on("tworoom-vjepa2-gap-ac-debug", VJEPA, f"vjepa2:{vjepa2}"))
    z = model.encode(frames())
    assert z.shape == (2, 4, 1, 32)
    theirs = transformers.VJEPA2Model.from_pretrained(vjepa2).eval()
    twice = Pixels(48)(frames().flatten(0, 1))[:, None].repeat(1, 2, 1, 1, 1)
    told = theirs(pixel_values_videos=twice, skip_predictor=True).last_hidden_state
    assert told.shape == (8, 9, 32)
    assert torch.allclose(z.flatten(0, 2), told.mean(dim=1), atol=1e-5)
    parts = count_parameters(model)
    assert parts["encoder"] == sum(p.numel() for p in theirs.encoder.parameters()) == parts["frozen"]


def test_resizing_keeps_what_is_flat_and_the_order_of_rows():
    flat = torch.full((1, 3, 32, 32), 128, dtype=torch.uint8)
    assert torch.allclose(Pixels(48)(flat), Pixels()(flat)[..., :1, :1].expand(-1, -1, 48, 48), atol=1e-5)
    half = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    half[..., :16, :] = 255
    sized = Pixels(64)(half)
    assert sized.shape[-1] == 64 and (sized[..., :30, :].amin() > sized[..., 34:, :].amax())


@pytest.mark.parametrize(("side", "resize"), [(56, 16), (24, 40)])
def test_resized_a_few_at_a_time_frames_are_those_of_the_plain_formula(side, resize):
    frames = torch.randint(0, 256, (5, 7, side, side, 3), dtype=torch.uint8).movedim(-1, -3)
    pixels = Pixels()(frames).flatten(0, 1)
    plain = torch.nn.functional.interpolate(pixels, (resize, resize), mode="bilinear", antialias=True)
    sized = Pixels(resize)(frames)
    assert sized.shape == (5, 7, 3, resize, resize)
    assert torch.allclose(sized.flatten(0, 1), plain, atol=2e-6)
    assert torch.equal(Pixels(resize)(frames[2, 3:4]), sized[2, 3:4])


def test_a_checkpoint_holds_a_fingerprint_and_not_the_backbone(dinov2, vjepa2, tmp_path):
    config = on("tworoom-dino-wm-debug", DINO, f"dinov2:{dinov2}")
    model = build_model(config)
    state = model.state_dict()
    assert [name for name in state if name.startswith("encoder.")] == ["encoder.fingerprint"]
    model.load_state_dict(state)
    state["encoder.fingerprint"] = state["encoder.fingerprint"] + 1
    with pytest.raises(BadInput, match="not those that this model was trained with"):
        model.load_state_dict(state)
    with pytest.raises(RuntimeError, match="predictor"):
        model.load_state_dict({k: v for k, v in model.state_dict().items() if "predictor.norm" not in k})


def test_tokens_of_a_run_are_its_own_patch_tokens(run):
    config = get_recipe("tworoom-dino-wm-debug")
    config = dataclasses.replace(
        config, model=dataclasses.replace(config.model, backbone=f"checkpoint:{run}")
    )
    model = build_model(config)
    trained = load_checkpoint(newest_checkpoint(run)).model
    with torch.no_grad():
        theirs = trained.tokens(frames())[:, 1:]
        assert torch.allclose(model.encode(frames()).flatten(0, 1), theirs, atol=1e-6)
    assert model.backbone.startswith(f"checkpoint:{run} sha256:")


REFUSED = {
    "dinov2": "names no backbone",
    "resnet:somewhere": "names no backbone",
    "dinov2:/nowhere/at/all": "no folder /nowhere/at/all",
    "dinov2:facebook/dinov2-small": r"pin the revision.*or say dinov2:\./facebook/dinov2-small",
    "dinov2:./facebook/dinov2-small": r"no folder \./facebook/dinov2-small",
    "random:x": "random:SEED",
    "checkpoint:/nowhere": "lrc train",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_had_is_refused_in_one_sentence(name):
    with pytest.raises(BadInput, match=REFUSED[name]) as caught:
        load_backbone(name, DINO)
    assert "\n" not in str(caught.value)


def test_without_cache_and_network_the_sentence_says_where_to_put_the_files(monkeypatch, tmp_path):
    import huggingface_hub

    def unreachable(*args, **options):
        raise OSError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(BadInput, match=r"neither in the hub's cache.*--model.backbone dinov2:./FOLDER"):
        load_backbone("dinov2:facebook/dinov2-small@abc", DINO)


def test_without_the_extra_the_sentence_says_what_to_install(monkeypatch, dinov2):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(BadInput, match=r"pip install -e '.*\[pretrained\]'"):
        load_backbone(f"dinov2:{dinov2}", DINO)


def test_weights_of_another_kind_or_shape_are_refused(dinov2, vjepa2, tmp_path):
    with pytest.raises(BadInput, match="of type 'vjepa2'"):
        load_backbone(f"dinov2:{vjepa2}", DINO)
    with pytest.raises(BadInput, match=r"num_hidden_layers 2, the run's model.encoder says 3"):
        load_backbone(f"dinov2:{dinov2}", dataclasses.replace(DINO, layers=3))
    (tmp_path / "config.json").write_text((dinov2 / "config.json").read_text())
    with pytest.raises(BadInput, match=r"no model\.safetensors"):
        load_backbone(f"dinov2:{tmp_path}", DINO)
    (tmp_path / "model.safetensors").write_bytes((dinov2 / "model.safetensors").read_bytes()[:2000])
    with pytest.raises(BadInput, match="cannot be read"):
        load_backbone(f"dinov2:{tmp_path}", DINO)
    from safetensors.torch import load_file, save_file

    some = load_file(dinov2 / "model.safetensors")
    some.pop(next(name for name in some if name.endswith("layer.1.norm1.weight")))
    save_file(some, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInput, match="lacks 1 of the weights"):
        load_backbone(f"dinov2:{tmp_path}", DINO)


def test_a_class_token_is_not_to_be_had_from_a_backbone():
    config = get_recipe("tworoom-vjepa2-gap-ac-debug")
    encoder = dataclasses.replace(config.model.encoder, pool="class")
    with pytest.raises(BadInput, match=r"set encoder\.pool to mean"):
        build_model(dataclasses.replace(config, model=dataclasses.replace(config.model, encoder=encoder)))


def test_sources_are_taken_apart():
    assert BackboneName.parse("dinov2:a/b@c") == BackboneName("dinov2", "a/b", "c")
    assert BackboneName.parse("checkpoint:runs/a@b") == BackboneName("checkpoint", "runs/a@b")
    assert BackboneName.parse("dinov2:./a/b@c") == BackboneName("dinov2", "./a/b@c")
    for text, on_hub in {"a/b": True, "./a": False, "../a": False, "/a/b": False, "~/a": False}.items():
        assert BackboneName.parse(f"vjepa2:{text}").on_hub == on_hub, text


@pytest.fixture
def tiny_original(monkeypatch, dinov2):
    """The tiny network as if it were what the authors published."""
    published = file_digest(dinov2 / "model.safetensors")
    monkeypatch.setitem(
        HUB,
        "dinov2",
        dataclasses.replace(HUB["dinov2"], original=HUB["dinov2"].original._replace(sha256=published)),
    )
    return original_name("dinov2")


def test_a_folder_of_the_originals_name_does_not_stand_in_for_it(
    tiny_original, dinov2, tmp_path, monkeypatch
):
    """The hub is asked for ORG/NAME; a folder of that name is used, and named, only as ./ORG/NAME."""
    import huggingface_hub

    asked = []
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **more: asked.append((name, more)) or str(dinov2)
    )
    monkeypatch.chdir(tmp_path)
    stand_in = tmp_path / "facebook" / "dinov2-small"
    stand_in.mkdir(parents=True)
    (stand_in / "model.safetensors").write_bytes(b"other weights")
    found = load_backbone(tiny_original, DINO)
    assert (
        asked[0][0] == "facebook/dinov2-small" and asked[0][1]["revision"] == HUB["dinov2"].original.revision
    )
    assert found.fingerprint == HUB["dinov2"].original.sha256

    def reported(backbone):
        recipe = get_recipe("tworoom-dino-wm-paper")
        model = dataclasses.replace(recipe.model, backbone=backbone)
        return reported_name(dataclasses.replace(recipe, model=model), recipe)

    assert reported(tiny_original) == "dino-wm"
    assert reported("dinov2:./facebook/dinov2-small") == "dino-wm[dinov2]"
    assert reported("dinov2:facebook/dinov2-small@main") == "dino-wm[dinov2]"
    assert reported(f"dinov2:{dinov2}") == "dino-wm"  # the original's bytes, wherever they lie


def test_the_known_hash_is_compared_when_the_hub_gives_the_weights(
    tiny_original, dinov2, tmp_path, monkeypatch
):
    import huggingface_hub
    from safetensors.torch import load_file, save_file

    cache = _copy(dinov2, tmp_path / "cache")
    weights = load_file(cache / "model.safetensors")
    save_file({k: v + 1e-3 for k, v in weights.items()}, cache / "model.safetensors", {"format": "pt"})
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **more: str(cache))
    with pytest.raises(BadInput, match="are not those that facebook/dinov2-small has at revision"):
        load_backbone(tiny_original, DINO)
    assert load_backbone("dinov2:facebook/dinov2-small@another", DINO).fingerprint  # nothing is known of it


# Stored features


@pytest.mark.parametrize(
    "recipe", ["tworoom-dino-wm-debug", "tworoom-vjepa2-gap-ac-debug", "tworoom-c-jepa-debug"]
)
def test_training_from_stored_features_gives_the_same_losses(recipe, store, tmp_path):
    config = get_recipe(recipe)
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=2, batch_size=8))
    copy = Store(_copy(store.path, tmp_path / "data"))
    losses = []
    for stored in (False, True):
        pieces = assemble(config, copy, tmp_path / f"run{stored}", torch.device("cpu"))
        assert ("features" in pieces.clips.columns) == stored
        clip = pieces.clips.gather(np.arange(8))
        assert (clip.frames.numel() == 0) == stored  # pixels are not read
        torch.manual_seed(0)
        losses.append({k: float(v) for k, v in train_step(pieces, clip, 0).items()})
        if not stored:
            write_features(copy, pieces.model, torch.device("cpu"), batch=100)
    assert losses[0] == pytest.approx(losses[1], rel=2e-2)
    assert copy.digest() == store.digest() and Store(copy.path).quantities == store.quantities
    fit(pieces)


def _copy(source, target):
    import shutil

    shutil.copytree(source, target)
    return target


def test_features_are_found_again_only_for_the_same_backbone_and_frames(store, tmp_path):
    copy = Store(_copy(store.path, tmp_path / "data"))
    config = get_recipe("tworoom-dino-wm-debug")
    model = build_model(config)
    path = write_features(copy, model, torch.device("cpu"))
    assert find_features(copy, model).shape == (len(store.pixels), 16, 16)
    other = dataclasses.replace(config, model=dataclasses.replace(config.model, backbone="random:1"))
    assert find_features(copy, build_model(other)) is None
    assert find_features(copy, build_model(get_recipe("tworoom-lwm-debug"))) is None
    path.with_suffix(".json").write_text('{"data": "another"}')
    with pytest.raises(BadInput, match="other frames"):
        find_features(copy, model)


@pytest.mark.parametrize("fails", ["replace", "write_json"])
def test_features_are_never_certified_for_other_data(fails, store, varied, tmp_path, monkeypatch):
    """Data that changed in place, and a crash just before the array, or the word for it, is there."""
    data = _copy(store.path, tmp_path / "data")
    model = build_model(get_recipe("tworoom-dino-wm-debug"))
    write_features(Store(data), model, torch.device("cpu"))
    for file in varied.path.iterdir():
        (data / file.name).write_bytes(file.read_bytes())

    def crash(*arguments):
        raise RuntimeError("crash")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="crash"):
        patch.setattr(*{"replace": (Path, "replace"), "write_json": (features, "write_json")}[fails], crash)
        write_features(Store(data), model, torch.device("cpu"))
    assert find_features(Store(data), model) is None
    path = write_features(Store(data), model, torch.device("cpu"))
    assert np.array_equal(find_features(Store(data), model), np.load(path))
    assert sorted(p.suffix for p in path.parent.iterdir()) == [".json", ".npy"]


def test_the_features_command_and_training_from_it(store, tmp_path, capsys):
    data = _copy(store.path, tmp_path / "data")
    assert cli.run(["data", "features", str(data), "tworoom-c-jepa-debug", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["backbone"].startswith("random:0 sha256:")
    out = ["--data", str(data), "--out", str(tmp_path / "run"), "--train.steps", "2"]
    assert cli.run(["train", "tworoom-c-jepa-debug", *out]) == 0
    with pytest.raises(BadInput, match="encoder is trained"):
        cli.run(["data", "features", str(data), "tworoom-lwm-debug"])


def test_proprioception_comes_from_a_column_of_the_data(store, tmp_path):
    config = get_recipe("tworoom-dino-wm-debug")
    model = dataclasses.replace(config.model, proprio="state", proprio_dim=store.columns["state"].shape[1])
    config = dataclasses.replace(config, model=model, train=dataclasses.replace(config.train, steps=2))
    pieces = assemble(config, store, tmp_path / "run", torch.device("cpu"))
    clip = pieces.clips.gather(np.array([3]))
    rows = pieces.clips.frame_rows(np.array([3]))[0]
    assert np.array_equal(clip.proprio[0].numpy(), store.columns["state"][rows])
    fit(pieces)
    wrong = dataclasses.replace(config, model=dataclasses.replace(model, proprio_dim=99))
    with pytest.raises(BadInput, match="no column 'state' of width 99"):
        assemble(wrong, store, tmp_path / "run2", torch.device("cpu"))
