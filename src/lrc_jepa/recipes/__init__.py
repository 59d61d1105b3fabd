"""Named runs, `{world}-{system}-{size}`: the only place where numbers are combined.

Sizes: `paper` has the paper's numbers exactly; `micro` learns in minutes on two CPU cores by the
same code; `debug` is the smallest thing that runs every line.
"""

from lrc_jepa.recipes.extensions import EXTENSIONS
from lrc_jepa.recipes.names import SYSTEMS, get_recipe, recipe_names, reported_name, split_name
from lrc_jepa.recipes.searches import MICRO_PLAN, PROTOCOLS, UNMEASURED, by_protocol, protocol_of
from lrc_jepa.recipes.settings import ANY_ACTIONS, SETTINGS, known_worlds, setting_of
from lrc_jepa.recipes.sizes import SIZES
from lrc_jepa.recipes.systems import ONE_STREAM

__all__ = [
    "ANY_ACTIONS",
    "EXTENSIONS",
    "MICRO_PLAN",
    "ONE_STREAM",
    "PROTOCOLS",
    "SETTINGS",
    "SIZES",
    "SYSTEMS",
    "UNMEASURED",
    "by_protocol",
    "get_recipe",
    "known_worlds",
    "protocol_of",
    "recipe_names",
    "reported_name",
    "setting_of",
    "split_name",
]
