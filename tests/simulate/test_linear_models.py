"""Linear models in rounds of sampled clients: in float64, with the gap and Psi in the record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

import reference
import scafflix as sx
from cases import ALPHA, L2, ON_LINEAR, Case, examples
from cases import case as make_case
from made_up import made_up
from scafflix import algorithm
from scafflix.algorithm import Round
from scafflix.core.checkpoint import Checkpoints, Often
from scafflix.core.errors import ScafflixError
from scafflix.gradients import Gradient, Minibatch, Noisy
from scafflix.methods import METHODS, Client, Method, parameters
from scafflix.methods.method import PACES
from scafflix.problems.problem import Problem
from scafflix.simulate.batch import steps_of
from scafflix.simulate.cohorts import Trained, cohort_of, train
from scafflix.simulate.planning import optima, participants
from scafflix.simulate.schedule import Schedule

N, COHORT, ROUNDS, SEED = len(ALPHA), 3, 9, 4
pytestmark = pytest.mark.usefixtures("float64")  # as `sx.run` does
CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}


def thin(kind: str) -> Case:
    """The same examples with two of three features left out, and kept as sparse rows."""
    small = make_case(kind)
    fed = small.problem.federation
    kept = np.random.default_rng(0).random(fed.train.features.shape) < 1 / 3
    rows = sparse.csr_array(fed.train.features * kept)
    fed = replace(fed, train=replace(fed.train, features=rows))
    problem = Problem(fed, sx.models.MODELS[kind](), L2)
    person = sx.personalize(problem, ALPHA)
    cuts = fed.train.offsets
    functions = [
        reference.FUNCTIONS[kind](rows[cuts[i] : cuts[i + 1]].toarray(), labels, L2)
        for i, (_, labels) in enumerate(examples(kind))
    ]
    return Case(problem, functions, person, sx.plan(problem, person))


@pytest.fixture(
    scope="module", params=["logistic", "softmax", "linear", "sparse", "sparse softmax"]
)
def any_case(request: pytest.FixtureRequest) -> Case:
    kind = request.param
    if "sparse" in kind:
        return thin("softmax" if "softmax" in kind else "logistic")
    return make_case(kind)


def rounds_of(small: Case, method: Method, **options: Any) -> Trained:
    """Rounds from x = 1, with the states at the end."""
    asked = {"rounds": ROUNDS, "cohort": COHORT, "seed": SEED, "every": 1, **options}
    part, person = participants(small.problem, small.person)
    (optimum,) = optima(part, [person])
    start = np.ones(small.problem.shape)
    return train(small.problem, small.person, method, start, Schedule(**asked), optimum)


class Course(NamedTuple):
    """The model and the control variates after every round; of the start, too."""

    x: list[NDArray[np.float64]]
    h: list[NDArray[np.float64]]


def by_algorithm_1(small: Case, method: Method) -> Course:
    shape, stars = small.problem.shape, np.asarray(small.person.x_star)
    clients = [Client(a, g, x) for a, g, x in zip(ALPHA, method.gamma, stars, strict=True)]
    steps = steps_of(method, SEED, 0, ROUNDS).tolist()
    assert len(set(steps)) > 1
    cohorts = [cohort_of(SEED, r, np.arange(N), COHORT).tolist() for r in range(ROUNDS)]
    rounds = [Round(K, cohort) for K, cohort in zip(steps, cohorts, strict=True)]
    course = Course([], [])
    for done in range(ROUNDS + 1):
        made = algorithm.run(
            method,
            clients,
            np.ones(shape),
            [np.zeros(shape)] * N,
            lambda i, r, points, k: small.functions[i].gradient(points),
            rounds[:done],
        )
        course.x.append(made.server.x)
        pairs = zip(clients, made.states, strict=True)
        course.h.append(np.array([method.controls(client, state) for client, state in pairs]))
    return course


@pytest.mark.parametrize("pace", PACES)
def test_rounds_follow_algorithm_1_in_float64(any_case: Case, pace: str) -> None:
    method = sx.scafflix(any_case.plan, pace=pace)
    made, course = rounds_of(any_case, method), by_algorithm_1(any_case, method)
    np.testing.assert_allclose(made.x, course.x[-1], **CLOSE)
    assert made.states.dtype == np.float64
    np.testing.assert_allclose(made.states.read(np.arange(N)).h.tree, course.h[-1], **CLOSE)
    assert np.abs(course.x[-1] - 1).max() > 1e-2
    assert np.abs(course.h[-1]).max() > 1e-3


def test_the_record_has_the_gap_the_gradient_and_psi_of_every_round(any_case: Case) -> None:
    method = sx.scafflix(any_case.plan)
    record = sx.run(
        any_case.problem, any_case.person, method, rounds=ROUNDS, cohort=COHORT, seed=SEED
    )
    course = by_algorithm_1(any_case, method)
    objective = reference.average(any_case.mixed(ALPHA))
    best = reference.minimizer(objective, any_case.problem.shape)
    stars = np.asarray(any_case.person.x_star)
    h_best = [
        f.gradient(a * best + (1 - a) * star)
        for f, a, star in zip(any_case.functions, ALPHA, stars, strict=True)
    ]
    gap = [objective.value(x) - objective.value(best) for x in course.x]
    square = [np.sum(objective.gradient(x) ** 2) for x in course.x]
    psi = [
        reference.lyapunov(
            reference.Iterate(np.array([x] * N), h),
            ALPHA.tolist(),
            np.asarray(method.gamma).tolist(),
            float(method.p),
            best,
            h_best,
        )
        for x, h in zip(course.x, course.h, strict=True)
    ]
    np.testing.assert_allclose(record.metrics["objective_gap"], gap, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(record.metrics["grad_norm_sq"], square, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(record.metrics["lyapunov"], psi, rtol=1e-5)
    np.testing.assert_allclose(record.models["global"], course.x[-1], **CLOSE)
    assert record.summary["final_gap"] == record.metrics["objective_gap"][-1]


def test_no_certificate_is_given_for_sampled_clients_and_it_says_why(logistic_case: Case) -> None:
    small = logistic_case
    method = sx.scafflix(small.plan)
    record = sx.run(small.problem, small.person, method, rounds=2, cohort=COHORT)
    assert record.summary["certificate"] is None
    assert record.summary["no_certificate"] == (
        "The theorem is for rounds of all 5 clients; here 3 take part in a round."
    )
    assert "lyapunov_bound" not in record.metrics
    assert record.summary["predicted_rounds"] is None


@pytest.mark.parametrize("estimate", [None, Minibatch(4)], ids=["exact", "minibatch"])
@pytest.mark.parametrize("name", ON_LINEAR)
def test_rounds_of_all_clients_are_those_of_the_convex_engine(
    logistic_case: Case, name: str, estimate: Gradient | None
) -> None:
    small = logistic_case
    if estimate is not None and name in ("gd", "nesterov"):
        pytest.skip(f"{name} takes exact gradients")
    plan = sx.plan(small.problem, small.person, gradient=estimate)
    method = METHODS[name](plan, **({"p": 0.3} if "p" in parameters(METHODS[name]) else {}))
    record = sx.run(small.problem, small.person, method, rounds=ROUNDS, seed=SEED)
    made = rounds_of(small, method, cohort=N)
    np.testing.assert_allclose(made.x, record.models["global"], **CLOSE)
    np.testing.assert_array_equal(made.local_steps, record.metrics["local_steps"])
    for column in ("objective_gap", "grad_norm_sq", "lyapunov"):
        np.testing.assert_allclose(made.metrics[column], record.metrics[column], 1e-8, 1e-12)


def test_a_cohort_of_all_clients_is_no_cohort(logistic_case: Case) -> None:
    small = logistic_case
    method = sx.scafflix(small.plan)
    whole, cohort = (
        sx.run(small.problem, small.person, method, rounds=ROUNDS, cohort=size)
        for size in (None, N)
    )
    assert cohort.summary["certificate"] == whole.summary["certificate"]
    for name, values in whole.metrics.items():
        np.testing.assert_array_equal(cohort.metrics[name], values)
    for name, values in whole.models.items():
        np.testing.assert_array_equal(cohort.models[name], values)


def test_clients_that_stay_at_home_count_in_the_means_and_keep_their_model(
    logistic_case: Case,
) -> None:
    small = logistic_case
    alpha = np.where(np.arange(N) == 1, 0.0, ALPHA)
    person = sx.personalize(small.problem, alpha)
    method = sx.scafflix(sx.plan(small.problem, person))
    record = sx.run(small.problem, person, method, rounds=4, cohort=COHORT)
    stars = np.asarray(person.x_star)
    objective = reference.average(small.mixed(alpha))
    best = reference.minimizer(objective, small.problem.shape)
    gap = objective.value(record.models["global"]) - objective.value(best)
    assert record.metrics["objective_gap"][-1] == pytest.approx(gap, rel=1e-9, abs=1e-12)
    np.testing.assert_array_equal(record.personal_model("client-1"), stars[1])
    assert record.summary["n_active"] == N - 1


def test_rounds_between_looks_are_not_measured_but_the_last_is(logistic_case: Case) -> None:
    small = logistic_case
    method = sx.scafflix(small.plan)
    often, seldom = (
        sx.run(small.problem, small.person, method, rounds=5, cohort=COHORT, every=every)
        for every in (1, 2)
    )
    seen = np.isfinite(seldom.metrics["objective_gap"])
    assert seen.tolist() == [True, False, True, False, True, True]
    for name in ("objective_gap", "grad_norm_sq", "lyapunov"):
        np.testing.assert_array_equal(seldom.metrics[name][seen], often.metrics[name][seen])


def test_scafflix_with_sampled_clients_comes_near_the_optimum(logistic_case: Case) -> None:
    small = logistic_case
    method = sx.scafflix(small.plan, pace="cautious")
    record = sx.run(small.problem, small.person, method, rounds=400, cohort=COHORT)
    assert record.metrics["objective_gap"][-1] < 1e-6 * record.metrics["objective_gap"][0]


# what is refused


def test_added_noise_is_refused(logistic_case: Case) -> None:
    small = logistic_case
    method = sx.scafflix(sx.plan(small.problem, small.person, gradient=Noisy(1.0)))
    with pytest.raises(ScafflixError, match="without added noise"):
        sx.run(small.problem, small.person, method, rounds=2, cohort=COHORT)


def test_control_variates_that_do_not_begin_at_zero_are_refused(logistic_case: Case) -> None:
    small = logistic_case
    method = sx.scafflix(small.plan)
    with pytest.raises(ScafflixError, match="h0 is for rounds of all clients"):
        sx.run(small.problem, small.person, method, rounds=2, cohort=COHORT, h0="warm")


# divergence


@pytest.mark.filterwarnings("ignore:.*the largest that its theory covers")
def test_a_run_that_diverges_is_measured_up_to_the_last_good_round(
    linear_case: Case, tmp_path: Path
) -> None:
    small = linear_case
    method = sx.scafflix(small.plan, stepsize=10.0)
    record = sx.run(small.problem, small.person, method, rounds=60, cohort=COHORT, every=50)
    assert record.summary["diverged"]["client"] in small.problem.federation.clients
    assert record.metrics["round"][-1] == record.summary["diverged"]["round"] - 1
    assert np.isfinite(record.metrics["objective_gap"][-1])
    saved = sx.Record.load(record.save(tmp_path / "run"))
    assert saved.summary["diverged"] == record.summary["diverged"]


def test_a_client_with_a_loss_far_above_the_mean_is_not_taken_for_divergence() -> None:
    random = np.random.default_rng(0)
    parts = {
        f"client-{i}": (random.normal(size=(8, 3)), (1000.0 if i == 0 else 1e-3) * np.ones(8))
        for i in range(40)
    }
    problem = sx.Problem(sx.data.from_clients(parts), sx.models.linear(), L2)
    person = sx.personalize(problem, 1.0)
    record = sx.run(problem, person, sx.scafflix(sx.plan(problem, person)), rounds=20, cohort=20)
    assert record.summary["diverged"] is None


# resuming


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("store", ["memory", "disk"])
@pytest.mark.parametrize("stop", [5, ROUNDS], ids=["on the way", "at the end"])
@pytest.mark.parametrize("make", [sx.scafflix, made_up], ids=["scafflix", "made_up"])
def test_a_stopped_run_ends_with_the_bits_of_a_whole_one(
    logistic_case: Case, tmp_path: Path, make: Any, stop: int, store: str
) -> None:
    small, method = logistic_case, make(logistic_case.plan)

    def go(checkpoints: Checkpoints | None, progress: Any = None) -> sx.Record:
        kept = {} if checkpoints is None else {"checkpoints": checkpoints}
        return sx.run(
            small.problem,
            small.person,
            method,
            rounds=ROUNDS,
            cohort=COHORT,
            store=store,
            progress=progress,
            **kept,
        )

    def halt(done: int, *_: Any) -> None:
        if done == stop:
            raise StoppedError

    whole, checkpoints = go(None), Checkpoints(tmp_path / "checkpoint", Often(rounds=2))
    if stop < ROUNDS:
        with pytest.raises(StoppedError):
            go(checkpoints, halt)
    else:
        go(checkpoints)  # all rounds were made, and then no record written
    again = go(checkpoints)
    for kind in ("metrics", "models"):
        for name, values in getattr(whole, kind).items():
            np.testing.assert_array_equal(getattr(again, kind)[name], values)
