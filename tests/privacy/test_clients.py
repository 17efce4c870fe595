"""Privacy for clients: any method, clipped and noisy, in every execution."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.tree_util import Partial
from scipy import stats

import scafflix as sx
from scafflix import algorithm
from scafflix.core.checkpoint import Checkpoints, Often
from scafflix.core.precision import precision
from scafflix.core.vector import Vector
from scafflix.methods.disclosure import what_travels
from scafflix.methods.method import Client, Turn, fitted
from scafflix.methods.private import Clip, clipped, ready, released
from scafflix.methods.remembering import remembering
from scafflix.privacy import Limit, epsilon_of_cohorts, epsilon_of_gaussians
from scafflix.simulate.accounting import Account
from scafflix.simulate.cohorts import cohort_of

NAMES = ("conv/norm/scale", "conv/weight", "output/weight", "output/bias")


@pytest.fixture(scope="module")
def problem() -> sx.Problem:
    return sx.Problem(sx.data.synthetic(clients=5, seed=1), sx.models.logistic(), l2=0.1)


@pytest.fixture(scope="module")
def person(problem: sx.Problem) -> sx.Personalization:
    return sx.personalize(problem, alpha=0.5)


@pytest.fixture(scope="module")
def plan(problem: sx.Problem, person: sx.Personalization) -> Any:
    return sx.plan(problem, person)


def a_round(method: sx.METHODS, key: int = 0, n: int = 5) -> tuple[Any, Any, Any]:  # type: ignore[valid-type]
    """Messages of one round from made-up points, with weights, and where they began."""
    x = Vector((np.zeros(3), np.zeros((2, 2))))
    sent = method.broadcast(method.init_server(x))
    messages = []
    for place in range(n):
        turn = Turn(jax.random.key(key), place, n)
        client = Client(0.5, 0.2, x, 4.0, float(n), turn)
        state = method.init_client(client, x, 0 * x)
        local = Vector((np.arange(3.0), np.full((2, 2), float(place))))
        messages.append(method.upload(client, state, sent, local))
    return messages, sent, x


def test_clipping_is_the_projection_onto_a_ball() -> None:
    random = np.random.default_rng(0)
    for most in (0.5, 3.0, np.inf):
        point = [random.normal(size=4), random.normal(size=(2, 3))]
        origin = [random.normal(size=4), random.normal(size=(2, 3))]
        made = clipped(most, point, origin)
        away = np.concatenate([np.ravel(a - o) for a, o in zip(point, origin, strict=True)])
        wanted = away * min(1.0, most / np.linalg.norm(away))
        found = np.concatenate([np.ravel(a - o) for a, o in zip(made, origin, strict=True)])
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def test_the_noise_of_a_cohort_together_is_what_was_said(plan: Any) -> None:
    clip, noise, n = 2.0, 1.5, 5
    noisy = ready(sx.private(sx.fedavg(plan), clip, noise), ("a", "b"))
    quiet = ready(sx.private(sx.fedavg(plan), clip, 0.0), ("a", "b"))
    still, _, _ = a_round(quiet)
    base = sum(np.concatenate([np.ravel(leaf) for leaf in m.tree]) for m, _ in still)
    sums = []
    for key in range(60):
        made, _, _ = a_round(noisy, key)
        sums.append(sum(np.concatenate([np.ravel(a) for a in m.tree]) for m, _ in made) - base)
    drawn = np.ravel(sums) / (noise * clip)
    assert len(drawn) == 60 * 7
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert abs(drawn.std() - 1) < 4 / np.sqrt(2 * len(drawn))
    assert n == len(still)


def test_clients_draw_numbers_of_their_own_and_other_ones_in_other_rounds() -> None:
    x = Vector((np.zeros(50),))
    drawn = []
    for key, place in ((0, 0), (0, 1), (1, 0)):
        client = Client(1.0, 1.0, x, 1.0, 2.0, Turn(jax.random.key(key), place, 2))
        begin = Partial(lambda c, s, t: t)
        chosen = what_travels(_averaging(), ("a",))
        local = released(begin, Clip(1.0, 1.0), chosen, client, None, x, x)
        drawn.append(np.asarray(local.tree[0]))
    assert np.abs(np.corrcoef(drawn) - np.eye(3)).max() < 0.5


def _averaging() -> Any:
    ones = np.ones(1)
    from scafflix.gradients import Exact
    from scafflix.problems.constants import Constants
    from scafflix.theory import advise

    return sx.fedavg(advise(ones, Constants(ones, ones / 2, ones), Exact(), ones, 0 * ones))


@pytest.mark.parametrize("name", sx.METHODS)
def test_without_clip_and_noise_every_method_is_itself(name: str, plan: Any) -> None:
    make = sx.METHODS[name]
    method = remembering(fitted(make(plan), NAMES))
    private = ready(sx.private(make(plan), np.inf, 0.0), NAMES)
    random = np.random.default_rng(3)
    shapes = ((3,), (8, 3), (8, 2), (2,))
    x0 = Vector(tuple(random.normal(size=shape) for shape in shapes))
    clients = [Client(0.5, 0.2, x0, 4.0, 4.0) for _ in range(4)]
    pull = [Vector(tuple(random.normal(size=shape) for shape in shapes)) for _ in clients]

    def gradient(i: int, r: int, points: Any, step: int) -> Any:
        is_point = lambda one: isinstance(one, Vector)  # noqa: E731
        return jax.tree.map(lambda x: 0.3 * (x - pull[i]), points, is_leaf=is_point)

    rounds = [
        algorithm.Round(2, [0, 1, 2, 3], jax.random.key(k), {0: 1} if method.own_steps else {})
        for k in range(2)
    ]
    h0 = [0 * x0] * 4
    with precision(True):
        one, other = (
            algorithm.run(made, clients, x0, h0, gradient, rounds) for made in (method, private)
        )
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-14)


class Secret(NamedTuple):
    """A state that keeps x_i* as it is."""

    x: Any


def test_a_method_whose_messages_tell_more_is_refused(plan: Any) -> None:
    def upload(client: Client, state: Any, sent: Any, local: Any) -> Any:
        return local + 0.1 * client.x_star, 1.0

    def begin(client: Client, state: Any, sent: Any) -> Any:
        return state.x

    def keep(client: Client, x0: Any, h0: Any) -> Secret:
        return Secret(client.x_star)

    telling = replace(sx.fedavg(plan), name="telling", upload=Partial(upload))
    beginning = replace(
        sx.fedavg(plan), name="beginning", init_client=Partial(keep), begin=Partial(begin)
    )
    for method in (telling, beginning):
        with pytest.raises(sx.ScafflixError, match=f"With {method.name} messages depend on what"):
            ready(sx.private(method, 1.0, 1.0), ("a",))


def test_control_variates_of_a_private_run_still_sum_to_zero(problem: Any, person: Any) -> None:
    method = ready(sx.private(sx.scafflix(sx.plan(problem, person)), 0.5, 2.0), ("a",))
    x0 = Vector((np.ones(problem.shape),))
    alpha, gamma = person.alpha, np.asarray(method.gamma)
    clients = [Client(alpha[i], gamma[i], Vector((person.points[i],)), 4.0, 5.0) for i in range(5)]
    random = np.random.default_rng(0)

    def gradient(i: int, r: int, points: Any, step: int) -> Any:
        return points + Vector((random.normal(size=problem.shape),))

    rounds = [algorithm.Round(2, [0, 2, 4][: 2 + k % 2], jax.random.key(k)) for k in range(6)]
    made = algorithm.run(method, clients, x0, [0 * x0] * 5, gradient, rounds)
    h = [np.asarray(state.h.tree[0]) for state in made.states]
    total = sum(a * one for a, one in zip(alpha, h, strict=True))
    assert np.abs(h).max() > 1e-2
    assert np.abs(total).max() < 1e-4 * np.abs(h).max()


def test_epsilon_is_that_of_each_clients_weight(problem: Any, person: Any, plan: Any) -> None:
    made = sx.run(problem, person, sx.private(sx.scafflix(plan), 1.0, 8.0), rounds=4, delta=1e-3)
    weight = (person.alpha**2 / plan.gamma) ** 2
    spent = 4 * weight / weight.mean() / 8.0**2
    wanted = [epsilon_of_gaussians(one, 1e-3) for one in spent.tolist()]
    np.testing.assert_allclose(made.clients["epsilon"], wanted)
    assert made.summary["privacy"]["epsilon"] == pytest.approx(max(wanted))
    assert made.summary["certificate"] is None


def test_sampling_amplifies_only_where_all_messages_weigh_the_same() -> None:
    many = sx.Problem(sx.data.synthetic(clients=50, seed=1), sx.models.logistic(), l2=0.1)
    asked = [cohort_of(0, r, np.arange(50), 1)[0] for r in range(200)]
    times = np.bincount(asked, minlength=50).tolist()
    alone = np.array([epsilon_of_gaussians(k / 5.0**2, 1e-3) for k in times])
    together = epsilon_of_cohorts(50, 1, 5.0, 200, 1e-3)
    assert together < alone.max()
    for last, wanted in ((0.5, np.minimum(alone, together)), (0.6, alone)):
        person = sx.personalize(many, alpha=np.array([0.5] * 49 + [last]))
        method = sx.scafflix(sx.plan(many, person), stepsize=0.01, p=0.9)
        member = sx.Run(person, ready(sx.private(method, 1.0, 5.0), ("a",)), 0)
        account = Account(many, member, 1, 200, Limit(1e-3))
        np.testing.assert_allclose(account.epsilons(200), wanted)


def test_the_budget_ends_a_run_and_a_resumed_one_is_the_same_to_the_bit(
    problem: Any, person: Any, plan: Any, tmp_path: Path
) -> None:
    method, told = sx.private(sx.scafflix(plan), 1.0, 8.0), []

    class Stopped(Exception):  # noqa: N818
        pass

    def stop(done: int, total: int, state: Any) -> None:
        told.append(str(state))
        if done == 3:
            raise Stopped

    asked: dict[str, Any] = {"rounds": 50, "budget": 2.0, "cohort": 3, "delta": 1e-3}
    whole = sx.run(problem, person, method, **asked)
    facts = whole.summary["privacy"]
    assert facts["ended_by_budget"]
    assert facts["epsilon"] <= 2.0
    longer = sx.run(
        problem, person, method, rounds=whole.summary["rounds"] + 1, cohort=3, delta=1e-3
    )
    assert longer.summary["privacy"]["epsilon"] > 2.0
    places = Checkpoints(tmp_path, Often(rounds=1))
    with pytest.raises(Stopped):
        sx.run(problem, person, method, **asked, progress=stop, checkpoints=places)
    again = sx.run(problem, person, method, **asked, checkpoints=places)
    assert "epsilon" in told[0]
    for name in whole.models:
        np.testing.assert_array_equal(whole.models[name], again.models[name])
    with pytest.raises(sx.ScafflixError, match="One round takes epsilon to"):
        sx.run(problem, person, method, rounds=5, budget=0.01)


def test_a_warm_start_is_refused(problem: Any, person: Any, plan: Any) -> None:
    with pytest.raises(sx.ScafflixError, match="with privacy client it must be zero"):
        sx.run(problem, person, sx.private(sx.scafflix(plan), 1.0, 1.0), rounds=2, h0="warm")
