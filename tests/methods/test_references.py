"""Every method, with every pace, against the papers' lines in NumPy and float64: in the convex
engine, and in the rounds of sampled clients that networks go through (float32).

The reference below covers sampling: only the clients of a round step, send and change their state.
The network has a hidden layer whose backward pass is written out here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import scafflix as sx
from cases import ALPHA, Case, follow
from executions import schedule
from personalizers import PERSONALIZERS, Rounds
from reference import ELSEWHERE
from scafflix.core import streams
from scafflix.core.store import Store
from scafflix.core.streams import Stream
from scafflix.data.federation import Examples, Federation
from scafflix.gradients import Exact, Minibatch
from scafflix.methods import METHODS, Client, Method, parameters
from scafflix.methods.method import PACES
from scafflix.models.dense import dense
from scafflix.personalization.personalize import Personalization
from scafflix.problems.constants import Constants
from scafflix.simulate.cohorts import cohort_of, train
from scafflix.simulate.schedule import Schedule
from scafflix.theory import Plan

Point = NDArray[np.float64]
Gradient = Callable[[int, int, int, Point], Point]
"""(client, round, step, x~) -> an estimate of grad f_i(x~)."""

CAP = 0.8  # below 1, so that it tells everywhere
CHOICES = [
    (name, {"pace": pace} if "pace" in parameters(make) else {})
    for name, make in METHODS.items()
    if name not in ELSEWHERE
    for pace in (PACES if "pace" in parameters(make) else (None,))
] + [
    (name, {"pace": "cautious", "cap": CAP})
    for name, make in METHODS.items()
    if "cap" in parameters(make)
]


# clients that keep a model of their own between rounds
REMEMBERING = set(PERSONALIZERS) - {"finetuning", "per_fedavg"}


def gradients_a_step(method: Method) -> int:
    """How many a client needs for one step of what K counts."""
    return 2 if method.name == "per_fedavg" else int(method.settings.get("inner", 1))


class Setting(NamedTuple):
    """What the papers' lines take."""

    alpha: Point
    gamma: Point  # Scafflix's stepsizes on f_i; those on f~_i are gamma_i / alpha_i^2
    p: float
    pace: str | None
    beta: float  # Nesterov's momentum
    x_star: Point  # [clients, numbers]
    gradient: Gradient
    cohorts: Sequence[Sequence[int]]  # who takes part in each round
    local_steps: Sequence[int]
    settings: Mapping[str, Any]  # the method's other numbers
    own_steps: Sequence[Mapping[int, int]] = ()  # GradSkip's: where a client stops, if at most K


def factor(setting: Setting, K: int) -> float:
    """What line 13 multiplies by: p, 1/K, the smaller, or a fifth of it."""
    least = min(setting.p, 1 / K)
    known = {"expected": setting.p, "actual": 1 / K, "cautious": least, "steady": least / 5}
    return known[str(setting.pace)]


def corrected(setting: Setting, g: Point, h: Point) -> Point:
    """g - h, with a cap at most so many times as long as g."""
    cap, made = setting.settings.get("cap", 0), g - h
    longest = cap * np.linalg.norm(g)
    return made * longest / np.linalg.norm(made) if 0 < longest < np.linalg.norm(made) else made


def local(
    setting: Setting,
    i: int,
    r: int,
    x: Point,
    h: Point,
    step: float,
    pull: float = 0.0,
    steps: int | None = None,
) -> Point:
    """K steps x <- x - step (alpha_i g - h + pull (x - x_r)) on f~_i, from x_r."""
    begin = x
    for k in range(setting.local_steps[r] if steps is None else steps):
        x_tilde = setting.alpha[i] * x + (1 - setting.alpha[i]) * setting.x_star[i]
        g = setting.alpha[i] * setting.gradient(i, r, k, x_tilde)
        x = x - step * (corrected(setting, g, h) + pull * (x - begin))
    return x


