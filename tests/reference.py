"""The papers' algorithms once more, in plain NumPy with loops over clients.

Written from the papers' lines and sharing no code with the package, so that the two can be held
against each other. A point is an array of any shape; a list has one entry for each client. The
coin theta^0, theta^1, ... is an argument, so that a reference can follow the coin of the package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Point = NDArray[np.float64]
Gradient = Callable[[Point], Point]


class Function(NamedTuple):
    """A smooth function by its value and its gradient."""

    value: Callable[[Point], float]
    gradient: Gradient


def logistic(A: Point, b: Point, l2: float) -> Function:
    """(1/m) sum_j log(1 + exp(-b_j <a_j, x>)) + (l2/2) ||x||^2, labels b_j in {-1, 1}."""

    def value(x: Point) -> float:
        return float(np.mean(np.logaddexp(0.0, -b * (A @ x))) + l2 / 2 * np.sum(x**2))

    def gradient(x: Point) -> Point:
        return A.T @ (-b / (1 + np.exp(b * (A @ x)))) / len(b) + l2 * x

    return Function(value, gradient)


def softmax(A: Point, b: Point, l2: float, classes: int = 3) -> Function:
    """(1/m) sum_j -log(probability of class b_j) + (l2/2) ||X||^2, for X [dim, classes]."""
    own = np.eye(classes)[b.astype(int)]

    def probabilities(X: Point) -> Point:
        E = np.exp(A @ X)
        return E / E.sum(axis=1, keepdims=True)

    def value(X: Point) -> float:
        chosen = np.sum(own * np.log(probabilities(X)), axis=1)
        return float(-np.mean(chosen) + l2 / 2 * np.sum(X**2))

    def gradient(X: Point) -> Point:
        return A.T @ (probabilities(X) - own) / len(b) + l2 * X

    return Function(value, gradient)


def linear(A: Point, b: Point, l2: float) -> Function:
    """(1/2m) sum_j (<a_j, x> - b_j)^2 + (l2/2) ||x||^2."""

    def value(x: Point) -> float:
        return float(np.mean((A @ x - b) ** 2) / 2 + l2 / 2 * np.sum(x**2))

    def gradient(x: Point) -> Point:
        return A.T @ (A @ x - b) / len(b) + l2 * x

    return Function(value, gradient)


FUNCTIONS = {"logistic": logistic, "softmax": softmax, "linear": linear}


def mixed(f: Function, alpha: float, x_star: Point) -> Function:
    """f~(x) = f(alpha x + (1 - alpha) x*)."""
    return Function(
        lambda x: f.value(alpha * x + (1 - alpha) * x_star),
        lambda x: alpha * f.gradient(alpha * x + (1 - alpha) * x_star),
    )


def average(functions: Sequence[Function]) -> Function:
    """(1/n) sum_i f_i."""
    n = len(functions)
    return Function(
        lambda x: sum(f.value(x) for f in functions) / n,
        lambda x: sum(f.gradient(x) for f in functions) / n,
    )


def minimizer(f: Function, shape: tuple[int, ...]) -> Point:
    """By SciPy's L-BFGS, to about eight digits."""
    found = minimize(
        lambda x: f.value(x.reshape(shape)),
        np.zeros(int(np.prod(shape))),
        jac=lambda x: f.gradient(x.reshape(shape)).ravel(),
        method="L-BFGS-B",
        options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 5000, "maxfun": 50000, "maxcor": 30},
    )
    return found.x.reshape(shape)


def coin(local_steps: Iterable[int]) -> list[int]:
    """theta^t of rounds with so many local steps: 0 until the last step of a round, then 1."""
    return [theta for K in local_steps for theta in [0] * (int(K) - 1) + [1]]


ELSEWHERE = {
    "five_gcs": "test_five_gcs.py",
    "locodl": "test_locodl.py",
    "tamuna": "test_tamuna.py",
    "compressed_scaffnew": "test_tamuna.py",
    **dict.fromkeys(("fedper", "fedrep", "fedbn"), "test_own_arrays.py"),
}
"""Methods that are compared in a file of their own with a reference that is there."""


class Iterate(NamedTuple):
    """x_i^t and h_i^t, with the clients in front."""

    x: Point
    h: Point


