"""Privacy for examples: clipped one by one, noisy, planned by theory and certified."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import scafflix as sx
from scafflix.core.precision import in_float64, precision
from scafflix.core.vector import Vector
from scafflix.gradients import Private, private_gradient
from scafflix.gradients.private import largest_gradients
from scafflix.problems.rows import Spans
from scafflix.simulate.private_slopes import Sampled, drawn_from, private_slopes


@pytest.fixture(scope="module")
def problem() -> sx.Problem:
    fed = sx.data.synthetic(clients=4, seed=2)
    return sx.Problem(fed, sx.models.logistic(), l2=0.1)


@pytest.fixture(scope="module")
def person(problem: sx.Problem) -> sx.Personalization:
    return sx.personalize(problem, alpha=1.0)


def by_hand(problem: sx.Problem, i: int, x: Any, clip: float) -> Any:
    """The mean of the clipped gradients of a client's examples, one by one."""
    train = problem.federation.train
    rows = slice(*train.offsets[i : i + 2])
    A, y = np.asarray(train.features[rows]), problem.targets.values[rows]
    each = -(y / (1 + np.exp(y * (A @ x))))[:, None] * A
    norms = np.linalg.norm(each, axis=1)
    return (each * np.minimum(1, clip / norms)[:, None]).mean(axis=0) + problem.l2 * x


@in_float64
def answers(problem: sx.Problem, gradient: Private, x: Any, times: int) -> Any:
    """Estimates at x of every client, as many times."""
    keys = jax.random.split(jax.random.key(0), (times, problem.n))
    points = Vector(np.broadcast_to(x, (times, problem.n, *problem.shape)))
    return np.asarray(gradient.answer(problem.losses, points, keys).tree)


def test_every_examples_gradient_is_clipped_by_itself(problem: sx.Problem) -> None:
    x = np.random.default_rng(0).normal(size=problem.shape)
    for clip in (0.2, 1.0, 1e6):
        (found,) = answers(problem, private_gradient(clip, 0.0), x, 1)
        for i in range(problem.n):
            np.testing.assert_allclose(found[i], by_hand(problem, i, x, clip), rtol=1e-10)


def test_the_noise_has_the_standard_deviation_said(problem: sx.Problem) -> None:
    x, counts = np.zeros(problem.shape), problem.federation.train.counts
    quiet = answers(problem, private_gradient(0.5, 0.0), x, 1)
    drawn = answers(problem, private_gradient(0.5, 3.0), x, 60) - quiet
    scaled = drawn * (counts / (3.0 * 0.5))[:, None]
    assert abs(scaled.mean()) < 4 / np.sqrt(scaled.size)
    assert abs(scaled.std() - 1) < 4 / np.sqrt(2 * scaled.size)


def test_batches_are_examples_drawn_one_by_one_and_unbiased(problem: sx.Problem) -> None:
    x = np.ones(problem.shape)
    (whole,) = answers(problem, private_gradient(1.0, 0.0), x, 1)
    some = answers(problem, private_gradient(1.0, 0.0, 5), x, 400)
    error = some.std(axis=0) / np.sqrt(len(some))
    assert (np.abs(some.mean(axis=0) - whole) < 5 * error + 1e-12).all()


def test_a_network_clips_the_same_as_a_linear_model(problem: sx.Problem) -> None:
    x = np.random.default_rng(1).normal(size=problem.shape)
    train, most = problem.train, int(problem.train.counts.max())
    with precision(True):
        for i in range(problem.n):
            spans = Spans(train.first[i], train.counts[i])
            key = jax.random.key(i)
            sample = Sampled(problem.in_jax, problem.l2, None, most, train.rows, spans)
            drawn = drawn_from(key, sample, Vector(x))
            g, _ = private_slopes(sample, Private(0.3, 0.0), Vector(x), drawn)
            np.testing.assert_allclose(g.tree, by_hand(problem, i, x, 0.3), rtol=1e-9)


