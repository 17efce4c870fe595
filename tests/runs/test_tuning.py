from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scafflix as sx
from scafflix.core.errors import ScafflixError
from scafflix.data.federation import Examples, Federation
from scafflix.gradients import Gradient, gradient
from scafflix.models.network import Network
from scafflix.problems.evaluation import evaluate
from scafflix.runs import assembly, tuning
from scafflix.runs.config import TuneConfig, build
from scafflix.runs.runner import Runner
from scafflix.runs.tuning import Cell, Tuned, best, tune
from scafflix.simulate import recording

CONVEX: dict[str, Any] = {
    "data": "iris",
    "clients": 3,
    "split": "shuffled",
    "scale": "standard",
    "test": 0.2,
    "validation": 0.2,
    "model": "softmax",
    "methods": ("scafflix", "gd"),
    "stepsizes": (0.001, 0.1),
    "rounds": 5,
}
NETWORK: dict[str, Any] = {
    **CONVEX,
    "model": "dense",
    "methods": ("scafflix", "fedavg"),
    "batch": 5,
    "cohort": 2,
    "rounds": 3,
    "every": 3,
    "alpha": 0.5,
    "optima_stepsize": 0.1,
    "optima_batch": 5,
    "optima_steps": 10,
    "keep": "none",
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))


def search(settings: dict[str, Any], folder: Path, **changes: Any) -> Tuned:
    return tune(build(TuneConfig, {**settings, **changes}), folder)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("computed again")


