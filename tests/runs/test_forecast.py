"""Predictions in seconds: by the costs of a network, for every method with a guarantee."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scafflix.cli import main
from scafflix.core.errors import ScafflixError
from scafflix.core.specs import read
from scafflix.report.winners import winners
from scafflix.runs.assembly import build_problem
from scafflix.runs.config import RunConfig
from scafflix.runs.costs import Costs, costs
from scafflix.runs.forecast import forecast, time_of_gradient

CONFIG = RunConfig(data="digits", clients=16, model="softmax", l2=0.1)
CHEAP = Costs(1e-3, 1e9, 1e9, 1e-6)


def test_seconds_are_those_of_steps_and_of_rounds() -> None:
    made = costs("100ms", "1Mbps", "20 Mbps", "5ms")
    assert made == Costs(0.1, 1e6, 2e7, 0.005)
    assert made.seconds(10, 2, 1e6, 2e7) == pytest.approx(10 * 0.005 + 2 * (0.1 + 1 + 1))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("soon", "1Mbps", "1Mbps", "1"), "latency is 'soon'"),
        (("1", "1MB", "1Mbps", "1"), "up is '1MB'"),
        (("1", "1Mbps", "0", "1"), "down is '0'; it must be at least 1"),
        (("1", "1Mbps", "1Mbps", "-1"), "gradient is '-1'; it must be at least 0"),
    ],
)
def test_costs_that_are_none_are_refused(words: tuple[str, str, str, str], sentence: str) -> None:
    with pytest.raises(ScafflixError, match=sentence):
        costs(*words)


def test_the_quickest_comes_first_and_each_method_once_with_its_best_options() -> None:
    made = forecast(CONFIG, CHEAP)
    sure = [one for one in made.methods if one.seconds is not None]
    assert [one.seconds for one in sure] == sorted(one.seconds for one in sure)
    names = [read(one.method).name for one in made.methods]
    assert len(set(names)) == len(names)
    for one in made.tried:
        if one.seconds is not None:
            best = next(other for other in sure if read(other.method).name == read(one.method).name)
            assert best.seconds <= one.seconds
            exact = CHEAP.seconds(one.iterations, one.rounds, *one.bits)
            assert one.seconds == pytest.approx(exact)


def test_slow_networks_want_few_rounds_and_narrow_ones_few_numbers() -> None:
    slow = forecast(CONFIG, replace_costs(latency=100.0)).methods[0]
    narrow = forecast(CONFIG, replace_costs(latency=0.0, up=1e3)).methods[0]
    assert slow.rounds <= min(one.rounds for one in forecast(CONFIG).methods if one.rounds)
    assert narrow.bits[0] < slow.bits[0]
    assert narrow.rounds > slow.rounds


def test_the_share_of_numbers_and_the_clients_a_round_are_chosen_too() -> None:
    tried = forecast(CONFIG, replace_costs(latency=0.0, up=1e3)).tried
    shares = {one.method for one in tried if read(one.method).name == "locodl"}
    assert {"locodl", "locodl:compressor=rand_k:0.1"} <= shares
    sizes = {name: {one.cohort for one in tried if read(one.method).name == name}
             for name in ("five_gcs", "tamuna", "scafflix")}  # fmt: skip
    assert sizes["scafflix"] == {16}  # its guarantee is of rounds of all
    assert sizes["five_gcs"] == {16, 8, 4, 2, 1}
    assert sizes["tamuna"] == {16, 8, 4, 2}  # each number has two owners
    for one in tried:
        if one.cohort < 16:
            assert one.seconds is not None


def test_clients_a_round_that_are_given_are_kept() -> None:
    tried = forecast(replace(CONFIG, cohort=4), CHEAP).tried
    assert {one.cohort for one in tried} == {4}
    sure = {read(one.method).name for one in tried if one.seconds is not None}
    assert sure == {"five_gcs", "tamuna", "compressed_scaffnew"}  # the last two are one


def replace_costs(**changes: float) -> Costs:
    return CHEAP._replace(**changes)


def test_without_costs_the_chosen_method_comes_first_and_nothing_has_seconds() -> None:
    made = forecast(replace(CONFIG, method="gd"))
    assert made.methods[0].method == "gd"
    assert {one.seconds for one in made.methods} == {None}


def test_a_gradient_is_timed_at_the_client_with_the_most_examples() -> None:
    assert 1e-7 < time_of_gradient(build_problem(CONFIG)) < 10


def test_the_picture_names_the_methods_that_win_somewhere() -> None:
    made = forecast(CONFIG, CHEAP)
    (axes,) = winners(made.tried, CHEAP).axes
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(named) >= 2
    assert set(named) <= {read(one.method).name for one in made.methods if one.seconds is not None}
    star = axes.lines[-1]
    np.testing.assert_allclose([star.get_xdata()[0], star.get_ydata()[0]], [1e-3, 1e9])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--latency 1ms --up 1Mbps --measure --target 1e-3 --picture plane.png", 0),
        ("--latency 1ms --up 1Mbps --measure --gradient 1ms", 2),
        ("--latency 1ms", 2),
        ("--picture plane.png", 2),
    ],
)
def test_the_command_takes_them_together_or_none(
    words: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = f"scafflix plan --data iris --clients 3 --model softmax --split shuffled {words}"
    monkeypatch.setattr(sys, "argv", asked.split())
    with pytest.raises(SystemExit) as stop:
        main()
    assert (stop.value.code or 0) == code
    assert Path("plane.png").exists() == (code == 0)
