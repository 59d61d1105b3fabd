"""The public LeWM's weights: both generations of names, the same numbers, and refusals."""

import json
import re

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from lrc_jepa import cli
from lrc_jepa.errors import BadInput
from lrc_jepa.models import build_model
from lrc_jepa.models.lewm_weights import convert, rename
from lrc_jepa.models.vit import Pixels
from lrc_jepa.recipes import get_recipe
from lrc_jepa.train.checkpoint import load_checkpoint, newest_checkpoint

transformers = pytest.importorskip("transformers")

FIVE_TO_FOUR = (  # the names of Hugging Face's vision transformer, newest first
    (r"^encoder\.layers\.", "encoder.encoder.layer."),
    (r"attention\.q_proj", "attention.attention.query"),
    (r"attention\.k_proj", "attention.attention.key"),
    (r"attention\.v_proj", "attention.attention.value"),
    (r"attention\.o_proj", "attention.output.dense"),
    (r"mlp\.fc1", "intermediate.dense"),
    (r"mlp\.fc2", "output.dense"),
)


class TheirPredictor(nn.Module):
    """Their module tree, with their names; shapes are all that matters here."""

    def __init__(self, width=12, heads=2, head_dim=4, mlp=24, layers=2):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.randn(1, 3, width))
        block = {
            "attn": nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "to_qkv": nn.Linear(width, 3 * heads * head_dim, bias=False),
                    "to_out": nn.Sequential(nn.Linear(heads * head_dim, width)),
                }
            ),
            "mlp": nn.ModuleDict(
                {
                    "net": nn.Sequential(
                        nn.LayerNorm(width),
                        nn.Linear(width, mlp),
                        nn.GELU(),
                        nn.Identity(),
                        nn.Linear(mlp, width),
                    )
                }
            ),
            "adaLN_modulation": nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width)),
        }
        import copy

        layers = nn.ModuleList(nn.ModuleDict(copy.deepcopy(block)) for _ in range(layers))
        self.transformer = nn.ModuleDict({"norm": nn.LayerNorm(width), "layers": layers})


def their_projector(width=12, hidden=20):
    return nn.ModuleDict(
        {
            "net": nn.Sequential(
                nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.GELU(), nn.Linear(hidden, width)
            )
        }
    )


@pytest.fixture(scope="module")
def theirs():
    torch.manual_seed(0)
    shape = transformers.ViTConfig(
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=24,
        patch_size=8,
        image_size=32,
    )
    tree = nn.ModuleDict(
        {
            "encoder": transformers.ViTModel(shape, add_pooling_layer=False),
            "projector": their_projector(),
            "pred_proj": their_projector(),
            "action_encoder": nn.ModuleDict(
                {
                    "patch_embed": nn.Conv1d(10, 4, 1),
                    "embed": nn.Sequential(nn.Linear(4, 48), nn.SiLU(), nn.Linear(48, 12)),
                }
            ),
            "predictor": TheirPredictor(),
        }
    )
    for name, value in tree.state_dict().items():
        if value.is_floating_point() and "var" not in name:
            value.normal_(std=0.3)
    return tree.eval()


def older(state):
    renamed = {}
    for key, value in state.items():
        for new, old in FIVE_TO_FOUR if key.startswith("encoder.") else ():
            key = re.sub(new, old, key)
        renamed[key] = value
    return renamed


def imported(weights, store, out, *more):
    arguments = ["--data", str(store.path), "--out", str(out), "--head-dim", "4", "--json", *more]
    return cli.run(["import-checkpoint", "lewm", str(weights), *arguments])


def test_names_of_both_generations_lead_to_the_same_place(theirs):
    new = theirs.state_dict()
    old = older(new)
    assert "encoder.encoder.layer.0.attention.attention.query.weight" in old
    assert "encoder.layers.0.attention.q_proj.weight" in new
    assert {rename(k) for k in new} == {rename(k) for k in old} and None not in {rename(k) for k in new}
    assert rename("model._orig_mod.predictor.pos_embedding") == "predictor.positions"


def test_every_name_of_the_paper_sized_model_is_covered():
    ours = set(build_model(get_recipe("tworoom-lwm-paper")).state_dict())
    shape = transformers.ViTConfig(
        hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768, patch_size=14
    )
    with torch.device("meta"):
        tree = {
            "encoder": transformers.ViTModel(shape, add_pooling_layer=False),
            "predictor": TheirPredictor(layers=6),
            "projector": their_projector(),
            "pred_proj": their_projector(),
        }
    names = {rename(f"{part}.{key}") for part, module in tree.items() for key in module.state_dict()}
    assert {name for name in ours if not name.startswith("action_encoder")} == names


