"""MLflow: the server or file that `MLFLOW_TRACKING_URI` names, experiment `MLFLOW_EXPERIMENT_NAME` or lrc-jepa.

Where none is named, MLflow writes to `mlflow.db`, a file of SQLite in the current folder, with films in `mlruns/`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lrc_jepa.extras import need
from lrc_jepa.training.trackers import Tracked, Tracker

AT_ONCE = 100  # parameters that a server takes in one request


def flat(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a tree by their dotted names."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


class Run(Tracker):
    """A run there, new or the one that goes on."""

    def __init__(self, run: Tracked) -> None:
        mlflow = need("mlflow", "tracking with mlflow")
        self._client = mlflow.MlflowClient()
        self._metric = mlflow.entities.Metric
        sent: set[str] = set()
        if run.id is not None:
            self.id = run.id
            self._client.update_run(self.id, status="RUNNING")
            sent = set(self._client.get_run(self.id).data.params)
        else:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "lrc-jepa")
            known = self._client.get_experiment_by_name(name)
            experiment = known.experiment_id if known else self._client.create_experiment(name)
            self.id = str(self._client.create_run(experiment, run_name=run.name).info.run_id)
            run.known_as(self.id)
        left = ((key, value) for key, value in flat(run.config) if key not in sent)  # one never changes there
        params = [mlflow.entities.Param(key, str(value)) for key, value in left]
        for first in range(0, len(params), AT_ONCE):
            self._client.log_batch(self.id, params=params[first : first + AT_ONCE])

    def log(self, step: int, figures: dict[str, float]) -> None:
        """Send figures of a step."""
        now = int(time.time() * 1000)
        self._client.log_batch(self.id, metrics=[self._metric(k, v, now, step) for k, v in figures.items()])

    def film(self, step: int, path: Path) -> None:
        """Keep a film among the run's artifacts: its name says the step."""
        self._client.log_artifact(self.id, str(path), "films")

    def finish(self) -> None:
        """Send what is left."""
        self._client.set_terminated(self.id)
