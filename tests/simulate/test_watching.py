from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scafflix as sx
from scafflix import ScafflixError
from scafflix.core.checkpoint import Checkpoints

ROUNDS = 6


def runner(kind: str) -> Callable[..., sx.Record]:
    """A small run of each execution."""
    fed = sx.data.synthetic(clients=4, rows=40, features=3, seed=0)
    rows = fed.train
    fed = sx.data.from_arrays(rows.features, rows.labels, rows.owners, test=0.2, validation=0.2)
    options: dict[str, Any] = {"rounds": ROUNDS}
    model: Any = sx.models.logistic()
    if kind == "cohort":
        options |= {"cohort": 2, "every": 4}
    if kind == "network":
        model, options = sx.models.dense(3, 2, hidden=(4,)), {**options, "every": 4}
    if kind == "torch":
        torch = pytest.importorskip("torch")
        model = sx.models.from_torch(lambda: torch.nn.Linear(3, 2))
        options |= {"every": 4}
    problem = sx.Problem(fed, model, l2=0.1)
    recipe = sx.Recipe(stepsize=0.1, steps=5, batch=5)
    person = sx.personalize(problem, 1.0, **({} if problem.linear else {"recipe": recipe}))
    method = sx.scafflix(sx.plan(problem, person))
    return lambda **more: sx.run(problem, person, method, **options, **more)


KINDS = ("all", "cohort", "network", "torch")


@pytest.mark.parametrize("kind", KINDS)
def test_callbacks_see_every_round_and_every_look_and_change_nothing(kind: str) -> None:
    run = runner(kind)
    rounds: list[sx.Moment] = []
    looks: list[int] = []
    models: list[Any] = []

    def on_round(moment: sx.Moment) -> None:
        rounds.append(moment)
        models.append(moment.x)

    record = run(on_round=on_round, on_evaluate=lambda moment: looks.append(moment.round))
    plain = run()
    for name, column in plain.metrics.items():
        np.testing.assert_allclose(record.metrics[name], column, rtol=1e-9, atol=1e-12)
    assert [moment.round for moment in rounds] == [1, 2, 3, 4, 5, 6]
    assert looks == ([1, 2, 3, 4, 5, 6] if kind == "all" else [4, 6])
    for moment in rounds:
        assert moment.rounds == ROUNDS
        sent = record.metrics["bits_up"] + record.metrics["bits_down"]
        assert moment.bits == sent[moment.round]
        for name, value in moment.values.items():
            assert value == pytest.approx(record.metrics[name][moment.round], rel=1e-12)
    final = record.model(None, "global")
    last = models[-1]
    if not isinstance(final, dict):
        np.testing.assert_array_equal(last, final)
    else:
        sizes = sorted(np.size(leaf) for leaf in final.values())
        assert sizes == sorted(np.size(leaf) for leaf in __import__("jax").tree.leaves(last))
    with pytest.raises(ScafflixError, match="ask for x while the callback runs"):
        _ = rounds[0].x


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_run_says_why_and_goes_on_from_there(kind: str, tmp_path: Path) -> None:
    run, place = runner(kind), Checkpoints(tmp_path / "trail")

    def third(moment: sx.Moment) -> sx.Stop | None:
        return sx.Stop("three is enough") if moment.round == 3 else None

    short = run(on_round=third, checkpoints=place)
    assert (short.summary["rounds"], short.summary["stopped"]) == (3, "three is enough")
    whole, plain = run(checkpoints=place), run()
    assert (whole.summary["rounds"], whole.summary["stopped"]) == (ROUNDS, None)
    for name, model in plain.models.items():
        np.testing.assert_allclose(whole.models[name], model, rtol=1e-9, atol=1e-12)
    again = sx.Record.load(short.save(tmp_path / "record"))
    assert again.summary["stopped"] == "three is enough"


@pytest.mark.parametrize("kind", ["all", "network"])
def test_a_callback_that_fails_is_named_and_the_rounds_are_kept(kind: str) -> None:
    def broken(moment: sx.Moment) -> None:
        if moment.round == 2:
            raise KeyError("accuracy")

    with pytest.raises(
        sx.CallbackError, match=r"test_watching.py, line \d+: on_round failed after round 2: .*Key"
    ) as caught:
        runner(kind)(on_round=broken)
    assert caught.value.record.summary["rounds"] == 2
    with pytest.raises(sx.CallbackError, match=r"on_evaluate returned 5 .* return None, or"):
        runner(kind)(on_evaluate=lambda moment: 5)


def test_what_is_no_callback_is_refused() -> None:
    run = runner("all")
    with pytest.raises(ScafflixError, match="on_round is 3; give a function"):
        run(on_round=3)
    with pytest.raises(ScafflixError, match="progress is 3; give True, False"):
        run(progress=3)


def test_progress_true_draws_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    runner("all")(progress=True)
    assert "6/6" in capsys.readouterr().err
