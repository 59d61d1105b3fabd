"""The public LeWM's weights: both generations of names, the same numbers by a second implementation, and refusals."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.special import erf
from torch import nn

from lrc_jepa import cli
from lrc_jepa.errors import BadInput
from lrc_jepa.models import build_model
from lrc_jepa.models.lewm_weights import convert, rename
from lrc_jepa.models.vit import Pixels
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training.checkpoint import load_checkpoint, newest_checkpoint

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


def norm(x, weight=1.0, bias=0.0, eps=1e-5):
    """Layer norm of rows (n,w)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return weight * centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps) + bias


def gelu(x):
    return x * (1 + erf(x / np.sqrt(2))) / 2


def silu(x):
    return x / (1 + np.exp(-x))


def their_attention(x, w, heads):
    """Causal attention over rows (k,w), position by position and head by head."""
    x = norm(x, w["norm.weight"], w["norm.bias"])
    q, k, v = np.split(x @ w["to_qkv.weight"].T, 3, axis=-1)
    size = q.shape[1] // heads
    mixed = np.zeros_like(q)
    for head in range(heads):
        columns = slice(head * size, (head + 1) * size)
        for now in range(len(x)):
            scores = np.exp(k[: now + 1, columns] @ q[now, columns] / np.sqrt(size))
            mixed[now, columns] = (scores / scores.sum()) @ v[: now + 1, columns]
    return mixed @ w["to_out.0.weight"].T + w["to_out.0.bias"]


def their_prediction(state, z, blocks, heads=2):
    """The public model's next latents (k,w) of one clip: z (k,w), action blocks (k,A).

    Of a block's six modulations the first three are for attention, the last three for the MLP, in the
    order shift, scale, gate; a norm without weights is modulated, then attention and MLP norm once more.
    """

    def part(prefix):
        return {k.removeprefix(prefix): v.double().numpy() for k, v in state.items() if k.startswith(prefix)}

    w = part("action_encoder.")
    code = blocks @ w["patch_embed.weight"][:, :, 0].T + w["patch_embed.bias"]
    code = silu(code @ w["embed.0.weight"].T + w["embed.0.bias"]) @ w["embed.2.weight"].T + w["embed.2.bias"]
    w = part("predictor.")
    x = z + w["pos_embedding"][0, : len(z)]
    layers = len([k for k in w if k.endswith("attn.to_qkv.weight")])
    for layer in range(layers):
        w = part(f"predictor.transformer.layers.{layer}.")
        told = silu(code) @ w["adaLN_modulation.1.weight"].T + w["adaLN_modulation.1.bias"]
        at = [told[:, i * x.shape[1] : (i + 1) * x.shape[1]] for i in range(6)]
        seen = norm(x, eps=1e-6) * (1 + at[1]) + at[0]
        attention = part(f"predictor.transformer.layers.{layer}.attn.")
        x = x + at[2] * their_attention(seen, attention, heads)
        seen = norm(x, eps=1e-6) * (1 + at[4]) + at[3]
        seen = norm(seen, w["mlp.net.0.weight"], w["mlp.net.0.bias"])
        hidden = gelu(seen @ w["mlp.net.1.weight"].T + w["mlp.net.1.bias"])
        x = x + at[5] * (hidden @ w["mlp.net.4.weight"].T + w["mlp.net.4.bias"])
    w = part("predictor.transformer.norm.")
    x = norm(x, w["weight"], w["bias"])
    w = part("pred_proj.net.")
    x = x @ w["0.weight"].T + w["0.bias"]
    x = (x - w["1.running_mean"]) / np.sqrt(w["1.running_var"] + 1e-5) * w["1.weight"] + w["1.bias"]
    return gelu(x) @ w["3.weight"].T + w["3.bias"]


class TheirPredictor(nn.Module):
    """Their module tree, with their names; what it computes is `their_prediction`."""

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
        for known in (1, 2, 3):
            ours = found.model.predict(z[:, :known], blocks[:, :known])[:, :, 0]
            for clip in range(2):
                past, moves = z[clip, :known, 0].double().numpy(), blocks[clip, :known].double().numpy()
                by_hand = their_prediction(theirs.state_dict(), past, moves)
                np.testing.assert_allclose(ours[clip].numpy(), by_hand, rtol=1e-3, atol=1e-3)


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
