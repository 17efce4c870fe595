"""Methods whose clients have models of their own: against the papers' lines, in their special
cases, and at what they claim to find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import miniature
import scafflix as sx
from cases import ALPHA, ROUNDS, Case
from executions import schedule
from personalizers import PERSONALIZERS, Rounds
from scafflix.methods import METHODS, Client, Method
from scafflix.record import Record

CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}
UNUSUAL: dict[str, dict[str, Any]] = {
    "ditto": {"p": 0.4, "pull": 0.7},
    "mr_mtl": {"p": 0.4, "pull": 0.7},
    "pfedme": {"p": 0.6, "pull": 2.0, "inner": 3, "beta": 0.8},
    "apfl": {"p": 0.4, "weight": 0.3, "adapt": 20.0},  # so large that some a_i reach 0 or 1
    "l2gd": {"p": 0.4, "pull": 0.7},
    "finetuning": {"p": 0.4, "tuning_steps": 7, "tuning_stepsize": 0.3},
    "per_fedavg": {"p": 0.4, "a": 0.4},
}


def made(case: Case, name: str, alpha: Any = 1.0, **options: Any) -> Method:
    return METHODS[name](sx.plan(case.problem, case.person.at(alpha)), **options)


def run(case: Case, method: Method, alpha: Any = 1.0, **options: Any) -> Record:
    asked = {"rounds": ROUNDS, **options}
    return sx.run(case.problem, case.person.at(alpha), method, **asked)


def homes(record: Record) -> NDArray[np.float64]:
    return np.asarray(record.models["personal"])


def residuals(case: Case, pull: float, own: Any, centre: Any) -> NDArray[np.float64]:
    """grad f_i(v_i) + lambda (v_i - x) at each client."""
    pairs = zip(case.functions, own, strict=True)
    return np.array([f.gradient(v) + pull * (v - centre) for f, v in pairs])


@pytest.mark.parametrize(("alpha", "cohort"), [(ALPHA, None), (1.0, None), (1.0, 3)])
@pytest.mark.parametrize("name", PERSONALIZERS)
def test_models_of_all_and_of_each_are_those_of_the_papers_lines(
    logistic_case: Case, name: str, alpha: Any, cohort: int | None
) -> None:
    case, seed, n = logistic_case, 4, len(ALPHA)
    method = made(case, name, alpha, **UNUSUAL[name])
    record = run(case, method, alpha, seed=seed, cohort=cohort)
    share = np.broadcast_to(alpha, n)
    mixed = case.mixed(share)
    gamma = np.asarray(method.gamma)
    drawn = schedule(method, Client(share, gamma), seed, ROUNDS, cohort)
    rounds = Rounds(
        lambda i, r, k, x: mixed[i].gradient(x),
        n,
        [one.cohort for one in drawn],
        [one.steps for one in drawn],
        float(gamma[0] / share[0] ** 2),
        method.settings,
    )
    found = PERSONALIZERS[name](rounds, np.ones(case.problem.shape))
    np.testing.assert_allclose(record.models["global"], found.x, **CLOSE)
    stars = np.asarray(case.person.x_star)
    np.testing.assert_allclose(
        homes(record), share[:, None] * found.own + (1 - share[:, None]) * stars, **CLOSE
    )
    assert np.abs(homes(record) - record.models["global"]).max() > 1e-2


def alone(case: Case, method: Method, steps: int) -> NDArray[np.float64]:
    """Where gradient steps at each client lead, without the others."""
    x = np.ones((len(ALPHA), *case.problem.shape))
    for _ in range(steps):
        x = x - method.gamma[0] * residuals(case, 0.0, x, 0.0)
    return x


def test_ditto_without_a_pull_is_local_training_beside_fedavg(logistic_case: Case) -> None:
    method = made(logistic_case, "ditto", pull=0.0)
    record, fedavg = (run(logistic_case, one) for one in (method, made(logistic_case, "fedavg")))
    np.testing.assert_allclose(record.models["global"], fedavg.models["global"], **CLOSE)
    steps = int(record.summary["iterations"])
    np.testing.assert_allclose(homes(record), alone(logistic_case, method, steps), **CLOSE)


@pytest.mark.parametrize("name", ["mr_mtl", "l2gd"])
def test_without_a_pull_every_client_trains_alone(logistic_case: Case, name: str) -> None:
    method = made(logistic_case, name, pull=0.0, p=0.4)
    record = run(logistic_case, method)
    steps = int(record.summary["iterations"]) - (ROUNDS if name == "l2gd" else 0)
    np.testing.assert_allclose(homes(record), alone(logistic_case, method, steps), **CLOSE)


def test_apfl_that_takes_nothing_of_its_own_is_fedavg(logistic_case: Case) -> None:
    record = run(logistic_case, made(logistic_case, "apfl", weight=0.0))
    fedavg = run(logistic_case, made(logistic_case, "fedavg")).models["global"]
    np.testing.assert_allclose(record.models["global"], fedavg, **CLOSE)
    np.testing.assert_allclose(homes(record), np.array([fedavg] * len(ALPHA)), **CLOSE)


def test_apfl_that_takes_only_its_own_is_local_training(logistic_case: Case) -> None:
    method = made(logistic_case, "apfl", weight=1.0)
    record = run(logistic_case, method)
    steps = int(record.summary["iterations"])
    np.testing.assert_allclose(homes(record), alone(logistic_case, method, steps), **CLOSE)


def test_without_steps_at_the_end_fine_tuning_is_fedavg(logistic_case: Case) -> None:
    record = run(logistic_case, made(logistic_case, "finetuning", ALPHA, tuning_steps=0), ALPHA)
    fedavg = run(logistic_case, made(logistic_case, "fedavg", ALPHA), ALPHA)
    for kind in ("global", "personal"):
        np.testing.assert_array_equal(record.models[kind], fedavg.models[kind])


def test_many_steps_at_the_end_lead_to_the_local_optima(logistic_case: Case) -> None:
    record = run(logistic_case, made(logistic_case, "finetuning", tuning_steps=20_000))
    np.testing.assert_allclose(homes(record), logistic_case.person.x_star, atol=1e-6)


def test_per_fedavg_without_steps_ahead_is_fedavg_with_two_gradients_a_step(
    logistic_case: Case,
) -> None:
    record = run(logistic_case, made(logistic_case, "per_fedavg", p=0.4, a=0.0))
    fedavg = run(logistic_case, made(logistic_case, "fedavg", p=0.4))
    np.testing.assert_allclose(record.models["global"], fedavg.models["global"], **CLOSE)
    np.testing.assert_allclose(homes(record), [fedavg.models["global"]] * len(ALPHA), **CLOSE)
    assert record.summary["iterations"] == 2 * fedavg.summary["iterations"]


def test_per_fedavg_finds_a_start_from_which_one_step_is_best(logistic_case: Case) -> None:
    # with one step of everything, sum_i grad f_i(x - a grad f_i(x)) = 0
    record = run(logistic_case, made(logistic_case, "per_fedavg", p=1.0), rounds=3000)
    slopes = residuals(logistic_case, 0.0, homes(record), 0.0)
    assert np.abs(slopes.mean(axis=0)).max() < 1e-7
    assert np.abs(slopes).max() > 1e-2
    assert record.summary["final_gap"] > 1e-4  # not where the mean itself is least


def test_pfedme_with_one_step_of_everything_is_gd_with_a_smaller_stepsize(
    logistic_case: Case,
) -> None:
    method = made(logistic_case, "pfedme", p=1.0, inner=1, pull=2.0)
    step = float(method.gamma[0])
    smaller = 2.0 * (step / (1 + 2.0 * step)) ** 2
    gd = run(logistic_case, made(logistic_case, "gd", stepsize=smaller))
    found = run(logistic_case, method).models["global"]
    np.testing.assert_allclose(found, gd.models["global"], **CLOSE)


def test_ditto_finds_models_that_the_optimum_pulls(logistic_case: Case) -> None:
    record = run(logistic_case, made(logistic_case, "ditto", p=1.0, pull=0.5), rounds=1500)
    assert record.summary["final_gap"] < 1e-8
    left = residuals(logistic_case, 0.5, homes(record), record.models["global"])
    assert np.abs(left).max() < 1e-6


def test_mr_mtl_finds_its_optimum_with_any_number_of_local_steps(logistic_case: Case) -> None:
    record = run(logistic_case, made(logistic_case, "mr_mtl", p=0.3, pull=0.5), rounds=300)
    own = homes(record)
    assert np.abs(residuals(logistic_case, 0.5, own, own.mean(axis=0))).max() < 1e-8
    assert np.ptp(own, axis=0).max() > 0.1
    assert record.summary["final_gap"] > 1e-3  # the mean is not the optimum of the mean


def test_pfedme_finds_the_optimum_of_the_envelopes(logistic_case: Case) -> None:
    method = made(logistic_case, "pfedme", p=1.0, pull=1.0, inner=60)
    record = run(logistic_case, method, rounds=500)
    own, w = homes(record), record.models["global"]
    assert np.abs(residuals(logistic_case, 1.0, own, w)).max() < 1e-6
    assert np.abs(own.mean(axis=0) - w).max() < 1e-6  # grad F = lambda (w - mean theta_i)
    assert record.summary["final_gap"] > 1e-3


def l2gd_distances(case: Case, method: Method, seeds: int, rounds: int) -> tuple[float, float]:
    """Mean squared distance to the solution at the end, over seeds, and the paper's bound on it:
    (1 - a mu/n)^t ||x^0 - x*||^2 + 2 n a sigma^2 / mu."""
    pull, p = method.settings["pull"], method.settings["p"]
    exact = run(case, made(case, "mr_mtl", p=0.3, pull=pull), rounds=400)
    optimum, n, mu = homes(exact), len(ALPHA), float(case.problem.constants.mu.min())
    assert np.abs(residuals(case, pull, optimum, optimum.mean(axis=0))).max() < 1e-9
    person = case.person.at(1.0)
    members = [sx.Run(person, method, seed) for seed in range(seeds)]
    records = sx.sweep(case.problem, members, rounds=rounds, scores=False)
    a = float(method.gamma[0]) * n * (1 - p)
    slopes = residuals(case, 0.0, optimum, 0.0)
    spread = optimum - optimum.mean(axis=0)
    sigma = (np.sum(slopes**2) / (1 - p) + pull**2 * np.sum(spread**2) / p) / n**2
    contraction = np.mean([(1 - a * mu / n) ** r.summary["iterations"] for r in records])
    bound = contraction * np.sum((optimum - 1) ** 2) + 2 * n * a * sigma / mu
    return float(np.mean([np.sum((homes(r) - optimum) ** 2) for r in records])), float(bound)


def test_l2gd_comes_as_near_its_optimum_as_its_theorem_says(logistic_case: Case) -> None:
    method = made(logistic_case, "l2gd", pull=0.5)
    distance, bound = l2gd_distances(logistic_case, method, seeds=12, rounds=60)
    assert distance < bound
    smaller = made(logistic_case, "l2gd", pull=0.5, stepsize=float(method.gamma[0]) / 30)
    nearer, bound = l2gd_distances(logistic_case, smaller, seeds=12, rounds=1500)
    assert nearer < min(bound, distance / 5)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("ditto", {"pull": -0.1}, "pull is -0.1"),
        ("mr_mtl", {"pull": float("nan")}, "pull is nan"),
        ("l2gd", {"pull": -1}, "pull is -1"),
        ("l2gd", {"p": 1.0}, "p is 1, with which l2gd makes no gradient step"),
        ("apfl", {"weight": 1.5}, "weight is 1.5; it must be between 0 and 1"),
        ("apfl", {"adapt": -1}, "adapt is -1"),
        ("pfedme", {"pull": 0}, "pull is 0"),
        ("pfedme", {"inner": 0}, "inner is 0"),
        ("pfedme", {"beta": -1}, "beta is -1"),
        ("finetuning", {"tuning_steps": -1}, "tuning_steps is -1"),
        ("finetuning", {"tuning_steps": 2.5}, "tuning_steps is 2.5"),
        ("finetuning", {"tuning_stepsize": 0}, "tuning_stepsize is 0"),
        ("per_fedavg", {"a": -1}, "a is -1"),
    ],
)
def test_what_makes_no_sense_is_refused(
    logistic_case: Case, name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(sx.ScafflixError, match=words):
        METHODS[name](logistic_case.plan, **options)


@pytest.mark.parametrize("name", PERSONALIZERS)
def test_the_record_of_a_network_scores_each_clients_own_model(name: str) -> None:
    small, one = miniature.problem(), np.ones(miniature.N)
    method = miniature.method(name, one, miniature.GAMMA)
    record = miniature.record(small, method, one, None, rounds=6, cohort=3)
    weight, bias = (record.models[f"personal/layer0/{name}"] for name in ("weight", "bias"))
    test, scores = small.federation.test, []
    for i in range(miniature.N):
        rows = slice(test.offsets[i], test.offsets[i + 1])
        right = (test.features[rows] @ weight[i] + bias[i]).argmax(axis=1) == test.labels[rows]
        scores.append(np.mean(right) if len(right) else np.nan)
    np.testing.assert_allclose(record.clients["test_personal"], scores, atol=1e-6)
    assert np.ptp(weight, axis=0).max() > 1e-3  # they differ
