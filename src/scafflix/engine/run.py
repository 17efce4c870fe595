"""Run methods on a problem, one or many at once."""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix import control
from scafflix.engine import loop, streams
from scafflix.engine.compilation import COMPILATIONS
from scafflix.engine.planning import optima, participants
from scafflix.engine.recording import Outcome, Run, record
from scafflix.engine.streams import Stream
from scafflix.errors import ScafflixError, ScafflixWarning
from scafflix.gradients import Exact, Gradient, check_batch
from scafflix.methods.method import Method
from scafflix.personalize import Personalization, mixture
from scafflix.problem import Losses, Problem
from scafflix.record import Record

CHUNK_SECONDS = 0.5  # how long the compiled loop runs between two reports of progress
LARGEST_TRACE = 2**26  # bytes for the models of a chunk's rounds
EPSILON = 1e-6  # the Psi for which rounds are predicted unless a target is given

Progress = Callable[[int, int, float], None]  # rounds done, of how many, largest objective gap


def run(
    problem: Problem,
    person: Personalization,
    method: Method,
    *,
    rounds: int,
    seed: int = 0,
    **options: Any,
) -> Record:
    """One run; the options are those of `sweep`."""
    (made,) = sweep(problem, [Run(person, method, seed)], rounds=rounds, **options)
    return made


def sweep(
    problem: Problem,
    runs: Sequence[Run],
    *,
    rounds: int,
    gradient: Gradient | None = None,
    start: str | Array = "ones",
    h0: str | Array = "zero",
    epsilon: float | None = None,
    strict: bool = False,
    scores: bool = True,
    progress: Progress | None = None,
) -> list[Record]:
    """Many runs of one problem; those that differ in alpha, seed and stepsizes only go side by
    side through one compiled program.

    `start` is ones, zeros or a point x0; `h0` is zero, warm (gradients at the start, projected:
    one communication) or control variates `[clients, *shape]` with sum_i alpha_i h_i = 0.
    """
    gradient = gradient or Exact()
    if rounds < 1:
        raise ScafflixError(f"rounds is {rounds}; it must be at least 1.")
    for member in runs:
        if member.seed < 0:
            raise ScafflixError(f"seed is {member.seed}; it must be 0 or more.")
    check_batch(gradient, problem)
    x0 = _start_point(start, problem)
    groups = _groups(runs)
    outcomes: dict[int, Outcome] = {}
    for number, indices in enumerate(groups):
        members = [runs[index] for index in indices]
        if len(members[0].person.active):
            batch = _Batch(problem, members, gradient, x0, h0, strict)
            report = progress and partial(_part, progress, number * rounds, len(groups) * rounds)
            made = batch.outcomes(rounds, report)
        else:
            made = [_nobody(x0)] * len(members)
        outcomes |= dict(zip(indices, made, strict=True))
    return [
        record(problem, member, outcomes[index], epsilon or EPSILON, scores)
        for index, member in enumerate(runs)
    ]


def start_lyapunov(
    problem: Problem, runs: Sequence[Run], *, start: str | Array = "ones", h0: str | Array = "zero"
) -> list[float]:
    """Psi^0 of every run, over the clients that take part."""
    x0 = _start_point(start, problem)
    found: dict[int, float] = {}
    for indices in _groups(runs):
        members = [runs[index] for index in indices]
        if len(members[0].person.active):
            psi = _Batch(problem, members, Exact(), x0, h0, strict=False).start_lyapunov()
        else:
            psi = np.zeros(len(members))
        found |= dict(zip(indices, psi.tolist(), strict=True))
    return [found[index] for index in range(len(runs))]