def scafflix(setting: Setting, x: Point, h: Point) -> tuple[Point, Point]:
    """Algorithm 1 of the paper, in its own scale."""
    alpha, gamma, h = setting.alpha, setting.gamma, h.copy()
    for r, cohort in enumerate(setting.cohorts):
        x_hat = {}
        for i in cohort:
            x_i = x
            for k in range(setting.local_steps[r]):
                x_tilde = alpha[i] * x_i + (1 - alpha[i]) * setting.x_star[i]  # line 7
                g = setting.gradient(i, r, k, x_tilde)  # line 8
                x_i = x_i - gamma[i] / alpha[i] * corrected(setting, g, h[i])  # line 9
            x_hat[i] = x_i
        weights = {i: alpha[i] ** 2 / gamma[i] for i in cohort}
        x = sum(weights[i] * x_hat[i] for i in cohort) / sum(weights.values())  # lines 2, 11
        for i in cohort:  # line 13
            rate = factor(setting, setting.local_steps[r]) * alpha[i] / gamma[i]
            h[i] = h[i] + rate * (x - x_hat[i])
    return x, h


def i_scaffnew(setting: Setting, x: Point, h: Point) -> tuple[Point, Point]:
    """Algorithm 2 of the paper on f~_i, whose control variates are alpha_i h_i."""
    steps = setting.gamma / setting.alpha**2
    h = setting.alpha[:, None] * h
    for r, cohort in enumerate(setting.cohorts):
        x_hat = {i: local(setting, i, r, x, h[i], steps[i]) for i in cohort}
        x = sum(x_hat[i] / steps[i] for i in cohort) / sum(1 / steps[i] for i in cohort)
        for i in cohort:
            h[i] = h[i] + factor(setting, setting.local_steps[r]) / steps[i] * (x - x_hat[i])
    return x, h / setting.alpha[:, None]


def scaffnew(setting: Setting, x: Point, h: Point) -> tuple[Point, Point]:
    """Algorithm 2 of Mishchenko et al. (2022) on f~_i: one stepsize, a plain mean."""
    gamma = setting.gamma[0] / setting.alpha[0] ** 2
    h = setting.alpha[:, None] * h
    for r, cohort in enumerate(setting.cohorts):
        x_hat = {i: local(setting, i, r, x, h[i], gamma) for i in cohort}
        x = sum(x_hat.values()) / len(cohort)
        for i in cohort:
            h[i] = h[i] + factor(setting, setting.local_steps[r]) / gamma * (x - x_hat[i])
    return x, h / setting.alpha[:, None]


def gradskip(setting: Setting, x: Point, h: Point) -> tuple[Point, Point]:
    """Algorithm 1 of Maranjyan et al. (2022) on f~_i, with weights 1/s_i; what the h_i of all
    clients, which sum to 0, contribute to the mean is left out."""
    s = setting.gamma / setting.alpha**2
    h = setting.alpha[:, None] * h
    for r, cohort in enumerate(setting.cohorts):
        K, x_hat, h_hat = setting.local_steps[r], {}, h.copy()
        for i in cohort:
            J = setting.own_steps[r][i] if setting.own_steps else K + 1
            x_hat[i] = local(setting, i, r, x, h[i], s[i], steps=min(J - 1, K))
            if J <= K:
                x_tilde = setting.alpha[i] * x_hat[i] + (1 - setting.alpha[i]) * setting.x_star[i]
                h_hat[i] = setting.alpha[i] * setting.gradient(i, r, J - 1, x_tilde)
        total = sum(x_hat[i] / s[i] - (h_hat[i] - h[i]) / setting.p for i in cohort)
        x = total / sum(1 / s[i] for i in cohort)
        for i in cohort:
            h[i] = h_hat[i] + setting.p / s[i] * (x - x_hat[i])
    return x, h / setting.alpha[:, None]


