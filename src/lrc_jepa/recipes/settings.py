"""What each world asks of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lrc_jepa.config import TrainConfig
from lrc_jepa.envs import WORLDS, get_world


@dataclass(frozen=True)
class Setting:
    """What a world or dataset family asks of a run."""

    action_dim: int
    clips: int
    """Training clips in the published dataset: nine tenths of rows - 15 x episodes, for estimates."""
    paper: TrainConfig = TrainConfig()
    blocks: int = 8
    """Most action blocks that a clip can span: some datasets have short episodes."""
    feedback: bool = False
    """Whether micro recipes look and plan again after every block: where things have weight, or slip."""


SETTINGS: dict[str, Setting] = {
    "tworoom": Setting(action_dim=2, clips=693_728),
    "pusht": Setting(action_dim=2, clips=1_850_814, feedback=True),
    "reacher": Setting(action_dim=2, clips=1_674_000, feedback=True),
    "cube": Setting(action_dim=5, clips=1_674_000, feedback=True),
    "bridge": Setting(
        action_dim=7, clips=985_631, paper=TrainConfig(epochs=20, batch_size=192, lr=5e-4), blocks=3
    ),
    "robot": Setting(action_dim=7, clips=985_631, blocks=3),
}
ANY_ACTIONS = ("robot",)  # settings whose action width comes from the data


def known_worlds() -> list[str]:
    """Worlds and dataset families that recipes are for; a world that was added is one of them."""
    return list(dict.fromkeys([*SETTINGS, *WORLDS]))


def setting_of(world: str) -> Setting:
    """What a world asks of a run: one that was added is estimated at as many clips as TwoRoom."""
    if world in SETTINGS:
        return SETTINGS[world]
    return replace(SETTINGS["tworoom"], action_dim=len(get_world(world).action_low))
