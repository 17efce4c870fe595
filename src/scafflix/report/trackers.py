"""Records in the trackers that people already use: TensorBoard, MLflow, Weights & Biases.

Each is an optional extra, and each writes to a folder: nothing is sent anywhere unless MLflow is
given the address of a server.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from scafflix.core.arguments import instance, path_of, shown
from scafflix.core.errors import ScafflixError
from scafflix.core.extras import library
from scafflix.core.progress import Progress, Standing
from scafflix.record import Record

PROJECT = "scafflix"  # what runs are gathered under
MOST_WORDS, MOST_AT_ONCE = 500, 1000  # characters of a parameter, metrics of a request to MLflow


class Tracker(Protocol):
    """What is told of a run: every round, then the end."""

    def round(self, number: int, row: Mapping[str, float]) -> None:
        """The metrics of a round, those that are numbers."""

    def close(self, summary: Mapping[str, float]) -> None:
        """The run in numbers; nothing comes after."""


def track(record: Record, to: str, where: str | Path, name: str) -> None:
    """Tell a tracker of all rounds of a run."""
    instance("record", record, Record, "a record, as sx.run returns it")
    if not isinstance(to, str) or to not in TRACKERS:
        raise ScafflixError(f"There is no tracker {shown(to)}; known are {', '.join(TRACKERS)}.")
    path_of("where", where)
    path_of("name", name)
    tracker = TRACKERS[to](where, name, record.config)
    columns = {key: values.tolist() for key, values in record.metrics.items() if key != "round"}
    for place, number in enumerate(record.metrics["round"].tolist()):
        tracker.round(number, _numbers({key: values[place] for key, values in columns.items()}))
    tracker.close(_numbers(record.summary))


def live(tracker: Tracker) -> Progress:
    """A `progress` for a run that tells the tracker how it stands, each time that it reports.

    Close the tracker when the run has ended.
    """

    def report(done: int, total: int, standing: Standing | str) -> None:
        if isinstance(standing, Standing):
            row = {**standing.values, "bits": standing.bits, "steps": standing.steps}
            tracker.round(done, _numbers(row))

    return report


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        key: value
        for key, value in row.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


class TensorBoard:
    """Event files in a folder of the run's name: `tensorboard --logdir WHERE`."""

    def __init__(self, where: str | Path, name: str, config: Mapping[str, Any]) -> None:
        writer = library("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._event = import_module("tensorboard.compat.proto.event_pb2").Event
        self._summary = import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._file = writer.EventFileWriter(str(Path(where) / name))

    def round(self, number: int, row: Mapping[str, float]) -> None:
        values = [self._summary.Value(tag=key, simple_value=row[key]) for key in row]
        self._file.add_event(self._event(step=number, summary=self._summary(value=values)))

    def close(self, summary: Mapping[str, float]) -> None:
        self._file.close()


class MLflow:
    """A run in a database in a folder, or on the server whose address is given."""

    def __init__(self, where: str | Path, name: str, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow = library("mlflow", "mlflow")
        self._entities = import_module("mlflow.entities")
        address = str(where)
        if "://" not in address:
            folder = Path(where).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            address = f"sqlite:///{folder / 'mlflow.db'}"
        self._client = mlflow.MlflowClient(tracking_uri=address)
        found = self._client.get_experiment_by_name(PROJECT)
        experiment = found.experiment_id if found else self._client.create_experiment(PROJECT)
        self._run = self._client.create_run(experiment, run_name=name).info.run_id
        words = {key: str(value)[:MOST_WORDS] for key, value in config.items()}
        params = [self._entities.Param(key, value) for key, value in words.items()]
        self._client.log_batch(self._run, params=params)
        self._waiting: list[Any] = []

    def round(self, number: int, row: Mapping[str, float]) -> None:
        if len(self._waiting) + len(row) > MOST_AT_ONCE:
            self._send()
        self._waiting += [self._entities.Metric(key, row[key], 0, number) for key in row]

    def close(self, summary: Mapping[str, float]) -> None:
        self._send()
        self.round(0, {f"end/{key}": value for key, value in summary.items()})
        self._send()
        self._client.set_terminated(self._run)

    def _send(self) -> None:
        self._client.log_batch(self._run, metrics=self._waiting)
        self._waiting = []


class WeightsAndBiases:
    """An offline run in a folder; `wandb sync` sends it."""

    def __init__(self, where: str | Path, name: str, config: Mapping[str, Any]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb = library("wandb", "wandb")
        Path(where).mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            mode="offline",
            dir=str(where),
            project=PROJECT,
            name=name,
            config=dict(config),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )

    def round(self, number: int, row: Mapping[str, float]) -> None:
        self._run.log(dict(row), step=number)

    def close(self, summary: Mapping[str, float]) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish()


TRACKERS: dict[str, Callable[[str | Path, str, Mapping[str, Any]], Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}
