"""`lrc import-checkpoint`: read weights that were trained elsewhere into a checkpoint of ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lrc_jepa.arguments import Positional, Unprefixed, parse
from lrc_jepa.console import say
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.folders import check_writable
from lrc_jepa.locks import lock
from lrc_jepa.models import count_parameters
from lrc_jepa.run import Run
from lrc_jepa.training.foreign_weights import Unsaid, read_lewm, save_foreign


@dataclass(frozen=True)
class ImportArgs:
    """Which weights, and the data they are to be used with."""

    kind: Positional[Literal["lewm"]]
    """What they are of: lewm, the public LeWorldModel."""
    weights: Positional[Path]
    """A state dict: .safetensors, or what torch.save wrote (read without running code)."""
    data: Path
    """Dataset whose training episodes give the action normaliser, and whose world is planned in."""
    out: Path
    """Folder of the run that is made."""
    unsaid: Unprefixed[Unsaid] = Unsaid()
    overwrite: bool = False
    """Replace what is there."""


def main(argv: list[str]) -> dict[str, Any]:
    """Map the names, check that every tensor fits, and write a run with one checkpoint."""
    examples = (
        "lrc import-checkpoint lewm weights.safetensors --data datasets/pusht-published --out runs/lewm",
    )
    about = "Make a run with one checkpoint from weights trained elsewhere."
    args = parse(ImportArgs, argv, "import-checkpoint", about, examples=examples)
    check_writable(args.out)
    if args.out.exists() and not args.overwrite:
        raise BadInput(f"{args.out} already exists; choose another folder or pass --overwrite")
    store = Store(args.data)
    config, model = read_lewm(args.weights, store, args.unsaid)
    checkpoint = args.out / "checkpoints" / f"{0:08d}"
    with lock(args.out):
        Run(args.out).describe(config, args.data)
        save_foreign(checkpoint, config, model, store, args.weights)
    counts = count_parameters(model)
    say(f"{counts['total']:,} parameters of {args.weights} are now {checkpoint}")
    say("its action normaliser is that of the dataset's training episodes; lrc plan uses both")
    return {"run": str(args.out), "checkpoint": str(checkpoint), "parameters": counts}