def _groups(runs: Sequence[Run]) -> list[list[int]]:
    """Runs that can share a program: the same kind of method, clients and local optima."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for index, member in enumerate(runs):
        active, x_star = member.person.active, np.asarray(member.person.x_star)
        shared = jax.tree.structure(member.method), active.tobytes(), hash(x_star.tobytes())
        groups[shared].append(index)
    return list(groups.values())


def _part(progress: Progress, before: int, total: int, done: int, gap: float) -> None:
    progress(before + done, total, gap)


class _Batch:
    """Runs that go through one compiled program, on the clients that take part in them."""

    def __init__(
        self,
        problem: Problem,
        runs: Sequence[Run],
        gradient: Gradient,
        x0: Array,
        h0: str | Array,
        strict: bool,
    ) -> None:
        self.runs, self.gradient, self.x0 = runs, gradient, x0
        self.problem, first = participants(problem, runs[0].person)
        self.x_star = first.x_star
        persons = [member.person.take(member.person.active) for member in runs]
        self.optima = optima(self.problem, persons)
        self.stacked = loop.Runs(
            method=_stack([member.method for member in runs]),
            alpha=_stack([person.alpha for person in persons]),
            optimum=_stack(self.optima),
            gradient=jnp.stack([streams.key(member.seed, Stream.GRADIENT) for member in runs]),
        )
        self._check_stepsizes(strict)
        self.warm = isinstance(h0, str) and h0 == "warm"
        self.h0 = self._start_controls(h0, problem.n)

    def _start_controls(self, h0: str | Array, clients: int) -> Array:
        alpha = self.stacked.alpha
        if isinstance(h0, str):
            if h0 == "zero":
                return jax.device_put(np.zeros((*alpha.shape, *self.problem.shape)))
            if h0 == "warm":
                return _warm_controls(self.problem.losses, self.stacked, self.x_star, self.x0)
            raise ScafflixError(f"h0 is {h0!r}; it must be zero or warm.")
        if h0.shape != (clients, *self.problem.shape):
            raise ScafflixError(
                f"h0 has the shape {h0.shape}; it must be {(clients, *self.problem.shape)}."
            )
        given = jnp.asarray(h0)[self.runs[0].person.active]
        for row in alpha:
            control.check(given, row)
        return jnp.broadcast_to(given, (len(alpha), *given.shape))

    def _check_stepsizes(self, strict: bool) -> None:
        """Name the worst stepsize that theory does not cover, with both numbers."""
        for member in self.runs:
            gamma, limit = np.asarray(member.method.gamma), np.asarray(member.method.limit)
            if not (gamma > (1 + 1e-12) * limit).any():
                continue
            worst = int(np.argmax(gamma / limit))
            message = (
                f"{member.method.name}: gamma_i = {gamma[worst]:.4g} of client "
                f"{self.problem.federation.clients[worst]} is above {limit[worst]:.4g}, "
                "the largest for which convergence is proven (1/A_i for Scafflix)."
            )
            if strict:
                raise ScafflixError(message)
            warnings.warn(message, ScafflixWarning, stacklevel=5)

    def start_lyapunov(self) -> NDArray[np.float64]:
        """Psi^0 of every run."""
        carry = loop.start(self.stacked, self.x0, self.h0)
        return np.asarray(jax.vmap(loop.lyapunov)(self.stacked, carry.server.x, carry.states))

    def outcomes(self, rounds: int, progress: Callable[[int, float], None] | None) -> list[Outcome]:
        """Run, and take apart what was measured."""
        began, compiled = time.perf_counter(), COMPILATIONS.seconds
        carry, metrics, steps = self._execute(rounds, progress)
        models = np.asarray(carry.server.x.tree)
        compile_seconds = COMPILATIONS.seconds - compiled
        seconds = max(0.0, time.perf_counter() - began - compile_seconds)
        timing = {
            "seconds": seconds / len(self.runs),
            "compile_seconds": compile_seconds,
            "runs_side_by_side": len(self.runs),
        }
        return [
            Outcome(
                x=models[k],
                objective_gap=np.asarray(metrics.objective_gap[k]),
                grad_norm_sq=np.asarray(metrics.grad_norm_sq[k]),
                lyapunov=np.asarray(metrics.lyapunov[k]),
                local_steps=steps[k],
                optimum=self.optima[k],
                first_messages=int(self.warm and bool(jax.tree.leaves(carry.states))),
                exact=isinstance(self.gradient, Exact),
                timing=timing,
            )
            for k in range(len(self.runs))
        ]

    def _execute(
        self, rounds: int, progress: Callable[[int, float], None] | None
    ) -> tuple[loop.Carry, loop.Metrics, NDArray[np.int64]]:
        """All rounds, in chunks of about equal duration; their size changes no result."""
        carry = loop.start(self.stacked, self.x0, self.h0)
        bytes_per_round = 8 * len(self.runs) * self.problem.size
        capacity = max(1, min(rounds, 4096, LARGEST_TRACE // bytes_per_round))
        chunk = capacity if progress is None else 1
        measured: list[loop.Metrics] = []
        drawn = [np.zeros((len(self.runs), 1), int)]
        done = 0
        while done < rounds:
            stop = min(rounds, done + chunk)
            began, compiled = time.perf_counter(), COMPILATIONS.seconds
            steps = np.array([schedule(member, done, capacity) for member in self.runs])
            carry, metrics = loop.advance(
                self.problem.losses,
                self.x_star,
                self.stacked,
                self.gradient,
                carry,
                steps,
                done,
                stop,
            )
            # what stood before the chunk is measured again, so that the start is measured once
            fresh = slice(min(done, 1), 1 + stop - done)
            measured.append(jax.tree.map(partial(_columns, fresh), metrics))
            drawn.append(steps[:, : stop - done])
            self._check_finite(np.asarray(measured[-1].objective_gap), done + min(done, 1))
            seconds = time.perf_counter() - began - (COMPILATIONS.seconds - compiled)
            if progress is not None:
                progress(stop, float(measured[-1].objective_gap[:, -1].max()))
                pace = (stop - done) / max(seconds, 1e-6)
                chunk = int(np.clip(pace * CHUNK_SECONDS, 1, capacity))
            done = stop
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *measured)
        return carry, joined, np.concatenate(drawn, axis=1)

    def _check_finite(self, gaps: NDArray[np.float64], first: int) -> None:
        rounds, members = np.nonzero(~np.isfinite(gaps.T))
        if len(rounds):
            raise ScafflixError(
                f"{self.runs[members[0]].method.name} diverged: the objective is not finite "
                f"after round {first + rounds[0]}; lower the stepsize."
            )


def schedule(member: Run, first: int, number: int) -> NDArray[np.int64]:
    """K, the local steps, of the rounds after `first`: from the seed and the round alone, so
    that a server can tell its clients and a run can go on where it stopped."""
    return member.method.local_steps(streams.uniforms(member.seed, Stream.COIN, first, number))


def _nobody(x0: Array) -> Outcome:
    """What is left when every alpha_i is 0: each client has its own optimum, without a round."""
    zero = np.zeros(1)
    timing = {"seconds": 0.0, "compile_seconds": 0.0, "runs_side_by_side": 1}
    return Outcome(np.asarray(x0), zero, zero, zero, np.zeros(1, int), None, 0, True, timing)


@jax.jit
def _warm_controls(losses: Losses, runs: loop.Runs, x_star: Array, x0: Array) -> Array:
    """h_i^0 = grad f_i(x~_i^0), projected onto sum_i alpha_i h_i = 0."""
    x_tilde = mixture(runs.alpha, x0[None, None], x_star[None])
    return jax.vmap(control.project)(losses.gradients(x_tilde), runs.alpha, runs.method.gamma)


def _start_point(start: str | Array, problem: Problem) -> Array:
    if isinstance(start, str):
        if start not in ("ones", "zeros"):
            raise ScafflixError(f"start is {start!r}; it must be ones or zeros.")
        return jax.device_put(np.full(problem.shape, 1.0 if start == "ones" else 0.0))
    if start.shape != problem.shape:
        raise ScafflixError(f"start has the shape {start.shape}; it must be {problem.shape}.")
    return jnp.asarray(start, float)


def _columns(chosen: slice, leaf: Array) -> NDArray[Any]:
    return np.asarray(leaf)[:, chosen]


def _stack(trees: Sequence[Any]) -> Any:
    """One tree with the members in front, put on the device in one piece a leaf."""
    return jax.tree.map(lambda *leaves: jax.device_put(np.stack(leaves)), *trees)
