"""Every run by its name, `{world}-{system}-{size}`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lrc_jepa.config import RunConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.backbones import BackboneName, is_original
from lrc_jepa.plugins import Table
from lrc_jepa.recipes import systems
from lrc_jepa.recipes.extensions import SHARP, SPLIT, extended
from lrc_jepa.recipes.settings import known_worlds, setting_of
from lrc_jepa.recipes.sizes import SIZES

SYSTEMS: Table[Callable[[RunConfig], RunConfig]] = Table(
    "systems",
    {
        "lrc": systems.lrc,
        "lrc+idm": extended(systems.lrc, "idm"),
        "lrc+moving": extended(systems.lrc, "moving"),
        "lrc+within": extended(systems.lrc, "within"),
        "lrc+split": extended(systems.lrc, *SPLIT, "moving", "apart"),
        "lrc+slow+idm+drawn": extended(systems.lrc, "slow", "idm", "drawn"),
        "lrc+sharp": extended(systems.lrc, *SHARP),
        "lwm+idm": extended(systems.lwm, "idm"),
        "lwm+within": extended(systems.lwm, "within"),
        "lwm+within+idm": extended(systems.lwm, "within", "idm"),
        "lwm+within+slow": extended(systems.lwm, "within", "slow"),
        "lwm+slow+idm": extended(systems.lwm, "slow", "idm"),
        "lwm+sharp": extended(systems.lwm, *SHARP),
        "lwm+points": extended(systems.lwm, "points", "idm"),
        "lwm+points+proposals": extended(systems.lwm, "points", "idm", "proposals"),
        "lwm+split": extended(systems.lwm, *SPLIT),
        "lrc-z": systems.lrc_z,
        "lwm": systems.lwm,
        "lwm-0.05": systems.lwm_matched,
        "pldm": systems.pldm,
        "dino-wm": systems.dino_wm,
        "vjepa2-gap-ac": systems.gap_ac,
        "c-jepa": systems.c_jepa,
        "eb-jepa": systems.eb_jepa,
    },
)


def reported_name(config: RunConfig, recipe: RunConfig) -> str:
    """The name under which results are reported.

    Another backbone than the authors' is named in brackets; a model or objective that is no longer
    the recipe's carries a star.
    """
    _, system, _ = split_name(config.recipe)
    backbone = config.model.backbone
    kind = BackboneName.parse(backbone).kind if backbone else ""
    stand_in = bool(backbone) and not (kind == systems.ORIGINALS.get(system) and is_original(backbone))
    known = (
        config.model
        if bool(backbone) != bool(recipe.model.backbone)
        else replace(config.model, backbone=recipe.model.backbone)
    )
    changed = (known, config.objective) != (recipe.model, recipe.objective)
    return system + f"[{kind}]" * stand_in + "*" * changed


def recipe_names() -> list[str]:
    """Every recipe there is."""
    return [f"{world}-{system}-{size}" for world in known_worlds() for system in SYSTEMS for size in SIZES]


def split_name(name: str) -> tuple[str, str, str]:
    """world-system-size; a system's name may hold hyphens of its own."""
    world, _, rest = name.partition("-")
    system, _, size = rest.rpartition("-")
    return world, system, size


def get_recipe(name: str) -> RunConfig:
    """The configuration with this name."""
    world, system, size = split_name(name)
    for value, known, what in (
        (world, known_worlds(), "world"),
        (system, SYSTEMS, "system"),
        (size, SIZES, "size"),
    ):
        if value not in known:
            raise BadInput(
                f"there is no recipe {name!r}: a recipe is world-system-size, and the {what} must be one "
                f"of {', '.join(known)}"
            )
    base = replace(SIZES[size](setting_of(world)), recipe=name, world=world, system=system, size=size)
    config = SYSTEMS[system](base)
    return replace(config, system=reported_name(config, config))
