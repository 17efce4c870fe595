"""Where one method is another: equal trajectories; and all of them against the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reference
import scafflix as sx
from cases import ALPHA, ON_LINEAR, ROUNDS, Case, Course, follow
from executions import schedule
from personalizers import PERSONALIZERS, Rounds
from scafflix.methods import METHODS, Client, Method
from scafflix.simulate.planning import optima
from scafflix.theory import Plan

CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-11}
HERE = [name for name in ON_LINEAR if name not in reference.ELSEWHERE]


def plan(case: Case, alpha: Any) -> tuple[sx.Personalization, Plan]:
    person = case.person.at(alpha)
    return person, sx.plan(case.problem, person)


def models(course: Course) -> NDArray[np.float64]:
    return np.array([snapshot.x for snapshot in course.snapshots])


def controls(course: Course) -> NDArray[np.float64]:
    return np.array([snapshot.h for snapshot in course.snapshots])


def suitable(case: Case, alpha: NDArray[np.float64], gamma: NDArray[np.float64]) -> Any:
    """Control variates to start from that are not 0."""
    h = np.random.default_rng(5).normal(size=(case.problem.n, *case.problem.shape))
    return np.asarray(sx.control.project(h, alpha, gamma))


def at_communications(
    iterates: Sequence[reference.Iterate], local_steps: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The common model and the control variates after each round."""
    ends = [0, *np.cumsum(local_steps)]
    return np.array([iterates[t].x[0] for t in ends]), np.array([iterates[t].h for t in ends])


def test_scafflix_with_alpha_one_equals_i_scaffnew(case: Case) -> None:
    person, advice = plan(case, 1.0)
    h0 = suitable(case, person.alpha, advice.gamma)
    pair = [
        follow(case.problem, person, make(advice), h0=h0) for make in (sx.scafflix, sx.i_scaffnew)
    ]
    np.testing.assert_allclose(models(pair[0]), models(pair[1]), **CLOSE)
    np.testing.assert_allclose(controls(pair[0]), controls(pair[1]), **CLOSE)
    assert np.ptp(advice.gamma) > 0.01  # individual stepsizes


def test_scafflix_with_unequal_alpha_equals_i_scaffnew_on_the_mixed_functions(case: Case) -> None:
    h0 = suitable(case, ALPHA, case.plan.gamma)
    pair = [
        follow(case.problem, case.person, make(case.plan), h0=h0)
        for make in (sx.scafflix, sx.i_scaffnew)
    ]
    np.testing.assert_allclose(models(pair[0]), models(pair[1]), **CLOSE)
    np.testing.assert_allclose(controls(pair[0]), controls(pair[1]), **CLOSE)


def test_scafflix_equals_the_reference_of_i_scaffnew_in_its_own_scale(case: Case) -> None:
    # Algorithm 2 on f~_i, with stepsizes gamma_i / alpha_i^2 and control variates alpha_i h_i
    method = sx.scafflix(case.plan)
    weight = ALPHA.reshape(-1, *(1,) * len(case.problem.shape))
    h0 = suitable(case, ALPHA, case.plan.gamma)
    course = follow(case.problem, case.person, method, h0=h0)
    iterates = reference.i_scaffnew(
        [f.gradient for f in case.mixed(ALPHA)],
        method.gamma / ALPHA**2,
        method.p,
        np.ones(case.problem.shape),
        weight * h0,
        reference.coin(course.local_steps),
    )
    x, h = at_communications(iterates, course.local_steps)
    np.testing.assert_allclose(models(course), x, **CLOSE)
    np.testing.assert_allclose(weight * controls(course), h, **CLOSE)


def test_scafflix_with_one_stepsize_and_alpha_one_equals_scaffnew(case: Case) -> None:
    person, advice = plan(case, 1.0)
    gamma, p = float(advice.gamma.min()), 0.4
    pair = [
        follow(case.problem, person, make(advice, stepsize=gamma, p=p))
        for make in (sx.scafflix, sx.scaffnew)
    ]
    np.testing.assert_allclose(models(pair[0]), models(pair[1]), **CLOSE)
    np.testing.assert_allclose(controls(pair[0]), controls(pair[1]), **CLOSE)


def test_i_scaffnew_with_one_stepsize_equals_scaffnew_for_every_alpha(case: Case) -> None:
    step = float((case.plan.gamma / ALPHA**2).min())
    pair = [
        follow(case.problem, case.person, make(case.plan, stepsize=step, p=0.4))
        for make in (sx.i_scaffnew, sx.scaffnew)
    ]
    np.testing.assert_allclose(models(pair[0]), models(pair[1]), **CLOSE)


