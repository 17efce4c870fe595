"""Rounds of sampled clients, with the state of every client kept between its turns."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.checkpoint import NOWHERE, Trail
from scafflix.cohorts.ahead import Ahead
from scafflix.cohorts.devices import gather, replicate, spread
from scafflix.cohorts.evaluation import Scores, evaluate
from scafflix.cohorts.layout import Layout
from scafflix.cohorts.problem import NetworkProblem
from scafflix.cohorts.round import Cohort, Played, Settings, play
from scafflix.cohorts.store import Store
from scafflix.durable import Arrays, Facts
from scafflix.engine import streams
from scafflix.engine.compilation import COMPILATIONS
from scafflix.engine.recording import message_bits
from scafflix.engine.run import MOST_ROUNDS
from scafflix.engine.streams import Stream
from scafflix.errors import ScafflixError
from scafflix.gradients import Exact, Minibatch, check_batch
from scafflix.methods.method import Client, Method
from scafflix.models.network import Params
from scafflix.progress import Progress, Standing
from scafflix.vector import Vector

BLOW_UP = 10.0  # times the loss of guessing, or of the start if that is larger: divergence


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
    trail: Trail | None = None,
) -> Trained:
    """Run the method; `alpha` and the method's stepsizes are those of all clients.

    With a trail, goes on from the last checkpoint on it; of a run that had ended, the states of
    the clients are then gone.
    """
    run = _Run(problem, method, alpha, x_star, start, schedule, trail or NOWHERE.trail({}))
    return run.go(progress or (lambda *_: None))


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
        trail: Trail,
    ) -> None:
        self.problem, self.schedule, self.alpha, self.trail = problem, schedule, alpha, trail
        self.local_steps = method.local_steps
        self.method: Method = jax.tree.map(np.float32, method)
        self.active = np.flatnonzero(alpha > 0)
        self.size = len(self.active) if schedule.cohort is None else schedule.cohort
        self.empty = self._empty_state(start)
        self.settings = self._settings()
        self._check()
        self.x_star = x_star
        self.mixing = None if (alpha[self.active] == 1).all() else x_star  # what rounds read
        if x_star is None and (alpha < 1).any():
            raise ScafflixError("alpha is below 1, but there are no local optima to mix with.")
        self.server = replicate(problem.mesh, self.method.init_server(Vector(start)))
        self.bits = message_bits(self.method, problem.template)  # of a client in a round
        self.key = streams.key(schedule.seed, Stream.GRADIENT)
        self.done = 0
        self.rows: list[dict[str, float]] = []  # the start, then one for each round
        self.divergence: Divergence | None = None
        self.seconds = self.compile_seconds = 0.0

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

    def _settings(self) -> Settings:
        gradient, problem = self.method.gradient, self.problem
        if isinstance(gradient, Minibatch):
            batch, full = gradient.size, False
        elif isinstance(gradient, Exact):
            batch, full = int(problem.train.counts.max()), True
        else:
            raise ScafflixError("Networks take minibatch or exact gradients, without added noise.")
        state = Layout.of(self.empty)
        return Settings(problem.network, problem.l2, batch, full, problem.mesh, state)

    def _empty_state(self, start: Params) -> Any:
        """Shapes and types of what a client remembers."""
        zero = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), start)

        def first(x: Params, h: Params) -> Any:
            return self.method.init_client(Client(1.0, 1.0), Vector(x), Vector(h))

        return jax.eval_shape(first, zero, zero)

    def _store(self, *, fresh: bool) -> Store | None:
        """At first zeros for every client: what a method's `init_client` makes of h = 0."""
        if not jax.tree.leaves(self.empty):
            return None
        return Store(self.empty, self.problem.n, self.schedule.store, fresh=fresh)

    def go(self, report: Progress) -> Trained:
        """All rounds, or as many as go well."""
        schedule = self.schedule
        self.began, self.compiled = time.perf_counter(), COMPILATIONS.seconds
        draws = streams.uniforms(schedule.seed, Stream.COIN, 0, schedule.rounds)
        self.steps = np.asarray(self.local_steps(draws))
        if not self.trail.last(self._take):
            self.states = self._store(fresh=True)
            self.rows = [{"train_loss": np.nan, **self._look()}]
        elif self.states is not None:
            self.states.protect(self.trail.journal(self.done))
        guessing = float(np.log(self.problem.classes))
        limit = BLOW_UP * max(guessing, self.rows[0][f"{schedule.part}_loss"])
        stores = [store for store in (self.mixing, self.states) if store is not None]
        self.ahead = Ahead(stores, self.states)
        with self.trail, closing(self.ahead):
            while not self._ended:
                self._round(limit)
                report(self.done, schedule.rounds, self._standing())
                if self.trail.due(self.done, last=self._ended):
                    self._save()
                self.trail.pause()
            self.ahead.settle()
        self.trail.conclude()
        timing = dict(zip(("seconds", "compile_seconds"), self._times(), strict=True))
        metrics, x = self._metrics(), self.server.x.tree
        return Trained(x, self.scores, self.states, metrics, self.divergence, timing)

    def _standing(self) -> Standing:
        part, metric = self.schedule.part, self.problem.network.metric
        looked = next(row for row in reversed(self.rows) if f"{part}_personal" in row)
        values = {
            "loss": self.rows[-1]["train_loss"],
            f"{part} {metric}": looked[f"{part}_personal"],
        }
        steps = int(self.steps[: self.done].sum())
        return Standing(values, self.done * self.size * sum(self.bits), steps * self.size)

    @property
    def _ended(self) -> bool:
        return self.done == self.schedule.rounds or self.divergence is not None

    def _round(self, limit: float) -> None:
        """The next one, unless a client's loss or the model says that it diverges."""
        schedule, number = self.schedule, self.done
        clients = self._clients(number)
        played = self._play(clients, int(self.steps[number]), number)
        if number + 1 < schedule.rounds:
            self.ahead.start(self._clients(number + 1))
        clients = clients[: self.size]
        loss = gather(played.loss).astype(float)[: self.size]
        if not (played.finite and (loss < limit).all()):
            worst = int(np.argmax(np.where(np.isfinite(loss), loss, np.inf)))
            name = self.problem.federation.clients[clients[worst]]
            self.divergence = Divergence(number + 1, name, float(loss[worst]))
            self._look()
            return
        self.server = played.server
        if self.states is not None:
            self.ahead.put(clients, played.states)
        row = {"train_loss": loss.mean()}
        if (number + 1) % schedule.every == 0 or number + 1 == schedule.rounds:
            row |= self._look()
        self.rows.append(row)
        self.done = number + 1

    def _clients(self, number: int) -> NDArray[np.int64]:
        """The cohort of a round, and its first client again to fill up the devices."""
        chosen = cohort_of(self.schedule.seed, number, self.active, self.size)
        filling = -self.size % self.problem.mesh.size
        return np.concatenate([chosen, np.repeat(chosen[:1], filling)])

    def _times(self) -> tuple[float, float]:
        """Seconds of all processes that had a part in it, and of these, compiling."""
        now, compiled = time.perf_counter(), COMPILATIONS.seconds
        return (
            self.seconds + now - self.began,
            self.compile_seconds + compiled - self.compiled,
        )

    def _save(self) -> None:
        """A checkpoint; the states of the clients are of no use after the end."""
        columns = self._columns()
        facts = {
            "columns": list(columns),
            "times": self._times(),
            "divergence": self.divergence and [str(fact) for fact in self.divergence],
        }
        arrays = [np.array(list(columns.values())), np.array([*self.scores.values()])]
        arrays += [np.asarray(leaf) for leaf in jax.tree.leaves(self.server)]
        remember = self.states is not None and not self._ended
        if self.states is not None and remember:
            self.ahead.settle()
            arrays.append(self.states.snapshot())
        self.trail.save(self.done, facts, tuple(arrays))
        if self.states is not None and remember:
            self.states.protect(self.trail.journal(self.done))

    def _take(self, done: int, facts: Facts, arrays: Arrays) -> None:
        """Go on from a checkpoint; nothing changes if its states are not whole."""
        table, scores, *rest = arrays
        leaves, structure = jax.tree.flatten(self.server)
        self.states = None
        if len(rest) > len(leaves):
            self.states = self._store(fresh=False)
            assert self.states is not None
            self.states.restore(rest[-1], self.trail.journals(done))
        server = jax.tree.unflatten(structure, rest[: len(leaves)])
        self.server = replicate(self.problem.mesh, server)
        self.done = done
        self.rows = [dict(zip(facts["columns"], row, strict=True)) for row in table.T.tolist()]
        self.seconds, self.compile_seconds = facts["times"]
        kinds = (Scores(*values) for values in scores)
        self.scores = dict(zip(("global", "personal"), kinds, strict=True))
        if facts["divergence"] is not None:
            at, client, loss = facts["divergence"]
            self.divergence = Divergence(int(at), client, float(loss))

    def _play(self, clients: NDArray[np.int64], steps: int, number: int) -> Played:
        cohort = Cohort(
            client=Client(self.alpha[clients].astype(np.float32), self.method.gamma[clients]),
            spans=self.problem.train.spans(clients),
            number=clients.astype(np.int32),
            present=(np.arange(len(clients)) < self.size).astype(np.float32),
        )
        rows = self.ahead.take(clients)
        stars = None if self.mixing is None else rows.pop(0)
        states = rows.pop() if rows else np.zeros((len(clients), 0), np.float32)
        cohort, stars, states = spread(self.problem.mesh, (cohort, stars, states))
        return play(
            self.settings,
            self.problem.train.rows,
            self.method,
            cohort,
            stars,
            states,
            self.server,
            np.int32(steps),
            jax.random.fold_in(self.key, number),
        )

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

    def _columns(self) -> dict[str, NDArray[np.float64]]:
        """What was measured, NaN where it was not."""
        names = self.rows[0]
        return {name: np.array([row.get(name, np.nan) for row in self.rows]) for name in names}

    def _metrics(self) -> dict[str, NDArray[Any]]:
        rounds = np.arange(len(self.rows))
        steps = np.concatenate([np.zeros(1, int), self.steps[: self.done]])
        up, down = self.bits
        return {
            "round": rounds,
            "iterations": np.cumsum(steps),
            "local_steps": steps,
            **self._columns(),
            "bits_up": rounds * self.size * up,
            "bits_down": rounds * self.size * down,
        }


def over_examples(values: NDArray[np.float64], scores: Scores) -> float:
    """A mean over all examples, from values that are means over each client's."""
    known = scores.entries > 0
    return float(np.average(values[known], weights=scores.entries[known]))
