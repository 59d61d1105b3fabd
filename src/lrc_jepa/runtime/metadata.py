"""What lies beside an exported model's graphs, `export.json`: written by `lrc export`, read here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arrays import Array
from lrc_jepa.config import PlanConfig
from lrc_jepa.config_tree import from_dict, to_dict
from lrc_jepa.errors import BadInput
from lrc_jepa.files import file_digest, read_json, write_json
from lrc_jepa.runtime.box import Box

FORMAT = 1
FILE, GOLDEN = "export.json", "golden.npz"


@dataclass(frozen=True)
class Shape:
    """The sizes of a model: those of its `Spec`, and the tokens of its context."""

    history: int
    width: int
    action_dim: int
    frameskip: int
    image_size: int
    context: int
    """Q, the tokens of u; 0 where the model has no second stream."""


@dataclass(frozen=True)
class Metadata:
    """Where a model comes from, how it is used, and what its files must be."""

    system: str
    world: str
    recipe: str
    step: int
    checkpoint: str
    """SHA-256 of the weights that were exported."""
    precision: str
    """float32, or int8: weights and the products with them."""
    shape: Shape
    deployment: dict[str, Any]
    """All that the checkpoint knows of camera and robot, as it says it."""
    plan: PlanConfig
    rows: int
    """Plans that are imagined at once, for `plan.memory_mb`."""
    tolerance: float
    """How far an answer may lie from its golden vector."""
    made_with: dict[str, str]
    files: dict[str, str]
    """Name -> SHA-256."""
    success: dict[str, Any] | None = None
    """What it reached on pairs of its run, beside the model it was made from, where that was measured."""

    def write(self, folder: Path) -> None:
        """Beside the files it speaks of."""
        write_json(folder / FILE, {"format": FORMAT, **asdict(self), "plan": to_dict(self.plan)})

    @classmethod
    def read(cls, folder: Path) -> Metadata:
        """What `write` wrote, every file it names as it was."""
        what = f"exported model {folder}"
        value = read_json(folder / FILE, what)
        if (written := value.pop("format", None)) != FORMAT:
            raise BadInput(f"{what} has format {written}, not {FORMAT}")
        try:
            shape, plan = Shape(**value["shape"]), from_dict(PlanConfig, value["plan"], f"{what}: plan")
            metadata = cls(**{**value, "shape": shape, "plan": plan})
            metadata.box()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"{what}: {FILE} is not one of an exported model ({error!r})") from None
        for name, sha in metadata.files.items():
            if not (folder / name).is_file():
                raise BadInput(f"{what} is damaged: {name} is missing")
            if file_digest(folder / name) != sha:
                raise BadInput(f"{what} is damaged: {name} is not the file that was exported")
        return metadata

    @property
    def proprio(self) -> str:
        """What the robot must tell of itself, by the name of its column in the data; empty: nothing."""
        return str(self.deployment.get("proprio", ""))

    @property
    def proprio_width(self) -> int:
        """P, the numbers of it that end a state."""
        return int(self.deployment["spec"].get("proprio", 0))

    def box(self) -> Box:
        """The limits of an action block."""
        known = self.deployment
        lists: dict[str, Array] = {
            "low": known["action_low"],
            "high": known["action_high"],
            "mean": known["normalizer"]["mean"],
            "std": known["normalizer"]["std"],
        }
        if known.get("action_change") is not None:
            lists["change"] = known["action_change"]
        return Box.of(lists, self.shape.frameskip)
