"""What a careless user passes is answered with one sentence, before anything is computed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import scafflix as sx
from cases import Case


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rounds": 3.0}, "rounds is 3.0; give a whole number"),
        ({"rounds": "3"}, "rounds is '3'; give a whole number"),
        ({"seed": None}, "seed is None; give a whole number"),
        ({"seed": 1.5}, "seed is 1.5; give a whole number"),
        ({"start": np.full(6, np.nan)}, "start holds nan; give finite numbers"),
        ({"start": [1.0, 2.0]}, r"start has the shape \(2,\); it must be \(6,\)"),
        ({"h0": [0.0]}, r"h0 has the shape \(1,\); it must be \(5, 6\)"),
        ({"h0": np.full((5, 6), np.inf)}, "h0 holds inf; give finite numbers"),
    ],
)
def test_a_run_refuses_options_of_the_wrong_type(
    linear_case: Case, options: dict[str, Any], sentence: str
) -> None:
    method = sx.scafflix(linear_case.plan)
    with pytest.raises(sx.ScafflixError, match=sentence):
        sx.run(linear_case.problem, linear_case.person, method, **{"rounds": 2, **options})


def test_start_and_h0_may_be_lists(linear_case: Case) -> None:
    method, zeros = sx.scafflix(linear_case.plan), np.zeros((5, 6))

    def final(**options: Any) -> Any:
        made = sx.run(linear_case.problem, linear_case.person, method, rounds=2, **options)
        return made.models["global"]

    listed = final(start=[0.0] * 6, h0=zeros.tolist())
    np.testing.assert_array_equal(listed, final(start="zeros", h0="zero"))


def test_partners_in_each_others_places_are_named(linear_case: Case) -> None:
    problem, person, plan = linear_case.problem, linear_case.person, linear_case.plan
    method: Any = sx.scafflix(plan)
    other_plan: Any = plan
    other_person: Any = person
    with pytest.raises(sx.ScafflixError, match=r"method is a Plan; give a method, such as"):
        sx.run(problem, person, other_plan, rounds=2)
    with pytest.raises(sx.ScafflixError, match="person is a Method; give a personalization"):
        sx.run(problem, method, method, rounds=2)
    with pytest.raises(sx.ScafflixError, match="plan is a Method; give a plan"):
        sx.scafflix(method)
    with pytest.raises(sx.ScafflixError, match=r"problem is a Personalization; give an sx.Problem"):
        sx.plan(other_person, person)


def test_models_that_are_none_are_named(linear_case: Case) -> None:
    federation: Any = linear_case.problem.federation
    uncalled: Any = sx.models.logistic
    nothing: Any = sx.models.MODELS
    linear: Any = sx.models.linear()
    text: Any = "little"
    with pytest.raises(sx.ScafflixError, match=r"model is the function logistic; .*logistic\(\)"):
        sx.Problem(federation, uncalled, l2=0.1)
    with pytest.raises(sx.ScafflixError, match=r"model is {.*; .* or sx.models.cnn\(\)"):
        sx.Problem(federation, nothing)
    with pytest.raises(sx.ScafflixError, match="l2 is 'little'; give a finite number"):
        sx.Problem(federation, linear, l2=text)


def test_the_shape_of_alpha_is_said(linear_case: Case) -> None:
    with pytest.raises(sx.ScafflixError, match=r"the shape \(5, 1\), but there are 5 clients"):
        sx.personalize(linear_case.problem, np.full((5, 1), 0.5))


@pytest.mark.parametrize("alpha", [1e-200, [1, 1, 1e-40, 1, 1]])
def test_an_alpha_whose_square_vanishes_is_refused(linear_case: Case, alpha: Any) -> None:
    with pytest.raises(sx.ScafflixError, match=r"its square is lost in rounding; give 0 .* 1e-16"):
        sx.personalize(linear_case.problem, alpha)


def test_the_least_alpha_runs(linear_case: Case) -> None:
    person = linear_case.person.at([1, 1, 1e-16, 1, 1])
    method = sx.scafflix(sx.plan(linear_case.problem, person))
    record = sx.run(linear_case.problem, person, method, rounds=2)
    assert np.isfinite(record.models["global"]).all()


def test_raw_examples_with_nan_are_refused() -> None:
    features = np.ones((2, 3))
    features[1, 2] = np.nan
    with pytest.raises(sx.ScafflixError, match=r"features holds nan at \[1, 2\] \(from 0\)"):
        sx.data.Examples(features, np.array([0, 1]), np.array([0, 1, 2]))


def test_clients_are_taken_in_the_order_given_or_not_at_all(linear_case: Case) -> None:
    turned = np.array([4, 3, 2, 1, 0])
    np.testing.assert_array_equal(
        linear_case.person.take(turned).alpha, linear_case.person.alpha[::-1]
    )
    with pytest.raises(sx.ScafflixError, match="in increasing order"):
        linear_case.problem.take(turned)


def test_a_platform_without_a_device_is_one_sentence_and_exit_code_2() -> None:
    command = "import sys; from scafflix.cli import main; sys.argv[0] = 'scafflix'; main()"
    words = ["run", "--data", "synthetic", "--clients", "2", "--rounds", "1", "--out", "nowhere"]
    done = subprocess.run(
        [sys.executable, "-c", command, *words],
        env={**os.environ, "JAX_PLATFORMS": "cuda"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "JAX finds no device for the platform 'cuda'" in done.stderr
    assert "Traceback" not in done.stderr
