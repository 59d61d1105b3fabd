"""A run that shall be trained: it is, or is continued, or is made."""

from __future__ import annotations

from pathlib import Path

from lrc_jepa.config import RunConfig
from lrc_jepa.config_tree import differences
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.library import fit_widths, train
from lrc_jepa.training.assemble import count_batches, total_steps
from lrc_jepa.training.bar import training_bar
from lrc_jepa.training.checkpoint import list_checkpoints, load_checkpoint


def is_trained(config: RunConfig, data: Path, out: Path) -> bool:
    """Whether a run has been trained to its last step; one of another kind in its place is refused."""
    store, done = Store(data), list_checkpoints(out)
    config = fit_widths(config, store)
    if not done or int(done[-1].name) < total_steps(config, count_batches(config, store)):
        return False
    finished = load_checkpoint(done[-1])
    changed = "; ".join(differences(finished.config, config))
    if changed:
        raise BadInput(f"{out} holds a run with another configuration ({changed}); choose another folder")
    if finished.provenance["data"] != store.digest():
        raise BadInput(f"{out} holds a run that was trained on another dataset; choose another folder")
    return True


def ensure_trained(config: RunConfig, data: Path, out: Path, device: str = "auto") -> Path:
    """Train a run, continue it where it stopped, or leave it as it is when it is finished."""
    if not is_trained(config, data, out):
        begun = bool(list_checkpoints(out))
        with training_bar(config) as watch:
            train(config, data, out, resume=begun, overwrite=not begun, device=device, watch=watch)
    return list_checkpoints(out)[-1]
