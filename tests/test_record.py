from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scafflix as sx
from cases import ON_LINEAR, ROUNDS, Case
from cases import case as make_case
from scafflix.core.folders import whole_folder
from scafflix.methods import METHODS

FILES = {"config.toml", "metrics.jsonl", "summary.json", "clients.jsonl", "models.safetensors"}
METRICS = [
    "round",
    "iterations",
    "local_steps",
    "objective_gap",
    "grad_norm_sq",
    "lyapunov",
    "lyapunov_bound",
    "bits_up",
    "bits_down",
]
SUMMARY = {
    "method",
    "n_clients",
    "dim",
    "p",
    "zeta",
    "kappa_max",
    "gamma_min",
    "gamma_max",
    "rounds",
    "iterations",
    "final_gap",
    "predicted_rounds",
    "certificate",
    "seconds",
    "compile_seconds",
}


def make(case: Case, name: str = "scafflix", alpha: Any = None) -> sx.Record:
    person = case.person if alpha is None else case.person.at(alpha)
    plan = sx.plan(case.problem, person)
    return sx.run(case.problem, person, METHODS[name](plan), rounds=ROUNDS)


@pytest.fixture(scope="module")
def record(logistic_case: Case) -> sx.Record:
    return make(logistic_case)


def strict(text: str) -> Any:
    """JSON as its standard has it, without NaN and infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("name", ON_LINEAR)
def test_a_record_that_was_saved_is_read_back_equal(
    logistic_case: Case, name: str, tmp_path: Path
) -> None:
    record = make(logistic_case, name)
    loaded = sx.Record.load(record.save(tmp_path / "run"))
    for table in ("metrics", "clients", "models"):
        ours, theirs = getattr(record, table), getattr(loaded, table)
        assert list(ours) == list(theirs) or table == "models"
        for column in ours:
            np.testing.assert_array_equal(theirs[column], ours[column])
    summary = {k: v for k, v in record.summary.items() if v == v}  # NaN comes back as None
    assert summary == {k: loaded.summary[k] for k in summary}
    assert loaded.summary.keys() == record.summary.keys()


def test_a_record_of_softmax_regression_is_read_back_equal(tmp_path: Path) -> None:
    record = make(make_case("softmax"))
    loaded = sx.Record.load(record.save(tmp_path / "run"))
    for name, model in record.models.items():
        np.testing.assert_array_equal(loaded.models[name], model)


def test_the_settings_of_a_run_are_read_back_equal(record: sx.Record, tmp_path: Path) -> None:
    config = {"method": "scafflix", "data": {"name": 'a "quoted" name', "clients": 8}, "p": 0.25}
    saved = replace(record, config=config).save(tmp_path / "run")
    assert sx.Record.load(saved).config == config


def test_a_folder_holds_exactly_the_files_of_a_run(record: sx.Record, tmp_path: Path) -> None:
    folder = record.save(tmp_path / "run")
    assert {path.name for path in folder.iterdir()} == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_metrics_have_one_line_a_round_with_their_keys(record: sx.Record, tmp_path: Path) -> None:
    lines = (record.save(tmp_path / "run") / "metrics.jsonl").read_text().splitlines()
    rows = [strict(line) for line in lines]
    assert [row["round"] for row in rows] == list(range(1, ROUNDS + 1))
    assert all(list(row) == METRICS for row in rows)
    assert all(isinstance(row[key], int) for row in rows for key in ("iterations", "bits_up"))


def test_the_summary_has_its_keys(record: sx.Record, tmp_path: Path) -> None:
    summary = strict((record.save(tmp_path / "run") / "summary.json").read_text())
    assert summary.keys() >= SUMMARY


@pytest.mark.parametrize(
    ("name", "alpha"), [("fedavg", None), ("scafflix", [0, 1, 0, 1, 1]), ("gd", 0)]
)
def test_what_is_not_a_number_is_null(
    logistic_case: Case, name: str, alpha: Any, tmp_path: Path
) -> None:
    # fedavg has no rate, and clients with alpha = 0 have no stepsize
    folder = make(logistic_case, name, alpha).save(tmp_path / "run")
    strict((folder / "summary.json").read_text())
    lines = [
        line
        for file in ("metrics.jsonl", "clients.jsonl")
        for line in (folder / file).read_text().splitlines()
    ]
    assert any(None in strict(line).values() for line in lines)


def test_null_is_read_back_as_not_a_number(logistic_case: Case, tmp_path: Path) -> None:
    loaded = sx.Record.load(make(logistic_case, "fedavg").save(tmp_path / "run"))
    assert np.isnan(loaded.metrics["lyapunov_bound"]).all()


def test_a_run_without_rounds_is_read_back(logistic_case: Case, tmp_path: Path) -> None:
    loaded = sx.Record.load(make(logistic_case, alpha=0.0).save(tmp_path / "run"))
    assert loaded.metrics["round"].tolist() == [0]
    np.testing.assert_array_equal(loaded.models["personal"], loaded.models["local"])


def test_a_failure_while_writing_leaves_nothing_behind(
    record: sx.Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scafflix.record.save_file", fail)
    with pytest.raises(sx.ScafflixError, match="run cannot be written: No space left on device"):
        record.save(tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_failure_of_another_kind_leaves_nothing_behind_either(tmp_path: Path) -> None:
    def write() -> None:
        with whole_folder(tmp_path / "run") as partial:
            (partial / "half").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert not list(tmp_path.iterdir())


def test_a_failure_keeps_what_stood_there_before(
    record: sx.Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = record.save(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr("scafflix.record.save_file", lambda *_: os.stat(tmp_path / "absent"))
    with pytest.raises(sx.ScafflixError):
        record.save(folder, force=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_that_is_not_empty_is_refused(record: sx.Record, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(sx.ScafflixError, match="exists and is not empty"):
        record.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_empty_folder_is_filled(record: sx.Record, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert {path.name for path in record.save(tmp_path / "run").iterdir()} == FILES


def test_force_replaces_a_run_and_keeps_foreign_files(
    logistic_case: Case, record: sx.Record, tmp_path: Path
) -> None:
    folder = make(logistic_case, "gd").save(tmp_path / "run")
    (folder / "notes.txt").write_text("mine")
    record.save(folder, force=True)
    assert sx.Record.load(folder).summary["method"] == "scafflix"
    assert (folder / "notes.txt").read_text() == "mine"
    assert {path.name for path in folder.iterdir()} == FILES | {"notes.txt"}


def test_a_file_in_place_of_the_folder_is_refused(record: sx.Record, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    for force in (False, True):
        with pytest.raises(sx.ScafflixError, match="is a file; give a folder"):
            record.save(tmp_path / "run", force=force)


def test_parents_of_the_folder_are_made(record: sx.Record, tmp_path: Path) -> None:
    assert record.save(tmp_path / "a" / "b" / "run").is_dir()


def test_a_saved_run_is_open_to_other_readers(record: sx.Record, tmp_path: Path) -> None:
    assert record.save(tmp_path / "run").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("file", sorted(FILES))
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "cut"])
def test_a_broken_folder_is_an_error_that_names_it(
    record: sx.Record, tmp_path: Path, file: str, damage: str
) -> None:
    path = record.save(tmp_path / "run") / file
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "empty":
        if file == "config.toml":
            pytest.skip("a run may have no settings")
        path.write_bytes(b"")
    elif damage == "garbage":
        path.write_bytes(b"\xff\xfe garbage = = {")
    elif not content:
        pytest.skip("nothing to cut off")
    else:
        path.write_bytes(content[: 2 * len(content) // 3])
    with pytest.raises(sx.ScafflixError, match="run does not hold a readable run"):
        sx.Record.load(tmp_path / "run")


@pytest.mark.parametrize("file", ["metrics.jsonl", "clients.jsonl"])
def test_a_file_that_lacks_whole_lines_is_an_error(
    record: sx.Record, tmp_path: Path, file: str
) -> None:
    path = record.save(tmp_path / "run") / file
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(sx.ScafflixError, match=rf"{file} has \d+ lines instead of \d+"):
        sx.Record.load(tmp_path / "run")


def test_an_absent_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(sx.ScafflixError, match="absent: there is no such folder"):
        sx.Record.load(tmp_path / "absent")


def test_the_model_of_a_client_is_found_by_its_name(record: sx.Record) -> None:
    np.testing.assert_array_equal(record.personal_model("client-3"), record.models["personal"][3])


def test_a_client_that_is_not_there_is_an_error(record: sx.Record) -> None:
    with pytest.raises(sx.ScafflixError, match="no client 'nobody'"):
        record.personal_model("nobody")


def test_the_first_round_under_a_gap_is_found(record: sx.Record) -> None:
    gaps = record.metrics["objective_gap"]
    assert record.rounds_to(gaps[0]) == 0
    target = float(gaps[5])
    assert record.rounds_to(target) == next(r for r, gap in enumerate(gaps) if gap <= target)
    assert record.rounds_to(-1.0) is None
