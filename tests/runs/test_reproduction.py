from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scafflix.core.errors import ScafflixError
from scafflix.runs.assembly import load_federation, resolve
from scafflix.runs.reproduction import Panel, Scale, Task, plans, reproduce
from scafflix.runs.runner import Runner, figure_settings

FIGURES = ("fig2", "fig3a", "fig3b", "fig3c", "figA1", "figA2", "figA3", "pace", "warm", "drift")
FEW = {
    "model": "dense",  # on pixels up to 255, hence the small rates
    "batch": 5,
    "min_examples": 5,
    "grid": [1e-6, 1e-5],
    "optima_batch": 10,
    "optima_stepsize": 1e-5,
    "warmup_stepsize": 1e-5,
}


@pytest.fixture(autouse=True)
def _own_places(miniatures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(miniatures))
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))


def tasks(figure: str, scale: Scale = Scale.laptop, **changes: Any) -> list[list[Task]]:
    return [lines for _, lines in plans(figure, scale, changes)]


# plans


@pytest.mark.parametrize("scale", Scale)
@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_hasplans_at_every_scale(figure: str, scale: Scale) -> None:
    for panel in tasks(figure, scale):
        assert len({task.label for task in panel}) == len(panel) >= 2
        for task in panel:
            sizes = [setting["stepsize"] for setting in task.tries]
            assert sizes == sorted(sizes)
            assert task.seeds >= 1
            assert task.config.part == "test"
            assert task.tuning.part == "validation"
            assert task.config.keep == task.tuning.keep == "none"


@pytest.mark.parametrize("scale", Scale)
def test_figure_3a_has_the_papers_personalization_factors(scale: Scale) -> None:
    (panel,) = tasks("fig3a", scale)
    assert [task.config.alpha for task in panel] == [0.1, 0.3, 0.5, 0.7, 0.9]


@pytest.mark.parametrize("scale", [Scale.laptop, Scale.paper])
def test_figure_3b_has_the_papers_numbers_of_clients(scale: Scale) -> None:
    (panel,) = tasks("fig3b", scale)
    assert [task.config.cohort for task in panel] == [1, 5, 10, 20]


@pytest.mark.parametrize("scale", Scale)
def test_figure_3c_has_the_papers_probabilities(scale: Scale) -> None:
    (panel,) = tasks("fig3c", scale)
    assert [task.config.p for task in panel] == [0.1, 0.2, 0.5]


def test_figure_2_has_the_papers_rivals_and_factors() -> None:
    femnist, shakespeare = tasks("fig2", Scale.paper)
    for panel, alpha in ((femnist, 0.1), (shakespeare, 0.3)):
        found = {(task.config.method, task.config.alpha) for task in panel}
        assert {("fedavg", 1), ("sgd", alpha), ("scafflix", alpha)} <= found


@pytest.mark.parametrize(("figure", "data"), [("figA1", "femnist"), ("figA2", "shakespeare")])
def test_the_appendix_has_the_other_factors(figure: str, data: str) -> None:
    panels = tasks(figure, Scale.paper)
    assert [panel[-1].config.alpha for panel in panels] == [0.3, 0.5, 0.7, 0.9]
    assert {task.config.data for panel in panels for task in panel} == {data}


def test_the_paper_has_a_thousand_rounds_with_ten_clients_and_batches_of_twenty() -> None:
    for figure in ("fig2", "fig3c"):
        for panel in tasks(figure, Scale.paper):
            for task in panel:
                assert (task.config.rounds, task.config.cohort, task.config.batch) == (1000, 10, 20)
                sizes = [setting["stepsize"] for setting in task.tries]
                assert sizes == [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]


def test_lines_that_share_a_method_share_its_tuning() -> None:
    for figure in ("fig3a", "fig3b", "fig3c"):
        (panel,) = tasks(figure)
        assert len({str(task.tuning) for task in panel}) == 1


def test_lines_with_and_without_personalization_are_tuned_apart() -> None:
    femnist, _ = tasks("fig2")
    by_label = {task.label: task.tuning for task in femnist}
    assert by_label["FedAvg (alpha = 1)"].alpha == 1
    assert by_label["FedAvg on FLIX"].alpha < 1


def test_no_key_of_a_figure_is_unknown() -> None:
    for figure in FIGURES:
        for panel in figure_settings(figure)["panels"]:
            assert set(panel) <= {"title", "on", "lines", "compares", "common", *Scale}


def test_a_cohort_is_no_larger_than_the_clients_there_are() -> None:
    (panel,) = tasks("fig3b", Scale.smoke, clients=6)
    assert [task.config.cohort for task in panel] == [1, 5, 6, 6]