def scafflix(
    gradients: Sequence[Gradient],
    x_star: Sequence[Point],
    alpha: Sequence[float],
    gammas: Sequence[float],
    p: float,
    x0: Point,
    h0: Sequence[Point],
    thetas: Sequence[int],
) -> list[Iterate]:
    """Algorithm 1; `gradients` estimate grad f_i. Every iterate, the first included."""
    n = len(gradients)
    x = [np.array(x0) for _ in range(n)]
    h = [np.array(h0[i]) for i in range(n)]
    gamma = 1 / (sum(alpha[i] ** 2 / gammas[i] for i in range(n)) / n)  # step 2
    iterates = [Iterate(np.array(x), np.array(h))]
    for theta in thetas:
        x_hat = []
        for i in range(n):
            x_tilde = alpha[i] * x[i] + (1 - alpha[i]) * x_star[i]  # step 7
            g = gradients[i](x_tilde)  # step 8
            x_hat.append(x[i] - gammas[i] / alpha[i] * (g - h[i]))  # step 9
        if theta == 1:
            x_bar = gamma / n * sum(alpha[j] ** 2 / gammas[j] * x_hat[j] for j in range(n))
            for i in range(n):
                x[i] = x_bar  # step 12
                h[i] = h[i] + p * alpha[i] / gammas[i] * (x_bar - x_hat[i])  # step 13
        else:
            x = x_hat  # step 15
        iterates.append(Iterate(np.array(x), np.array(h)))
    return iterates


def i_scaffnew(
    gradients: Sequence[Gradient],
    gammas: Sequence[float],
    p: float,
    x0: Point,
    h0: Sequence[Point],
    thetas: Sequence[int],
) -> list[Iterate]:
    """Algorithm 2."""
    n = len(gradients)
    x = [np.array(x0) for _ in range(n)]
    h = [np.array(h0[i]) for i in range(n)]
    gamma = 1 / (sum(1 / gammas[i] for i in range(n)) / n)  # step 2
    iterates = [Iterate(np.array(x), np.array(h))]
    for theta in thetas:
        x_hat = [x[i] - gammas[i] * (gradients[i](x[i]) - h[i]) for i in range(n)]  # steps 6, 7
        if theta == 1:
            x_bar = gamma / n * sum(1 / gammas[j] * x_hat[j] for j in range(n))  # step 9
            for i in range(n):
                x[i] = x_bar  # step 10
                h[i] = h[i] + p / gammas[i] * (x_bar - x_hat[i])  # step 11
        else:
            x = x_hat  # step 13
        iterates.append(Iterate(np.array(x), np.array(h)))
    return iterates


def scaffnew(
    gradients: Sequence[Gradient],
    gamma: float,
    p: float,
    x0: Point,
    h0: Sequence[Point],
    thetas: Sequence[int],
) -> list[Iterate]:
    """Algorithm 2 of Mishchenko et al. (2022): one stepsize, a plain average."""
    n = len(gradients)
    x = [np.array(x0) for _ in range(n)]
    h = [np.array(h0[i]) for i in range(n)]
    iterates = [Iterate(np.array(x), np.array(h))]
    for theta in thetas:
        x_hat = [x[i] - gamma * (gradients[i](x[i]) - h[i]) for i in range(n)]
        x = [sum(x_hat) / n] * n if theta == 1 else x_hat
        h = [h[i] + p / gamma * (x[i] - x_hat[i]) for i in range(n)]
        iterates.append(Iterate(np.array(x), np.array(h)))
    return iterates


def gradskip(
    gradients: Sequence[Gradient],
    gammas: Sequence[float],
    p: float,
    x0: Point,
    h0: Sequence[Point],
    thetas: Sequence[int],
    etas: Sequence[Sequence[int]],
) -> list[Iterate]:
    """Algorithm 1 of Maranjyan et al. (2022) with weights 1/gamma_i; eta has each client's coin."""
    n = len(gradients)
    x, h = [np.array(x0) for _ in range(n)], [np.array(one) for one in h0]
    total = sum(1 / gamma for gamma in gammas)
    iterates = [Iterate(np.array(x), np.array(h))]
    for theta, eta in zip(thetas, etas, strict=True):
        g = [gradients[i](x[i]) for i in range(n)]
        h_hat = [eta[i] * h[i] + (1 - eta[i]) * g[i] for i in range(n)]
        x_hat = [x[i] - gammas[i] * (g[i] - h_hat[i]) for i in range(n)]
        sent = [x_hat[i] - gammas[i] / p * h_hat[i] for i in range(n)]
        mean = sum(sent[i] / gammas[i] for i in range(n)) / total
        x = [mean] * n if theta == 1 else x_hat
        h = [h_hat[i] + p / gammas[i] * (x[i] - x_hat[i]) for i in range(n)]
        iterates.append(Iterate(np.array(x), np.array(h)))
    return iterates