def scaffold(setting: Setting, x: Point, h: Point) -> tuple[Point, Point]:
    """Algorithm 1 of Karimireddy et al. (2020) with option II and server stepsize 1 on f~_i, in
    the metric with weights 1/s_i."""
    s = setting.gamma / setting.alpha**2
    mean = 1 / np.mean(1 / s)
    c_i = setting.alpha[:, None] * h
    c = c_i.mean(axis=0)
    for r, cohort in enumerate(setting.cohorts):
        K, moves, change = setting.local_steps[r], [], np.zeros_like(x)
        for i in cohort:
            y = local(setting, i, r, x, c_i[i] - mean / s[i] * c, s[i])
            moves.append((y - x) / s[i])
            new = c_i[i] - mean / s[i] * c + (x - y) / (K * s[i])
            change += new - c_i[i]
            c_i[i] = new
        x = x + mean * sum(moves) / len(moves)
        c = c + change / len(s)
    return x, c_i / setting.alpha[:, None]


def fedlin(setting: Setting, x: Point, h: Point) -> tuple[Point, Point]:
    """Algorithm 1 of Mitra et al. (2021) on f~_i, an exchange of gradients and K steps by turns, in
    the metric with weights 1/s_i; the last gradients of all clients count. S-Local-SVRG exchanges
    gradients less often."""
    s = setting.gamma / setting.alpha**2
    mean = 1 / np.mean(1 / s)
    c_i = setting.alpha[:, None] * h
    c = c_i.mean(axis=0)
    for r, cohort in enumerate(setting.cohorts):
        shift = mean * c
        if setting.local_steps[r] == 1:
            for i in cohort:
                c_i[i] = mean_gradient(setting, r, [i], x)
            c = c_i.mean(axis=0)
        else:
            ends = {i: local(setting, i, r, x, c_i[i] - shift / s[i], s[i]) for i in cohort}
            moves = [(ends[i] - x + shift) / s[i] for i in cohort]
            x = x + mean * sum(moves) / len(moves) - shift
    return x, c_i / setting.alpha[:, None]


def feddyn(setting: Setting, x: Point, h: Point) -> tuple[Point, Point]:
    """Algorithm 1 of Acar et al. (2021) on f~_i with K local steps and a_i = a / s_i; a = p."""
    s = setting.gamma / setting.alpha**2
    a = setting.p / s
    h_i = setting.alpha[:, None] * h
    h_server = h_i.mean(axis=0)
    for r, cohort in enumerate(setting.cohorts):
        ends = {i: local(setting, i, r, x, h_i[i], s[i], a[i]) for i in cohort}
        moves = {i: a[i] * (ends[i] - x) for i in cohort}
        for i in cohort:
            h_i[i] = h_i[i] - moves[i]
        h_server = h_server - sum(moves.values()) / len(s)
        x = x + (sum(moves.values()) / len(cohort) - h_server) / a.mean()
    return x, h_i / setting.alpha[:, None]


def fedavg(setting: Setting, x: Point, h: Point) -> tuple[Point, None]:
    """McMahan et al. (2017) on f~_i: local gradient steps, a plain mean."""
    gamma = setting.gamma[0] / setting.alpha[0] ** 2
    for r, cohort in enumerate(setting.cohorts):
        x = sum(local(setting, i, r, x, 0 * x, gamma) for i in cohort) / len(cohort)
    return x, None


def fedprox(setting: Setting, x: Point, h: Point) -> tuple[Point, None]:
    """Li et al. (2020) on f~_i: FedAvg with a pull of 0.1 to the point that the server sent."""
    gamma = setting.gamma[0] / setting.alpha[0] ** 2
    for r, cohort in enumerate(setting.cohorts):
        x = sum(local(setting, i, r, x, 0 * x, gamma, 0.1) for i in cohort) / len(cohort)
    return x, None


def sgd(setting: Setting, x: Point, h: Point) -> tuple[Point, None]:
    """x <- x - gamma (1/n) sum_i alpha_i g_i over the clients of a round."""
    gamma = setting.gamma[0] / setting.alpha[0] ** 2
    for r, cohort in enumerate(setting.cohorts):
        x = x - gamma * mean_gradient(setting, r, cohort, x)
    return x, None


