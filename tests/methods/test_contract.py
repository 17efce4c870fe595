"""What every method must do; a new one is tested here without being named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import scafflix as sx
from cases import ALPHA, ON_LINEAR, ROUNDS, SIZES, Case
from executions import several
from personalizers import OTHER_OBJECTIVES
from scafflix import algorithm
from scafflix.algorithm import Round
from scafflix.core.vector import Vector, names_of
from scafflix.methods import METHODS, Client, Method, parameters
from scafflix.methods.method import fitted
from scafflix.simulate.planning import optima

N = len(SIZES)
SHAPE = (3, 2)


@pytest.fixture(params=METHODS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def method(name: str, logistic_case: Case) -> Method:
    return METHODS[name](logistic_case.plan)


def keeps_controls(method: Method) -> bool:
    client, x = Client(1.0, 1.0), np.ones(SHAPE)
    return method.controls(client, method.init_client(client, x, x)) is not None


def points(number: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(number, *SHAPE))


def two_rounds(
    method: Method,
    h0: NDArray[np.float64],
    gradients: NDArray[np.float64],
    wrap: Callable[[Any], Any],
) -> list[Any]:
    """Two rounds of two local steps, and all that is seen of them: models and control variates."""
    clients = [
        Client(ALPHA[i], np.asarray(method.gamma)[i], wrap(np.full(SHAPE, 0.1 * i)), SIZES[i], N)
        for i in range(N)
    ]
    seen = []
    for rounds in (1, 2):
        made = algorithm.run(
            method,
            clients,
            wrap(np.full(SHAPE, 0.5)),
            [wrap(h) for h in h0],
            lambda i, r, points, k: several(lambda x: wrap(gradients[(r * 2 + k) * N + i]), points),
            [Round(2, range(N), jax.random.key(r)) for r in range(rounds)],
        )
        controls = [
            method.controls(client, state)
            for client, state in zip(clients, made.states, strict=True)
        ]
        homes = [
            algorithm.take_home(
                method, client, state, made.server.x, lambda x, k, i=i: wrap(gradients[i])
            )
            for i, (client, state) in enumerate(zip(clients, made.states, strict=True))
        ]
        sent = method.broadcast(made.server)
        seen += [made.server.x, *sent, *homes, *(h for h in controls if h is not None)]
    return seen


def by_hand(method: Method, wrap: Callable[[Any], Any]) -> list[Any]:
    return two_rounds(method, points(N, 1), points(4 * N, 2), wrap)


def test_the_name_is_the_one_it_is_registered_under(name: str, method: Method) -> None:
    assert method.name == name
    assert getattr(sx, name) is METHODS[name]


def test_functions_take_numpy_arrays_and_return_them(method: Method) -> None:
    assert all(type(point) is np.ndarray for point in by_hand(method, lambda a: a))


def test_functions_do_the_same_on_trees_as_on_arrays(method: Method) -> None:
    trees = by_hand(method, lambda a: Vector({"first": a[0], "others": [a[1:]]}))
    for array, vector in zip(by_hand(method, lambda a: a), trees, strict=True):
        joined = np.concatenate([vector.tree["first"][None], vector.tree["others"][0]])
        np.testing.assert_array_equal(joined, array)


@pytest.mark.usefixtures("float64")
def test_functions_do_the_same_when_compiled(method: Method) -> None:
    @jax.jit
    def compiled(h0: jax.Array, gradients: jax.Array) -> list[Any]:
        return two_rounds(method, h0, gradients, lambda a: a)

    found = compiled(points(N, 1), points(4 * N, 2))
    for array, other in zip(by_hand(method, lambda a: a), found, strict=True):
        np.testing.assert_allclose(other, array, rtol=1e-12, atol=1e-13)


def test_hyperparameters_are_leaves_of_one_tree(name: str, logistic_case: Case) -> None:
    make, plan = METHODS[name], logistic_case.plan
    other = {"p": 0.5} if "p" in parameters(make) else {}
    methods = [make(plan), make(plan, stepsize=1e-3, **other), make(plan, stepsize=1e9)]
    assert len({jax.tree.structure(method) for method in methods}) == 1
    leaves = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(m)]) for m in methods]
    assert len(leaves[0]) == len(leaves[1])
    assert not np.array_equal(leaves[0], leaves[1], equal_nan=True)


def test_a_compiled_program_serves_all_hyperparameters(name: str, logistic_case: Case) -> None:
    traced = 0

    @jax.jit
    def first_step(method: Method, x: Vector) -> Any:
        nonlocal traced
        traced += 1
        client = Client(0.5, method.gamma[0], x)
        sent, state = method.broadcast(method.init_server(x)), method.init_client(client, x, x)
        local = method.begin(client, state, sent)
        g = several(lambda point: 2 * x, method.asks(client, state, sent, local))
        after = method.local_step(client, state, sent, local, g)
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(after))

    make, plan = METHODS[name], logistic_case.plan
    x = Vector({name: jnp.ones(2) for name in ("layer0/norm", "layer0/weight", "layer1/weight")})
    methods = [fitted(make(plan, stepsize=s), names_of(x.tree)) for s in (1e-3, 1e-2)]
    steps = [first_step(method, x) for method in methods]
    assert traced == 1
    assert float(steps[0]) != float(steps[1])


def test_a_round_has_at_least_one_local_step(method: Method) -> None:
    for round, uniform in enumerate((1e-300, 1e-9, 0.5, 1 - 1e-16)):
        assert int(method.local_steps(round, uniform)) >= 1


def test_stepsizes_by_default_are_within_what_theory_allows(method: Method) -> None:
    assert (method.gamma <= (1 + 1e-12) * method.limit).all()


def test_the_weighted_sum_of_control_variates_is_conserved(method: Method) -> None:
    if not keeps_controls(method):
        pytest.skip(f"{method.name} keeps no control variates")
    if len(method.init_server(np.ones(SHAPE))) > 1:
        pytest.skip(f"the server of {method.name} keeps their mean: see the next test")
    h0 = points(N, 1)
    seen = two_rounds(method, h0, points(4 * N, 2), lambda a: a)
    controls = np.array(seen[-N:])
    before, after = (np.einsum("n,n...->...", ALPHA, h) for h in (h0, controls))
    assert np.abs(controls - h0).max() > 1e-3  # they do move
    np.testing.assert_allclose(after, before, rtol=1e-11, atol=1e-11)


def test_a_server_that_keeps_the_mean_of_control_variates_keeps_that_of_all(
    method: Method,
) -> None:
    if not keeps_controls(method) or len(method.init_server(np.ones(SHAPE))) == 1:
        pytest.skip(f"the server of {method.name} keeps the model alone")
    if method.name == "locodl":
        pytest.skip("the server of locodl keeps a dual variable of its own: see its tests")
    gradients, cohorts = points(12, 3), ((0, 3), (1, 2, 3), (2, 4))
    steps = method.local_steps(np.arange(3), np.full(3, 0.5))
    clients = [Client(ALPHA[i], np.asarray(method.gamma)[i], np.ones(SHAPE)) for i in range(N)]
    made = algorithm.run(
        method,
        clients,
        np.ones(SHAPE),
        [np.zeros(SHAPE)] * N,
        lambda i, r, _, k: gradients[(4 * r + 2 * k + i % 2) % 12],
        [Round(int(K), cohort) for K, cohort in zip(steps, cohorts, strict=True)],
    )
    of_all = [ALPHA[i] * method.controls(clients[i], state) for i, state in enumerate(made.states)]
    _, kept, *_ = made.server
    assert np.abs(kept).max() > 1e-3
    np.testing.assert_allclose(kept, np.mean(of_all, axis=0), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ON_LINEAR)
def test_the_optimum_is_a_fixed_point(name: str, case: Case) -> None:
    if name in OTHER_OBJECTIVES:
        pytest.skip(f"{name} has an objective of its own")
    # a method without control variates drifts off in several local steps: it gets one, by p = 1
    method = METHODS[name](case.plan)
    if not keeps_controls(method) and "p" in parameters(METHODS[name]):
        method = METHODS[name](case.plan, p=1.0)
    (optimum,) = optima(case.problem, [case.person])
    record = sx.run(case.problem, case.person, method, rounds=ROUNDS, start=optimum.x, h0=optimum.h)
    np.testing.assert_allclose(record.models["global"], optimum.x, rtol=0, atol=1e-12)
    assert record.metrics["lyapunov"].max() <= 1e-24


@pytest.mark.parametrize("name", ON_LINEAR)
def test_without_heterogeneity_every_method_reaches_the_optimum(name: str) -> None:
    # all clients have the same data: even FedAvg has no drift
    random = np.random.default_rng(0)
    part = (random.normal(size=(12, 3)), random.normal(size=12))
    federation = sx.data.from_clients({"a": part, "b": part})
    problem = sx.Problem(federation, sx.models.linear(), 0.3)
    person = sx.personalize(problem, 1.0)
    record = sx.run(problem, person, METHODS[name](sx.plan(problem, person)), rounds=400)
    assert record.metrics["objective_gap"][-1] <= 1e-12 * record.metrics["objective_gap"][0]


@pytest.mark.parametrize("stepsize", [0.0, -1.0, float("nan"), float("inf")])
def test_a_stepsize_that_is_not_above_0_is_refused(
    name: str, logistic_case: Case, stepsize: float
) -> None:
    with pytest.raises(sx.ScafflixError, match=f"stepsize is {stepsize}"):
        METHODS[name](logistic_case.plan, stepsize=stepsize)


@pytest.mark.parametrize("p", [0.0, -0.5, 1.5, float("nan")])
def test_a_probability_outside_0_and_1_is_refused(name: str, logistic_case: Case, p: float) -> None:
    if "p" not in parameters(METHODS[name]):
        pytest.skip(f"{name} communicates after every step")
    with pytest.raises(sx.ScafflixError, match=f"p is {p:g}"):
        METHODS[name](logistic_case.plan, p=p)


def test_its_settings_make_it_again(name: str, logistic_case: Case) -> None:
    make, plan = METHODS[name], logistic_case.plan
    given = {"p": 0.37, "pace": "cautious"}
    method = make(plan, **{key: given[key] for key in parameters(make) if key in given})
    assert tuple(method.settings) == parameters(make)
    again = make(plan, **method.settings)
    assert jax.tree.structure(again) == jax.tree.structure(method)
    for one, other in zip(jax.tree.leaves(method), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
