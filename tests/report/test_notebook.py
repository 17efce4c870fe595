"""Records and plans show themselves in a notebook, and records become frames."""

from __future__ import annotations

import sys
from dataclasses import replace

import made
import numpy as np
import pytest

from cases import Case
from scafflix.core.errors import ScafflixError

PNG = b"\x89PNG"


def test_a_record_shows_its_headlines_and_its_curves() -> None:
    shown = made.numbers(data="<b>")._repr_html_()
    assert "scafflix on &lt;b&gt;, alpha = 0.5" in shown
    assert "Clients that gain by taking part" in shown
    assert "data:image/png;base64," in shown


def test_the_picture_of_a_record_is_of_what_it_is_judged_by() -> None:
    convex = made.numbers().plot()
    assert [axes.get_xlabel() for axes in convex.axes] == ["communication rounds $k$"] * 2
    assert convex._repr_png_().startswith(PNG)
    (deployed,) = made.deployment().plot().axes
    objective = deployed.lines[0].get_ydata()
    np.testing.assert_array_equal(objective, made.deployment().metrics["objective"])


def test_a_network_is_pictured_by_the_rounds_that_were_looked_at() -> None:
    (axes,) = made.network().plot().axes
    assert axes.lines[0].get_xdata().tolist() == [0, 2, 4, 6]
    assert "Best mean test accuracy" in made.network()._repr_html_()


def test_a_record_gives_frames_by_round_and_by_client() -> None:
    record = made.numbers()
    frame = record.to_pandas()
    assert frame.index.name == "round"
    np.testing.assert_array_equal(frame["objective_gap"], record.metrics["objective_gap"])
    assert record.to_pandas("clients").loc["writer-0003", "L"] == record.clients["L"][3]
    with pytest.raises(ScafflixError, match="metrics or clients"):
        record.to_pandas("models")


def test_a_frame_without_pandas_is_asked_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ScafflixError, match="pip install 'scafflix\\[pandas\\]'"):
        made.numbers().to_pandas()


def test_a_plan_shows_its_numbers_and_its_clients(logistic_case: Case) -> None:
    plan = logistic_case.plan
    shown = plan._repr_html_()
    assert f"<td style='text-align:left'>{plan.p:.4g}</td>" in shown
    assert f"{plan.gamma.min():.4g} to {plan.gamma.max():.4g}" in shown
    stepsizes = plan.plot().axes[0].lines[0].get_ydata()
    np.testing.assert_array_equal(stepsizes, np.sort(plan.gamma))


def test_a_record_of_a_run_that_nobody_took_part_in_is_shown() -> None:
    record = made.numbers(alpha=0.0, rounds=10)
    start = {name: values[:1] for name, values in record.metrics.items()}
    nobody = {**record.summary, "n_active": 0, "certificate": None, "rounds": 0}
    assert "<img" in replace(record, metrics=start, summary=nobody)._repr_html_()
