"""TAMUNA and CompressedScaffnew: their masks, the paper's lines in NumPy, Scaffnew, the rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import scafflix as sx
from cases import ALPHA, DIM, ROUNDS, Case, case
from executions import schedule
from scafflix import algorithm
from scafflix.algorithm import Round
from scafflix.methods import Client, Method
from scafflix.methods.method import Turn
from scafflix.methods.tamuna import Mask

Point = NDArray[np.float64]
N = len(ALPHA)
BOTH = (sx.compressed_scaffnew, sx.tamuna)
CLOSE: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}
pytestmark = pytest.mark.usefixtures("float64")


def template(c: int, s: int, d: int) -> NDArray[np.int64]:
    """s ones in each of d rows, one after another over c columns."""
    made = np.zeros((d, c), int)
    for j in range(d):
        for k in range(s):
            made[j, (j * s + k) % c] = 1
    return made


def drawn_mask(key: Any, c: int, s: int, d: int) -> NDArray[np.int64]:
    """The columns of the template in the order of the round, [numbers, clients]."""
    return template(c, s, d)[:, np.asarray(jax.random.permutation(key, c))]


def part(turn: Turn, s: int, ones: Any) -> Any:
    """q_i."""
    return Mask(s).owned(turn).through(ones) != 0


@pytest.mark.parametrize(("c", "s", "d"), [(5, 2, 6), (5, 5, 6), (7, 3, 1), (12, 4, 2), (3, 2, 50)])
def test_each_number_has_s_owners_and_no_client_sends_many_more_than_others(
    c: int, s: int, d: int
) -> None:
    for number in range(5):
        key = jax.random.key(number)
        mask = np.array([part(Turn(key, i, c), s, np.ones(d)) for i in range(c)]).T
        np.testing.assert_array_equal(mask, drawn_mask(key, c, s, d))
        assert (mask.sum(axis=1) == s).all()
        assert mask.sum(axis=0).max() <= ceil(s * d / c)
        assert mask.sum(axis=0).min() >= s * d // c
        assert Mask(s).bits(np.zeros(d), c) == 64 * ceil(s * d / c)
        assert Mask(s).bits(np.zeros(d, np.float32), c) == 32 * ceil(s * d / c)


def test_every_pair_of_clients_is_as_likely_to_share_a_number() -> None:
    c, s, d, keys = 4, 2, 3, 3000
    owned = jax.vmap(
        lambda key: jax.vmap(lambda i: part(Turn(key, i, c), s, jnp.ones(d)))(np.arange(c))
    )(jax.random.split(jax.random.key(0), keys))
    both = np.einsum("kid,kjd->dij", owned, owned, dtype=float) / keys
    expected = np.where(np.eye(c), s / c, s * (s - 1) / (c * (c - 1)))
    np.testing.assert_allclose(both, np.broadcast_to(expected, both.shape), atol=0.05)


def by_the_lines(
    small: Case, method: Method, rounds: Sequence[Round], s: int
) -> tuple[Point, Point]:
    """The model and the control variates, in the scale of f~_i."""
    gradients = [f.gradient for f in small.mixed(ALPHA)]
    gamma = float(method.gamma[0] / ALPHA[0] ** 2)
    chi = N * (s - 1) / (s * (N - 1))
    x, h = np.ones(DIM), np.zeros((N, DIM))
    for K, cohort, key, *_ in rounds:
        mask = drawn_mask(key, len(cohort), s, DIM)
        reached = {}
        for i in cohort:
            x_i = x
            for _ in range(K):
                x_i = x_i - gamma * (gradients[i](x_i) - h[i])
            reached[i] = x_i
        columns = {i: mask[:, place] for place, i in enumerate(sorted(cohort))}
        x = sum(columns[i] * reached[i] for i in cohort) / s
        for i in cohort:
            h[i] += float(method.p) * chi / gamma * columns[i] * (x - reached[i])
    return x, h


def clients_of(small: Case, method: Method) -> Client:
    counts = small.problem.federation.train.counts
    return Client(ALPHA, np.asarray(method.gamma), None, counts, N)


@pytest.mark.parametrize(("make", "cohort"), [(BOTH[0], None), (BOTH[1], 3)])
@pytest.mark.parametrize("s", [2, 3])
def test_the_simulator_follows_the_papers_lines(
    logistic_case: Case, make: Callable[..., Method], cohort: int | None, s: int
) -> None:
    small, seed = logistic_case, 4
    method = make(small.plan, s=s)
    record = sx.run(small.problem, small.person, method, rounds=ROUNDS, seed=seed, cohort=cohort)
    rounds = schedule(method, clients_of(small, method), seed, ROUNDS, cohort)
    x, _ = by_the_lines(small, method, rounds, s)
    np.testing.assert_allclose(record.models["global"], x, rtol=1e-10, atol=1e-10)
    assert np.abs(x - 1).max() > 1e-2


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("pace", ["expected", "actual"])
def test_with_everything_from_everybody_it_is_scaffnew(
    logistic_case: Case, make: Callable[..., Method], pace: str
) -> None:
    small = logistic_case
    method, scaffnew = make(small.plan, s=N, pace=pace), sx.scaffnew(small.plan, pace=pace)
    assert (method.p, method.settings["chi"]) == (scaffnew.p, 1)
    assert method.rate[:3] == scaffnew.rate[:3] or pace == "actual"
    mine, theirs = (
        sx.run(small.problem, small.person, one, rounds=ROUNDS, seed=1)
        for one in (method, scaffnew)
    )
    np.testing.assert_allclose(mine.models["global"], theirs.models["global"], **CLOSE)
    np.testing.assert_allclose(mine.metrics["lyapunov"], theirs.metrics["lyapunov"], rtol=1e-9)
    np.testing.assert_array_equal(mine.metrics["bits_up"], theirs.metrics["bits_up"])


def test_idle_clients_keep_their_control_variates_and_the_sum_stays_zero(
    logistic_case: Case,
) -> None:
    small = logistic_case
    method = sx.tamuna(small.plan)
    stars = np.asarray(small.person.x_star)
    clients = [Client(a, g, x) for a, g, x in zip(ALPHA, method.gamma, stars, strict=True)]

    def states(rounds: Sequence[Round]) -> Point:
        made = algorithm.run(
            method,
            clients,
            np.ones(DIM),
            [np.zeros(DIM)] * N,
            lambda i, r, point, k: small.functions[i].gradient(point),
            rounds,
        )
        return np.array([state.h for state in made.states])

    rounds = schedule(method, clients_of(small, method), 1, 4, cohort=3)
    before, after = states(rounds[:3]), states(rounds)
    idle = [i for i in range(N) if i not in rounds[3].cohort]
    np.testing.assert_array_equal(after[idle], before[idle])
    assert (np.abs(after - before)[list(rounds[3].cohort)].max(axis=1) > 0).all()
    np.testing.assert_allclose(after.sum(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose(after, by_the_lines(small, method, rounds, 2)[1], **CLOSE)


@pytest.mark.parametrize("alpha", [1.0, ALPHA], ids=["equal", "unequal"])
@pytest.mark.parametrize("cohort", [None, 3])
def test_it_reaches_the_flix_optimum(logistic_case: Case, alpha: Any, cohort: int | None) -> None:
    problem, person = logistic_case.problem, logistic_case.person.at(alpha)
    method = sx.tamuna(sx.plan(problem, person))
    rounds = 400
    every = None if cohort is None else rounds
    record = sx.run(problem, person, method, rounds=rounds, cohort=cohort, every=every)
    assert record.metrics["objective_gap"][-1] < 1e-8


@pytest.mark.parametrize(("cohort", "rounds", "seeds"), [(None, 60, 40), (3, 20, 20)])
def test_psi_stays_under_its_guarantee(cohort: int | None, rounds: int, seeds: int) -> None:
    small = case("logistic")
    person = small.person.at(1.0)
    method = sx.tamuna(sx.plan(small.problem, person))
    runs = [sx.Run(person, method, seed) for seed in range(seeds)]
    ratios = []
    for record in sx.sweep(small.problem, runs, rounds=rounds, cohort=cohort):
        assert record.summary["certificate"] is not None
        psi = record.metrics["lyapunov"]
        bound = method.rate.bound(record.metrics["iterations"], psi[0])
        np.testing.assert_allclose(bound, record.metrics["lyapunov_bound"], rtol=1e-12)
        ratios.append(psi / bound)
    mean, error = np.mean(ratios, axis=0), np.std(ratios, axis=0) / np.sqrt(len(runs))
    assert (mean <= 1 + 4 * error).all()


def test_the_bits_are_those_of_its_part(logistic_case: Case) -> None:
    small = logistic_case
    for cohort, numbers in ((None, ceil(2 * DIM / N)), (3, ceil(2 * DIM / 3))):
        metrics = sx.run(
            small.problem, small.person, sx.tamuna(small.plan), rounds=ROUNDS, cohort=cohort, seed=4
        ).metrics
        assert metrics["bits_up"][-1] == ROUNDS * (cohort or N) * numbers * 64
        assert metrics["bits_down"][-1] == ROUNDS * (cohort or N) * DIM * 64


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"s": 1}, "s is 1; give a whole number of at least 2"),
        ({"s": 2.5}, "s is 2.5; give a whole number"),
        ({"s": N + 1}, f"s is {N + 1}; it must be at most {N}, the clients that take part"),
        ({"chi": 0.0}, "chi is 0.0; give a finite number above 0"),
    ],
)
def test_bad_values_are_refused(
    logistic_case: Case, make: Callable[..., Method], given: dict[str, Any], words: str
) -> None:
    with pytest.raises(sx.ScafflixError, match=words):
        make(logistic_case.plan, **given)


def test_more_owners_than_clients_of_a_round_are_refused_before_the_first(
    logistic_case: Case,
) -> None:
    small = logistic_case
    with pytest.raises(sx.ScafflixError, match="s is 4; it must be at most 3, the clients a round"):
        sx.run(small.problem, small.person, sx.tamuna(small.plan, s=4), rounds=2, cohort=3)
