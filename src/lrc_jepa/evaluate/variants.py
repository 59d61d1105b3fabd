"""The figures that variants of a recipe are compared by."""

from __future__ import annotations

from dataclasses import dataclass

from lrc_jepa.envs import simulated
from lrc_jepa.evaluate.closed_loop import episode_rows, run
from lrc_jepa.evaluate.interventions import intervene, trajectory_rows
from lrc_jepa.evaluate.manifest import draw_manifest
from lrc_jepa.evaluate.probes import ProbeConfig, draw_frames, probe_table, stored_quantities
from lrc_jepa.evaluate.ranking import RecoveryConfig, draw_scenes, rank_scenes
from lrc_jepa.evaluate.recall import summarize_recovery
from lrc_jepa.evaluate.success import summarize
from lrc_jepa.protocols import Factored
from lrc_jepa.records import Control, Recovery, parsed
from lrc_jepa.run import Run
from lrc_jepa.training.streams import frame_streams, probe_features


@dataclass(frozen=True)
class Protocol:
    """How every variant is measured."""

    pairs: int = 50
    """Start-goal pairs for planning; 0: do not plan."""
    scenes: int = 100
    """Scenes of expert-action recovery."""


def measure(opened: Run, protocol: Protocol) -> dict[str, float]:
    """Recall and rank, linear probes of z, reconstruction, and planning where there is a simulator."""
    deployment, store = opened.checkpoint.deployment, opened.store
    recovery = RecoveryConfig(scenes=protocol.scenes)
    held, spec, columns = opened.split.heldout, deployment.spec, deployment.columns(store)
    drawn = draw_scenes(store, held, spec, deployment.normalizer, recovery, columns)
    stamp = opened.stamp()
    ranked = [Recovery.of(stamp, r) for r in rank_scenes(opened.model, drawn, "gaussian", recovery)]
    recalls = summarize_recovery(ranked, "gaussian", recovery.horizon)["model"]
    figures = {name: value for name, value in recalls.items() if name != "rank_error"}
    fit, test = draw_frames(store, ProbeConfig(frames=4000))
    known, unseen = (probe_features(frame_streams(opened.model, store, rows)) for rows in (fit, test))
    quantities = stored_quantities(store, fit, test)
    for row in probe_table({"z": (known["z"], unseen["z"])}, quantities, 0, ["ridge", "ridge-cv"]):
        if not row["control"]:
            figures[f"{row['probe']} r, {row['quantity']}"] = row["r"]
    if isinstance(opened.model, Factored):
        rows = trajectory_rows(store, opened.split.heldout[:16], 8)
        rebuilt = intervene(opened.model, store, rows, seed=0)[0][0]
        figures |= {name: rebuilt[name] for name in ("mse", "psnr", "ssim")}
    if protocol.pairs and simulated(store):
        figures["success"] = plan_success(opened, protocol.pairs)
    return figures


def plan_success(opened: Run, pairs: int) -> float:
    """Closed-loop success on pairs that depend on the data alone."""
    config, spec = opened.checkpoint.config, opened.checkpoint.deployment.spec
    manifest = draw_manifest(opened.store, opened.split, config.clip, config.plan, pairs)
    policy = opened.policy()
    happened = run(policy, opened.store, manifest, config.plan, spec.frameskip, spec.image_size)
    rows = episode_rows(config.system, happened, manifest, opened.stamp(), policy)
    return summarize(parsed(Control, rows)).rate
