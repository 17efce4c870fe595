"""The paper's convex experiment on the real files, against figures from an independent program
(float64, tight L_i, gamma_i = 1/L_i, p = 1/sqrt(kappa_max), 8 contiguous clients, mu = 0.1, no
intercept, x^0 = 1; geometric means over 3 seeds). The coin differs, so Scafflix is compared by
its order of magnitude; GD has no coin."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import scafflix as sx

SEEDS = 10
# the logarithm of a run's gap at round 30 has a standard deviation of up to 2.7 over seeds: the
# means over 3 and over 10 seeds then differ by 1.75, and a factor of 30 is twice that
FACTOR = 30.0


class Row(NamedTuple):
    data: str
    alpha: float
    p: float
    start: float
    gd_at_30: float
    scafflix_at_10_20_30: tuple[float, float, float]


TABLE = [
    Row("mushrooms", 1.0, 0.161, 1.54e1, 5.6e-1, (8.5e-2, 1.7e-3, 1.7e-5)),
    Row("mushrooms", 0.1, 0.161, 2.62e-1, 5.5e-3, (7.8e-4, 1.7e-5, 1.7e-7)),
    Row("a6a", 1.0, 0.244, 1.62e1, 1.0e-1, (8.0e-3, 6.5e-5, 5.3e-7)),
    Row("a6a", 0.1, 0.244, 2.88e-1, 1.0e-3, (7.9e-5, 6.5e-7, 5.3e-9)),
    Row("w6a", 1.0, 0.308, 2.61e1, 3.3e-3, (2.7e-3, 2.9e-7, 1.8e-11)),
    Row("w6a", 0.1, 0.308, 3.22e-1, 3.1e-5, (1.9e-5, 2.7e-9, 1.7e-13)),
]
# the smallest and the largest L_i: tight, and by the paper's bound
SMOOTHNESS = {
    "mushrooms": ((2.75, 3.87), (5.35, 5.35)),
    "a6a": ((1.66, 1.69), (3.57, 3.57)),
    "w6a": ((0.72, 1.05), (2.4, 3.5)),
}


@pytest.fixture(autouse=True)
def real_files(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(shared_data))


@cache
def problem(data: str) -> tuple[sx.Problem, sx.Personalization]:
    made = sx.Problem(sx.data.load(data, clients=8), sx.models.logistic(), l2=0.1)
    return made, sx.personalize(made, 1.0)


@cache
def records(data: str, alpha: float, name: str) -> list[sx.Record]:
    made, person = problem(data)
    person = person.at(alpha)
    method = sx.METHODS[name](sx.plan(made, person))
    seeds = range(SEEDS if name == "scafflix" else 1)
    runs = [sx.Run(person, method, seed) for seed in seeds]
    return sx.sweep(made, runs, rounds=30, scores=False)


@pytest.fixture(params=TABLE, ids=lambda row: f"{row.data}-{row.alpha:g}")
def row(request: pytest.FixtureRequest) -> Row:
    return request.param


def test_the_gap_at_the_start_is_that_of_the_table(row: Row) -> None:
    (record,) = records(row.data, row.alpha, "gd")
    assert record.metrics["objective_gap"][0] == pytest.approx(row.start, rel=0.01)


def test_the_probability_of_communication_is_that_of_the_table(row: Row) -> None:
    assert sx.plan(*problem(row.data)).p == pytest.approx(row.p, rel=0.005)


def test_gd_is_where_the_table_says_after_30_rounds(row: Row) -> None:
    (record,) = records(row.data, row.alpha, "gd")
    assert record.metrics["objective_gap"][30] == pytest.approx(row.gd_at_30, rel=0.05)


def test_scafflix_is_within_the_order_of_magnitude_of_the_table(row: Row) -> None:
    gaps = [
        r.metrics["objective_gap"][[10, 20, 30]] for r in records(row.data, row.alpha, "scafflix")
    ]
    ratio = np.exp(np.mean(np.log(gaps), axis=0)) / row.scafflix_at_10_20_30
    assert (ratio > 1 / FACTOR).all()
    assert (ratio < FACTOR).all()


def test_scafflix_is_ahead_of_gd_after_30_rounds_with_every_seed(row: Row) -> None:
    (gd,) = records(row.data, row.alpha, "gd")
    gaps = [r.metrics["objective_gap"][30] for r in records(row.data, row.alpha, "scafflix")]
    assert max(gaps) < gd.metrics["objective_gap"][30] / 10


@pytest.mark.parametrize("data", SMOOTHNESS)
def test_smoothness_lies_in_the_ranges_of_the_notes(data: str) -> None:
    made, _ = problem(data)
    bound = sx.Problem(made.federation, made.model, made.l2, smoothness="bound")
    for L, expected in zip((made.constants.L, bound.constants.L), SMOOTHNESS[data], strict=True):
        assert (L.min(), L.max()) == pytest.approx(expected, rel=0.01)


def test_local_optima_of_the_real_files_are_found() -> None:
    for data in SMOOTHNESS:
        assert problem(data)[1].quality["local_grad_norm"].max() <= 1e-10