def nesterov(setting: Setting, x: Point, h: Point) -> tuple[Point, None]:
    """Scheme 2.2.11 of Nesterov's lectures (2004)."""
    gamma = setting.gamma[0] / setting.alpha[0] ** 2
    y = x
    for r, cohort in enumerate(setting.cohorts):
        before, x = x, y - gamma * mean_gradient(setting, r, cohort, y)
        y = x + setting.beta * (x - before)
    return x, None


def personalizer(name: str, setting: Setting, x: Point, h: Point) -> tuple[Point, None]:
    """The model of all of a method whose clients have models of their own, on f~_i."""
    alpha = setting.alpha

    def gradient(i: int, r: int, k: int, x: Point) -> Point:
        mixture = alpha[i] * x + (1 - alpha[i]) * setting.x_star[i]
        return alpha[i] * setting.gradient(i, r, k, mixture)

    gamma = setting.gamma[0] / alpha[0] ** 2
    times = setting.cohorts, setting.local_steps
    rounds = Rounds(gradient, len(alpha), *times, gamma, setting.settings)
    return PERSONALIZERS[name](rounds, x).x, None


def mean_gradient(setting: Setting, r: int, cohort: Sequence[int], x: Point) -> Point:
    """(1/n) sum_i alpha_i g_i."""
    total = np.zeros_like(x)
    for i in cohort:
        x_tilde = setting.alpha[i] * x + (1 - setting.alpha[i]) * setting.x_star[i]
        total += setting.alpha[i] * setting.gradient(i, r, 0, x_tilde)
    return total / len(cohort)


REFERENCES: dict[str, Callable[[Setting, Point, Point], tuple[Point, Point | None]]] = {
    "scafflix": scafflix,
    "i_scaffnew": i_scaffnew,
    "scaffnew": scaffnew,
    "gradskip": gradskip,
    "scaffold": scaffold,
    "fedlin": fedlin,
    "s_local_svrg": fedlin,
    "feddyn": feddyn,
    "fedavg": fedavg,
    "fedprox": fedprox,
    "gd": sgd,
    "sgd": sgd,
    "nesterov": nesterov,
    **{name: partial(personalizer, name) for name in PERSONALIZERS},
}


def test_every_method_has_a_reference() -> None:
    assert {*REFERENCES, *ELSEWHERE} == set(METHODS)


@pytest.mark.parametrize(("name", "given"), CHOICES)
def test_the_convex_engine_follows_the_papers_lines(
    logistic_case: Case, name: str, given: dict[str, Any]
) -> None:
    case = logistic_case
    method = METHODS[name](case.plan, **given)
    random = np.random.default_rng(5)
    drawn = random.normal(size=(case.problem.n, *case.problem.shape))
    h0 = np.asarray(sx.control.project(drawn, ALPHA, method.gamma))
    course = follow(case.problem, case.person, method, h0=h0)
    n, shape = case.problem.n, case.problem.shape

    def gradient(i: int, r: int, k: int, x: Point) -> Point:
        return case.functions[i].gradient(x.reshape(shape)).ravel()

    setting = Setting(
        ALPHA,
        np.asarray(method.gamma),
        float(method.p),
        given.get("pace"),
        beta_of(method.gamma[0] / ALPHA[0] ** 2, ALPHA, case.problem.constants.mu),
        np.asarray(case.person.x_star).reshape(n, -1),
        gradient,
        [range(n)] * len(course.local_steps),
        course.local_steps,
        method.settings,
        own_steps_of(method, ALPHA, len(course.local_steps)),
    )
    x, h = REFERENCES[name](setting, np.ones(int(np.prod(shape))), h0.reshape(n, -1))
    last = course.snapshots[-1]
    np.testing.assert_allclose(last.x.ravel(), x, rtol=1e-10, atol=1e-11)
    assert (last.h is None) == (h is None)
    if last.h is not None and h is not None:
        np.testing.assert_allclose(last.h.reshape(n, -1), h, rtol=1e-10, atol=1e-11)
    assert np.abs(x - 1).max() > 1e-2