def spied_parts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The parts of the data that are evaluated from now on, whoever asks."""
    seen: list[str] = []

    def spy(problem: Any, part: str, *arguments: Any, **named: Any) -> Any:
        seen.append(part)
        return evaluate(problem, part, *arguments, **named)

    for name, module in list(sys.modules.items()):
        if name.startswith("scafflix.") and vars(module).get("evaluate") is evaluate:
            monkeypatch.setattr(module, "evaluate", spy)
    return seen


@pytest.fixture(params=["convex", "network"])
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"convex": CONVEX, "network": NETWORK}[request.param]


def test_there_is_a_cell_for_every_method_and_stepsize(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    found = search(settings, tmp_path)
    assert [(cell.method, cell.stepsize) for cell in found.cells] == [
        (method, stepsize) for method in settings["methods"] for stepsize in settings["stepsizes"]
    ]
    assert len(list((tmp_path / "cells").glob("*.json"))) == 4
    assert all(0 <= cell.score <= 1 for cell in found.cells)


def test_the_winner_is_run_with_the_stepsize_of_the_best_cell(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    found = search(settings, tmp_path)
    for method, record in found.winners.items():
        mine = [cell for cell in found.cells if cell.method == method]
        best = max(mine, key=lambda cell: (cell.score, -cell.loss))
        assert record.config["stepsize"] == best.stepsize
        assert record.config["part"] == "test"
        assert "test_personal" in record.clients


def test_a_second_call_computes_no_cell(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = search(settings, tmp_path)
    asked: list[str] = []
    run = Runner.run

    def spy(runner: Runner, one: Any, *arguments: Any) -> Any:
        asked.append(one.part)
        return run(runner, one, *arguments)

    monkeypatch.setattr(Runner, "run", spy)
    again = search(settings, tmp_path)
    assert asked == ["test", "test"]
    assert again.cells == first.cells


def test_a_stopped_search_goes_on_with_the_cells_that_are_missing(tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop(done: int, total: int, *_: object) -> None:
        if done > total // 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        tune(build(TuneConfig, CONVEX), tmp_path, stop)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert 0 < len(before) < 4
    search(CONVEX, tmp_path)
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert len(after) == 4
    assert {path: after[path] for path in before} == before


def test_cells_of_another_configuration_are_not_taken(tmp_path: Path) -> None:
    search(CONVEX, tmp_path)
    search(CONVEX, tmp_path, rounds=6)
    assert len(list((tmp_path / "cells").glob("*.json"))) == 8


def test_a_networks_test_data_are_evaluated_only_for_the_winners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = spied_parts(monkeypatch)
    monkeypatch.setattr(tuning, "best", refuse)
    with pytest.raises(AssertionError, match="computed again"):
        search(NETWORK, tmp_path)  # up to the choice
    assert "validation" in seen
    assert "test" not in seen


def test_a_convex_models_test_data_are_evaluated_only_for_the_winners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns: list[str] = []
    table = recording.linear_scores

    def spy(*arguments: Any) -> Any:
        made = table(*arguments)
        columns.extend(made)
        return made

    monkeypatch.setattr(recording, "linear_scores", spy)
    monkeypatch.setattr(tuning, "best", refuse)
    with pytest.raises(AssertionError, match="computed again"):
        search(CONVEX, tmp_path)
    assert "validation_personal" in columns
    assert "test_personal" not in columns


def test_a_grid_on_which_everything_diverges_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match=r"Every stepsize of the grid diverged for scafflix"):
        search(NETWORK, tmp_path, stepsizes=(1e20, 1e25))


def test_a_network_that_diverges_does_not_win(tmp_path: Path) -> None:
    found = search(NETWORK, tmp_path, stepsizes=(0.1, 1e20))
    assert all(record.config["stepsize"] == 0.1 for record in found.winners.values())
    wild = [cell for cell in found.cells if cell.stepsize == 1e20]
    assert all(math.isnan(cell.score) and cell.diverged is not None for cell in wild)


@pytest.mark.filterwarnings("ignore::scafflix.core.errors.ScafflixWarning")
def test_a_convex_run_that_diverges_does_not_win(tmp_path: Path) -> None:
    found = search(CONVEX, tmp_path, stepsizes=(0.1, 1e30), methods=("fedavg",), rounds=40, p=0.2)
    assert found.winners["fedavg"].config["stepsize"] == 0.1
    wild = next(cell for cell in found.cells if cell.stepsize == 1e30)
    assert math.isnan(wild.score)


def test_a_grid_of_words_is_one_sentence(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="stepsize"):
        search(settings, tmp_path, stepsizes=("large",))


def test_a_damaged_cell_is_one_sentence(tmp_path: Path) -> None:
    search(CONVEX, tmp_path)
    file = next((tmp_path / "cells").glob("*.json"))
    file.write_text(json.dumps({"method": "scafflix"}))
    with pytest.raises(ScafflixError, match="does not hold a cell"):
        search(CONVEX, tmp_path)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "cells").write_text("")
    with pytest.raises(ScafflixError, match="cells is a file"):
        search(CONVEX, tmp_path)


# choosing


def cells(*scores: float) -> list[Cell]:
    return [
        Cell("m", 10.0**k, score, None if math.isfinite(score) else 3)
        for k, score in enumerate(scores)
    ]


def test_the_best_accuracy_is_the_largest_and_the_best_error_the_smallest() -> None:
    assert best(cells(0.2, 0.9, 0.5), "accuracy").stepsize == 10
    assert best(cells(0.2, 0.9, 0.1), "mse").stepsize == 100


def test_a_cell_that_diverged_is_not_chosen() -> None:
    assert best(cells(math.nan, 0.1, math.nan), "accuracy").stepsize == 10
    assert best(cells(math.nan, 0.1, math.nan), "mse").stepsize == 10


def test_of_two_equal_cells_the_smaller_stepsize_is_chosen() -> None:
    assert best(cells(0.5, 0.5, 0.1), "accuracy").stepsize == 1


def looked_at_validation(problem: sx.Problem, estimate: Gradient) -> sx.Record:
    person = sx.personalize(problem, 1.0, optima=False)
    method = sx.scafflix(sx.plan(problem, person, gradient=estimate))
    return sx.run(problem, person, method, rounds=2, part="validation")


def test_the_score_of_a_network_is_the_one_of_its_summary() -> None:
    fed = sx.data.load(
        "iris", clients=3, split="dirichlet:0.5", validation=0.3, test=0.2, scale="standard"
    )
    problem = sx.Problem(fed, sx.models.dense(features=4, classes=3))
    record = looked_at_validation(problem, gradient("full"))
    expected = record.summary["scores"]["validation"]["personal"]["examples"]
    assert tuning.score(record, "validation") == pytest.approx(expected)


def test_the_score_counts_every_character_of_a_sequence_alike() -> None:
    # as the summary does: a client's score is a mean over the characters of its lines
    table = Network(
        "table",
        lambda key: {"table": jax.random.normal(key, (4, 4), jnp.float32)},
        lambda params, inputs: params["table"][inputs],
    )
    random = np.random.default_rng(1)
    rows = random.integers(0, 4, (4, 9))
    labels = np.where(np.arange(9) < np.array([9, 9, 1, 1])[:, None], rows[:, ::-1], -1)
    part = Examples(rows, labels, np.array([0, 2, 4]))
    problem = sx.Problem(Federation("play", ("a", "b"), part, part, part), table)
    record = looked_at_validation(problem, gradient(1))
    expected = record.summary["scores"]["validation"]["personal"]["examples"]
    assert tuning.score(record, "validation") == pytest.approx(expected)


def test_a_problem_is_made_once_for_the_whole_grid(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = assembly.load_federation
    monkeypatch.setattr(
        assembly, "load_federation", lambda config: loaded.append(config.data) or load(config)
    )
    search(settings, tmp_path)
    assert loaded == ["iris"]
