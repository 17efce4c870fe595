"""The one Algorithm 1: against the paper's lines, and every execution of a method against it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from jax.tree_util import Partial

import miniature
import reference
import scafflix as sx
from cases import ALPHA, ON_LINEAR, ROUNDS, Case
from executions import schedule, several, softmax_gradient
from made_up import init_client, made_up
from scafflix import algorithm
from scafflix.algorithm import Round
from scafflix.core.vector import Vector, names_of
from scafflix.methods import METHODS, Client, Method
from scafflix.methods.method import fitted
from scafflix.simulate import cohorts as training
from scafflix.simulate.taken_home import End, models_of

pytestmark = pytest.mark.usefixtures("float64")  # for what compressors draw

EVERY: dict[str, Callable[..., Method]] = {**METHODS, "made_up": made_up}


@pytest.fixture(params=EVERY)
def make(request: pytest.FixtureRequest) -> Callable[..., Method]:
    return EVERY[request.param]


@pytest.fixture(params=[*ON_LINEAR, "made_up"])
def on_linear(request: pytest.FixtureRequest) -> Callable[..., Method]:
    return EVERY[request.param]


def one_by_one(clients: Client, stars: Sequence[Any]) -> list[Client]:
    """Each client of several."""
    fields = zip(clients.alpha, clients.gamma, stars, clients.examples, strict=True)
    n = float(len(clients.alpha))
    return [Client(float(a), float(g), star, float(m), n) for a, g, star, m in fields]


def test_it_is_algorithm_1_of_the_paper(case: Case) -> None:
    method = sx.scafflix(case.plan)
    n, shape = case.problem.n, case.problem.shape
    random = np.random.default_rng(5).normal(size=(n, *shape))
    h0 = np.asarray(sx.control.project(random, ALPHA, method.gamma))
    stars = np.asarray(case.person.x_star)
    clients = [Client(ALPHA[i], method.gamma[i], stars[i]) for i in range(n)]
    steps = [3, 1, 4, 1, 5]
    made = algorithm.run(
        method,
        clients,
        np.ones(shape),
        list(h0),
        lambda i, r, points, k: case.functions[i].gradient(points),
        [Round(K, range(n)) for K in steps],
    )
    iterates = reference.scafflix(
        [f.gradient for f in case.functions],
        list(stars),
        ALPHA.tolist(),
        method.gamma.tolist(),
        float(method.p),
        np.ones(shape),
        list(h0),
        reference.coin(steps),
    )
    np.testing.assert_allclose(made.server.x, iterates[-1].x[0], rtol=1e-11, atol=1e-12)
    found = np.array([state.h for state in made.states])
    np.testing.assert_allclose(found, iterates[-1].h, rtol=1e-11, atol=1e-12)


def test_all_clients_and_runs_in_one_program_equal_it(
    logistic_case: Case, on_linear: Callable[..., Method]
) -> None:
    case, seed = logistic_case, 4
    method = on_linear(case.plan)
    record = sx.run(case.problem, case.person, method, rounds=ROUNDS, seed=seed)
    method = fitted(method, names_of(case.problem.template))
    counts = case.problem.federation.train.counts
    clients = Client(ALPHA, np.asarray(method.gamma), None, counts, len(ALPHA))
    stars = np.asarray(case.person.x_star)
    made = algorithm.run(
        method,
        one_by_one(clients, stars),
        np.ones(case.problem.shape),
        [np.zeros(case.problem.shape)] * len(ALPHA),
        lambda i, r, points, k: several(case.functions[i].gradient, points),
        schedule(method, clients, seed, ROUNDS),
    )
    np.testing.assert_allclose(record.models["global"], made.server.x, rtol=1e-9, atol=1e-10)
    for i, client in enumerate(one_by_one(clients, stars)):
        g = case.functions[i].gradient
        home = algorithm.take_home(
            method, client, made.states[i], made.server.x, lambda x, k, g=g: g(x)
        )
        np.testing.assert_allclose(record.models["personal"][i], home, rtol=1e-9, atol=1e-10)
    assert np.abs(made.server.x - 1).max() > 1e-2


def test_rounds_of_sampled_clients_of_a_linear_model_equal_it(
    logistic_case: Case, on_linear: Callable[..., Method]
) -> None:
    case, seed = logistic_case, 4
    method = on_linear(case.plan)
    record = sx.run(case.problem, case.person, method, rounds=ROUNDS, seed=seed, cohort=3)
    method = fitted(method, names_of(case.problem.template))
    counts = case.problem.federation.train.counts
    clients = Client(ALPHA, np.asarray(method.gamma), None, counts, len(ALPHA))
    each = one_by_one(clients, np.asarray(case.person.x_star))
    made = algorithm.run(
        method,
        each,
        np.ones(case.problem.shape),
        [np.zeros(case.problem.shape)] * len(ALPHA),
        lambda i, r, points, k: several(case.functions[i].gradient, points),
        schedule(method, clients, seed, ROUNDS, cohort=3),
    )
    np.testing.assert_allclose(record.models["global"], made.server.x, rtol=1e-10, atol=1e-10)
    homes = [
        algorithm.take_home(method, client, state, made.server.x, lambda x, k, f=f: f.gradient(x))
        for client, state, f in zip(each, made.states, case.functions, strict=True)
    ]
    np.testing.assert_allclose(record.models["personal"], homes, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("execution", ["side by side", "sampled", "network", "in small groups"])
def test_what_clients_begin_with_counts_in_every_execution(
    logistic_case: Case, execution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one round of one step: x after it follows from the states before it by hand
    if execution == "in small groups":  # whose first states are made together
        monkeypatch.setattr(training, "INIT_AT_ONCE", 64)
    if execution in ("side by side", "sampled"):
        case, n = logistic_case, len(ALPHA)
        method = made_up(case.plan, p=1.0)
        cohort = None if execution == "side by side" else n - 1
        found = sx.run(case.problem, case.person, method, rounds=1, cohort=cohort).models["global"]
        counts = case.problem.federation.train.counts
        clients = Client(ALPHA, np.asarray(method.gamma), None, counts, n)
        each = one_by_one(clients, [Vector(x) for x in np.asarray(case.person.x_star)])
        start, close = Vector(np.ones(case.problem.shape)), 1e-10

        def gradient(i: int, x: Vector) -> Vector:
            return Vector(case.functions[i].gradient(x.tree))
    else:
        small, alpha, n = miniature.problem(), miniature.ALPHA, miniature.N
        cohort, counts = n - 1, np.array(miniature.TRAIN)
        method = miniature.method_of(made_up, alpha, miniature.GAMMA, p=1.0)
        stars = miniature.points(small)
        trained = miniature.run(small, method, alpha, stars, rounds=1, cohort=cohort)
        found = trained.x
        clients = Client(alpha, np.asarray(method.gamma), None, counts, n)
        trees = stars.read(np.arange(n))
        each = one_by_one(
            clients, [Vector(jax.tree.map(lambda leaf, i=i: leaf[i], trees)) for i in range(n)]
        )
        start, close = Vector(jax.tree.map(np.asarray, small.start(0))), 1e-5

        def gradient(i: int, x: Vector) -> Vector:
            return Vector(softmax_gradient(small, i, x.tree))

    def after(chosen: Method) -> Any:
        made = algorithm.run(
            chosen,
            each,
            start,
            [0 * start] * n,
            lambda i, r, points, k: several(lambda x: gradient(i, x), points),
            schedule(method, clients, 0, 1, cohort),
        )
        return miniature.flat(made.server.x.tree)

    nothing = replace(method, init_client=Partial(begin_with_nothing))
    np.testing.assert_allclose(miniature.flat(found), after(method), rtol=close, atol=close)
    assert np.abs(miniature.flat(found) - after(nothing)).max() > 1e-3


def begin_with_nothing(client: Client, x0: Any, h0: Any) -> Any:
    return jax.tree.map(lambda leaf: 0 * leaf, init_client(client, x0, h0))


def test_rounds_of_sampled_clients_equal_it(make: Callable[..., Method]) -> None:
    small = miniature.problem((), miniature.L2)
    alpha, gamma, seed, rounds = miniature.ALPHA, miniature.GAMMA, 2, 6
    method = fitted(miniature.method_of(make, alpha, gamma), names_of(small.template))
    stars = miniature.points(small)
    trained = miniature.run(small, method, alpha, stars, rounds=rounds, cohort=3, seed=seed)
    clients = Client(alpha, np.asarray(method.gamma), None, np.array(miniature.TRAIN), len(alpha))
    points = [
        Vector(jax.tree.map(lambda a, i=i: a[i], stars.read(np.arange(len(alpha)))))
        for i in range(len(alpha))
    ]
    start = Vector(jax.tree.map(np.asarray, small.start(0)))

    def gradient(i: int, r: int, points: Any, k: int) -> Any:
        return several(lambda x: Vector(softmax_gradient(small, i, x.tree)), points)

    made = algorithm.run(
        method,
        one_by_one(clients, points),
        start,
        [0 * start] * len(alpha),
        gradient,
        schedule(method, clients, seed, rounds, cohort=3),
    )
    close: dict[str, Any] = {"rtol": 3e-5, "atol": 3e-5}
    np.testing.assert_allclose(
        miniature.flat(trained.x), miniature.flat(made.server.x.tree), **close
    )
    if trained.states is not None:
        for i in range(len(alpha)):
            found = miniature.flat(trained.states.read(np.array([i])))
            np.testing.assert_allclose(found, miniature.flat(made.states[i]), **close)
    end = End(trained.x, trained.states, seed, rounds)
    homes = models_of(small, miniature.person(small, alpha, stars), method, end)["personal"]
    for i, client in enumerate(one_by_one(clients, points)):
        home = algorithm.take_home(
            method, client, made.states[i], made.server.x, lambda x, k, i=i: gradient(i, 0, x, k)
        )
        mine = miniature.flat(jax.tree.map(lambda leaf, i=i: leaf[i], homes))
        np.testing.assert_allclose(mine, miniature.flat(home.tree), **close)
