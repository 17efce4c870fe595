"""Rounds of sampled clients, with the state of every client kept between its turns."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.core import streams
from scafflix.core.checkpoint import NOWHERE, Trail
from scafflix.core.compilation import COMPILATIONS
from scafflix.core.durable import Arrays, Facts
from scafflix.core.progress import Progress, Standing
from scafflix.core.sharing import gather
from scafflix.core.store import Store
from scafflix.core.streams import Stream
from scafflix.core.types import Floats
from scafflix.core.vector import Vector
from scafflix.gradients import check_batch
from scafflix.methods.method import Client, Method
from scafflix.models.network import Params
from scafflix.personalization.flix import Optimum
from scafflix.personalization.personalize import Personalization
from scafflix.problems.evaluation import Examined
from scafflix.problems.problem import Problem
from scafflix.simulate.batch import own_steps, steps_of, uniforms
from scafflix.simulate.bits import message_bits
from scafflix.simulate.looking import LinearLooks, Looks, NetworkLooks
from scafflix.simulate.prefetch import Ahead
from scafflix.simulate.recording import Divergence, over_all
from scafflix.simulate.round import Asked, Cohort, Compiled, Played, Rounds
from scafflix.simulate.schedule import Schedule, check_sampled, check_schedule
from scafflix.simulate.watching import NOBODY, Watcher

INIT_AT_ONCE = 2**24  # numbers of the states that are made together at the start
BLOW_UP = 10.0  # times the loss of guessing, or of the start if that is larger: divergence


class Trained(NamedTuple):
    """Where a run ended; the first entry of every metric is the start."""

    x: Params
    # what the global and the personal models made of the part looked at
    examined: dict[str, Examined]
    states: Any  # the store of the clients' states, None for a method that remembers nothing
    metrics: dict[str, NDArray[Any]]  # without what follows from the schedule
    local_steps: NDArray[np.int64]
    divergence: Divergence | None
    timing: dict[str, float]


def train(
    problem: Problem,
    person: Personalization,
    method: Method,
    start: Params,
    schedule: Schedule,
    optimum: Optimum | None = None,
    progress: Progress | None = None,
    trail: Trail | None = None,
    watcher: Watcher = NOBODY,
) -> Trained:
    """Rounds of sampled clients. Where the FLIX optimum is known, each look measures the gap to
    it, the gradient and Psi; of a network, how good its models are on held-out examples.

    With a trail, goes on from the last checkpoint on it; of a run that had ended, the states of
    the clients are then gone, unless clients take home something of them.
    """
    trail = trail or NOWHERE.trail({})
    run = _Run(problem, person, method, start, schedule, optimum, trail, watcher)
    return run.go(progress or (lambda *_: None))


def cohort_of(seed: int, round: int, active: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Who takes part in a round, from the seed and the round alone.

    >>> sorted(cohort_of(0, 3, np.arange(5), 5).tolist())
    [0, 1, 2, 3, 4]
    """
    return streams.generator(seed, Stream.COHORT, round).choice(active, size, replace=False)


@jax.jit
def _first_states(init_client: Any, clients: Client, x0: Vector) -> Any:
    return jax.vmap(init_client, (0, None, None))(clients, x0, 0 * x0)


