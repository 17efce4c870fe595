from __future__ import annotations

import numpy as np
import pytest

import scafflix as sx
from cases import ALPHA, ON_LINEAR, ROUNDS, SIZES, Case, examples
from cases import case as make_case
from scafflix.methods import METHODS

N = len(SIZES)


def run(case: Case, name: str = "scafflix", **options: object) -> sx.Record:
    method = METHODS[name](case.plan)
    return sx.run(case.problem, case.person, method, rounds=ROUNDS, **options)


# that travel up and down, where it is not one
POINTS = {"scaffold": (2, 2), "fedlin": (1, 2), "s_local_svrg": (1, 2)}


COMPRESSED = ("compressed_scaffnew", "tamuna", "locodl")  # counted in tests of their own


@pytest.mark.parametrize("name", sorted(set(ON_LINEAR) - {*COMPRESSED}))
def test_a_round_costs_one_model_a_client_each_way(case: Case, name: str) -> None:
    metrics = run(case, name).metrics
    expected = np.arange(ROUNDS + 1) * N * case.problem.size * 64
    up, down = POINTS.get(name, (1, 1))
    np.testing.assert_array_equal(metrics["bits_up"], up * expected)
    np.testing.assert_array_equal(metrics["bits_down"], down * expected)


def test_a_warm_start_costs_one_communication_more(case: Case) -> None:
    metrics = run(case, h0="warm").metrics
    expected = (1 + np.arange(ROUNDS + 1)) * N * case.problem.size * 64
    np.testing.assert_array_equal(metrics["bits_up"], expected)
    np.testing.assert_array_equal(metrics["bits_down"], expected)


def test_a_warm_start_costs_nothing_where_there_are_no_control_variates(
    logistic_case: Case,
) -> None:
    for name in ("gd", "fedavg", "nesterov"):
        assert run(logistic_case, name, h0="warm").metrics["bits_up"][0] == 0


def test_iterations_are_the_sum_of_local_steps(case: Case) -> None:
    record = run(case)
    metrics = record.metrics
    np.testing.assert_array_equal(metrics["iterations"], np.cumsum(metrics["local_steps"]))
    assert metrics["round"].tolist() == list(range(ROUNDS + 1))
    assert record.summary["iterations"] == metrics["iterations"][-1]


def test_the_recorded_bound_is_the_theorems(case: Case) -> None:
    metrics = run(case).metrics
    expected = (1 - case.plan.rate.zeta) ** metrics["iterations"] * metrics["lyapunov"][0]
    np.testing.assert_allclose(metrics["lyapunov_bound"], expected, rtol=1e-12)


def test_the_personal_models_are_the_mixtures(case: Case) -> None:
    models = run(case).models
    for i in range(N):
        expected = ALPHA[i] * models["global"] + (1 - ALPHA[i]) * models["local"][i]
        np.testing.assert_allclose(models["personal"][i], expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_scores_are_the_accuracies_of_all_three_models(kind: str) -> None:
    record = run(make_case(kind))
    for name in ("local", "global", "personal"):
        for i, (A, b) in enumerate(examples(kind)):
            z = A @ (record.models[name] if name == "global" else record.models[name][i])
            guess = np.where(z > 0, 1, -1) if kind == "logistic" else z.argmax(axis=1)
            assert record.clients[f"train_{name}"][i] == pytest.approx(np.mean(guess == b))


def test_the_table_of_clients_holds_their_constants(case: Case) -> None:
    clients, constants = run(case).clients, case.problem.constants
    np.testing.assert_array_equal(clients["alpha"], ALPHA)
    np.testing.assert_array_equal(clients["gamma"], case.plan.gamma)
    np.testing.assert_array_equal(clients["L"], constants.L)
    np.testing.assert_array_equal(clients["mu"], constants.mu)
    np.testing.assert_allclose(clients["kappa"], constants.L / constants.mu, rtol=1e-14)
    assert clients["train_examples"].tolist() == list(SIZES)
    assert clients["test_examples"].tolist() == [0] * N


def test_scores_can_be_left_out(logistic_case: Case) -> None:
    assert not [name for name in run(logistic_case, scores=False).clients if "train_g" in name]


def test_a_client_without_test_rows_has_no_test_score() -> None:
    random = np.random.default_rng(0)
    A = random.normal(size=(6, 3))
    part = (A, [0, 1, 0, 1, 1, 0])
    federation = sx.data.from_clients({"a": part, "b": part}, held_out={"b": (A[:4], [0, 1, 0, 1])})
    problem = sx.Problem(federation, sx.models.logistic(), 0.1)
    person = sx.personalize(problem, 0.5)
    record = sx.run(problem, person, sx.scafflix(sx.plan(problem, person)), rounds=2)
    for name in ("local", "global", "personal"):
        score = record.clients[f"test_{name}"]
        own = record.models[name] if name == "global" else record.models[name][1]
        assert np.isnan(score[0])
        assert score[1] == np.mean((A[:4] @ own > 0) == np.array([0, 1, 0, 1]))


def test_the_summary_is_of_this_run(case: Case) -> None:
    record, constants = run(case, seed=3), case.problem.constants
    summary = record.summary
    assert summary["method"] == "scafflix"
    assert (summary["n_clients"], summary["dim"]) == (N, case.problem.size)
    assert (summary["rounds"], summary["seed"]) == (ROUNDS, 3)
    assert summary["p"] == case.plan.p
    assert summary["zeta"] == case.plan.rate.zeta
    assert summary["kappa_max"] == pytest.approx((constants.L / constants.mu).max())
    assert summary["gamma_min"] == case.plan.gamma.min()
    assert summary["gamma_max"] == case.plan.gamma.max()
    assert summary["final_gap"] == record.metrics["objective_gap"][-1]


def test_a_long_run_on_an_ill_conditioned_problem_keeps_its_certificate() -> None:
    # kappa is 3155: Psi stands still at its rounding long before the bound does
    federation = sx.data.load("iris", clients=3, split="shuffled")
    problem = sx.Problem(federation, sx.models.softmax(), l2=0.01)
    person = sx.personalize(problem, 0.5)
    for method in (sx.scafflix, sx.nesterov):
        record = sx.run(problem, person, method(sx.plan(problem, person)), rounds=8000)
        certificate = record.summary["certificate"]
        assert record.metrics["lyapunov_bound"][-1] < 1e-30 < record.metrics["lyapunov"][-1]
        assert certificate["holds"]
        assert 10 < certificate["rounds_checked"] < 8000
