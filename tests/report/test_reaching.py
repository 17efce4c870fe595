"""What it took until models were good enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made import convex, network

from scafflix.record import Record
from scafflix.report import reaching, rivals
from scafflix.runs.reproduction import Line, Panel

ROUNDS = 6


def seen(shared: dict[int, float], personal: dict[int, float] | None = None) -> Record:
    """A run in which the accuracy of the shared and of the clients' models was seen in some rounds;
    a round has 5 steps, and 2 MB up and 3 down."""
    count = np.arange(ROUNDS + 1)
    columns = {"test_global": shared, "test_personal": personal or shared}
    metrics = {
        "round": count,
        "iterations": 5 * count,
        "bits_up": 16_000_000 * count,
        "bits_down": 24_000_000 * count,
        "test_loss": np.where(count % 2, np.nan, 1.0 / (1 + count)),
        **{
            name: np.array([known.get(i, np.nan) for i in count]) for name, known in columns.items()
        },
    }
    made = network()
    return replace(made, metrics=metrics, summary={**made.summary, "tuned": False})


def rows(*lines: Line) -> list[tuple[str, ...]]:
    made = reaching.table(Panel("Panel", list(lines), {}))
    assert made is not None
    return made.rows


GOOD = seen({0: 0.1, 2: 0.7, 4: 0.86, 6: 0.84})
SLOW = seen({0: 0.1, 2: 0.6, 4: 0.7, 6: 0.79})


def test_the_first_look_at_which_it_is_as_good_counts() -> None:
    (row,) = rows(Line("A", [], [GOOD], "global"))
    assert row == ("A", "2 / 10 / 10", *["4 / 20 / 20"] * 3)


def test_what_is_not_reached_is_said() -> None:
    (row,) = rows(Line("A", [], [SLOW], "global"))
    assert row == ("A", "4 / 20 / 20", "6 / 30 / 30", "not reached", "not reached")


def test_seeds_have_their_median_and_one_that_fails_is_the_last() -> None:
    (row,) = rows(Line("A", [], [GOOD, SLOW, GOOD], "global"))
    assert row == ("A", "2 / 10 / 10", *["4 / 20 / 20"] * 3)
    (row,) = rows(Line("A", [], [SLOW, SLOW, GOOD], "global"))
    assert row[3:] == ("not reached", "not reached")


def test_a_line_goes_by_the_models_that_it_is_about() -> None:
    both = seen({2: 0.9}, {2: 0.5, 6: 0.9})
    shared, own = rows(Line("x", [], [both], "global"), Line("x_i", [], [both]))
    assert (shared[4], own[4]) == ("2 / 10 / 10", "6 / 30 / 30")


def test_models_that_are_made_at_the_end_have_no_row() -> None:
    tuned = replace(GOOD, summary={**GOOD.summary, "tuned": True})
    kinds = ("global", "local", "personal")
    made = rows(*(Line(kind, [], [tuned], kind) for kind in kinds))
    assert [row[0] for row in made] == ["global"]


def test_the_rounds_of_a_warm_up_count() -> None:
    warm = replace(GOOD, summary={**GOOD.summary, "warmup_rounds": 40})
    (row,) = rows(Line("A", [], [warm]))
    assert row[1] == "42 / 10 / 10"  # its bits are in the record's


@pytest.mark.parametrize("kind", ["global", "personal"])
def test_linear_models_have_no_such_table(kind: str) -> None:
    assert reaching.table(Panel("Panel", [Line("A", [], convex()[:1], kind)], {})) is None
    assert rivals.courses([Panel("Panel", [Line("A", [], convex()[:1], kind)], {})]) is None


def test_the_picture_has_the_lines_that_are_looked_at_under_way() -> None:
    tuned = replace(GOOD, summary={**GOOD.summary, "tuned": True})
    lines = [Line("A", [], [GOOD], "global"), Line("tuned", [], [tuned])]
    made = rivals.courses([Panel("Panel", lines, {})])
    assert made is not None
    loss, score = made.axes
    (first,), (second,) = loss.lines, score.lines
    assert first.get_label() == second.get_label() == "A"
    np.testing.assert_allclose(first.get_ydata(), [1, 1 / 3, 1 / 5, 1 / 7])
    np.testing.assert_allclose(second.get_ydata(), [10, 70, 86, 84])
    assert 60 < score.get_ylim()[0] < 70 < 86 < score.get_ylim()[1] < 90
