"""Masks from any segmenter, and from SAM 3 with tiny random weights of the real class."""

import json
import sys

import numpy as np
import pytest
import torch

from lrc_jepa.commands import data, examine
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.masks import choose_rows, make_masks, read_masks
from lrc_jepa.evaluate.sam3 import Sam3Config, Sam3Segmenter, _paint, load_sam3
from lrc_jepa.rows import read_rows


def red_dot(frames):
    """TwoRoom's own mask: the red dot is what moves."""
    return np.where((frames[..., 0] > 200) & (frames[..., 1] < 120), 2, 0).astype(np.uint8)


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """A module of somebody else's with a segmenter in it."""
    (tmp_path / "theirs.py").write_text(
        "import numpy as np\n"
        "calls = []\n"
        "def segment(frames):\n"
        "    calls.append(frames.shape)\n"
        "    return np.where((frames[..., 0] > 200) & (frames[..., 1] < 120), 2, 0)\n"
        "def wrong(frames):\n"
        "    return np.full(frames.shape[:2], 9)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("theirs", None)


def test_rows_are_spread_over_episodes(store):
    rows = choose_rows(store, 40, 8)
    episode = np.searchsorted(store.ep_offset, rows, side="right") - 1
    assert len(rows) == 40 and len(set(episode)) == 5 and (np.diff(rows) > 0).all()
    assert rows[0] == 0 and rows[7] == store.ep_len[0] - 1
    assert len(choose_rows(store, 10**6, 4)) == 4 * store.episodes
    with pytest.raises(BadInput):
        choose_rows(store, 0, 8)


def test_a_segmenter_sees_one_episode_at_a_time_in_order(store, tmp_path):
    seen = []
    starts = store.ep_offset
    rows = np.array([3, 1, 2, int(starts[1]) + 5, int(starts[1]) + 6])

    def segment(frames):
        seen.append(frames)
        return red_dot(frames)

    make_masks(store, rows, segment, tmp_path / "m.npz")
    assert [len(f) for f in seen] == [3, 2]
    assert np.array_equal(seen[0], store.pixels[[1, 2, 3]])
    kept, labels = read_masks(tmp_path / "m.npz", store)
    assert kept.tolist() == sorted(rows.tolist()) and np.array_equal(labels, red_dot(store.pixels[kept]))


def test_masks_by_command_then_probes(store, run, tmp_path, on_path):
    out = tmp_path / "masks.npz"
    work = [str(store.path), "--segmenter", "theirs:segment", "--frames", "240", "--per-episode", "20"]
    made = data.main(["masks", *work, "--out", str(out)])
    assert made["frames"] == 240 and made["seen_in"]["moving"] == 1.0 and made["seen_in"]["gripper"] == 0.0
    with pytest.raises(BadInput, match="already exists"):
        data.main(["masks", *work, "--out", str(out)])
    examine.main("probe", [str(run), "--masks", str(out), "--kinds", "ridge", "--out", str(tmp_path)])
    found = {row["quantity"] for row in read_rows(tmp_path / "results.jsonl", "probe")}
    assert found == {"moving_centroid", "moving_rgb", "background_centroid", "background_rgb"}
    with pytest.raises(BadInput, match=r"labels of shape .* 9"):
        data.main(["masks", str(store.path), "--segmenter", "theirs:wrong", "--out", str(tmp_path / "n.npz")])
    assert not (tmp_path / "n.npz").exists()


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (["--segmenter", "theirs:nothing"], "no segmenter"),
        (["--segmenter", "no_such_module:f"], "no segmenter"),
        (["--segmenter", "cloud"], "no segmenter"),
        ([], "pass --weights"),
        (["--weights", "nowhere"], "no SAM 3 weights"),
    ],
)
def test_a_segmenter_that_is_not_there_is_one_sentence(store, tmp_path, on_path, work, words):
    with pytest.raises(BadInput, match=words):
        data.main(["masks", str(store.path), "--out", str(tmp_path / "m.npz"), *work])


def test_sam3_without_its_package_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(BadInput, match="pip install"):
        load_sam3(tmp_path, Sam3Config(), torch.device("cpu"))


def test_the_label_map_keeps_the_best_instance_of_each_kind():
    change = np.zeros((4, 8))
    change[:, 4:] = 1.0  # the right half differs from the episode's median frame

    def at(*columns):
        mask = np.zeros((4, 8), bool)
        mask[:, list(columns)] = True
        return mask

    none = (np.zeros((0, 4, 8), bool), np.zeros(0))
    grip = (np.stack([at(3, 4)]), np.array([0.9]))
    things = (np.stack([at(0), at(1), at(4, 5), at(6)]), np.array([0.5, 0.8, 0.7, 0.6]))
    assert _paint([grip, things], change, 0.1)[0].tolist() == [0, 3, 0, 1, 1, 2, 0, 0]
    assert _paint([none, things], change, 0.1)[0].tolist() == [0, 3, 0, 0, 2, 2, 0, 0]
    assert not _paint([none, none], change, 0.1).any()


