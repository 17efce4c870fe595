"""Plans, methods and personalizations know what they were made for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import scafflix as sx
from cases import ALPHA, ON_LINEAR, ROUNDS, Case
from scafflix import theory
from scafflix.core.compilation import COMPILATIONS
from scafflix.core.vector import Vector
from scafflix.data.federation import Examples, Federation
from scafflix.methods import METHODS, Client, Method
from scafflix.simulate.planning import optima
from scafflix.simulate.together import start_lyapunov
from scafflix.theory import NO_RATE

ELSEWHERE = "was made for another problem: its"
OTHERWISE = "was planned for something else: its"


def changed(case: Case, change: str) -> sx.Problem:
    """A problem of the same shape that differs in one thing."""
    small, train = case.problem, case.problem.federation.train
    federation, model, l2 = small.federation, small.model, small.l2
    if change == "a feature":
        features = train.features.copy()
        features[3, 2] += 1e-9
        federation = replace(federation, train=replace(train, features=features))
    elif change == "a label":
        labels = train.labels.copy()
        labels[0] = -labels[0]
        federation = replace(federation, train=replace(train, labels=labels))
    elif change == "whose a row is":
        offsets = train.offsets.copy()
        offsets[1] += 1
        federation = replace(federation, train=replace(train, offsets=offsets))
    elif change == "a name":
        federation = replace(federation, clients=("Ann", *federation.clients[1:]))
    elif change == "l2":
        l2 = 0.2
    elif change == "the loss":
        model = model._replace(loss=lambda z, y: 2 * small.model.loss(z, y))
    elif change == "the curvature":
        model = model._replace(curvature=(0.0, 0.3))
    return sx.Problem(federation, model, l2)


CHANGES = ("a feature", "a label", "whose a row is", "a name", "l2", "the loss", "the curvature")


@pytest.mark.parametrize("change", CHANGES)
def test_a_personalization_of_another_problem_is_refused(logistic_case: Case, change: str) -> None:
    other, person = changed(logistic_case, change), logistic_case.person
    with pytest.raises(sx.ScafflixError, match=ELSEWHERE):
        sx.plan(other, person)
    with pytest.raises(sx.ScafflixError, match=ELSEWHERE):
        sx.plan(other, person.at(0.3))
    with pytest.raises(sx.ScafflixError, match=ELSEWHERE):
        sx.run(other, person, sx.scafflix(logistic_case.plan), rounds=ROUNDS)


@pytest.mark.parametrize("name", ON_LINEAR)
def test_a_method_of_another_problem_is_refused(logistic_case: Case, name: str) -> None:
    other = changed(logistic_case, "l2")
    person, method = sx.personalize(other, ALPHA), METHODS[name](logistic_case.plan)
    words = rf"The method {name} {OTHERWISE} l2 is 0\.1, here it is 0\.2"
    with pytest.raises(sx.ScafflixError, match=words):
        sx.run(other, person, method, rounds=ROUNDS)
    with pytest.raises(sx.ScafflixError, match=words):
        sx.sweep(other, [sx.Run(person, METHODS[name](sx.plan(other, person))),
                         sx.Run(person, method)], rounds=ROUNDS)  # fmt: skip
    with pytest.raises(sx.ScafflixError, match=words):
        start_lyapunov(other, person, [method])


def test_psi_at_the_start_comes_from_what_each_method_begins_with(logistic_case: Case) -> None:
    problem, person, plan = logistic_case.problem, logistic_case.person, logistic_case.plan
    x0, h0 = np.ones(problem.shape), np.random.default_rng(0).normal(size=person.points.shape)
    h0 -= ALPHA @ h0 / ALPHA.sum()  # then sum_i alpha_i h_i = 0
    methods, (optimum,) = [make(plan) for make in METHODS.values()], optima(problem, [person])
    found = start_lyapunov(problem, person, methods, h0=h0)
    for method, psi in zip(methods, found, strict=True):
        counts = problem.federation.train.counts
        each = zip(ALPHA, method.gamma, map(Vector, person.points), counts, strict=True)
        clients = [Client(*one, len(ALPHA)) for one in each]
        pairs = zip(clients, h0, strict=True)
        states = [method.init_client(one, Vector(x0), Vector(h)) for one, h in pairs]
        h = [method.controls(*pair) for pair in zip(clients, states, strict=True)]
        stacked = None if h[0] is None else np.array([one.tree for one in h])
        x = method.init_server(Vector(x0)).x.tree
        gamma, p = np.asarray(method.gamma), float(method.p)
        wanted = theory.lyapunov(ALPHA, gamma, p, x, stacked, optimum.x, optimum.h)
        assert psi == pytest.approx(float(wanted), rel=1e-12), method.name


def test_a_plan_for_another_alpha_is_refused_even_where_as_many_take_part(
    logistic_case: Case,
) -> None:
    made, used = [0.0, 0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5, 0.0]
    plan = sx.plan(logistic_case.problem, logistic_case.person.at(made))
    with pytest.raises(sx.ScafflixError, match=rf"{OTHERWISE} alpha is \[0\.0, .*0\.0\]"):
        sx.run(logistic_case.problem, logistic_case.person.at(used), sx.gd(plan), rounds=ROUNDS)


def test_a_plan_for_another_smoothness_is_refused(logistic_case: Case) -> None:
    small = logistic_case.problem
    bound = sx.Problem(small.federation, small.model, small.l2, smoothness="bound")
    with pytest.raises(sx.ScafflixError, match="its smoothness is tight, here it is bound"):
        sx.run(bound, logistic_case.person, sx.gd(logistic_case.plan), rounds=ROUNDS)
    sx.plan(bound, logistic_case.person)  # the local optima are the same


def test_the_same_problem_made_again_takes_what_was_made_for_the_first(
    logistic_case: Case,
) -> None:
    small = logistic_case.problem
    again = sx.Problem(small.federation, small.model, small.l2)
    sx.run(again, logistic_case.person, sx.scafflix(logistic_case.plan), rounds=ROUNDS)


def test_other_held_out_data_are_no_other_functions(logistic_case: Case) -> None:
    small = logistic_case.problem
    federation = replace(small.federation, test=small.federation.train)
    tested = sx.Problem(federation, small.model, small.l2)
    record = sx.run(tested, logistic_case.person, sx.scafflix(logistic_case.plan), rounds=ROUNDS)
    assert "test_personal" in record.clients


def test_what_a_method_was_made_for_is_no_reason_to_compile(logistic_case: Case) -> None:
    small, person, plan = logistic_case.problem, logistic_case.person, logistic_case.plan
    sx.run(small, person, sx.scafflix(plan), rounds=ROUNDS)
    others = [sx.plan(small, person.at(alpha)) for alpha in (0.31, 0.62)]
    known = jax.tree.structure(sx.scafflix(plan))
    assert all(jax.tree.structure(sx.scafflix(one)) == known for one in others)
    assert len({str(one.made_for) for one in (plan, *others)}) == 3
    before = COMPILATIONS.count
    sx.run(small, person.at(0.31), sx.scafflix(others[0]), rounds=ROUNDS)
    assert before == COMPILATIONS.count


def by_hand(plan: Any, clients: int) -> Method:
    gamma = np.full(clients, 0.01)
    gd = sx.gd(plan)
    return Method(
        name="own",
        gamma=gamma,
        limit=gamma,
        p=1.0,
        rate=NO_RATE,
        gradient=gd.gradient,
        local_step=gd.local_step,
    )


def test_a_method_made_by_hand_is_told_by_its_shape(logistic_case: Case) -> None:
    small, person = logistic_case.problem, logistic_case.person
    sx.run(small, person, by_hand(logistic_case.plan, 5), rounds=ROUNDS)
    for clients, alpha in ((4, 0.5), (5, [0.0, 0.5, 0.5, 0.5, 0.5])):
        with pytest.raises(sx.ScafflixError, match="The method own has stepsizes of shape"):
            sx.run(small, person.at(alpha), by_hand(logistic_case.plan, clients), rounds=ROUNDS)


def test_a_personalization_made_by_hand_is_told_by_its_shape(logistic_case: Case) -> None:
    small, person = logistic_case.problem, logistic_case.person
    mine = sx.Personalization(person.alpha, person.x_star, person.quality)
    sx.plan(small, mine)
    quality = {name: column[1:] for name, column in person.quality.items()}
    fewer = sx.Personalization(person.alpha[1:], person.x_star[1:], quality)
    with pytest.raises(sx.ScafflixError, match=r"of shape \(4, 6\), but the problem's have"):
        sx.plan(small, fewer)


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.float32, bool])
def test_features_of_any_number_type_are_reckoned_in_float64(kind: Any) -> None:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 2 if kind is bool else 120, size=(40, 5)).astype(kind)
    labels = np.where(pixels[:, 0] > pixels[:, 0].mean(), 1, -1)

    def record(features: Any) -> sx.Record:
        part = Examples(features, labels, np.array([0, 15, 40]))
        problem = sx.Problem(Federation("raw", ("a", "b"), part), sx.models.logistic(), l2=1.0)
        person = sx.personalize(problem, 0.5)
        return sx.run(problem, person, sx.scafflix(sx.plan(problem, person)), rounds=5)

    raw, cast = record(pixels), record(pixels.astype(float))
    np.testing.assert_array_equal(raw.metrics["objective_gap"], cast.metrics["objective_gap"])


def test_features_that_are_no_real_numbers_are_refused() -> None:
    with pytest.raises(
        sx.ScafflixError, match="features has the type complex128; give real numbers"
    ):
        Examples(np.ones((4, 2), complex), np.array([0, 1, 0, 1]), np.array([0, 2, 4]))


def test_a_network_without_a_stepsize_takes_its_own() -> None:
    federation = sx.data.load("digits", clients=3, scale="maxabs", validation=0.1, test=0.1)
    network = sx.models.dense(features=64, classes=10)._replace(stepsize=0.25)
    problem = sx.Problem(federation, network)
    person = sx.personalize(problem, 1.0, optima=False)
    np.testing.assert_array_equal(sx.plan(problem, person).gamma, 0.25)
    np.testing.assert_array_equal(sx.plan(problem, person, stepsize=0.5).gamma, 0.5)
