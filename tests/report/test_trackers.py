"""What the trackers' own libraries find in what was written for them, offline."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import made
import pytest

import scafflix as sx
from cases import ROUNDS, Case
from scafflix.core.errors import ScafflixError
from scafflix.report.trackers import TRACKERS, live, track

BLOCK = 32_768  # bytes, of the log that wandb writes


def test_tensorboard_reads_every_round(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record = made.numbers(rounds=5)
    track(record, "tensorboard", tmp_path, "one")
    found = EventAccumulator(str(tmp_path / "one"))
    found.Reload()
    events = found.Scalars("objective_gap")
    assert [event.step for event in events] == list(range(6))
    gaps = record.metrics["objective_gap"].tolist()
    assert [event.value for event in events] == pytest.approx(gaps, rel=1e-6)


def test_a_run_tells_a_tracker_how_it_stands_while_it_goes(logistic_case: Case) -> None:
    told: dict[int, Mapping[str, float]] = {}

    class Ear:
        def round(self, number: int, row: Mapping[str, float]) -> None:
            told[number] = row

        def close(self, summary: Mapping[str, float]) -> None:
            pass

    method = sx.scafflix(logistic_case.plan)
    record = sx.run(
        logistic_case.problem, logistic_case.person, method, rounds=ROUNDS, progress=live(Ear())
    )
    end = record.metrics["bits_up"][-1] + record.metrics["bits_down"][-1]
    assert max(told) == ROUNDS
    assert told[ROUNDS]["bits"] == end
    assert told[ROUNDS]["gap"] == record.summary["final_gap"]


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
def test_mlflow_reads_every_round_the_settings_and_the_end(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    record = made.numbers(rounds=200)  # more than one request
    track(record, "mlflow", tmp_path / "new", "one")
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/new/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'scafflix'")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "one"
    assert run.info.status == "FINISHED"
    assert run.data.params["alpha"] == "0.5"
    assert run.data.metrics["end/seconds"] == record.summary["seconds"]
    history = client.get_metric_history(run.info.run_id, "objective_gap")
    values = {metric.step: metric.value for metric in history}
    assert values == dict(enumerate(record.metrics["objective_gap"].tolist()))


def wandb_records(file: Path) -> Iterator[Any]:
    """The records of an offline run: LevelDB's log format after a header of seven bytes."""
    from wandb.proto import wandb_internal_pb2

    data, place, record = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := BLOCK - place % BLOCK) < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            made_of = wandb_internal_pb2.Record()
            made_of.ParseFromString(record)
            yield made_of
            record = b""


def test_wandb_keeps_every_round_offline(tmp_path: Path) -> None:
    import wandb

    record = made.numbers(rounds=5)
    track(record, "wandb", tmp_path, "one")
    wandb.teardown()  # the process that writes has ended
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    found = list(wandb_records(file))
    rows = [
        {(item.key or item.nested_key[0]): json.loads(item.value_json) for item in one.history.item}
        for one in found
        if one.WhichOneof("record_type") == "history"
    ]
    gaps = {row["_step"]: row["objective_gap"] for row in rows}
    assert gaps == dict(enumerate(record.metrics["objective_gap"].tolist()))
    (run,) = [one.run for one in found if one.WhichOneof("record_type") == "run"]
    assert (run.project, run.display_name) == ("scafflix", "one")


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_installed_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in list(sys.modules):
        if module.partition(".")[0] == name:
            monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ScafflixError, match=rf"pip install 'scafflix\[{name}\]'"):
        track(made.numbers(), name, tmp_path, "one")


def test_an_unknown_tracker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="known are tensorboard, mlflow, wandb"):
        track(made.numbers(), "aim", tmp_path, "one")