@pytest.fixture(scope="module")
def sam3_folder(tmp_path_factory):
    """SAM 3 as published, but tiny and untrained, with a tokenizer of single letters."""
    pytest.importorskip("transformers")
    from transformers import CLIPTokenizer
    from transformers import Sam3Config as Shape
    from transformers.models.sam3.modeling_sam3 import Sam3Model

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("sam3")
    letters = [chr(c) for c in range(97, 123)]
    tokens = [*letters, *(f"{c}</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    CLIPTokenizer.from_pretrained(folder).save_pretrained(folder)
    small = {"hidden_size": 32, "num_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    backbone = {
        **{
            "model_type": "sam3_vit_model",
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
        },
        **{"num_attention_heads": 2, "image_size": 56, "patch_size": 14, "window_size": 2},
        **{"global_attn_indexes": [1], "pretrain_image_size": 56},
    }
    sizes = [[16, 16], [8, 8], [4, 4]]
    text = {
        **{
            "model_type": "clip_text_model",
            "vocab_size": len(tokens),
            "hidden_size": 32,
            "projection_dim": 32,
        },
        **{"intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_act": "gelu"},
        **{"max_position_embeddings": 32, "bos_token_id": 52, "eos_token_id": 53},
    }
    shape = Shape(
        vision_config={"backbone_config": backbone, "fpn_hidden_size": 32, "backbone_feature_sizes": sizes},
        text_config=text,
        geometry_encoder_config=small,
        detr_encoder_config=small,
        detr_decoder_config={**small, "num_queries": 4},
        mask_decoder_config={"hidden_size": 32, "num_attention_heads": 2},
    )
    Sam3Model(shape).save_pretrained(folder)
    return folder


def test_sam3_is_read_from_a_folder_and_labels_frames(store, sam3_folder, tmp_path):
    few = ["--frames", "6", "--per-episode", "3", "--objects", "red dot", "wall", "--score", "0"]
    weights = ["--weights", str(sam3_folder), "--out", str(tmp_path / "m.npz")]
    made = data.main(["masks", str(store.path), *weights, *few])
    rows, labels = read_masks(tmp_path / "m.npz", store)
    assert made["frames"] == len(rows) == 6 and labels.shape == (6, 32, 32)
    segmenter = load_sam3(sam3_folder, Sam3Config(score=0.0, batch=2), torch.device("cpu"))
    found = segmenter.instances(store.pixels[:3], ["dot", "robot gripper"])
    assert len(found) == 2 and len(found[0]) == 3
    masks, scores = found[0][0]
    assert masks.shape == (4, 32, 32) and masks.dtype == bool
    assert (np.diff(scores) <= 0).all() and ((scores > 0) & (scores < 1)).all()
    strict = Sam3Segmenter(segmenter.model, segmenter.tokenizer, Sam3Config(score=0.999))
    assert not strict(store.pixels[:3]).any()


def test_sam3_reads_its_outputs_as_the_published_processor_does(store, sam3_folder):
    """Resize, scale, sigmoid, presence and threshold by hand on the model's own answer."""
    segmenter = load_sam3(sam3_folder, Sam3Config(score=0.0), torch.device("cpu"))
    frames = store.pixels[:2]
    pixels = torch.from_numpy(np.array(frames)).permute(0, 3, 1, 2).float()
    grown = torch.nn.functional.interpolate(pixels, (56, 56), mode="bilinear", antialias=True)
    words = segmenter.tokenizer(["dot"] * 2, padding="max_length", max_length=32, return_tensors="pt")
    with torch.no_grad():
        told = segmenter.model(
            pixel_values=grown / 127.5 - 1,
            input_ids=words["input_ids"],
            attention_mask=words["attention_mask"],
        )
    expected = (told.pred_logits.sigmoid() * told.presence_logits.sigmoid())[1].sort(descending=True).values
    masks, scores = segmenter.instances(frames, ["dot"])[0][1]
    assert np.allclose(scores, expected.numpy(), atol=1e-5)
    best = (told.pred_logits[1]).argmax()
    drawn = torch.nn.functional.interpolate(
        told.pred_masks[1:, best][None].sigmoid(), (32, 32), mode="bilinear"
    )
    assert (masks[0] == (drawn[0, 0] > 0.5).numpy()).mean() > 0.99


def test_damaged_sam3_weights_are_one_sentence(sam3_folder, tmp_path):
    import shutil

    broken = tmp_path / "sam3"
    shutil.copytree(sam3_folder, broken)
    (broken / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(BadInput, match="cannot be read"):
        load_sam3(broken, Sam3Config(), torch.device("cpu"))