def test_scafflix_that_always_communicates_with_one_stepsize_equals_gd(case: Case) -> None:
    person, advice = plan(case, 1.0)
    gamma = float(advice.gamma.min())
    scafflix = follow(case.problem, person, sx.scafflix(advice, stepsize=gamma, p=1.0))
    gd = follow(case.problem, person, sx.gd(advice, stepsize=gamma))
    np.testing.assert_allclose(models(scafflix), models(gd), **CLOSE)


def test_fedavg_that_always_communicates_equals_gd(case: Case) -> None:
    step = float((case.plan.gamma / ALPHA**2).min())
    fedavg = follow(case.problem, case.person, sx.fedavg(case.plan, stepsize=step, p=1.0))
    gd = follow(case.problem, case.person, sx.gd(case.plan, stepsize=step))
    np.testing.assert_allclose(models(fedavg), models(gd), **CLOSE)


def test_sgd_with_exact_gradients_equals_gd(case: Case) -> None:
    pair = [follow(case.problem, case.person, make(case.plan)) for make in (sx.sgd, sx.gd)]
    np.testing.assert_allclose(models(pair[0]), models(pair[1]), **CLOSE)


def test_fedavg_with_local_steps_leaves_the_optimum(logistic_case: Case) -> None:
    problem, person = logistic_case.problem, logistic_case.person
    (optimum,) = optima(problem, [person])
    method = sx.fedavg(logistic_case.plan, p=0.3)
    record = sx.run(problem, person, method, rounds=ROUNDS, start=optimum.x)
    assert record.metrics["objective_gap"][-1] > 1e-6


Found = tuple[NDArray[np.float64], NDArray[np.float64] | None]


