"""Rounds of sampled clients, with the state of every client kept between its turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.cohorts.devices import replicate, spread
from scafflix.cohorts.evaluation import Scores, evaluate
from scafflix.cohorts.problem import NetworkProblem
from scafflix.cohorts.round import Cohort, Played, Settings, play
from scafflix.cohorts.store import Store
from scafflix.engine import streams
from scafflix.engine.compilation import COMPILATIONS
from scafflix.engine.recording import message_bits
from scafflix.engine.run import MOST_ROUNDS
from scafflix.engine.streams import Stream
from scafflix.errors import ScafflixError
from scafflix.gradients import Exact, Minibatch, check_batch
from scafflix.methods.method import Client, Method
from scafflix.models.network import Params
from scafflix.vector import Vector

BLOW_UP = 10.0  # times the loss of guessing, or of the start if that is larger: divergence

Progress = Callable[[int, int, str], None]  # rounds done, of how many, how it stands


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long, with how many clients a round, and when to look."""

    rounds: int
    cohort: int | None = None  # clients a round; None: all
    seed: int = 0
    every: int = 10  # rounds between evaluations
    part: str = "test"  # that evaluations look at
    store: Path | None = None  # a file for the states of the clients; None: memory


class Divergence(NamedTuple):
    """Where a run went wrong; everything kept is from before."""

    round: int
    client: str
    loss: float


class Trained(NamedTuple):
    """Where a run ended; the first entry of every metric is the start."""

    x: Params
    scores: dict[str, Scores]  # of the global and the personal models on the part looked at
    states: Any  # the store of the clients' states, None for a method that remembers nothing
    metrics: dict[str, NDArray[Any]]
    divergence: Divergence | None
    timing: dict[str, float]


def train(
    problem: NetworkProblem,
    method: Method,
    alpha: NDArray[np.float64],
    x_star: Store | None,
    start: Params,
    schedule: Schedule,
    progress: Progress | None = None,
) -> Trained:
    """Run the method; `alpha` and the method's stepsizes are those of all clients."""
    return _Run(problem, method, alpha, x_star, start, schedule).go(progress or (lambda *_: None))