@pytest.mark.parametrize("generation", [4, 5])
@pytest.mark.parametrize("form", ["safetensors", "pt", "wrapped"])
def test_imported_weights_give_the_public_models_numbers(generation, form, theirs, store, tmp_path, capsys):
    state = older(theirs.state_dict()) if generation == 4 else theirs.state_dict()
    path = tmp_path / ("w.safetensors" if form == "safetensors" else "w.pt")
    if form == "safetensors":
        save_file({k: v.contiguous() for k, v in state.items()}, path)
    else:
        torch.save(
            {"state_dict": {f"model.{k}": v for k, v in state.items()}} if form == "wrapped" else state, path
        )
    assert imported(path, store, tmp_path / "run") == 0
    assert json.loads(capsys.readouterr().out)["parameters"]["total"] == sum(
        p.numel() for p in theirs.parameters()
    )
    found = load_checkpoint(newest_checkpoint(tmp_path / "run"))
    assert found.config.system == "lwm[imported]" and found.config.clip.history == 3
    frames = torch.randint(0, 256, (2, 3, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        pixels = Pixels()(frames.flatten(0, 1))
        cls = theirs["encoder"](pixel_values=pixels).last_hidden_state[:, 0]
        z = theirs["projector"]["net"](cls).view(2, 3, 1, 12)
        assert torch.allclose(found.model.encode(frames), z, atol=1e-4)
        blocks = torch.randn(2, 3, 10)
        conv = theirs["action_encoder"]["patch_embed"](blocks.transpose(1, 2)).transpose(1, 2)
        told = theirs["action_encoder"]["embed"](conv)
        assert torch.allclose(found.model.action_encoder(blocks), told, atol=1e-4)
        assert torch.allclose(found.model.g_p(cls), theirs["pred_proj"]["net"](cls), atol=1e-4)
        layer, block = theirs["predictor"].transformer["layers"][1], found.model.predictor.blocks[1]
        x = torch.randn(2, 3, 12)
        assert torch.allclose(block.feed_forward(x), layer["mlp"]["net"](x), atol=1e-4)
        assert torch.allclose(block.modulation(x), layer["adaLN_modulation"](x), atol=1e-4)
        assert torch.equal(block.attention.qkv.weight, layer["attn"]["to_qkv"].weight)


def test_the_imported_run_plans(theirs, store, tmp_path):
    save_file({k: v.contiguous() for k, v in theirs.state_dict().items()}, tmp_path / "w.safetensors")
    imported(tmp_path / "w.safetensors", store, tmp_path / "run")
    few = ["--pairs", "2", "--films", "0", "--samples", "4", "--iterations", "1", "--elites", "2"]
    assert cli.run(["plan", str(tmp_path / "run"), *few]) == 0


class Sneaky:
    def __reduce__(self):
        return (print, ("code has run",))


def test_what_does_not_fit_is_refused(theirs, store, tmp_path, capsys):
    good = theirs.state_dict()

    def refuse(state, match, *more):
        torch.save(state, tmp_path / "w.pt")
        with pytest.raises(BadInput, match=match):
            imported(tmp_path / "w.pt", store, tmp_path / "run", *more)

    refuse({**good, "value_head.weight": torch.zeros(3)}, "no 'value_head.weight'")
    refuse({k: v for k, v in good.items() if "pos_embedding" not in k}, "lack 'predictor.positions'")
    refuse({k: v for k, v in good.items() if "projector.net.3.bias" not in k}, "does not fit")
    refuse(good, "action blocks of 10", "--frameskip", "3")
    refuse({"a": 1}, "no state dict")
    refuse({"model": Sneaky()}, "is not read")
    assert "code has run" not in capsys.readouterr().out
    (tmp_path / "w.pt").write_bytes(b"no weights")
    with pytest.raises(BadInput):
        imported(tmp_path / "w.pt", store, tmp_path / "run")
    with pytest.raises(BadInput, match="no weights at"):
        imported(tmp_path / "nothing.pt", store, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_convert_turns_the_pointwise_convolution_into_a_linear_map(theirs):
    made = convert(theirs.state_dict())
    assert made["action_encoder.0.weight"].shape == (4, 10)