class Reference:
    """Each method by the reference: the models after each round, and the control variates in
    Scafflix's scale or None. A new method needs a line here, written from its paper."""

    def __init__(self, small: Case, method: Method, local_steps: Sequence[int], h0: Any) -> None:
        self.small, self.local_steps, self.h0 = small, local_steps, h0
        self.method, self.gamma, self.p = method, method.gamma, float(method.p)
        self.steps = method.gamma / ALPHA**2
        self.x0 = np.ones(small.problem.shape)
        self.stars = np.asarray(small.person.x_star)
        self.weight = ALPHA.reshape(-1, *(1,) * self.x0.ndim)
        self.mixed = small.mixed(ALPHA)
        self.gradients = [f.gradient for f in self.mixed]
        self.coin = reference.coin(local_steps)
        self.settings = method.settings

    def of(self, name: str) -> Found:
        """What the method of this name finds."""
        found: Found = getattr(self, name, lambda: self._own_models(name))()
        return found

    def scafflix(self) -> Found:
        own = [f.gradient for f in self.small.functions]
        return self._rounds(
            reference.scafflix(
                own, self.stars, ALPHA, self.gamma, self.p, self.x0, self.h0, self.coin
            )
        )

    def i_scaffnew(self) -> Found:
        h0 = self.weight * self.h0
        x, h = self._rounds(
            reference.i_scaffnew(self.gradients, self.steps, self.p, self.x0, h0, self.coin)
        )
        return x, h / self.weight

    def scaffnew(self) -> Found:
        h0 = self.weight * self.h0
        x, h = self._rounds(
            reference.scaffnew(self.gradients, self.steps[0], self.p, self.x0, h0, self.coin)
        )
        return x, h / self.weight

    def gradskip(self) -> Found:
        # the coin that shows 0 is the one of step K_i; later ones change nothing
        clients = Client(ALPHA, self.gamma, None, np.ones(len(ALPHA)), len(ALPHA))
        rounds = schedule(self.method, clients, 0, len(self.local_steps))
        etas = [
            [int(step != own) for own in one.own_steps.values()]
            for one in rounds
            for step in range(1, one.steps + 1)
        ]
        assert not np.array(etas).all()
        h0 = self.weight * self.h0
        x, h = self._rounds(
            reference.gradskip(self.gradients, self.steps, self.p, self.x0, h0, self.coin, etas)
        )
        return x, h / self.weight

    def scaffold(self) -> Found:
        steps, c0 = [int(K) for K in self.local_steps], self.weight * self.h0
        return self._scaled(reference.scaffold(self.gradients, self.steps, self.x0, c0, steps))

    def fedlin(self) -> Found:
        steps, c0 = [int(K) for K in self.local_steps], self.weight * self.h0
        return self._scaled(reference.fedlin(self.gradients, self.steps, self.x0, c0, steps))

    def s_local_svrg(self) -> Found:
        steps, c0 = [int(K) for K in self.local_steps], self.weight * self.h0
        return self._scaled(reference.s_local_svrg(self.gradients, self.steps, self.x0, c0, steps))

    def feddyn(self) -> Found:
        steps, h0 = [int(K) for K in self.local_steps], self.weight * self.h0
        return self._scaled(
            reference.feddyn(self.gradients, self.steps, self.p, self.x0, h0, steps)
        )

    def fedavg(self) -> Found:
        x, _ = self._rounds(reference.fedavg(self.gradients, self.steps[0], self.x0, self.coin))
        return x, None

    def fedprox(self) -> Found:
        points = reference.fedprox(
            self.gradients, self.steps[0], 0.1, self.x0, [int(K) for K in self.local_steps]
        )
        return np.array(points), None

    def gd(self) -> Found:
        gradient = reference.average(self.mixed).gradient
        return np.array(reference.gd(gradient, self.steps[0], self.x0, len(self.coin))), None

    def sgd(self) -> Found:
        def at_mixture(i: int) -> reference.Gradient:
            own = self.small.functions[i].gradient
            return lambda x: own(ALPHA[i] * x + (1 - ALPHA[i]) * self.stars[i])

        gradients = [at_mixture(i) for i in range(len(ALPHA))]
        points = reference.sgd(gradients, ALPHA, self.steps[0], self.x0, len(self.coin))
        return np.array(points), None

    def nesterov(self) -> Found:
        mu = float(np.mean(ALPHA**2 * self.small.problem.constants.mu))
        gradient = reference.average(self.mixed).gradient
        points = reference.nesterov(gradient, self.steps[0], mu, self.x0, len(self.coin))
        return np.array(points), None

    def _own_models(self, name: str) -> Found:
        def gradient(i: int, r: int, k: int, x: Any) -> Any:
            return self.gradients[i](x)

        n, K, steps = len(ALPHA), list(self.local_steps), float(self.steps[0])
        courses = [
            Rounds(gradient, n, [range(n)] * r, K[:r], steps, self.settings)
            for r in range(len(K) + 1)
        ]
        return np.array([PERSONALIZERS[name](course, self.x0).x for course in courses]), None

    def _scaled(self, rounds: Sequence[reference.Iterate]) -> Found:
        """A reference that goes round by round, its control variates in Scafflix's scale."""
        x, h = (np.array(part) for part in zip(*rounds, strict=True))
        return x[:, 0], h / self.weight

    def _rounds(
        self, iterates: Sequence[reference.Iterate]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return at_communications(iterates, self.local_steps)


@pytest.mark.parametrize("name", HERE)
def test_every_method_follows_the_reference(case: Case, name: str) -> None:
    method = METHODS[name](case.plan)
    h0 = suitable(case, ALPHA, method.gamma)
    course = follow(case.problem, case.person, method, h0=h0)
    x, h = Reference(case, method, course.local_steps, h0).of(name)
    np.testing.assert_allclose(models(course), x, **CLOSE)
    if h is not None:
        np.testing.assert_allclose(controls(course), h, **CLOSE)
    assert np.abs(x[-1] - x[0]).max() > 1e-2


@pytest.mark.parametrize("name", HERE)
def test_what_is_measured_every_round_is_what_the_reference_measures(case: Case, name: str) -> None:
    method = METHODS[name](case.plan)
    record = sx.run(case.problem, case.person, method, rounds=ROUNDS)
    metrics = record.metrics
    h0 = np.zeros((case.problem.n, *case.problem.shape))
    x, h = Reference(case, method, metrics["local_steps"][1:], h0).of(name)
    (optimum,) = optima(case.problem, [case.person])
    objective = reference.average(case.mixed(ALPHA))
    gaps = [objective.value(point) - objective.value(optimum.x) for point in x]
    squares = [np.sum(objective.gradient(point) ** 2) for point in x]
    controls = [optimum.h] * len(x) if h is None else h  # without h, Psi is its first term
    psis = [
        reference.lyapunov(
            reference.Iterate(np.array([point] * case.problem.n), control),
            ALPHA,
            method.gamma,
            float(method.p),
            optimum.x,
            optimum.h,
        )
        for point, control in zip(x, controls, strict=True)
    ]
    np.testing.assert_allclose(metrics["objective_gap"], gaps, rtol=1e-8, atol=1e-13)
    np.testing.assert_allclose(metrics["grad_norm_sq"], squares, rtol=1e-8, atol=1e-15)
    np.testing.assert_allclose(metrics["lyapunov"], psis, rtol=1e-8, atol=1e-15)
    np.testing.assert_allclose(record.models["global"], x[-1], **CLOSE)