def cohort_of(seed: int, round: int, active: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Who takes part in a round, from the seed and the round alone.

    >>> sorted(cohort_of(0, 3, np.arange(5), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    return streams.generator(seed, Stream.COHORT, round).choice(active, size, replace=False)


class _Run:
    def __init__(
        self,
        problem: NetworkProblem,
        method: Method,
        alpha: NDArray[np.float64],
        x_star: Store | None,
        start: Params,
        schedule: Schedule,
    ) -> None:
        self.problem, self.schedule, self.alpha = problem, schedule, alpha
        self.local_steps = method.local_steps
        self.method: Method = jax.tree.map(np.float32, method)
        self.active = np.flatnonzero(alpha > 0)
        self.size = len(self.active) if schedule.cohort is None else schedule.cohort
        self._check()
        self.x_star = x_star
        self.mixing = None if (alpha[self.active] == 1).all() else x_star  # what rounds read
        if x_star is None and (alpha < 1).any():
            raise ScafflixError("alpha is below 1, but there are no local optima to mix with.")
        self.server = replicate(problem.mesh, self.method.init_server(Vector(start)))
        self.states = self._states(start)
        self.key = streams.key(schedule.seed, Stream.GRADIENT)

    def _check(self) -> None:
        schedule, problem = self.schedule, self.problem
        if not 1 <= schedule.rounds <= MOST_ROUNDS:
            raise ScafflixError(
                f"rounds is {schedule.rounds}; it must be at least 1, at most {MOST_ROUNDS}."
            )
        if not len(self.active):
            raise ScafflixError("Every alpha is 0: nobody takes part, and no round is needed.")
        if not 1 <= self.size <= len(self.active):
            raise ScafflixError(
                f"cohort is {self.size}; it must be at least 1 and at most {len(self.active)}, "
                "the number of clients that take part."
            )
        if schedule.every < 1:
            raise ScafflixError(f"every is {schedule.every}; it must be at least 1.")
        if schedule.part not in problem.parts:
            raise ScafflixError(f"There are no {schedule.part} data to look at.")
        check_batch(self.method.gradient, problem.federation)

    @property
    def _settings(self) -> Settings:
        gradient, problem = self.method.gradient, self.problem
        if isinstance(gradient, Minibatch):
            batch, full = gradient.size, False
        elif isinstance(gradient, Exact):
            batch, full = int(problem.train.counts.max()), True
        else:
            raise ScafflixError("Networks take minibatch or exact gradients, without added noise.")
        return Settings(problem.network, problem.l2, batch, full, problem.mesh)

    def _states(self, start: Params) -> Store | None:
        """Zeros for every client: what a method's `init_client` makes of h = 0."""
        zero = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), start)

        def first(x: Params, h: Params) -> Any:
            return self.method.init_client(Client(1.0, 1.0), Vector(x), Vector(h))

        template = jax.eval_shape(first, zero, zero)
        if not jax.tree.leaves(template):
            self.nothing = template
            return None
        return Store(template, self.problem.n, self.schedule.store, fresh=True)

    def go(self, report: Progress) -> Trained:
        """All rounds, or as many as go well."""
        began, compiled = time.perf_counter(), COMPILATIONS.seconds
        schedule = self.schedule
        draws = streams.uniforms(schedule.seed, Stream.COIN, 0, schedule.rounds)
        steps = np.asarray(self.local_steps(draws))
        first = self._look()
        rows = [{"round": 0, "local_steps": 0, "train_loss": np.nan, **first}]
        limit = BLOW_UP * max(self._guessing(), first[f"{schedule.part}_loss"])
        divergence = None
        for number, many in enumerate(steps.tolist()):
            clients = cohort_of(schedule.seed, number, self.active, self.size)
            played = self._play(clients, many, number)
            loss = np.asarray(played.loss, float)[: self.size]
            if not (played.finite and (loss < limit).all()):
                worst = int(np.argmax(np.where(np.isfinite(loss), loss, np.inf)))
                name = self.problem.federation.clients[clients[worst]]
                divergence = Divergence(number + 1, name, float(loss[worst]))
                break
            self.server = played.server
            if self.states is not None:
                kept = jax.tree.map(lambda leaf: np.asarray(leaf)[: self.size], played.states)
                self.states.write(clients, kept)
            row = {"round": number + 1, "local_steps": many, "train_loss": loss.mean()}
            if (number + 1) % schedule.every == 0 or number + 1 == schedule.rounds:
                row |= self._look()
            rows.append(row)
            report(number + 1, schedule.rounds, f"loss {loss.mean():.3f}")
        if divergence is not None:
            self._look()
        timing = {
            "seconds": time.perf_counter() - began,
            "compile_seconds": COMPILATIONS.seconds - compiled,
        }
        metrics = self._metrics(rows)
        return Trained(self.server.x.tree, self.scores, self.states, metrics, divergence, timing)

    def _play(self, clients: NDArray[np.int64], steps: int, number: int) -> Played:
        filling = -self.size % self.problem.mesh.size
        filled = np.concatenate([clients, np.repeat(clients[:1], filling)])
        cohort = Cohort(
            client=Client(self.alpha[filled].astype(np.float32), self.method.gamma[filled]),
            spans=self.problem.train.spans(filled),
            number=filled.astype(np.int32),
            present=(np.arange(len(filled)) < self.size).astype(np.float32),
        )
        stars = None if self.mixing is None else self.mixing.read(filled)
        states = self.nothing if self.states is None else self.states.read(filled)
        cohort, stars, states = spread(self.problem.mesh, (cohort, stars, states))
        return play(
            self._settings,
            self.problem.train.rows,
            self.method,
            cohort,
            stars,
            states,
            self.server,
            np.int32(steps),
            jax.random.fold_in(self.key, number),
        )

    def _guessing(self) -> float:
        """The loss of a model that knows nothing."""
        rows = self.problem.train.rows
        logits = jax.eval_shape(self.problem.network.apply, self.problem.template, rows.inputs[:1])
        return float(np.log(logits.shape[-1]))

    def _look(self) -> dict[str, float]:
        """The mixtures and the global model on the clients' held-out examples."""
        part, x = self.schedule.part, self.server.x.tree
        personal = evaluate(self.problem, part, x, self.alpha, self.x_star)
        alike = self.x_star is None or (self.alpha == 1).all()
        shared = personal if alike else evaluate(self.problem, part, x)
        self.scores = {"global": shared, "personal": personal}
        return {
            f"{part}_loss": over_examples(personal.loss, personal),
            f"{part}_personal": over_examples(personal.score, personal),
            f"{part}_personal_clients": float(np.nanmean(personal.score)),
            f"{part}_personal_p10": float(np.nanpercentile(personal.score, 10)),
            f"{part}_global": over_examples(shared.score, shared),
        }

    def _metrics(self, rows: list[dict[str, float]]) -> dict[str, NDArray[Any]]:
        metrics = {name: np.array([row.get(name, np.nan) for row in rows]) for name in rows[0]}
        rounds = np.arange(len(rows))
        up, down = message_bits(self.method, self.problem.template)
        return {
            "round": rounds,
            "iterations": np.cumsum(metrics["local_steps"]),
            **{name: values for name, values in metrics.items() if name != "round"},
            "bits_up": rounds * self.size * up,
            "bits_down": rounds * self.size * down,
        }


def over_examples(values: NDArray[np.float64], scores: Scores) -> float:
    """A mean over all examples, from values that are means over each client's."""
    known = scores.entries > 0
    return float(np.average(values[known], weights=scores.entries[known]))
