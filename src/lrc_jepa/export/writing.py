"""A run as a folder of graphs, golden vectors and metadata."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from lrc_jepa import __version__
from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.export.graphs import compact, graphs, onnx_library, quiet, write_graph
from lrc_jepa.export.vectors import CPU, golden_vectors
from lrc_jepa.files import file_digest
from lrc_jepa.folders import whole_folder
from lrc_jepa.plan.cost import PLAIN_WIDTHS, rows_in
from lrc_jepa.plan.policy import action_box
from lrc_jepa.run import Run
from lrc_jepa.runtime.exported import Exported
from lrc_jepa.runtime.golden import differences
from lrc_jepa.runtime.metadata import GOLDEN, Metadata, Shape

Precision = Literal["float32", "int8"]
TOLERANCE = 1e-4
SLACK = 2.0  # an int8 answer may lie this many times as far from the golden one as where it was exported


def runtime_plan(config: PlanConfig) -> PlanConfig:
    """The search as the runtime makes it: its planner is iCEM."""
    return replace(config, planner="icem")


def export_run(run: Run, out: Path, *, precision: Precision = "float32", overwrite: bool = False) -> Exported:
    """Write a run's newest checkpoint as ONNX, and open what was written; its golden vectors are replayed."""
    checkpoint, model = run.checkpoint, compact(run.model)
    action_box(checkpoint.deployment, CPU)  # refuses what cannot be planned with
    versions = {"lrc_jepa": __version__, "torch": torch.__version__, "onnx": onnx_library().__version__}
    vectors: dict[str, Any] = golden_vectors(model, checkpoint.deployment)
    spec, plan = checkpoint.deployment.spec, runtime_plan(run.config.plan)
    shape = Shape(
        history=spec.history,
        width=spec.width,
        action_dim=spec.action_dim,
        frameskip=spec.frameskip,
        image_size=spec.image_size,
        context=vectors["u"].shape[1],
    )
    with whole_folder(out, overwrite=overwrite) as folder:
        for graph in graphs(model, shape.context):
            write_graph(graph, folder)
            if precision == "int8":
                quantize(folder / graph.file)
        np.savez(folder / GOLDEN, **vectors)
        metadata = Metadata(
            system=run.config.system,
            world=checkpoint.provenance["world"],
            recipe=run.config.recipe,
            step=checkpoint.step,
            checkpoint=checkpoint.digest,
            precision=precision,
            shape=shape,
            deployment=checkpoint.deployment.to_json(),
            plan=plan,
            rows=rows_in(plan.memory_mb, spec, PLAIN_WIDTHS),
            tolerance=TOLERANCE,
            made_with=versions,
            files={path.name: file_digest(path) for path in sorted(folder.iterdir())},
        )
        metadata.write(folder)
        _settle_tolerance(folder, metadata)
    return Exported(out)


def _settle_tolerance(folder: Path, metadata: Metadata) -> None:
    """Replay what was written: float32 must answer as the model did, int8 says how far it may stray."""
    worst = max(differences(Exported(folder)).values())
    if metadata.precision == "int8":
        replace(metadata, tolerance=SLACK * worst).write(folder)
    elif not worst <= TOLERANCE:
        raise BadInput(f"the exported graphs differ from the model by {worst:.3g}, more than {TOLERANCE:.3g}")


def quantize(path: Path) -> None:
    """Replace a graph by one whose products have int8 weights, and inputs scaled to int8 as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx_library().load(path)
    del graph.graph.value_info[:]  # shapes of weights that are about to be transposed
    with quiet():
        quantize_dynamic(
            graph,
            path,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            weight_type=QuantType.QInt8,
        )