class _Run:
    def __init__(
        self,
        problem: Problem,
        person: Personalization,
        method: Method,
        start: Params,
        schedule: Schedule,
        optimum: Optimum | None,
        trail: Trail,
        watcher: Watcher,
    ) -> None:
        check_schedule(schedule, person.alpha, problem.federation, problem.linear)
        check_batch(method.gradient, problem.federation, person.active)
        self.problem, self.schedule, self.trail = problem, schedule, trail
        self.watcher = watcher
        self.start, self.dtype = start, problem.dtype
        self.active = person.active
        self.size = len(self.active) if schedule.cohort is None else schedule.cohort
        # each client brings its stepsize, whoever else takes part
        common = replace(method, gamma=None, limit=None)
        self.method: Method = jax.tree.map(self.dtype.type, common)
        self.everyone = self._everyone(person.alpha, method.gamma)
        self.empty = self._empty_state()
        check_sampled(self.method.gradient, "zero")
        self.rounds = self._rounds()
        x_star = person.store(problem)
        those = (problem, person, self.method, self.everyone)
        self.looks: Looks
        if problem.linear:
            assert optimum is not None
            self.looks = LinearLooks(*those, self.empty, optimum)
        else:
            self.looks = NetworkLooks(*those, x_star, schedule)
        # what rounds read
        self.mixing = None if (person.alpha[self.active] == 1).all() else x_star
        self.server = self.rounds.begin(start)
        # of a client in a round
        self.bits = message_bits(self.method, problem.template, self.size)
        self.steps = steps_of(method, schedule.seed, 0, schedule.rounds)
        self.done = 0
        self.rows: list[dict[str, float]] = []  # the start, then one for each round
        self.examined: dict[str, Examined] = {}
        self.states: Store | None = None
        self.divergence: Divergence | None = None
        self.seconds = self.compile_seconds = 0.0  # of the processes that came here before
        self.began, self.compiled = time.perf_counter(), COMPILATIONS.seconds

    def _rounds(self) -> Rounds:
        """How they are computed."""
        asked = (self.problem, self.method, self.empty, self.size, self.schedule.seed)
        if self.problem.torch is None:
            return Compiled(*asked)
        from scafflix.simulate.torch_round import InTorch

        return InTorch(*asked)

    def _empty_state(self) -> Any:
        """Shapes and types of what a client remembers."""

        def first(x: Params, h: Params) -> Any:
            return self.method.init_client(Client(1.0, 1.0, Vector(x)), Vector(x), Vector(h))

        return jax.eval_shape(first, self.problem.template, self.problem.template)

    def _store(self, *, fresh: bool) -> Store | None:
        """A state for every client, zeros at first."""
        if not jax.tree.leaves(self.empty):
            return None
        return Store(self.empty, self.problem.n, self.schedule.store, fresh=fresh)

    def _start_states(self) -> Store | None:
        """Line 1 at every client that takes part: what `init_client` makes of h = 0."""
        store = self._store(fresh=True)
        if store is None:
            return None
        at_once = min(self.problem.n, max(1, INIT_AT_ONCE // store.width))
        for first in range(0, len(self.active), at_once):
            # as many every time, some of them again: compiled once
            some = np.resize(self.active[first : first + at_once], at_once)
            stars = None if self.mixing is None else Vector(self.mixing.read(some))
            clients = self._clients_of(some)._replace(x_star=stars)
            states = _first_states(self.method.init_client, clients, Vector(self.start))
            states = jax.tree.map(np.asarray, states)
            # most methods start at zero, as the store does, and a file of zeros is not written
            if any(leaf.any() for leaf in jax.tree.leaves(states)):
                store.write(some, states)
        return store

    def _everyone(self, alpha: Floats, stepsizes: Any) -> Client:
        """What the method knows of every client, without the local optima."""
        gamma = np.ones(self.problem.n)  # of one that does not take part, any
        gamma[self.active] = stepsizes
        numbers = np.full(self.problem.n, len(self.active))
        known = Client(alpha, gamma, None, self.problem.train.counts, numbers)
        made: Client = jax.tree.map(lambda leaf: leaf.astype(self.dtype), known)
        return made

    def _clients_of(self, clients: NDArray[np.int64]) -> Client:
        """The same for some clients."""
        some: Client = jax.tree.map(lambda leaf: leaf[clients], self.everyone)
        return some

    def go(self, report: Progress) -> Trained:
        """All rounds, or as many as go well."""
        schedule = self.schedule
        if not self.trail.last(self._take):
            self.states = self._start_states()
            self.rows = [{"train_loss": np.nan, **self._look()}]
        elif self.states is not None:
            self.states.protect(self.trail.journal(self.done))
        limit = self._limit()
        stores = [store for store in (self.mixing, self.states) if store is not None]
        ahead = Ahead(stores, self.states)
        with self.trail, closing(ahead):
            while not self._ended and self.watcher.stop is None:
                self._round(ahead, limit)
                report(self.done, schedule.rounds, self._standing())
                if not self.watcher.idle and self.divergence is None:
                    self._show(ahead)
                stopped = self.watcher.stop is not None and self.trail.folder is not None
                if self.trail.due(self.done, last=self._ended) or stopped:
                    ahead.settle()
                    self._save()
                self.trail.pause()
            ahead.settle()
        if self.method.mixes and self.watcher.stop is None:
            self.trail.conclude()  # the states, where they lie in a file, go too
        timing = dict(zip(("seconds", "compile_seconds"), self._times(), strict=True))
        steps = np.concatenate([np.zeros(1, int), self.steps[: self.done]])
        x, metrics = self.rounds.kept(self.server.x.tree), self._columns()
        return Trained(x, self.examined, self.states, metrics, steps, self.divergence, timing)

    def _limit(self) -> float:
        """The loss above which a run is said to diverge."""
        start = self.looks.loss_at_start(self.start, self.rows[0])
        return BLOW_UP * max(float(np.log(self.problem.classes)), start)

    def _standing(self) -> Standing:
        part, metric = self.schedule.part, self.problem.network.metric
        values = {"loss": self.rows[-1]["train_loss"]}
        seen = {"objective_gap": "gap", f"{part}_personal": f"{part} {metric}"}
        for name, words in seen.items():
            known = (row[name] for row in reversed(self.rows) if np.isfinite(row.get(name, np.nan)))
            last = next(known, None)
            values |= {} if last is None else {words: last}
        steps = int(self.steps[: self.done].sum())
        return Standing(values, self.done * self.size * sum(self.bits), steps * self.size)

    def _show(self, ahead: Ahead) -> None:
        """The round that was made; one after which the run ends is looked at, as the last is."""
        row, rounds = self.rows[-1], self.schedule.rounds
        scale = over_all(len(self.active), self.problem.n)
        values = {name: scale.get(name, 1) * value for name, value in row.items()}
        values.pop("objective", None)  # that of the clients that take part
        server, bits = self.server, self._standing().bits
        looked = len(row) > 1

        def model() -> Params:
            return jax.tree.map(np.array, self.rounds.kept(server.x.tree))

        self.watcher.see(self.done, rounds, self._times()[0], bits, values, looked, model)
        if self.watcher.stop is not None and not looked:
            ahead.settle()
            row |= self._look()

    @property
    def _ended(self) -> bool:
        return self.done == self.schedule.rounds or self.divergence is not None

    def _round(self, ahead: Ahead, limit: float) -> None:
        """The next one, unless a client's loss or the model says that it diverges."""
        schedule, number = self.schedule, self.done
        clients = self._clients(number)
        played = self._play(ahead.take(clients), clients, int(self.steps[number]), number)
        if number + 1 < schedule.rounds:
            ahead.start(self._clients(number + 1))
        clients = clients[: self.size]
        loss = gather(played.loss).astype(float)[: self.size]
        if not (played.finite and (loss < limit).all()):
            worst = int(np.argmax(np.where(np.isfinite(loss), loss, np.inf)))
            name = self.problem.federation.clients[clients[worst]]
            self.divergence = Divergence(number + 1, name, float(loss[worst]))
            ahead.settle()
            self.rows[-1] |= self._look()
            return
        self.server, self.done = played.server, number + 1
        if self.states is not None:
            ahead.put(clients, played.states)
        row = {"train_loss": loss.mean()}
        if (number + 1) % schedule.every == 0 or number + 1 == schedule.rounds:
            ahead.settle()
            row |= self._look()
        self.rows.append(row)

    def _clients(self, number: int) -> NDArray[np.int64]:
        """The cohort of a round, and its first client again to fill up the devices."""
        chosen = cohort_of(self.schedule.seed, number, self.active, self.size)
        filling = -self.size % self.rounds.together
        return np.concatenate([chosen, np.repeat(chosen[:1], filling)])

    def _times(self) -> tuple[float, float]:
        """Seconds of all processes that had a part in it, and of these, compiling."""
        now, compiled = time.perf_counter(), COMPILATIONS.seconds
        return (
            self.seconds + now - self.began,
            self.compile_seconds + compiled - self.compiled,
        )

    def _save(self) -> None:
        """A checkpoint; after the end the states of the clients are of use only where they are
        part of what clients take home."""
        columns = self._columns()
        facts = {
            "columns": list(columns),
            "times": self._times(),
            "divergence": self.divergence and [str(fact) for fact in self.divergence],
        }
        arrays = [np.array(list(columns.values()))]
        arrays += [values for one in self.examined.values() for values in one]
        arrays += jax.tree.leaves(self.rounds.kept(self.server))
        states = None if self._ended and self.method.mixes else self.states
        if states is not None:
            arrays.append(states.snapshot())
        self.trail.save(self.done, facts, tuple(arrays))
        if states is not None:
            states.protect(self.trail.journal(self.done))

    def _take(self, done: int, facts: Facts, arrays: Arrays) -> None:
        """Go on from a checkpoint; nothing changes if its states are not whole."""
        table, *rest = arrays
        kinds = () if self.problem.linear else ("global", "personal")
        examined = {kind: Examined(*(rest.pop(0) for _ in Examined._fields)) for kind in kinds}
        leaves, structure = jax.tree.flatten(self.server)
        self.states = None
        if len(rest) > len(leaves):
            self.states = self._store(fresh=False)
            assert self.states is not None
            self.states.restore(rest[-1], self.trail.journals(done))
        self.server = self.rounds.placed(jax.tree.unflatten(structure, rest[: len(leaves)]))
        self.done, self.examined = done, examined
        self.rows = [dict(zip(facts["columns"], row, strict=True)) for row in table.T.tolist()]
        self.seconds, self.compile_seconds = facts["times"]
        if facts["divergence"] is not None:
            at, client, loss = facts["divergence"]
            self.divergence = Divergence(int(at), client, float(loss))

    def _play(
        self, rows: list[NDArray[Any]], clients: NDArray[np.int64], steps: int, number: int
    ) -> Played:
        own = self._own_steps(clients, steps, number)
        cohort = Cohort(
            client=self._clients_of(clients),
            spans=self.problem.train.spans(clients),
            number=clients.astype(np.int32),
            place=np.searchsorted(np.sort(clients[: self.size]), clients).astype(np.int32),
            steps=np.minimum(own, steps),
            stops=own <= steps,
            present=(np.arange(len(clients)) < self.size).astype(self.dtype),
        )
        stars = None if self.mixing is None else rows.pop(0)
        states = rows.pop() if rows else np.zeros((len(clients), 0), self.dtype)
        share = self.size / len(self.active)
        asked = Asked(cohort, stars, states, steps, share, number)
        return self.rounds.play(asked, self.server)

    def _own_steps(self, clients: NDArray[np.int64], steps: int, number: int) -> NDArray[np.int32]:
        """K_i of the clients of a round; K + 1 for one that does not stop by itself."""
        if self.method.own_steps is None:
            return np.full(len(clients), steps + 1, np.int32)
        draws = uniforms(self.schedule.seed, number, self.active, self.problem.n)
        drawn = own_steps(self.method, self._clients_of(self.active), steps, draws)
        return drawn[np.searchsorted(self.active, clients)].astype(np.int32)

    def _look(self) -> dict[str, float]:
        """How good the models are now."""
        values, self.examined = self.looks.at(self.server.x.tree, self.states, self.done)
        return values

    def _columns(self) -> dict[str, NDArray[np.float64]]:
        """What was measured, NaN where it was not."""
        names = self.rows[0]
        return {name: np.array([row.get(name, np.nan) for row in self.rows]) for name in names}
