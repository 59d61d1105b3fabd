"""Where a run begins: at its first step, or where its newest whole checkpoint left it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from lrc_jepa.collective import rank
from lrc_jepa.config import RunConfig, TrainConfig
from lrc_jepa.config_tree import differences
from lrc_jepa.errors import BadInput
from lrc_jepa.locks import lock
from lrc_jepa.training.assemble import Pieces
from lrc_jepa.training.checkpoint import (
    list_checkpoints,
    load_checkpoint,
    load_resume,
    restore_optimizer,
    sweep,
)
from lrc_jepa.training.distributed import agree
from lrc_jepa.training.progress import Progress, Watcher
from lrc_jepa.training.saving import writing

# Fields of TrainConfig that may differ between a run and its resumption: no weight depends on them.
UPKEEP = ("log_every", "health_every", "save_every", "keep", "prefetch", "readers", "memory", "explosion")


def start_run(pieces: Pieces, resume: bool, watch: Watcher, held: ExitStack) -> int:
    """The step to go on from, on every process; weights and optimiser are those of rank 0."""
    step = 0
    if rank() == 0:
        try:
            with writing(pieces.run):
                held.enter_context(lock(pieces.run))
                sweep(pieces.run)
            step = resume_run(pieces, watch) if resume else 0
        except BadInput:
            agree(-1, pieces.optimizer)
            raise
    step = agree(step, pieces.optimizer)
    pieces.share()
    return step


def resume_run(pieces: Pieces, watch: Watcher) -> int:
    """Continue from the newest checkpoint that is whole; a damaged one is passed over, and said so."""
    saved = list_checkpoints(pieces.run)
    for path in reversed(saved):
        try:
            checkpoint, state = load_checkpoint(path), load_resume(path)
        except BadInput as error:
            watch(Progress(0, pieces.steps, warning=f"{error}; trying the checkpoint before it"))
            continue
        if _numbers(checkpoint.config) != _numbers(pieces.config):
            changed = "; ".join(differences(_numbers(checkpoint.config), _numbers(pieces.config)))
            raise BadInput(
                f"{pieces.run} was started with another configuration ({changed}); it cannot be resumed"
            )
        if checkpoint.provenance["data"] != pieces.origin["data"]:
            raise BadInput(f"{pieces.run} was trained on another dataset; it cannot be resumed")
        pieces.model.load_state_dict(checkpoint.model.state_dict())
        pieces.origin |= {
            key: checkpoint.provenance[key] for key in ("init",) if key in checkpoint.provenance
        }
        pieces.first_total = float(state.pop("first_total"))
        restore_optimizer(pieces.model, pieces.optimizer, state)
        return checkpoint.step
    if saved:
        raise BadInput(f"none of the checkpoints under {pieces.run} can be resumed; --overwrite starts again")
    return 0


def _numbers(config: RunConfig) -> RunConfig:
    """The part of a configuration that the weights depend on."""
    plain = {name: getattr(TrainConfig(), name) for name in UPKEEP}
    return replace(config, train=replace(config.train, **plain))