def own_steps_of(method: Method, alpha: Point, rounds: int) -> list[Mapping[int, int]]:
    """Where clients stop by themselves with seed 0."""
    if method.own_steps is None:
        return []
    clients = Client(alpha, np.asarray(method.gamma), None, np.ones(len(alpha)), len(alpha))
    return [one.own_steps for one in schedule(method, clients, 0, rounds)]


def beta_of(step: float, alpha: Point, mu: Point) -> float:
    """Nesterov's (sqrt(L) - sqrt(mu)) / (sqrt(L) + sqrt(mu)) of the FLIX objective, L = 1/step."""
    L, m = 1 / step, float(np.mean(alpha**2 * mu))
    return float((np.sqrt(L) - np.sqrt(m)) / (np.sqrt(L) + np.sqrt(m)))


FEATURES, HIDDEN, CLASSES, L2 = 4, 5, 3, 0.03
COUNTS = (9, 14, 7, 11, 16)
SHARES = np.array([0.4, 1.0, 0.7, 0.25, 0.9])  # alpha_i
STEPSIZES = np.array([0.15, 0.05, 0.3, 0.1, 0.2])  # gamma_i of Scafflix
STRENGTH = np.full(len(COUNTS), L2)  # what Nesterov's momentum is made for; no theory is claimed


def clients() -> Federation:
    """Clients of unequal size whose labels follow unlike rules."""
    random = np.random.default_rng(11)
    features, labels = [], []
    for count in COUNTS:
        A = random.normal(size=(count, FEATURES))
        features.append(A)
        labels.append((A @ random.normal(size=(FEATURES, CLASSES))).argmax(axis=1))
    offsets = np.concatenate([[0], np.cumsum(COUNTS)])
    part = Examples(np.concatenate(features).astype(np.float32), np.concatenate(labels), offsets)
    return Federation("tiny", tuple(f"client-{i}" for i in range(len(COUNTS))), part, part)


SIZES = (HIDDEN, FEATURES * HIDDEN, CLASSES, HIDDEN * CLASSES)  # in the order of the tree


def backward(x: Point, A: Point, b: NDArray[np.int64]) -> Point:
    """The gradient of mean cross-entropy + (L2/2) ||x||^2 of two layers with a rectifier."""
    bias1, flat1, bias2, flat2 = np.split(x, np.cumsum(SIZES)[:-1])
    W1, W2 = flat1.reshape(FEATURES, HIDDEN), flat2.reshape(HIDDEN, CLASSES)
    z = A @ W1 + bias1
    a = np.maximum(z, 0)
    logits = a @ W2 + bias2
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    d_logits = (odds / odds.sum(axis=1, keepdims=True) - np.eye(CLASSES)[b]) / len(b)
    d_z = (d_logits @ W2.T) * (z > 0)
    parts = (d_z.sum(axis=0), A.T @ d_z, d_logits.sum(axis=0), a.T @ d_logits)
    return np.concatenate([part.ravel() for part in parts]) + L2 * x


def flat(tree: Any) -> Point:
    return np.concatenate([np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(tree)])


BATCH = 6
BATCHES = {"full": Exact(), "minibatch": Minibatch(BATCH)}


