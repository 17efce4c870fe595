"""Runs that go through one compiled program side by side."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix import control
from scafflix.core import streams
from scafflix.core.checkpoint import NOWHERE, Checkpoints
from scafflix.core.compilation import COMPILATIONS
from scafflix.core.digest import digest_of
from scafflix.core.durable import Arrays, Facts
from scafflix.core.errors import DivergenceError, ScafflixError, ScafflixWarning
from scafflix.core.progress import Standing
from scafflix.core.streams import Stream
from scafflix.core.types import Floats
from scafflix.methods.method import Client, Method
from scafflix.personalization.flix import Optimum
from scafflix.personalization.mixing import mixture
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem
from scafflix.simulate import loop
from scafflix.simulate.bits import message_bits, warm_messages
from scafflix.simulate.identity import identity_of
from scafflix.simulate.objective import evaluate, models_at_once
from scafflix.simulate.planning import participants
from scafflix.simulate.recording import Outcome, Run, over_all
from scafflix.simulate.watching import NOBODY, Watcher

CHUNK_SECONDS = 1.0  # how long the compiled loop runs between two reports of progress
LARGEST_CHUNK = 4096  # rounds
LARGEST_TRACE = 2**26  # bytes for the models of a chunk's rounds

COLUMNS = ("objective_gap", "grad_norm_sq", "lyapunov")

Report = Callable[[int, Standing], None]  # rounds done, and how the runs stand


class Batch:
    """Runs of one kind of method from one start, on the clients that take part in them."""

    def __init__(
        self,
        problem: Problem,
        runs: Sequence[Run],
        optima: Sequence[Optimum],
        x0: Floats,
        h0: str | Floats,
    ) -> None:
        self.runs, self.optima, self.x0 = runs, optima, x0
        self._whole = problem
        self.problem, first = participants(problem, runs[0].person)
        self.x_star = jax.device_put(first.points)
        seeds = [member.seed for member in runs]
        self.stacked = loop.Runs(
            method=_stack([member.method for member in runs]),
            alpha=_stack([member.person.alpha[member.person.active] for member in runs]),
            optimum=_stack(optima),
            keys=streams.keys(seeds, Stream.GRADIENT),
            compression=streams.keys(seeds, Stream.COMPRESSION),
            server=streams.keys(seeds, Stream.SERVER),
            numbers=_stack([member.person.active.astype(np.int32) for member in runs]),
        )
        self.h0 = self._start_controls(h0)
        self.first_messages = warm_messages(runs[0].method, h0)
        # of a client in a round
        self.bits = message_bits(runs[0].method, problem.template, self.problem.n)

    def _start_controls(self, h0: str | Floats) -> Array:
        alpha = self.stacked.alpha
        if isinstance(h0, str):
            if h0 == "zero":
                return jax.device_put(np.zeros((*alpha.shape, *self.problem.shape)))
            return _warm_controls(self.problem.losses, self.stacked, self.x_star, self.x0)
        given = h0[self.runs[0].person.active]
        for row in alpha:
            control.check(given, row)
        return jnp.broadcast_to(given, (len(alpha), *given.shape))

    def _start(self) -> loop.Carry:
        return loop.start(self.problem.losses, self.x_star, self.stacked, self.x0, self.h0)

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint of these runs is of."""
        return {
            **self._whole.identity,
            **identity_of(self.runs, self.x0, self.h0),
            "communications before the first round": self.first_messages,
            "digest of the optima": digest_of(self.x_star, *self.stacked.optimum),
        }

    def outcomes(
        self,
        rounds: int,
        report: Report | None,
        checkpoints: Checkpoints = NOWHERE,
        asked: Facts | None = None,
        watcher: Watcher = NOBODY,
    ) -> list[Outcome]:
        """Run all rounds, in chunks of about equal duration; their size changes no result. If
        somebody wants to see each round, a chunk is one round."""
        bytes_per_round = 8 * len(self.runs) * self.problem.size
        capacity = max(1, min(rounds, LARGEST_CHUNK, LARGEST_TRACE // bytes_per_round))
        capacity = capacity if watcher.idle else 1
        at_once = models_at_once(self.problem.losses, self.problem.n, self.problem.size)
        at_once = min(at_once, len(self.runs) * (1 + capacity))
        chunk = capacity if report is None else first_chunk(at_once, len(self.runs))
        chunk = min(chunk, capacity)
        nothing = np.zeros((len(self.runs), 1), int)
        course = _Course(self._start())
        kept = checkpoints.folder is not None  # else nobody asks for digests of the data
        trail = checkpoints.trail({**(asked or {}), **self._identity()} if kept else {})
        trail.last(course.take)
        with trail:
            while course.done < rounds and watcher.stop is None:
                done = course.done
                stop = min(rounds, done + chunk, trail.next_due(done))
                began, compiled = time.perf_counter(), COMPILATIONS.seconds
                steps = np.array(
                    [steps_of(one.method, one.seed, done, capacity) for one in self.runs]
                )
                own = self._own_steps(steps, done, stop - done)
                course.carry, models, psi = loop.advance(
                    self.problem.losses,
                    self.x_star,
                    self.stacked,
                    course.carry,
                    steps,
                    own,
                    done,
                    stop,
                )
                # what stood before is the start the first time, and else measured already
                fresh = slice(min(done, 1), 1 + stop - done)
                fresh_models, first = np.asarray(models)[:, fresh], done + min(done, 1)
                gap, square = self._measure(fresh_models, first, at_once)
                drawn = steps[:, : stop - done]
                drawn = drawn if done else np.concatenate([nothing, drawn], axis=1)
                course.columns.append((gap, square, np.asarray(psi)[:, fresh], drawn))
                course.done = stop
                if report is not None:
                    report(stop, self._standing(stop, gap[:, -1], course))
                    compiling = COMPILATIONS.seconds - compiled
                    seconds = max(1e-6, time.perf_counter() - began - compiling)
                    chunk = int(np.clip((stop - done) * CHUNK_SECONDS / seconds, 1, capacity))
                if not watcher.idle:
                    self._show(watcher, rounds, course)
                if trail.due(stop, last=stop == rounds) or (kept and watcher.stop is not None):
                    trail.save(stop, *course.kept())
                trail.pause()
        if watcher.stop is None:
            trail.conclude()
        seconds, compile_seconds = course.times()
        timing = {
            "seconds": seconds / len(self.runs),
            "compile_seconds": compile_seconds,
            "runs_side_by_side": len(self.runs),
        }
        joined = course.joined()
        final = np.asarray(course.carry.server.x.tree)
        return [
            Outcome(
                x=final[k],
                states=jax.tree.map(lambda leaf, k=k: np.asarray(leaf)[k], course.carry.states),
                columns=dict(zip(COLUMNS, (part[k] for part in joined[:3]), strict=True)),
                local_steps=joined[3][k],
                cohort=self.problem.n,
                optimum=optimum,
                message_bits=self.bits,
                first_messages=self.first_messages,
                timing=timing,
                stopped=watcher.stop,
            )
            for k, optimum in enumerate(self.optima)
        ]

    def models(self, rounds: int) -> Floats:
        """x at the start and after each round, `[runs, 1 + rounds, *shape]`."""
        steps = np.array([steps_of(member.method, member.seed, 0, rounds) for member in self.runs])
        own, problem = self._own_steps(steps, 0, rounds), self.problem
        _, models, _ = loop.advance(
            problem.losses, self.x_star, self.stacked, self._start(), steps, own, 0, rounds
        )
        return np.asarray(models)

    def _own_steps(
        self, steps: NDArray[np.int64], first: int, rounds: int
    ) -> NDArray[np.int64] | None:
        """K_i of the clients in the `rounds` rounds after `first`, where they stop by themselves;
        1 after these, up to as many rounds as there are steps of."""
        if self.runs[0].method.own_steps is None:
            return None
        counts, total = self.problem.federation.train.counts, self._whole.n
        made = np.ones((*steps.shape, self.problem.n), int)
        for number, member in enumerate(self.runs):
            method, active = member.method, member.person.active
            alpha, gamma = member.person.alpha[active], np.asarray(method.gamma)
            clients = Client(alpha, gamma, None, counts, len(active))
            for r, K in enumerate(steps[number, :rounds].tolist()):
                draws = uniforms(member.seed, first + r, active, total)
                made[number, r] = own_steps(method, clients, K, draws)
        return made

    def _standing(self, done: int, gap: NDArray[np.float64], course: _Course) -> Standing:
        active = len(self.runs[0].person.active)
        steps = sum(int(columns[-1].sum()) for columns in course.columns)
        sent = len(self.runs) * active * (done + self.first_messages) * sum(self.bits)
        return Standing({"gap": max(0.0, float(gap.max()))}, sent, steps * active)

    def _show(self, watcher: Watcher, rounds: int, course: _Course) -> None:
        """The round that was made, of the one run that there is."""
        scale = over_all(len(self.runs[0].person.active), self._whole.n)
        last = (part[0, -1] for part in course.columns[-1])
        values = {name: scale[name] * value for name, value in zip(COLUMNS, last, strict=False)}
        done, bits = course.done, self._standing(course.done, np.zeros(1), course).bits
        x = course.carry.server.x.tree

        def model() -> NDArray[np.float64]:
            return np.array(x)[0]

        watcher.see(done, rounds, course.times()[0], bits, values, True, model)

    def _measure(
        self, models: NDArray[np.float64], first: int, at_once: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Objective gap and squared gradient norm of rounds `first`, `first + 1`, ..."""
        alpha = np.asarray(self.stacked.alpha)
        value, square = evaluate(self.problem.losses, self.x_star, alpha, models, first, at_once)
        gap = value - np.asarray(self.stacked.optimum.value)[:, None]
        rounds, members = np.nonzero(~np.isfinite(gap.T))
        if len(rounds):
            round, member = int(rounds[0]), int(members[0])
            client = self._worst_client(models[member, round], member)
            raise DivergenceError(
                f"{self.runs[member].method.name} diverged: the objective of client {client} is "
                f"not finite after round {first + round}, when its models are evaluated; lower "
                "the stepsize.",
                first + round,
            )
        return gap, square

    def _worst_client(self, x: NDArray[np.float64], member: int) -> str:
        """Who has the largest objective at a model, or one that is not finite."""
        alpha = self.stacked.alpha[member][None]
        x_tilde = mixture(alpha, jnp.asarray(x)[None, None], self.x_star[None])
        values, _ = self.problem.losses.values_and_gradients(x_tilde)
        return self.problem.federation.clients[int(np.argmax(np.nan_to_num(values, nan=np.inf)))]


class _Course:
    """How far the runs of a batch are."""

    def __init__(self, carry: loop.Carry) -> None:
        self.carry, self.done = carry, 0
        # gap, squared gradient norm, Psi and K: the start, then a column a round
        self.columns: list[Arrays] = []
        self._before = [0.0, 0.0]  # times of the processes that came here
        self._began, self._compiled = time.perf_counter(), COMPILATIONS.seconds

    def joined(self) -> Arrays:
        """Every measurement over all rounds so far."""
        return tuple(np.concatenate(parts, axis=1) for parts in zip(*self.columns, strict=True))

    def times(self) -> list[float]:
        """Seconds of running and of compiling."""
        compiling = COMPILATIONS.seconds - self._compiled
        running = max(0.0, time.perf_counter() - self._began - compiling)
        return [self._before[0] + running, self._before[1] + compiling]

    def kept(self) -> tuple[Facts, Arrays]:
        """What a checkpoint holds."""
        leaves = tuple(np.asarray(leaf) for leaf in jax.tree.leaves(self.carry))
        return {"times": self.times()}, self.joined() + leaves

    def take(self, done: int, facts: Facts, arrays: Arrays) -> None:
        """Go on from a checkpoint."""
        leaves, structure = jax.tree.flatten(self.carry)
        self.columns, rest = [arrays[: -len(leaves)]], arrays[-len(leaves) :]
        # copies: the loop overwrites what it is given, and these lie in a file
        self.carry = jax.tree.unflatten(structure, [jnp.array(leaf) for leaf in rest])
        self.done, self._before = done, facts["times"]


def start_psi(batches: Sequence[Batch]) -> list[float]:
    """Psi^0 of every run, of batches that share clients and local optima."""
    one = batches[0]
    groups, controls = [each.stacked for each in batches], [each.h0 for each in batches]
    found = loop.start_psi(one.problem.losses, one.x_star, groups, one.x0, controls)
    return [psi for each in found for psi in np.asarray(each).tolist()]


def check_stepsizes(problem: Problem, member: Run, strict: bool) -> None:
    """Name the worst stepsize that theory does not cover, with both numbers."""
    active = member.person.active
    gamma, limit = np.asarray(member.method.gamma), np.asarray(member.method.limit)
    if not len(active) or not (gamma > (1 + 1e-12) * limit).any():
        return
    worst = int(np.argmax(gamma / limit))
    message = (
        f"{member.method.name}: gamma_i = {gamma[worst]:.4g} of client "
        f"{problem.federation.clients[active[worst]]} is above {limit[worst]:.4g}, the largest "
        "that its theory covers."
    )
    if strict:
        raise ScafflixError(message)
    warnings.warn(message, ScafflixWarning, stacklevel=4)


def first_chunk(at_once: int, runs: int) -> int:
    """As many rounds as are evaluated in one call; later chunks go by the clock."""
    return max(1, at_once // runs - 1)


def steps_of(method: Method, seed: int, first: int, number: int) -> NDArray[np.int64]:
    """K, the local steps, of the rounds after `first`: from the seed and the round alone, so
    that a server can tell its clients and a run can go on where it stopped."""
    draws = streams.uniforms(seed, Stream.COIN, first, number)
    return np.asarray(method.local_steps(np.arange(first, first + number), draws))


def uniforms(seed: int, round: int, clients: NDArray[np.int64], total: int) -> NDArray[np.float64]:
    """A number in (0, 1] for each of some clients, by the seed, the round and who it is."""
    draws = 1 - streams.generator(seed, Stream.OWN_STEPS, round).random(total)
    return draws[clients]


def own_steps(
    method: Method, clients: Client, steps: int, draws: NDArray[np.float64]
) -> NDArray[np.int64]:
    """K_i of all clients that take part, in one round; K + 1 for one that does not stop by itself.

    Of all, whoever is in the cohort: a method may have a hyperparameter for each of them.
    """
    assert method.own_steps is not None
    return np.clip(np.asarray(method.own_steps(clients, steps, draws)), 1, steps + 1).astype(int)


@jax.jit
def _warm_controls(losses: Losses, runs: loop.Runs, x_star: Array, x0: Array) -> Array:
    """h_i^0 = grad f_i(x~_i^0), projected onto sum_i alpha_i h_i = 0."""
    x_tilde = mixture(runs.alpha, x0[None, None], x_star[None])
    return jax.vmap(control.project)(losses.gradients(x_tilde), runs.alpha, runs.method.gamma)


def _stack(trees: Sequence[Any]) -> Any:
    """One tree with the members in front, put on the device in one piece a leaf."""
    return jax.tree.map(lambda *leaves: jax.device_put(np.stack(leaves)), *trees)
