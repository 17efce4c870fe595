"""The methods whose clients have models of their own once more, from the papers' lines, in plain
NumPy with loops over clients. They share no code with the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Point = NDArray[np.float64]


class Rounds(NamedTuple):
    """The functions, the rounds, and the numbers that a method has."""

    gradient: Callable[[int, int, int, Point], Point]  # (client, round, step, x) -> grad f~_i(x)
    clients: int
    cohorts: Sequence[Sequence[int]]  # who takes part in each round
    local_steps: Sequence[int]
    step: float  # gamma, on the f~_i
    settings: Mapping[str, Any]

    @property
    def eta(self) -> float:
        """The stepsize on f~_i + (lambda/2) ||. - x||^2."""
        return 1 / (1 / self.step + self.settings["pull"])


class Found(NamedTuple):
    """The model of all, and each client's own."""

    x: Point
    own: Point


def ditto(rounds: Rounds, x: Point) -> Found:
    """Algorithm 1 of Li et al. (2021), with FedAvg for the model of all."""
    v = [x] * rounds.clients
    for r, cohort in enumerate(rounds.cohorts):
        sent = []
        for i in cohort:
            x_i = x
            for k in range(rounds.local_steps[r]):
                pull = rounds.settings["pull"] * (v[i] - x)
                v[i] = v[i] - rounds.eta * (rounds.gradient(i, r, k, v[i]) + pull)
                x_i = x_i - rounds.step * rounds.gradient(i, r, k, x_i)
            sent.append(x_i)
        x = sum(sent) / len(sent)
    return Found(x, np.array(v))


def mr_mtl(rounds: Rounds, x: Point) -> Found:
    """Mean-regularized multi-task learning as Liu et al. (2022) have it."""
    w = [x] * rounds.clients
    for r, cohort in enumerate(rounds.cohorts):
        for i in cohort:
            for k in range(rounds.local_steps[r]):
                pull = rounds.settings["pull"] * (w[i] - x)
                w[i] = w[i] - rounds.eta * (rounds.gradient(i, r, k, w[i]) + pull)
        x = sum(w[i] for i in cohort) / len(cohort)
    return Found(x, np.array(w))


