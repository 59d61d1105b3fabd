"""Reading the public LeWorldModel's weights: its names for our modules.

The two networks have the same shapes, so a checkpoint is a renaming; a convolution of width 1 is a
linear map. Its vision transformer is Hugging Face's, whose names changed between transformers 4 and 5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from lrc_jepa.errors import BadInput

WRAPPERS = ("state_dict", "model_state_dict", "model")  # what trainers put around a state dict
PREFIXES = ("model.", "module.", "_orig_mod.")  # what trainers put before a name

# Their name -> ours.
NAMES: tuple[tuple[str, str], ...] = (
    (r"encoder\.embeddings\.cls_token", "encoder.class_token"),
    (r"encoder\.embeddings\.position_embeddings", "encoder.positions"),
    (r"encoder\.embeddings\.patch_embeddings\.projection\.(\w+)", r"encoder.embed.\1"),
    (r"encoder\.layernorm\.(\w+)", r"encoder.norm.\1"),
    (r"encoder\.layers\.(\d+)\.layernorm_before\.(\w+)", r"encoder.blocks.\1.norm1.\2"),
    (r"encoder\.layers\.(\d+)\.layernorm_after\.(\w+)", r"encoder.blocks.\1.norm2.\2"),
    (r"encoder\.layers\.(\d+)\.attention\.([qkv])_proj\.(\w+)", r"encoder.blocks.\1.attention.\2.\3"),
    (r"encoder\.layers\.(\d+)\.attention\.o_proj\.(\w+)", r"encoder.blocks.\1.attention.out.\2"),
    (r"encoder\.layers\.(\d+)\.mlp\.fc1\.(\w+)", r"encoder.blocks.\1.mlp.0.\2"),
    (r"encoder\.layers\.(\d+)\.mlp\.fc2\.(\w+)", r"encoder.blocks.\1.mlp.2.\2"),
    (r"projector\.net\.(\d+)\.(\w+)", r"g_z.\1.\2"),
    (r"pred_proj\.net\.(\d+)\.(\w+)", r"g_p.\1.\2"),
    (r"action_encoder\.patch_embed\.(\w+)", r"action_encoder.0.\1"),
    (r"action_encoder\.embed\.0\.(\w+)", r"action_encoder.1.\1"),
    (r"action_encoder\.embed\.2\.(\w+)", r"action_encoder.3.\1"),
    (r"predictor\.pos_embedding", "predictor.positions"),
    (r"predictor\.transformer\.norm\.(\w+)", r"predictor.norm.\1"),
    (r"predictor\.transformer\.layers\.(\d+)\.attn\.norm\.(\w+)", r"predictor.blocks.\1.attention.norm.\2"),
    (r"predictor\.transformer\.layers\.(\d+)\.attn\.to_qkv\.(\w+)", r"predictor.blocks.\1.attention.qkv.\2"),
    (
        r"predictor\.transformer\.layers\.(\d+)\.attn\.to_out\.0\.(\w+)",
        r"predictor.blocks.\1.attention.out.0.\2",
    ),
    (
        r"predictor\.transformer\.layers\.(\d+)\.mlp\.net\.(\d+)\.(\w+)",
        r"predictor.blocks.\1.feed_forward.\2.\3",
    ),
    (
        r"predictor\.transformer\.layers\.(\d+)\.adaLN_modulation\.1\.(\w+)",
        r"predictor.blocks.\1.modulation.1.\2",
    ),
)

# The vision transformer's names in transformers 4 -> those in transformers 5.
OLDER: tuple[tuple[str, str], ...] = (
    (r"encoder\.encoder\.layer\.(\d+)\.", r"encoder.layers.\1."),
    (r"\.attention\.attention\.query\.", ".attention.q_proj."),
    (r"\.attention\.attention\.key\.", ".attention.k_proj."),
    (r"\.attention\.attention\.value\.", ".attention.v_proj."),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"(encoder\.layers\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
)


def rename(key: str) -> str | None:
    """Our name for one of theirs, or None."""
    while stripped := next((p for p in PREFIXES if key.startswith(p)), None):
        key = key.removeprefix(stripped)
    for older, newer in OLDER:
        key = re.sub(older, newer, key)
    return next((re.sub(theirs, ours, key) for theirs, ours in NAMES if re.fullmatch(theirs, key)), None)


def convert(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The public model's state dict under our names; a tensor that has no place here is refused."""
    made: dict[str, Tensor] = {}
    for key, value in weights.items():
        ours = rename(key)
        if ours is None:
            raise BadInput(f"these are not the weights of a LeWM: it has no {key!r}")
        pointwise = ours == "action_encoder.0.weight" and value.ndim == 3
        made[ours] = value.squeeze(-1) if pointwise else value
    return made
