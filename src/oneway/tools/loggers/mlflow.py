"""MLflow: at the tracking server that its own variables name, by default a database in the working folder."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from oneway.common.run_files import SUMMARY
from oneway.tools.loggers.interface import About, Point

NOT_IN_NAMES = re.compile(r"[^/\w.\- :]")
LONGEST_NAME, LONGEST_VALUE = 250, 500
AT_ONCE = 100
"""Settings that a request may have; of metrics, ten times as many."""


class Service:
    """A run of MLflow, the same for as long as the run folder exists."""

    def __init__(self, about: About, tell: Callable[[str], None]) -> None:
        self.about, self.client = about, MlflowClient()
        known = about.folder_of("mlflow") / "run-id"
        self.had: dict[str, set[int]] = {}  # iterations of each value, when the run is continued
        self.names: dict[str, str] = {}
        try:
            self.run = self.client.get_run(known.read_text(encoding="ascii").strip())
        except (FileNotFoundError, MlflowException):
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "oneway")
            experiment = self.client.get_experiment_by_name(name)
            number = self.client.create_experiment(name) if experiment is None else experiment.experiment_id
            self.run = self.client.create_run(number, run_name=about.name)
            known.write_text(self.run.info.run_id, encoding="ascii")
        else:
            self.client.update_run(self.id, status="RUNNING")
            for key in self.run.data.metrics:
                self.had[key] = {metric.step for metric in self.client.get_metric_history(self.id, key)}
        settings = [
            Param(self._name(key), str(value)[:LONGEST_VALUE])
            for key, value in about.config.items()
            if self._name(key) not in self.run.data.params
        ]
        for first in range(0, len(settings), AT_ONCE):
            self.client.log_batch(self.id, params=settings[first : first + AT_ONCE])

    @property
    def id(self) -> str:
        """MLflow's name for the run."""
        return str(self.run.info.run_id)

    def log(self, points: Sequence[Point]) -> None:
        """Send the values that the server has not, and pictures in place of those of the same name."""
        now = int(1000 * time.time())
        metrics = [
            Metric(key, float(value), now, point.iteration)
            for point in points
            for name, value in point.values.items()
            if point.iteration not in self.had.get(key := self._name(name), ())
        ]
        for first in range(0, len(metrics), 10 * AT_ONCE):
            self.client.log_batch(self.id, metrics=metrics[first : first + 10 * AT_ONCE])
        with tempfile.TemporaryDirectory() as folder:
            for point in points:
                for name, content in point.pictures.items():
                    file = Path(folder) / f"{name.rpartition('/')[2]}-{point.iteration:08d}.png"
                    file.write_bytes(content)
                    self.client.log_artifact(self.id, str(file), "pictures")

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """End the run with its summary, or as one that may be continued."""
        if summary is None:
            self.client.set_terminated(self.id, status="KILLED")
            return
        plain = {key: value for key, value in summary.items() if not isinstance(value, (dict, list))}
        self.client.log_batch(self.id, tags=[RunTag(f"summary.{key}", str(value)) for key, value in plain.items()])
        self.client.log_artifact(self.id, str(self.about.folder / SUMMARY))
        self.client.set_terminated(self.id)

    def _name(self, name: str) -> str:
        """A name that MLflow takes; two of ours never become one."""
        if name not in self.names:
            parts = NOT_IN_NAMES.sub("_", name)[:LONGEST_NAME].split("/")
            allowed = "/".join(part if part.strip(".") else "_" for part in parts)  # it takes them for a path
            while allowed in self.names.values():
                allowed = f"{allowed[: LONGEST_NAME - 1]}_"
            self.names[name] = allowed
        return self.names[name]
