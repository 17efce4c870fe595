"""Rounds of cohorts against Algorithm 1 written once more, and against each other."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import miniature
import reference
import scafflix as sx
from miniature import ALPHA, CLASSES, GAMMA, L2, N
from scafflix.core import streams
from scafflix.core.store import Store
from scafflix.core.streams import Stream
from scafflix.core.vector import Vector
from scafflix.gradients import Minibatch
from scafflix.methods import METHODS, Client, parameters
from scafflix.simulate.cohorts import cohort_of

Point = NDArray[np.float64]
CLOSE = {"rtol": 3e-5, "atol": 3e-5}  # float32, some dozens of steps
ONES = np.ones(N)
PACES = ("expected", "actual", "cautious", "steady")


def functions(l2: float = L2) -> list[reference.Function]:
    """Every f_i: softmax regression with a constant feature for the bias."""
    train = miniature.federation().train
    cuts = train.offsets[1:-1]
    parts = zip(np.split(train.features, cuts), np.split(train.labels, cuts), strict=True)
    return [
        reference.softmax(
            np.column_stack([A.astype(float), np.ones(len(A))]), b, l2, classes=CLASSES
        )
        for A, b in parts
    ]


def algorithm_1(
    x_star: Sequence[Point],
    p: float,
    pace: str,
    x: Point,
    cohorts: Sequence[NDArray[np.int64]],
    local_steps: Sequence[int],
) -> tuple[Point, Point]:
    """Lines 4 to 17 with sampled clients: only those of a round step, send and change their h_i."""
    f = functions()
    h = [np.zeros_like(x) for _ in f]
    for cohort, K in zip(cohorts, local_steps, strict=True):
        x_hat = {}
        for i in cohort:
            x_i = x
            for _ in range(K):
                x_tilde = ALPHA[i] * x_i + (1 - ALPHA[i]) * x_star[i]  # line 7
                g = f[i].gradient(x_tilde)  # line 8
                x_i = x_i - GAMMA[i] / ALPHA[i] * (g - h[i])  # lines 9 and 15
            x_hat[i] = x_i
        weight = {i: ALPHA[i] ** 2 / GAMMA[i] for i in cohort}
        x = sum(weight[i] * x_hat[i] for i in cohort) / sum(weight.values())  # lines 2, 11, 12
        least = min(p, 1 / K)
        factor = {"expected": p, "actual": 1 / K, "cautious": least, "steady": least / 5}[pace]
        for i in cohort:
            h[i] = h[i] + factor * ALPHA[i] / GAMMA[i] * (x - x_hat[i])  # line 13
    return x, np.array(h)


def drawn(seed: int, rounds: int, cohort: int, p: float) -> tuple[list[Any], list[int]]:
    """Who takes part and for how long, from the streams of the seed."""
    cohorts = [cohort_of(seed, r, np.arange(N), cohort) for r in range(rounds)]
    uniforms = streams.uniforms(seed, Stream.COIN, 0, rounds)
    # the coin of line 5 shows 1 with probability p: K = k where (1-p)^k <= u < (1-p)^(k-1)
    steps = [next(k for k in range(1, 10_000) if (1 - p) ** k <= u) for u in uniforms]
    return cohorts, steps


@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("cohort", [3, N])
def test_scafflix_follows_the_reference_of_algorithm_1(pace: str, cohort: int) -> None:
    small, p, rounds = miniature.problem(), 0.3, 10
    x_star = miniature.points(small)
    chosen = miniature.method("scafflix", ALPHA, GAMMA, p, pace=pace)
    made = miniature.run(small, chosen, ALPHA, x_star, rounds=rounds, cohort=cohort, seed=4)
    cohorts, steps = drawn(4, rounds, cohort, p)
    stars = miniature.matrix(x_star.read(np.arange(N)))
    x, h = algorithm_1(stars, p, pace, miniature.matrix(small.start(0)), cohorts, steps)
    assert made.local_steps[1:].tolist() == steps
    assert len(set(steps)) > 2
    np.testing.assert_allclose(miniature.matrix(made.x), x, **CLOSE)
    found = miniature.matrix(made.states.read(np.arange(N)).h.tree)
    np.testing.assert_allclose(found, h, **CLOSE)
    assert np.abs(x - miniature.matrix(small.start(0))).max() > 0.1


@pytest.mark.parametrize("pace", PACES)
def test_with_all_clients_and_full_batches_it_is_the_convex_engine(pace: str) -> None:
    small, rounds = miniature.problem(), 12
    fed = miniature.federation()
    parts = {
        client: (np.column_stack([A.astype(float), np.ones(len(A))]), b)
        for client, A, b in zip(
            fed.clients,
            np.split(fed.train.features, fed.train.offsets[1:-1]),
            np.split(fed.train.labels, fed.train.offsets[1:-1]),
            strict=True,
        )
    }
    convex = sx.Problem(sx.data.from_clients(parts), sx.models.softmax(), L2)
    person = sx.personalize(convex, ALPHA)
    p = 0.3
    advice = sx.plan(convex, person)
    there = sx.scafflix(advice, p=p, pace=pace)
    record = sx.run(
        convex, person, there, rounds=rounds, start=miniature.matrix(small.start(0)), seed=2
    )
    stars = np.asarray(person.x_star, np.float32)
    x_star = Store(small.template, N)
    x_star.write(np.arange(N), {"layer0": {"weight": stars[:, :-1], "bias": stars[:, -1]}})
    here = miniature.method("scafflix", ALPHA, np.asarray(there.gamma), p, pace=pace)
    made = miniature.run(small, here, ALPHA, x_star, rounds=rounds, seed=2)
    np.testing.assert_allclose(miniature.matrix(made.x), record.models["global"], **CLOSE)
    np.testing.assert_array_equal(made.local_steps, record.metrics["local_steps"])


@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize(
    ("name", "cap"),
    [(n, 0.0) for n, make in METHODS.items() if "pace" in parameters(make)]
    + [(n, 0.5) for n, make in METHODS.items() if "cap" in parameters(make)],
)
def test_weighted_control_variates_sum_to_zero_after_many_sampled_rounds(
    name: str, cap: float, pace: str
) -> None:
    small = miniature.problem((6,), 0.0)
    chosen = miniature.method(name, ALPHA, GAMMA, 0.4, Minibatch(4), pace=pace, cap=cap)
    made = miniature.run(small, chosen, ALPHA, miniature.points(small), rounds=60, cohort=3)
    assert made.divergence is None
    h = miniature.controls(made, chosen, ALPHA)
    total = np.abs((ALPHA[:, None] * h).sum(axis=0)).max()
    assert np.abs(h).max() > 0.05
    assert total < 1e-5 * np.abs(h).max() * 60


def test_all_paces_converge_to_the_same_optimum_of_a_strongly_convex_problem() -> None:
    l2 = 0.5
    small = miniature.problem((), l2)
    x_star = miniature.points(small)
    stars = miniature.matrix(x_star.read(np.arange(N)))
    mixed = [
        reference.mixed(f, a, star) for f, a, star in zip(functions(l2), ALPHA, stars, strict=True)
    ]
    optimum = reference.minimizer(reference.average(mixed), stars.shape[1:])
    for pace in PACES:
        chosen = miniature.method("scafflix", ALPHA, GAMMA, 0.3, pace=pace)
        made = miniature.run(small, chosen, ALPHA, x_star, rounds=200)
        np.testing.assert_allclose(miniature.matrix(made.x), optimum, atol=1e-5)


@pytest.mark.parametrize("cap", [0.5, 1.0])
def test_a_cap_leaves_the_optimum_where_it_is(cap: float) -> None:
    small = miniature.problem((), 0.5)
    shape = miniature.matrix(small.start(0)).shape
    optimum = reference.minimizer(reference.average(functions(0.5)), shape)
    chosen = miniature.method("scafflix", ONES, GAMMA, 0.3, pace="cautious", cap=cap)
    made = miniature.run(small, chosen, ONES, None, rounds=200)
    np.testing.assert_allclose(miniature.matrix(made.x), optimum, atol=1e-5)


def test_the_states_of_the_clients_are_freed_with_the_run() -> None:
    small = miniature.problem((6,), 0.0)
    chosen = miniature.method("scafflix", ONES, GAMMA, 0.4)
    gc.disable()  # it would free them too, but only after a while
    try:
        made = miniature.run(small, chosen, ONES, None, rounds=2, cohort=3)
        states = weakref.ref(made.states)
        del made
        assert states() is None
    finally:
        gc.enable()


def test_control_variates_tend_to_the_gradients_at_the_optimum() -> None:
    small = miniature.problem((), 0.5)
    chosen = miniature.method("scafflix", ONES, GAMMA, 0.3, pace="actual")
    made = miniature.run(small, chosen, ONES, None, rounds=200)
    x = miniature.matrix(made.x)
    expected = np.array([f.gradient(x) for f in functions(0.5)])
    found = miniature.matrix(made.states.read(np.arange(N)).h.tree)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("pace", PACES)
def test_with_alpha_one_and_one_stepsize_three_methods_are_one(pace: str) -> None:
    small, gamma = miniature.problem((6,), 0.0), np.full(N, 0.1)
    made = {
        name: miniature.run(
            small,
            miniature.method(name, ONES, gamma, 0.3, Minibatch(4), pace=pace),
            ONES,
            None,
            rounds=8,
            cohort=3,
        )
        for name in ("scafflix", "i_scaffnew", "scaffnew")
    }
    for other in ("i_scaffnew", "scaffnew"):
        np.testing.assert_allclose(
            miniature.flat(made["scafflix"].x), miniature.flat(made[other].x), rtol=1e-4, atol=1e-5
        )


def test_scafflix_and_i_scaffnew_make_the_same_models_for_unequal_alpha() -> None:
    small = miniature.problem((6,), 0.0)
    made = [
        miniature.run(
            small,
            miniature.method(name, ALPHA, GAMMA, 0.3, Minibatch(4), pace="actual"),
            ALPHA,
            miniature.points(small),
            rounds=8,
            cohort=3,
        )
        for name in ("scafflix", "i_scaffnew")
    ]
    np.testing.assert_allclose(*(miniature.flat(one.x) for one in made), rtol=1e-4, atol=1e-5)


def test_scafflix_that_communicates_at_once_begins_like_sgd() -> None:
    small, gamma = miniature.problem((6,), 0.0), np.full(N, 0.1)
    made = [
        miniature.run(
            small,
            miniature.method(name, ONES, gamma, 1.0, Minibatch(4)),
            ONES,
            None,
            rounds=1,
            cohort=3,
        )
        for name in ("scafflix", "sgd")
    ]
    np.testing.assert_allclose(*(miniature.flat(one.x) for one in made), rtol=1e-6, atol=1e-7)


def test_fedavg_with_one_local_step_is_sgd() -> None:
    small, gamma = miniature.problem((6,), 0.0), 0.1 * ALPHA**2
    made = [
        miniature.run(
            small,
            miniature.method(name, ALPHA, gamma, 1.0, Minibatch(4)),
            ALPHA,
            miniature.points(small),
            rounds=5,
            cohort=3,
        )
        for name in ("fedavg", "sgd")
    ]
    np.testing.assert_allclose(*(miniature.flat(one.x) for one in made), rtol=1e-6, atol=1e-7)


# a client of locodl has a point of its own, which begins where the model does
@pytest.mark.parametrize("name", sorted(set(METHODS) - {"nesterov", "locodl"}))
def test_a_client_that_begins_with_h_zero_has_a_state_of_zeros(name: str) -> None:
    chosen = miniature.method(name, ALPHA, GAMMA, 0.3)
    x, h = Vector({"w": np.ones((2, 3))}), Vector({"w": np.zeros((2, 3))})
    state = chosen.init_client(Client(0.4, 0.2), x, h)
    if not chosen.mixes:
        pytest.skip(f"clients of {name} begin with a model")
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(state))


def test_full_batches_are_the_mean_over_each_clients_own_examples() -> None:
    # one step of SGD from x with all clients: x - gamma mean_i grad f_i(x), by jax.grad
    small = miniature.problem((6,), 0.0)
    chosen = miniature.method("sgd", ONES, np.full(N, 0.5), 1.0)
    made = miniature.run(small, chosen, ONES, None, rounds=1)
    train, start = small.train, small.start(0)

    def mean(params: Any) -> Any:
        losses = []
        for i in range(N):
            rows = slice(train.first[i], train.first[i] + train.counts[i])
            logits = small.network.apply(params, train.rows.inputs[rows])
            picked = jax.nn.log_softmax(logits)[np.arange(train.counts[i]), train.labels[rows]]
            losses.append(-picked.mean())
        return sum(losses) / N

    expected = jax.tree.map(lambda a, g: a - 0.5 * g, start, jax.jit(jax.grad(mean))(start))
    np.testing.assert_allclose(miniature.flat(made.x), miniature.flat(expected), atol=1e-6)


def test_minibatches_are_right_on_average() -> None:
    # one step of SGD at one client, over many seeds
    small = miniature.problem((), 0.0)
    alpha = np.where(np.arange(N) == 3, 1.0, 0.0)
    gamma = np.full(N, 1.0)
    start = miniature.flat(small.start(0))
    own = Store(small.template, N)
    exact = miniature.run(small, miniature.method("sgd", alpha, gamma, 1.0), alpha, own, rounds=1)
    steps = [
        miniature.flat(
            miniature.run(
                small,
                miniature.method("sgd", alpha, gamma, 1.0, Minibatch(8)),
                alpha,
                own,
                rounds=1,
                seed=seed,
            ).x
        )
        - start
        for seed in range(120)
    ]
    error = np.std(steps, axis=0) / np.sqrt(len(steps))
    far = np.abs(np.mean(steps, axis=0) - (miniature.flat(exact.x) - start))
    assert (error > 0).all()
    assert (far < 4.5 * error).all()