def pfedme(rounds: Rounds, w: Point) -> Found:
    """Algorithm 1 of Dinh et al. (2020)."""
    pull, inner, beta = (rounds.settings[name] for name in ("pull", "inner", "beta"))
    own = [w] * rounds.clients
    for r, cohort in enumerate(rounds.cohorts):
        sent = []
        for i in cohort:
            w_i = theta = w
            for update in range(rounds.local_steps[r] // inner):
                for k in range(inner):
                    g = rounds.gradient(i, r, update * inner + k, theta)
                    theta = theta - rounds.eta * (g + pull * (theta - w_i))
                w_i = w_i - rounds.eta * pull * (w_i - theta)
            sent.append(w_i)
            own[i] = theta
        w = (1 - beta) * w + beta * sum(sent) / len(sent)
    return Found(w, np.array(own))


def apfl(rounds: Rounds, w: Point) -> Found:
    """Algorithm 1 of Deng et al. (2020), with alpha_i in every step as their rule for it says."""
    gamma, adapt = rounds.step, rounds.settings["adapt"]
    v, alpha = [w] * rounds.clients, np.full(rounds.clients, float(rounds.settings["weight"]))
    for r, cohort in enumerate(rounds.cohorts):
        sent = []
        for i in cohort:
            w_i = w
            for k in range(rounds.local_steps[r]):
                g = rounds.gradient(i, r, k, alpha[i] * v[i] + (1 - alpha[i]) * w_i)
                slope = np.sum(g * (v[i] - w_i))
                w_i = w_i - gamma * rounds.gradient(i, r, k, w_i)
                v[i] = v[i] - gamma * alpha[i] * g
                alpha[i] = np.clip(alpha[i] - adapt * gamma * slope, 0, 1)
            sent.append(w_i)
        w = sum(sent) / len(sent)
    return Found(w, np.array([a * v_i + (1 - a) * w for a, v_i in zip(alpha, v, strict=True)]))


def l2gd(rounds: Rounds, x: Point) -> Found:
    """Algorithm 1 of Hanzely and Richtarik (2020), from one 1 of the coin to the next."""
    pull, p, n = rounds.settings["pull"], rounds.settings["p"], rounds.clients
    a = rounds.step * n * (1 - p)
    own = [x] * n
    for r, cohort in enumerate(rounds.cohorts):
        for i in cohort:
            for k in range(rounds.local_steps[r] - 1):  # the coin shows 0
                own[i] = own[i] - a / (n * (1 - p)) * rounds.gradient(i, r, k, own[i])
        x = sum(own[i] for i in cohort) / len(cohort)
        for i in cohort:  # the coin shows 1
            weight = a * pull / (n * p)
            own[i] = (1 - weight) * own[i] + weight * x
    return Found(x, np.array(own))


def averaged(rounds: Rounds, x: Point, train: Callable[[int, int, int, Point], Point]) -> Point:
    """FedAvg of McMahan et al. (2017), whatever a client does in step k of round r."""
    for r, cohort in enumerate(rounds.cohorts):
        sent = []
        for i in cohort:
            x_i = x
            for k in range(rounds.local_steps[r]):
                x_i = train(i, r, k, x_i)
            sent.append(x_i)
        x = sum(sent) / len(sent)
    return x


def finetuning(rounds: Rounds, x: Point) -> Found:
    """FedAvg, and steps of each client's own from where it ends."""
    steps, rate = rounds.settings["tuning_steps"], rounds.settings["tuning_stepsize"]
    x = averaged(rounds, x, lambda i, r, k, x_i: x_i - rounds.step * rounds.gradient(i, r, k, x_i))
    own = [x] * rounds.clients
    for i in range(rounds.clients):
        for k in range(steps):
            own[i] = own[i] - rate * rounds.gradient(i, len(rounds.cohorts), k, own[i])
    return Found(x, np.array(own))


def per_fedavg(rounds: Rounds, w: Point) -> Found:
    """Algorithm 1 of Fallah et al. (2020) without the Hessian, and w - alpha grad f_i(w)."""
    alpha = rounds.settings["a"]
    halved = rounds._replace(local_steps=[K // 2 for K in rounds.local_steps])

    def train(i: int, r: int, k: int, w_i: Point) -> Point:
        ahead = w_i - alpha * rounds.gradient(i, r, 2 * k, w_i)
        return w_i - rounds.step * rounds.gradient(i, r, 2 * k + 1, ahead)

    w, last = averaged(halved, w, train), len(rounds.cohorts)
    own = [w - alpha * rounds.gradient(i, last, 0, w) for i in range(rounds.clients)]
    return Found(w, np.array(own))


def fedper(rounds: Rounds, x: Point) -> Found:
    """Algorithms 1 and 2 of Arivazhagan et al. (2019); `own` marks the personalization layers."""
    return heads(rounds, x, lambda k: 1.0, lambda k: 1.0)


def fedrep(rounds: Rounds, x: Point) -> Found:
    """Algorithm 1 of Collins et al. (2021)."""
    first = rounds.settings["head_steps"]
    return heads(rounds, x, lambda k: float(k < first), lambda k: float(k >= first))


def heads(
    rounds: Rounds, x: Point, head: Callable[[int], float], rest: Callable[[int], float]
) -> Found:
    """FedAvg of what is not a client's own, with these parts of the stepsize in step k."""
    mask, own = rounds.settings["own"], [x] * rounds.clients
    for r, cohort in enumerate(rounds.cohorts):
        sent = []
        for i in cohort:
            x_i = np.where(mask, own[i], x)
            for k in range(rounds.local_steps[r]):
                step = rounds.step * np.where(mask, head(k), rest(k))
                x_i = x_i - step * rounds.gradient(i, r, k, x_i)
            own[i] = x_i
            sent.append(x_i)
        x = np.where(mask, x, sum(sent) / len(sent))
    return Found(x, np.where(mask, np.array(own), x))


# the model of all is not to be FLIX's optimum
OTHER_OBJECTIVES = ("mr_mtl", "pfedme", "l2gd", "per_fedavg")
PERSONALIZERS = {
    made.__name__: made for made in (ditto, mr_mtl, pfedme, apfl, l2gd, finetuning, per_fedavg)
}
