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

# Their name and ours: # is a number and * a word, which are the same in both.
NAMES = """
encoder.embeddings.cls_token                         encoder.class_token
encoder.embeddings.position_embeddings               encoder.positions
encoder.embeddings.patch_embeddings.projection.*     encoder.embed.*
encoder.layernorm.*                                  encoder.norm.*
encoder.layers.#.layernorm_before.*                  encoder.blocks.#.norm1.*
encoder.layers.#.layernorm_after.*                   encoder.blocks.#.norm2.*
encoder.layers.#.attention.q_proj.*                  encoder.blocks.#.attention.q.*
encoder.layers.#.attention.k_proj.*                  encoder.blocks.#.attention.k.*
encoder.layers.#.attention.v_proj.*                  encoder.blocks.#.attention.v.*
encoder.layers.#.attention.o_proj.*                  encoder.blocks.#.attention.out.*
encoder.layers.#.mlp.fc1.*                           encoder.blocks.#.mlp.0.*
encoder.layers.#.mlp.fc2.*                           encoder.blocks.#.mlp.2.*
projector.net.#.*                                    g_z.#.*
pred_proj.net.#.*                                    g_p.#.*
action_encoder.patch_embed.*                         action_encoder.0.*
action_encoder.embed.0.*                             action_encoder.1.*
action_encoder.embed.2.*                             action_encoder.3.*
predictor.pos_embedding                              predictor.positions
predictor.transformer.norm.*                         predictor.norm.*
predictor.transformer.layers.#.attn.norm.*           predictor.blocks.#.attention.norm.*
predictor.transformer.layers.#.attn.to_qkv.*         predictor.blocks.#.attention.qkv.*
predictor.transformer.layers.#.attn.to_out.0.*       predictor.blocks.#.attention.out.0.*
predictor.transformer.layers.#.mlp.net.#.*           predictor.blocks.#.feed_forward.#.*
predictor.transformer.layers.#.adaLN_modulation.1.*  predictor.blocks.#.modulation.1.*
"""
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
    for theirs, ours in map(str.split, NAMES.strip().splitlines()):
        pattern = re.escape(theirs).replace(r"\#", r"(\d+)").replace(r"\*", r"(\w+)")
        if same := re.fullmatch(pattern, key):
            return ours.replace("#", "{}").replace("*", "{}").format(*same.groups())
    return None


def convert(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The public model's state dict under our names; a tensor that has no place here is refused."""
    renamed: dict[str, Tensor] = {}
    for key, value in weights.items():
        ours = rename(key)
        if ours is None:
            raise BadInput(f"these are not the weights of a LeWM: it has no {key!r}")
        pointwise = ours == "action_encoder.0.weight" and value.ndim == 3
        renamed[ours] = value.squeeze(-1) if pointwise else value
    return renamed