def scaffold(
    gradients: Sequence[Gradient],
    stepsizes: Sequence[float],
    x0: Point,
    c0: Sequence[Point],
    local_steps: Sequence[int],
) -> list[Iterate]:
    """Algorithm 1 of Karimireddy et al. (2020), everybody, c_i+ as the mean of the gradients of
    the local steps, which is what option II amounts to; every round, the first included."""
    n, x, c_i = len(gradients), np.array(x0), [np.array(c) for c in c0]
    iterates = [Iterate(np.array([x] * n), np.array(c_i))]
    for K in local_steps:
        y = [x] * n
        c, total = sum(c_i) / sum(1 / s for s in stepsizes), [0 * x] * n
        for _ in range(K):
            g = [gradients[i](y[i]) for i in range(n)]
            y = [y[i] - stepsizes[i] * (g[i] - c_i[i]) - c for i in range(n)]
            total = [total[i] + g[i] for i in range(n)]
        x = sum(y[i] / stepsizes[i] for i in range(n)) / sum(1 / s for s in stepsizes)
        c_i = [total[i] / K for i in range(n)]
        iterates.append(Iterate(np.array([x] * n), np.array(c_i)))
    return iterates


def fedlin(
    gradients: Sequence[Gradient],
    stepsizes: Sequence[float],
    x0: Point,
    c0: Sequence[Point],
    local_steps: Sequence[int],
) -> list[Iterate]:
    """Algorithm 1 of Mitra et al. (2021) without sparsification, in the metric with weights 1/s_i:
    an exchange of gradients at x, then K steps; every exchange, the first included."""
    n, x, c_i = len(gradients), np.array(x0), [np.array(c) for c in c0]
    inverse = sum(1 / s for s in stepsizes)
    iterates = [Iterate(np.array([x] * n), np.array(c_i))]
    for K in local_steps[1::2]:
        c_i = [gradient(x) for gradient in gradients]
        iterates.append(Iterate(np.array([x] * n), np.array(c_i)))
        y = [x] * n
        for _ in range(K):
            y = [
                y[i] - stepsizes[i] * (gradients[i](y[i]) - c_i[i]) - sum(c_i) / inverse
                for i in range(n)
            ]
        x = sum(y[i] / stepsizes[i] for i in range(n)) / inverse
        iterates.append(Iterate(np.array([x] * n), np.array(c_i)))
    return iterates


def s_local_svrg(
    gradients: Sequence[Gradient],
    stepsizes: Sequence[float],
    x0: Point,
    c0: Sequence[Point],
    local_steps: Sequence[int],
) -> list[Iterate]:
    """S-Local-SVRG of Gorbunov et al. (2021) with whole gradients, in the metric with weights
    1/s_i: a round of one step is an exchange of gradients at the new y; every round."""
    n, x, y = len(gradients), np.array(x0), np.array(x0)
    inverse = sum(1 / s for s in stepsizes)
    iterates = [Iterate(np.array([x] * n), np.array(c0))]
    for K in local_steps:
        if K == 1:
            y = x
        else:
            x_i = [x] * n
            for _ in range(K):
                shift = sum(gradient(y) for gradient in gradients) / inverse
                x_i = [
                    x_i[i] - stepsizes[i] * (gradients[i](x_i[i]) - gradients[i](y)) - shift
                    for i in range(n)
                ]
            x = sum(x_i[i] / stepsizes[i] for i in range(n)) / inverse
        here = np.array([gradient(y) for gradient in gradients])
        iterates.append(Iterate(np.array([x] * n), here))
    return iterates