def test_two_points_of_one_step_have_noise_of_their_own(problem: sx.Problem) -> None:
    with precision(True):
        keys = jax.random.split(jax.random.key(0), (1, problem.n))
        x = Vector(np.zeros((1, problem.n, *problem.shape)))
        one, other = private_gradient(1.0, 1.0).answer(problem.losses, (x, x), keys)
    assert np.abs(np.asarray(one.tree - other.tree)).min() > 0


def test_noise_whose_clip_binds_nobody_is_the_theorems_noisy_case(
    problem: sx.Problem, person: Any
) -> None:
    clip = float(largest_gradients(problem).max())
    plan = sx.plan(problem, person, gradient=private_gradient(clip, 0.5))
    counts, size = problem.federation.train.counts, problem.size
    np.testing.assert_allclose(plan.C, size * (0.5 * clip / counts) ** 2)
    np.testing.assert_array_equal(plan.A, problem.constants.L)
    method = sx.scafflix(plan)
    runs = [sx.Run(person, method, seed) for seed in range(12)]
    records = sx.sweep(problem, runs, rounds=40, scores=False)
    psi = np.mean([one.metrics["lyapunov"] for one in records], axis=0)
    bound = np.mean([one.metrics["lyapunov_bound"] for one in records], axis=0)
    assert (psi <= bound).all()
    assert psi[-10:].mean() > 1e-3 * method.rate.noise  # the noise is there
    assert records[0].summary["certificate"] is not None


def test_a_clip_that_may_bind_has_no_certificate(problem: sx.Problem, person: Any) -> None:
    method = sx.scafflix(sx.plan(problem, person, gradient=private_gradient(0.1, 1.0)))
    made = sx.run(problem, person, method, rounds=3)
    assert made.summary["certificate"] is None
    assert "longer than the clip, 0.1" in made.summary["no_certificate"]
    steps = int(made.metrics["iterations"][-1])
    from scafflix.privacy import epsilon_of_gaussians

    np.testing.assert_allclose(made.clients["epsilon"], epsilon_of_gaussians(float(steps), 1e-5))


def test_training_at_a_mixture_is_refused(problem: sx.Problem) -> None:
    half = sx.personalize(problem, alpha=0.5)
    method = sx.scafflix(sx.plan(problem, half, gradient=private_gradient(1.0, 1.0)))
    with pytest.raises(sx.ScafflixError, match="needs alpha = 1 in training"):
        sx.run(problem, half, method, rounds=2)


def test_an_attack_on_one_example_stays_below_the_epsilon_said() -> None:
    """With or without one example whose gradient is at the clip: by how much they can be told
    apart, from a threshold on the noisy sum, is a lower bound on epsilon."""
    from scipy.stats import beta

    from scafflix.privacy import epsilon_of_gaussians

    features = np.vstack([np.zeros((9, 2)), [[4.0, 0.0]]])
    with_it = sx.data.from_clients({"a": (features, np.array([-1, 1] * 5))})
    nothing = features.copy()
    nothing[-1] = 0
    without = sx.data.from_clients({"a": (nothing, np.array([-1, 1] * 5))})
    gradient, delta, tries = private_gradient(1.0, 1.0), 1e-2, 4000
    seen = []
    for fed in (with_it, without):
        problem = sx.Problem(fed, sx.models.logistic(), l2=0.1)
        with precision(True):
            keys = jax.random.split(jax.random.key(len(seen)), (tries, 1))
            points = Vector(np.zeros((tries, 1, 2)))
            made = gradient.answer(problem.losses, points, keys)
        seen.append(-10 * np.asarray(made.tree)[:, 0, 0])  # where the example pulls
    edge = 1.0
    hits, false = (int((one > edge).sum()) for one in seen)
    sure = beta.ppf(0.001, hits, tries - hits + 1)  # Clopper and Pearson
    most = beta.ppf(0.999, false + 1, tries - false)
    found = np.log((sure - delta) / most)
    said = epsilon_of_gaussians(1.0, delta)
    assert 0.3 * said < found < said