@pytest.mark.parametrize(
    ("name", "given", "batches"),
    [(name, given, "full") for name, given in CHOICES]
    + [
        (name, given, "minibatch")
        for name, given in CHOICES
        if given.get("pace") in (None, "cautious") and name not in ("gd", "nesterov")  # exact
    ],
)
def test_rounds_of_sampled_clients_follow_the_papers_lines(
    name: str, given: dict[str, Any], batches: str
) -> None:
    fed, seed, rounds, cohort, p = clients(), 3, 8, 3, 0.4
    n = len(COUNTS)
    problem = sx.Problem(fed, dense(FEATURES, CLASSES, (HIDDEN,)), L2)
    exact = BATCHES[batches]
    constants = Constants(1 / STEPSIZES, STRENGTH, np.full(n, np.inf))
    nothing = np.zeros(n)
    plan = Plan(SHARES, constants, exact, 1 / STEPSIZES, nothing, STEPSIZES, p, None)
    make = METHODS[name]
    method = make(plan, **given, **({"p": p} if "p" in parameters(make) else {}))
    stars = 0.5 * np.random.default_rng(2).normal(size=(n, sum(SIZES))).astype(np.float32)
    made = train(
        problem,
        Personalization(SHARES, stored(problem, stars)),
        method,
        problem.start(0),
        Schedule(rounds=rounds, cohort=cohort, seed=seed, every=rounds),
    )

    draws = streams.uniforms(seed, Stream.COIN, 0, rounds)
    # the coin of line 5 shows 1 with probability p: K = k where (1-p)^k <= u < (1-p)^(k-1)
    geometric = [next(k for k in range(1, 10_000) if (1 - p) ** k <= u) for u in draws]
    once = name in ("gd", "sgd", "nesterov")
    if name in ("scaffold", "fedlin"):
        geometric = [round(1 / p)] * rounds
    if name == "fedlin":
        geometric[::2] = [1] * (rounds // 2)
    if name == "s_local_svrg":
        geometric = [svrg_steps(p, method.settings["q"], r, u) for r, u in enumerate(draws)]
    train_part = fed.train

    def gradient(i: int, r: int, k: int, x: Point) -> Point:
        first, count = int(train_part.offsets[i]), COUNTS[i]
        rows = np.arange(first, first + count)
        if batches == "minibatch":
            key = streams.key(seed, Stream.GRADIENT)
            for place in (r, i, k):
                key = jax.random.fold_in(key, place)
            rows = first + np.asarray(jax.random.randint(key, (BATCH,), 0, count, "int32"))
        A = np.asarray(train_part.features[rows], float)
        return backward(x, A, train_part.labels[rows])

    setting = Setting(
        SHARES,
        np.asarray(method.gamma),
        p,
        given.get("pace"),
        beta_of(method.gamma[0] / SHARES[0] ** 2, SHARES, STRENGTH),
        stars.astype(float),
        gradient,
        [cohort_of(seed, r, np.arange(n), cohort).tolist() for r in range(rounds)],
        [1] * rounds if once else [gradients_a_step(method) * K for K in geometric],
        method.settings,
    )
    assert len({tuple(sorted(c)) for c in setting.cohorts}) > 3
    assert once or name in ("scaffold", "fedlin") or len(set(geometric)) > 2
    start = flat(problem.start(0))
    x, h = REFERENCES[name](setting, start, np.zeros((n, len(start))))
    np.testing.assert_allclose(flat(made.x), x, rtol=3e-5, atol=3e-5)
    assert (made.states is None) == (h is None and name not in REMEMBERING)
    if h is not None:
        found = np.stack([flat(made.states.read(np.array([i]))) for i in range(n)])
        own = found if name == "scafflix" else found / SHARES[:, None]
        np.testing.assert_allclose(own, h, rtol=3e-5, atol=3e-5)
    assert np.abs(x - start).max() > 0.02


def svrg_steps(p: float, q: float, r: int, u: float) -> int:
    """K in round r of S-Local-SVRG: 1 where the coin of an even round, or its being the first, says
    that y is renewed; else by the coin of line 5, with at least 2."""
    if r % 2 == 0:
        if r == 0 or u > 1 - q:
            return 1
        u = u / (1 - q)
    return max(2, next(k for k in range(1, 10_000) if (1 - p) ** k <= u))


def stored(problem: sx.Problem, points: NDArray[np.float32]) -> Any:
    """One flat point a client as the store of trees that training reads."""
    leaves, structure = jax.tree.flatten(problem.template)
    cut = np.split(points, np.cumsum([leaf.size for leaf in leaves])[:-1], axis=1)
    shaped = [
        part.reshape(len(points), *leaf.shape) for part, leaf in zip(cut, leaves, strict=True)
    ]
    store = Store(problem.template, problem.n)
    store.write(np.arange(problem.n), jax.tree.unflatten(structure, shaped))
    return store