@pytest.mark.parametrize(
    "changes",
    [{"clients": "6"}, {"seeds": "2"}, {"grid": "0.1,1"}, {"tuning_rounds": "1"}, {"rounds": "4"}],
    ids=lambda changes: next(iter(changes)),
)
def test_changes_from_the_command_line_are_words(changes: dict[str, str]) -> None:
    plain = {"clients": 6, "seeds": 2, "grid": [0.1, 1], "tuning_rounds": 1, "rounds": 4}
    same = {name: plain[name] for name in changes}
    assert tasks("fig3b", Scale.smoke, **changes) == tasks("fig3b", Scale.smoke, **same)


def test_a_change_of_a_key_that_is_unknown_is_one_sentence() -> None:
    with pytest.raises(ScafflixError, match="no key 'alhpa'"):
        tasks("fig3c", alhpa=0.5)


# figures


def check(panels: list[Panel], expected: list[str], rounds: int) -> None:
    (panel,) = panels
    assert [line.label for line in panel.lines] == expected
    for line in panel.lines:
        (chosen,) = line.chosen
        assert chosen in [trial.setting for trial in panel.tried[line.label]]
        for record in line.records:
            assert record.summary["rounds"] == rounds
            assert np.isfinite(record.metrics["test_personal"][-1])
            assert record.config["stepsize"] == chosen["stepsize"]


def test_a_figure_on_writers_is_made_from_the_file() -> None:
    panels = reproduce("fig3c", Scale.smoke, FEW)
    check(panels, ["p = 0.1", "p = 0.2", "p = 0.5"], 3)


def test_a_figure_with_several_seeds_has_a_record_for_each() -> None:
    panels = reproduce("fig3c", Scale.smoke, {**FEW, "seeds": 2, "rounds": 1})
    for line in panels[0].lines:
        assert [record.summary["seed"] for record in line.records] == [0, 1]


def test_a_second_time_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    first = reproduce("fig3c", Scale.smoke, FEW)

    def refuse(*_: object) -> None:
        raise AssertionError("run again")

    monkeypatch.setattr(Runner, "run", refuse)
    again = reproduce("fig3c", Scale.smoke, FEW)
    for one, two in zip(first[0].lines, again[0].lines, strict=True):
        np.testing.assert_array_equal(
            one.records[0].metrics["test_personal"], two.records[0].metrics["test_personal"]
        )


def test_progress_counts_every_run_of_the_figure() -> None:
    seen: list[tuple[int, int]] = []
    reproduce(
        "fig3c",
        Scale.smoke,
        {**FEW, "rounds": 1},
        lambda done, total, _: seen.append((done, total)),
    )
    assert {total for _, total in seen} == {3 * (2 + 1)}
    assert max(done for done, _ in seen) == 8
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_the_two_best_stepsizes_go_the_whole_way_before_one_is_chosen() -> None:
    changes = {**FEW, "rounds": 4, "tuning_rounds": 1, "grid": [1e-7, 1e-6, 1e-5]}
    (panel,) = reproduce("fig3c", Scale.smoke, changes)
    *short, third, fourth = (trial.cell for trial in panel.tried["p = 0.2"])
    assert sorted(cell.stepsize for cell in short) == [1e-7, 1e-6, 1e-5]
    left_out = min(short, key=lambda cell: (cell.score, -cell.loss)).stepsize
    assert left_out not in (third.stepsize, fourth.stepsize)
    chosen = max((third, fourth), key=lambda cell: (cell.score, -cell.loss))
    assert panel.lines[1].chosen == [{"stepsize": chosen.stepsize}]


def test_the_factors_are_those_of_the_records() -> None:
    panels = reproduce("fig3a", Scale.smoke, {**FEW, "rounds": 1})
    found = [line.records[0].clients["alpha"][0] for line in panels[0].lines]
    assert found == [0.1, 0.3, 0.5, 0.7, 0.9]


def test_roles_are_clients_of_their_own() -> None:
    # a recurrent network takes long to compile: the plan's data, without running it
    _, panel = tasks("fig2", Scale.smoke)
    federation = load_federation(resolve(panel[0].config))
    assert len(federation.clients) == 4
    assert all(client.startswith("Hamlet: ROLE") for client in federation.clients)
    assert set(federation.parts) == {"train", "test", "validation"}


def test_a_warm_start_is_counted_in_its_panel_only() -> None:
    cold, warm = reproduce("warm", Scale.smoke, {**FEW, "rounds": 1, "grid": [1e-5]})
    assert {line.records[0].summary["warmup_rounds"] for line in cold.lines} == {0}
    assert {line.records[0].summary["warmup_rounds"] for line in warm.lines} == {2}