def feddyn(
    gradients: Sequence[Gradient],
    stepsizes: Sequence[float],
    pull: float,
    x0: Point,
    h0: Sequence[Point],
    local_steps: Sequence[int],
) -> list[Iterate]:
    """Algorithm 1 of Acar et al. (2021), everybody, gradient steps on f_i - <h_i, .> +
    (a_i/2) ||. - x||^2 with a_i = pull / s_i; every round, the first included."""
    n, x, h = len(gradients), np.array(x0), [np.array(one) for one in h0]
    a = [pull / s for s in stepsizes]
    iterates = [Iterate(np.array([x] * n), np.array(h))]
    for K in local_steps:
        y = [x] * n
        for _ in range(K):
            slope = [gradients[i](y[i]) - h[i] + a[i] * (y[i] - x) for i in range(n)]
            y = [y[i] - stepsizes[i] * slope[i] for i in range(n)]
        h = [h[i] - a[i] * (y[i] - x) for i in range(n)]
        x = (sum(a[i] * y[i] for i in range(n)) - sum(h)) / sum(a)
        iterates.append(Iterate(np.array([x] * n), np.array(h)))
    return iterates


def fedavg(
    gradients: Sequence[Gradient], gamma: float, x0: Point, thetas: Sequence[int]
) -> list[Iterate]:
    """Local gradient steps, and a plain average where the coin says so; h stays 0."""
    n = len(gradients)
    x = [np.array(x0) for _ in range(n)]
    h = np.zeros((n, *np.shape(x0)))
    iterates = [Iterate(np.array(x), h)]
    for theta in thetas:
        x = [x[i] - gamma * gradients[i](x[i]) for i in range(n)]
        if theta == 1:
            x = [sum(x) / n] * n
        iterates.append(Iterate(np.array(x), h))
    return iterates


def fedprox(
    gradients: Sequence[Gradient], gamma: float, pull: float, x0: Point, local_steps: Sequence[int]
) -> list[Point]:
    """Local gradient steps on f_i + (pull/2) ||. - x||^2, and a plain average x of where they end;
    the model after every round, the first included."""
    points = [np.array(x0)]
    for K in local_steps:
        ends = []
        for gradient in gradients:
            y = points[-1]
            for _ in range(K):
                y = y - gamma * (gradient(y) + pull * (y - points[-1]))
            ends.append(y)
        points.append(sum(ends) / len(ends))
    return points


def gd(gradient: Gradient, gamma: float, x0: Point, steps: int) -> list[Point]:
    """x <- x - gamma grad f(x)."""
    points = [np.array(x0)]
    for _ in range(steps):
        points.append(points[-1] - gamma * gradient(points[-1]))
    return points


def sgd(
    gradients: Sequence[Gradient], alpha: Sequence[float], gamma: float, x0: Point, steps: int
) -> list[Point]:
    """x <- x - gamma (1/n) sum_i alpha_i g_i; the gradients take x and estimate grad f_i(x~_i)."""
    n = len(gradients)
    points = [np.array(x0)]
    for _ in range(steps):
        step = sum(alpha[i] * gradients[i](points[-1]) for i in range(n)) / n
        points.append(points[-1] - gamma * step)
    return points


def nesterov(gradient: Gradient, gamma: float, mu: float, x0: Point, steps: int) -> list[Point]:
    """Scheme 2.2.11 of Nesterov's lectures (2004), with L = 1/gamma."""
    L = 1 / gamma
    beta = (np.sqrt(L) - np.sqrt(mu)) / (np.sqrt(L) + np.sqrt(mu))
    points, y = [np.array(x0)], np.array(x0)
    for _ in range(steps):
        points.append(y - gradient(y) / L)
        y = points[-1] + beta * (points[-1] - points[-2])
    return points


def lyapunov(
    iterate: Iterate,
    alpha: Sequence[float],
    gammas: Sequence[float],
    p: float,
    x_optimal: Point,
    h_optimal: Sequence[Point],
) -> float:
    """Psi^t of Theorem 2; x~_i^t - x~_i* = alpha_i (x_i^t - x*)."""
    n = len(alpha)
    first = sum(
        min(gammas) / gammas[i] * alpha[i] ** 2 * np.sum((iterate.x[i] - x_optimal) ** 2)
        for i in range(n)
    )
    second = sum(gammas[i] * np.sum((iterate.h[i] - h_optimal[i]) ** 2) for i in range(n))
    return float(first / n + min(gammas) / p**2 * second / n)
