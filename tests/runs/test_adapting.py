"""Newcomers: a model from the stored global one, without training anybody else."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scafflix as sx
from scafflix.cli import main
from scafflix.runs.adapting import adapt
from scafflix.runs.config import RunConfig, build
from scafflix.runs.runner import execute

HEADER = ("site", "age", "kind", "dose", "ill")


def rows(site: str, count: int, seed: int) -> list[tuple[Any, ...]]:
    random = np.random.default_rng(seed)
    kinds, ages = random.choice(["red", "blue", "green"], count), 40 + 9 * random.normal(size=count)
    doses = random.normal(size=count)
    ill = ages + 8 * (kinds == "red") - 6 * doses + 4 * random.normal(size=count) > 42
    ill[:2] = [True, False]
    words = np.where(ill, "yes", "no")
    return list(zip([site] * count, ages, kinds, doses, words, strict=True))


def write(path: Path, lines: list[tuple[Any, ...]], header: tuple[str, ...] = HEADER) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    return path


PEOPLE = {site: rows(site, 30 + 5 * k, k) for k, site in enumerate("abc")}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> sx.Record:
    folder = tmp_path_factory.mktemp("run")
    table = write(folder / "sites.csv", [row for lines in PEOPLE.values() for row in lines])
    asked = {
        "data": str(table), "split": "column:site", "label": "ill", "scale": "standard",
        "intercept": True, "rounds": 5,
    }  # fmt: skip
    execute(build(RunConfig, asked)).save(folder / "out")
    return sx.Record.load(folder / "out")


def without_site(lines: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [line[1:] for line in lines]


def test_features_are_prepared_as_in_the_run(made: sx.Record, tmp_path: Path) -> None:
    """One of the run's clients, come again with columns in another order, finds its own model."""
    turned = [(dose, age, kind, ill) for _, age, kind, dose, ill in PEOPLE["b"]]
    table = write(tmp_path / "b.csv", turned, ("dose", "age", "kind", "ill"))
    found = adapt(made, table)
    np.testing.assert_allclose(found.models["local"][0], made.models["local"][1], atol=1e-8)
    (alpha,) = found.clients["alpha"]
    mixed = alpha * made.models["global"] + (1 - alpha) * found.models["local"][0]
    np.testing.assert_allclose(found.personal_model("b"), mixed)


def test_a_value_of_a_text_column_that_does_not_occur_is_zero(
    made: sx.Record, tmp_path: Path
) -> None:
    lines = [line for line in PEOPLE["a"] if line[2] != "green"]
    found = adapt(made, write(tmp_path / "new.csv", without_site(lines), HEADER[1:]))
    assert found.models["personal"].shape == (1, 6)


def test_few_examples_go_with_what_the_others_tell(made: sx.Record, tmp_path: Path) -> None:
    """All of one class and almost none: the noise of the own model counts, so alpha is large."""
    few = [line for line in PEOPLE["c"] if line[-1] == "yes"][:3]
    found = adapt(made, write(tmp_path / "few.csv", without_site(few), HEADER[1:]))
    assert "others" in found.clients["alpha_note"][0]
    assert found.clients["alpha"][0] >= made.clients["alpha"].mean()


def test_several_newcomers_with_a_test_part_leave_a_record(made: sx.Record, tmp_path: Path) -> None:
    table = write(tmp_path / "two.csv", PEOPLE["a"] + PEOPLE["c"])
    found = adapt(made, table, split="column:site", test=0.3)
    kept = sx.Record.load(found.save(tmp_path / "kept"))
    assert kept.clients["client"].tolist() == ["a", "c"]
    gain = kept.clients["test_loss_local"] - kept.clients["test_loss_personal"]
    assert kept.summary["taking_part"]["personal"]["gain"] == pytest.approx(gain.mean())


BAD = {
    "no column 'dose'": ([("40", "red", "yes"), ("30", "blue", "no")], ("age", "kind", "ill")),
    "row 1: column 'age' is 'old'; give a number": ([("old", "red", "1", "yes")] * 2, HEADER[1:]),
    "A label is 'maybe'": ([("40", "red", "1", "maybe"), ("41", "red", "2", "yes")], HEADER[1:]),
}


@pytest.mark.parametrize("says", BAD)
def test_other_features_and_labels_are_one_sentence(
    made: sx.Record, tmp_path: Path, says: str
) -> None:
    with pytest.raises(sx.ScafflixError, match=says):
        adapt(made, write(tmp_path / "bad.csv", *BAD[says]))


def test_a_run_whose_alpha_was_given_tells_nothing(made: sx.Record, tmp_path: Path) -> None:
    plain = sx.Record(made.config, made.summary, made.metrics, made.clients, made.models,
                      preprocessing=made.preprocessing)  # fmt: skip
    table = write(tmp_path / "b.csv", without_site(PEOPLE["b"]), HEADER[1:])
    with pytest.warns(sx.ScafflixWarning, match="their own examples alone"):
        adapt(plain, table)


def test_the_command_writes_the_newcomers_models(
    made: sx.Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    made.save(tmp_path / "run")
    table = write(tmp_path / "new.csv", without_site(PEOPLE["b"]), HEADER[1:])
    words = ["adapt", str(tmp_path / "run"), "--data", str(table), "--out", str(tmp_path / "new")]
    monkeypatch.setattr(sys, "argv", ["scafflix", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert "new" in capsys.readouterr().out
    assert "personal" in sx.Record.load(tmp_path / "new").models
