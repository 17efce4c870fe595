from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import reference
import scafflix as sx
import scafflix.simulate.batch as engine
from cases import ALPHA, ON_LINEAR, ROUNDS, SIZES, Case
from scafflix.core.compilation import COMPILATIONS
from scafflix.gradients import Exact, Gradient, Minibatch, Noisy
from scafflix.methods import METHODS
from scafflix.simulate.planning import optima

N = len(SIZES)
MEASURED = ("objective_gap", "grad_norm_sq", "lyapunov", "local_steps")


def run(case: Case, **options: Any) -> sx.Record:
    method = options.pop("method", None) or sx.scafflix(case.plan)
    person = options.pop("person", case.person)
    return sx.run(case.problem, person, method, **{"rounds": ROUNDS, **options})


def assert_same(first: sx.Record, second: sx.Record) -> None:
    """To the last bit."""
    for name in MEASURED:
        np.testing.assert_array_equal(first.metrics[name], second.metrics[name])
    for name in first.models:
        np.testing.assert_array_equal(first.models[name], second.models[name])


def assert_close(first: sx.Record, second: sx.Record) -> None:
    """To rounding, which the gap near the optimum amplifies."""
    np.testing.assert_array_equal(first.metrics["local_steps"], second.metrics["local_steps"])
    for name in ("objective_gap", "grad_norm_sq", "lyapunov"):
        a, b = first.metrics[name], second.metrics[name]
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13 * b[0])
    for name in first.models:
        np.testing.assert_allclose(first.models[name], second.models[name], rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------- compiled once, and the same


def test_a_run_with_another_seed_alpha_p_and_start_compiles_nothing_new(
    logistic_case: Case,
) -> None:
    run(logistic_case)
    before = COMPILATIONS.count
    person = logistic_case.person.at(0.37)
    plan = sx.plan(logistic_case.problem, person)
    run(logistic_case, person=person, method=sx.scafflix(plan, p=0.4), seed=5)
    run(logistic_case, start="zeros")
    run(logistic_case, start=np.full(6, 0.3))
    assert COMPILATIONS.count == before


def test_a_first_run_compiles_and_says_how_long() -> None:
    # another number of features: a program of its own
    random = np.random.default_rng(0)
    part = (random.normal(size=(8, 11)), random.normal(size=8))
    problem = sx.Problem(sx.data.from_clients({"a": part, "b": part}), sx.models.linear(), 1.0)
    person = sx.personalize(problem, 1.0)
    method = sx.gd(sx.plan(problem, person))
    seconds = [
        sx.run(problem, person, method, rounds=3).summary["compile_seconds"] for _ in range(2)
    ]
    assert seconds[0] > 0
    assert seconds[1] == 0


def test_a_run_in_chunks_compiles_nothing_new(
    logistic_case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(logistic_case)
    before = COMPILATIONS.count
    monkeypatch.setattr(engine, "CHUNK_SECONDS", 1e-9)
    monkeypatch.setattr(engine, "first_chunk", lambda *_: 1)
    run(logistic_case, progress=lambda *_: None)
    assert COMPILATIONS.count == before


@pytest.mark.parametrize("gradient", [Exact(), Noisy(1.0), Minibatch(4)], ids=str)
def test_the_same_seed_gives_the_same_to_the_last_bit(
    logistic_case: Case, gradient: Gradient
) -> None:
    plan = sx.plan(logistic_case.problem, logistic_case.person, gradient=gradient)
    first, second = (run(logistic_case, method=sx.scafflix(plan), seed=4) for _ in range(2))
    assert_same(first, second)


def test_another_seed_gives_another_course(logistic_case: Case) -> None:
    first, second = (run(logistic_case, seed=seed) for seed in (0, 1))
    assert (first.metrics["local_steps"] != second.metrics["local_steps"]).any()


def test_noise_differs_between_seeds(logistic_case: Case) -> None:
    plan = sx.plan(logistic_case.problem, logistic_case.person, gradient=Noisy(1.0))
    method = sx.sgd(plan)  # without a coin only the noise differs
    first, second = (run(logistic_case, method=method, seed=seed) for seed in (0, 1))
    assert (first.metrics["objective_gap"][1:] != second.metrics["objective_gap"][1:]).all()


@pytest.mark.parametrize("gradient", [Exact(), Noisy(1.0), Minibatch(4)], ids=str)
def test_chunks_change_nothing_to_the_last_bit(
    logistic_case: Case, gradient: Gradient, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = sx.plan(logistic_case.problem, logistic_case.person, gradient=gradient)
    method, reports = sx.scafflix(plan), []
    whole = run(logistic_case, method=method)
    monkeypatch.setattr(engine, "CHUNK_SECONDS", 1e-9)
    monkeypatch.setattr(engine, "first_chunk", lambda *_: 1)
    chunked = run(
        logistic_case,
        method=method,
        progress=lambda *report: reports.append(report),
    )
    assert [report[0] for report in reports] == list(range(1, ROUNDS + 1))
    assert_same(whole, chunked)


def test_progress_reports_gap_traffic_and_steps_so_far(
    logistic_case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "CHUNK_SECONDS", 1e-9)
    monkeypatch.setattr(engine, "first_chunk", lambda *_: 1)
    reports: list[Any] = []
    metrics = run(logistic_case, progress=lambda *report: reports.append(report[-1])).metrics
    gaps = [report.values["gap"] for report in reports]
    np.testing.assert_array_equal(gaps, metrics["objective_gap"][1:])
    sent = metrics["bits_up"] + metrics["bits_down"]
    assert [report.bits for report in reports] == sent[1:].tolist()
    clients = logistic_case.problem.n
    assert [report.steps for report in reports] == (clients * metrics["iterations"][1:]).tolist()


def test_a_small_trace_changes_only_the_rounding(
    logistic_case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(logistic_case)
    monkeypatch.setattr(engine, "LARGEST_TRACE", 5 * 8 * 6)  # five rounds at a time
    assert_close(run(logistic_case), whole)


@pytest.mark.parametrize("gradient", [Exact(), Noisy(1.0), Minibatch(4)], ids=str)
def test_company_changes_only_the_rounding(logistic_case: Case, gradient: Gradient) -> None:
    problem = logistic_case.problem
    runs = []
    for seed, alpha in enumerate((ALPHA, 0.5, 1.0)):
        person = logistic_case.person.at(alpha)
        plan = sx.plan(problem, person, gradient=gradient)
        runs.append(sx.Run(person, sx.scafflix(plan), seed))
    together = sx.sweep(problem, runs, rounds=ROUNDS)
    for member, record in zip(runs, together, strict=True):
        alone = sx.run(
            problem,
            member.person,
            member.method,
            rounds=ROUNDS,
            seed=member.seed,
        )
        assert_close(record, alone)


def test_a_sweep_of_different_methods_keeps_their_order(logistic_case: Case) -> None:
    names = ["gd", "scafflix", "nesterov", "gd", "scafflix"]
    runs = [sx.Run(logistic_case.person, METHODS[name](logistic_case.plan)) for name in names]
    records = sx.sweep(logistic_case.problem, runs, rounds=ROUNDS)
    assert [record.summary["method"] for record in records] == names
    for name, record in zip(names, records, strict=True):
        assert_close(record, run(logistic_case, method=METHODS[name](logistic_case.plan)))


def test_a_prefix_of_a_longer_run_is_the_shorter_run(logistic_case: Case) -> None:
    short, long = run(logistic_case), run(logistic_case, rounds=2 * ROUNDS)
    for name in MEASURED:
        np.testing.assert_allclose(
            long.metrics[name][: ROUNDS + 1], short.metrics[name], rtol=1e-9, atol=1e-15
        )


# ---------------------------------------------------------------- where runs start


def test_the_start_is_measured_as_round_0(case: Case) -> None:
    objective = reference.average(case.mixed(ALPHA))
    (optimum,) = optima(case.problem, [case.person])
    for start, x0 in (("ones", 1.0), ("zeros", 0.0)):
        record = run(case, start=start)
        x = np.full(case.problem.shape, x0)
        gap = objective.value(x) - objective.value(optimum.x)
        assert record.metrics["objective_gap"][0] == pytest.approx(gap, rel=1e-10)
        assert record.metrics["grad_norm_sq"][0] == pytest.approx(
            np.sum(objective.gradient(x) ** 2), rel=1e-10
        )


def test_a_warm_start_is_the_projected_gradients_at_the_start(case: Case) -> None:
    stars = np.asarray(case.person.x_star)
    gradients = [
        f.gradient(ALPHA[i] + (1 - ALPHA[i]) * stars[i]) for i, f in enumerate(case.functions)
    ]
    h0 = sx.control.project(np.array(gradients), ALPHA, case.plan.gamma)
    assert_close(run(case, h0="warm"), run(case, h0=h0))


def test_a_warm_start_lies_nearer_to_the_solution(case: Case) -> None:
    # the remark under Corollary 2: from near the optimum, its gradients are good estimates
    (optimum,) = optima(case.problem, [case.person])
    near = np.asarray(optimum.x) + 1e-3
    cold, warm = (run(case, start=near, h0=h0).metrics["lyapunov"][0] for h0 in ("zero", "warm"))
    assert warm < 1e-2 * cold


# ---------------------------------------------------------------- clients that do not take part

SOME = np.array([0.0, 0.5, 0.0, 0.8, 0.3])


@pytest.fixture(scope="module")
def partly(logistic_case: Case) -> sx.Record:
    person = logistic_case.person.at(SOME)
    plan = sx.plan(logistic_case.problem, person)
    return sx.run(logistic_case.problem, person, sx.scafflix(plan), rounds=100)


def test_clients_with_alpha_0_keep_their_local_optimum_exactly(partly: sx.Record) -> None:
    for i in (0, 2):
        np.testing.assert_array_equal(partly.models["personal"][i], partly.models["local"][i])


def test_clients_with_alpha_0_send_and_receive_nothing(partly: sx.Record) -> None:
    for direction in ("bits_up", "bits_down"):
        np.testing.assert_array_equal(partly.metrics[direction], np.arange(101) * 3 * 6 * 64)


def test_the_optimum_beside_clients_with_alpha_0_is_that_over_all_clients(
    logistic_case: Case, partly: sx.Record
) -> None:
    objective = reference.average(logistic_case.mixed(SOME))
    expected = reference.minimizer(objective, (6,))
    np.testing.assert_allclose(partly.models["global"], expected, atol=1e-6)
    np.testing.assert_allclose(objective.gradient(partly.models["global"]), 0, atol=1e-9)


def test_means_beside_clients_with_alpha_0_are_over_all_clients(
    logistic_case: Case, partly: sx.Record
) -> None:
    objective = reference.average(logistic_case.mixed(SOME))
    x, start = partly.models["global"], np.ones(6)
    gap = objective.value(start) - objective.value(x)
    assert partly.metrics["objective_gap"][0] == pytest.approx(gap, rel=1e-10)
    square = np.sum(objective.gradient(start) ** 2)
    assert partly.metrics["grad_norm_sq"][0] == pytest.approx(square, rel=1e-10)


def test_psi_beside_clients_with_alpha_0_is_the_mean_over_all_clients(
    logistic_case: Case, partly: sx.Record
) -> None:
    person = logistic_case.person.at(SOME)
    gamma, p = 1 / logistic_case.problem.constants.L, partly.summary["p"]
    active = person.active
    optimum = partly.models["global"]
    stars = np.asarray(person.x_star)
    psi = sum(
        gamma[active].min() / gamma[i] * SOME[i] ** 2 * np.sum((1 - optimum) ** 2)
        + gamma[active].min()
        / p**2
        * gamma[i]
        * np.sum(
            logistic_case.functions[i].gradient(SOME[i] * optimum + (1 - SOME[i]) * stars[i]) ** 2
        )
        for i in active
    )
    assert partly.metrics["lyapunov"][0] == pytest.approx(psi / N, rel=1e-7)


def test_a_run_beside_clients_with_alpha_0_is_certified(partly: sx.Record) -> None:
    assert partly.summary["certificate"]["holds"]
    assert partly.summary["n_active"] == 3
    assert np.isnan(partly.clients["gamma"][[0, 2]]).all()


@pytest.mark.parametrize("name", ON_LINEAR)
def test_when_every_alpha_is_0_nothing_is_sent_and_all_keep_their_optimum(
    logistic_case: Case, name: str
) -> None:
    person = logistic_case.person.at(0.0)
    method = METHODS[name](sx.plan(logistic_case.problem, person))
    record = run(logistic_case, person=person, method=method)
    assert record.summary["rounds"] == 0
    assert record.summary["iterations"] == 0
    assert record.metrics["bits_up"].tolist() == [0]
    assert record.metrics["bits_down"].tolist() == [0]
    assert record.summary["final_gap"] == 0
    np.testing.assert_array_equal(record.models["personal"], record.models["local"])


def test_a_sweep_mixes_runs_with_different_clients(logistic_case: Case) -> None:
    problem, runs = logistic_case.problem, []
    for alpha in (SOME, ALPHA, np.zeros(N)):
        person = logistic_case.person.at(alpha)
        runs.append(sx.Run(person, sx.scafflix(sx.plan(problem, person))))
    records = sx.sweep(problem, runs, rounds=ROUNDS)
    assert [record.summary["n_active"] for record in records] == [3, 5, 0]
    assert_close(records[1], run(logistic_case))


# ---------------------------------------------------------------- what cannot work


def test_less_than_one_round_is_refused(logistic_case: Case) -> None:
    with pytest.raises(sx.ScafflixError, match="rounds is 0; give a whole number of at least 1"):
        run(logistic_case, rounds=0)


def test_an_unknown_start_is_refused(logistic_case: Case) -> None:
    with pytest.raises(sx.ScafflixError, match="start is 'twos'; it must be ones or zeros"):
        run(logistic_case, start="twos")


def test_a_start_of_the_wrong_shape_is_refused(logistic_case: Case) -> None:
    with pytest.raises(sx.ScafflixError, match=re.escape("shape (7,); it must be (6,)")):
        run(logistic_case, start=np.ones(7))


def test_an_unknown_h0_is_refused(logistic_case: Case) -> None:
    with pytest.raises(sx.ScafflixError, match="h0 is 'hot'; it must be zero or warm"):
        run(logistic_case, h0="hot")


def test_an_h0_of_the_wrong_shape_is_refused(logistic_case: Case) -> None:
    with pytest.raises(sx.ScafflixError, match=re.escape("shape (5, 7); it must be (5, 6)")):
        run(logistic_case, h0=np.zeros((5, 7)))


def test_a_negative_seed_is_refused(logistic_case: Case) -> None:
    with pytest.raises(sx.ScafflixError, match="seed is -1"):
        run(logistic_case, seed=-1)


@pytest.mark.parametrize("name", ON_LINEAR)
def test_a_stepsize_beyond_theory_warns_with_both_numbers(logistic_case: Case, name: str) -> None:
    default = METHODS[name](logistic_case.plan)
    if np.isinf(default.limit).all():  # no theory to go beyond: no warning, which is an error here
        run(logistic_case, method=METHODS[name](logistic_case.plan, stepsize=10.0))
        return
    step = 1.25 * (default.limit / ALPHA**2).max()
    method = METHODS[name](logistic_case.plan, stepsize=step)
    worst = np.argmax(method.gamma / method.limit)
    gamma, limit = method.gamma[worst], method.limit[worst]
    numbers = f"{name}: gamma_i = {gamma:.4g} of client client-{worst} is above {limit:.4g},"
    with pytest.warns(sx.ScafflixWarning, match=re.escape(numbers)):
        run(logistic_case, method=method)


def test_a_stepsize_beyond_theory_is_refused_when_strict(logistic_case: Case) -> None:
    gamma = logistic_case.plan.gamma
    method = sx.scafflix(logistic_case.plan, stepsize=1.01 * gamma)
    with pytest.raises(sx.ScafflixError, match=r"gamma_i = [\d.]+ of client .* is above [\d.]+"):
        run(logistic_case, method=method, strict=True)


def test_the_stepsizes_of_theory_are_not_refused_when_strict(logistic_case: Case) -> None:
    for name in ON_LINEAR:
        run(logistic_case, method=METHODS[name](logistic_case.plan), strict=True)


def test_gd_refuses_a_plan_for_stochastic_gradients(logistic_case: Case) -> None:
    plan = sx.plan(logistic_case.problem, logistic_case.person, gradient=Minibatch(1))
    with pytest.raises(sx.ScafflixError, match="gd takes exact gradients"):
        sx.gd(plan)


@pytest.mark.filterwarnings("ignore::scafflix.ScafflixWarning")
def test_divergence_is_an_error_that_names_method_and_round(linear_case: Case) -> None:
    method = sx.gd(linear_case.plan, stepsize=1e30)
    with pytest.raises(
        sx.ScafflixError, match=r"gd diverged: the objective of client client-\d is not finite"
    ) as caught:
        run(linear_case, method=method)
    found = re.search(r"after round (\d+)", str(caught.value))
    assert found is not None
    last = int(found[1])
    assert 1 < last < ROUNDS
    # one round less is still finite
    finite = run(linear_case, method=method, rounds=last - 1)
    assert np.isfinite(finite.metrics["objective_gap"]).all()


@pytest.mark.filterwarnings("ignore::scafflix.ScafflixWarning")
def test_the_round_of_divergence_does_not_depend_on_chunks(
    linear_case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = []
    for progress in (None, lambda *_: None):
        monkeypatch.setattr(engine, "CHUNK_SECONDS", 1e-9)
        monkeypatch.setattr(engine, "first_chunk", lambda *_: 1)
        with pytest.raises(sx.ScafflixError) as caught:
            run(linear_case, method=sx.gd(linear_case.plan, stepsize=1e30), progress=progress)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
