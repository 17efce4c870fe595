"""Noise that the server adds to the mean: the same mechanism, where a method can go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.tree_util import Partial
from scipy import stats

import cases
import scafflix as sx
from executions import schedule
from scafflix import algorithm
from scafflix.core.checkpoint import Checkpoints, Often
from scafflix.core.precision import precision
from scafflix.core.vector import Vector
from scafflix.methods.method import Client
from scafflix.methods.private import Clip, blur, ready

NAMES = ("conv/norm/scale", "conv/weight", "output/weight", "output/bias")
GOES_ON = {
    "gd", "sgd", "nesterov", "fedavg", "fedprox", "ditto", "pfedme", "apfl", "finetuning",
    "per_fedavg", "fedper", "fedrep", "fedbn",
}  # fmt: skip


@pytest.fixture(scope="module")
def case() -> cases.Case:
    return cases.case("logistic")


def at_server(method: Any, clip: float = 0.5, noise: float = 2.0) -> Any:
    return sx.private(method, clip, noise, noise_at="server")


def test_the_noise_of_a_weighted_mean_is_that_of_clients_that_each_add_their_part() -> None:
    random, clip = np.random.default_rng(0), Clip(0.5, 3.0)
    weights = np.array([1.0, 4.0, 0.3, 2.0, 2.0])
    mean, unit = Vector((np.zeros(4000), np.zeros((50, 40)))), algorithm.unit_of(weights)
    parts = random.normal(size=(5, 6000)) * 0.5 * 3.0 / np.sqrt(5)
    together = weights @ parts / weights.sum()
    made = blur(clip, jax.random.key(1), mean, unit)
    alone = np.concatenate([np.ravel(leaf) for leaf in made.tree])
    assert stats.ks_2samp(together, alone).pvalue > 1e-3
    deviation = 3.0 * 0.5 * np.sqrt(np.mean(weights**2)) / weights.sum()
    assert abs(alone.std() / deviation - 1) < 5 / np.sqrt(2 * alone.size)


@pytest.mark.parametrize("cohort", [None, 3])
def test_the_simulator_follows_algorithm_1(case: cases.Case, cohort: int | None) -> None:
    """All clients side by side, or some of them, against the plain loop."""
    small, person = case.problem, case.person
    method = at_server(sx.fedavg(case.plan, p=0.5))
    made = sx.run(small, person, method, rounds=6, seed=4, cohort=cohort)
    own = ready(method, ("a",))
    gamma, points = np.asarray(own.gamma), person.points
    clients = [
        Client(a, g, Vector(x), 1.0, float(small.n))
        for a, g, x in zip(person.alpha, gamma, points, strict=True)
    ]
    everybody = Client(person.alpha, gamma, None, np.ones(small.n), float(small.n))

    def gradient(i: int, r: int, point: Any, step: int) -> Any:
        spread = np.broadcast_to(point.tree, (1, small.n, *small.shape))
        return Vector(np.asarray(small.losses.gradients(spread))[0, i])

    with precision(True):
        x0 = Vector(np.ones(small.shape))
        rounds = schedule(own, everybody, 4, 6, cohort)
        found = algorithm.run(own, clients, x0, [0 * x0] * small.n, gradient, rounds)
        np.testing.assert_allclose(made.models["global"], found.server.x.tree, rtol=0, atol=1e-12)
    quiet = sx.run(
        small, person, sx.private(sx.fedavg(case.plan, p=0.5), 0.5, 0.0), rounds=6, seed=4
    )
    assert np.abs(made.models["global"] - quiet.models["global"]).max() > 0.05


def test_epsilon_and_the_budget_are_those_of_noise_at_the_clients(
    case: cases.Case, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"rounds": 50, "budget": 3.0, "cohort": 3, "delta": 1e-3}
    method = at_server(sx.fedavg(case.plan), noise=4.0)
    made = sx.run(case.problem, case.person, method, **asked)
    rival = sx.private(sx.fedavg(case.plan), 0.5, 4.0)
    other = sx.run(case.problem, case.person, rival, **asked)
    np.testing.assert_array_equal(made.clients["epsilon"], other.clients["epsilon"])
    facts = made.summary["privacy"]
    assert facts == {**other.summary["privacy"], "noise_at": "server"}
    assert facts["ended_by_budget"]
    places = Checkpoints(tmp_path, Often(rounds=1))
    stopped = sx.run(
        case.problem,
        case.person,
        method,
        **asked,
        checkpoints=places,
        on_round=lambda moment: sx.Stop("enough") if moment.round == 3 else None,
    )
    assert stopped.summary["rounds"] == 3 < made.summary["rounds"]
    told: list[str] = []
    again = sx.run(
        case.problem,
        case.person,
        method,
        **asked,
        checkpoints=places,
        progress=lambda done, total, state: told.append(str(state)),
    )
    assert "epsilon" in told[0]
    for name in made.models:
        np.testing.assert_array_equal(made.models[name], again.models[name])


@pytest.mark.parametrize("name", sx.METHODS)
def test_a_method_goes_on_from_a_noisy_mean_or_is_refused(name: str, case: cases.Case) -> None:
    method = at_server(sx.METHODS[name](case.plan))
    if name in GOES_ON:
        assert ready(method, NAMES).blur is not None
        return
    with pytest.raises(sx.ScafflixError, match=f"With {name} .*noise_at client"):
        ready(method, NAMES)


class Last(NamedTuple):
    """A client's copy of the last model."""

    x: Any


def test_what_is_refused_is_what_a_method_does_and_not_its_name(case: cases.Case) -> None:
    base = sx.fedavg(case.plan)

    def begin_at(client: Client, x0: Any, h0: Any) -> Last:
        return Last(x0)

    def keep_mean(client: Client, state: Any, sent: Any, x: Any, after: Any, K: Any) -> Last:
        return Last(after.x)

    def keep_own(client: Client, state: Any, sent: Any, x: Any, after: Any, K: Any) -> Last:
        return Last(x)

    def go_on(client: Client, state: Any, sent: Any) -> Any:
        return state.x

    def double(client: Client, state: Any, sent: Any, x: Any) -> Any:
        return 2 * x, 1.0

    start = {"init_client": Partial(begin_at)}
    keeps = replace(base, name="keeps", commit=Partial(keep_mean), **start)
    tells = replace(base, name="tells", commit=Partial(keep_own), begin=Partial(go_on), **start)
    large = replace(base, name="large", upload=Partial(double))
    home = replace(base, name="home", commit=Partial(keep_own), **start)
    for method, words in (
        (keeps, "must fit the mean"),
        (tells, "messages depend on what clients keep"),
        (large, "not the clipped points themselves"),
    ):
        ready(sx.private(method, 1.0, 1.0), ("a",))  # noise at the clients suits them
        with pytest.raises(sx.ScafflixError, match=f"With {method.name} .*{words}"):
            ready(at_server(method), ("a",))
    ready(at_server(home), ("a",))


def test_in_control_variates_noise_of_the_server_would_pile_up(case: cases.Case) -> None:
    """Why Scafflix is refused: sum_i alpha_i h_i would be a random walk."""
    small, person = case.problem, case.person
    clipped = ready(sx.private(sx.scafflix(case.plan), 0.5, 0.0), ("a",))
    broken = replace(clipped, blur=Partial(blur, Clip(0.5, 2.0)))
    gamma = np.asarray(clipped.gamma)
    clients = [
        Client(a, g, Vector(x), 1.0, float(small.n))
        for a, g, x in zip(person.alpha, gamma, person.points, strict=True)
    ]
    everybody = Client(person.alpha, gamma, None, np.ones(small.n), float(small.n))

    def imbalance(method: Any, rounds: int) -> float:
        with precision(True):
            x0 = Vector(np.ones(small.shape))
            made = algorithm.run(
                method, clients, x0, [0 * x0] * small.n, lambda i, r, point, step: 0.1 * point,
                schedule(method, everybody, 0, rounds),
            )  # fmt: skip
            h = [np.asarray(state.h.tree) for state in made.states]
        return float(np.linalg.norm(person.alpha @ np.array(h)))

    assert imbalance(clipped, 8) < 1e-12
    assert imbalance(broken, 8) > 1e-3


@pytest.mark.parametrize(
    ("noise_at", "clip", "words"),
    [("cloud", 1.0, "noise_at is 'cloud'"), ("server", np.inf, "There is noise but no clip")],
)
def test_what_cannot_work_is_one_sentence(
    noise_at: str, clip: float, words: str, case: cases.Case
) -> None:
    with pytest.raises(sx.ScafflixError, match=words):
        sx.private(sx.fedavg(case.plan), clip, 1.0, noise_at=noise_at)
