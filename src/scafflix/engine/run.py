"""Run methods on a problem, one or many at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from scafflix.checkpoint import NOWHERE, Checkpoints
from scafflix.engine.batch import Batch
from scafflix.engine.planning import optima, participants
from scafflix.engine.recording import Outcome, Run, record
from scafflix.errors import ScafflixError
from scafflix.flix import Optimum
from scafflix.methods.method import Method
from scafflix.personalize import Personalization
from scafflix.problem import Problem
from scafflix.progress import Progress, Standing
from scafflix.record import Record

MOST_ROUNDS = 10**9
EPSILON = 1e-6  # the Psi for which rounds are predicted unless a target is given


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
    start: str | Array = "ones",
    h0: str | Array = "zero",
    epsilon: float | None = None,
    strict: bool = False,
    scores: bool = True,
    part: str = "test",
    progress: Progress | None = None,
    checkpoints: Checkpoints = NOWHERE,
) -> list[Record]:
    """Many runs of one problem; those that differ in alpha, seed and stepsizes only go side by
    side through one compiled program. Gradients are those that a method was planned for.

    `start` is ones, zeros or a point x0; `h0` is zero, warm (gradients at the start, projected:
    one communication) or control variates `[clients, *shape]` with sum_i alpha_i h_i = 0.
    """
    if not 1 <= rounds <= MOST_ROUNDS:
        raise ScafflixError(f"rounds is {rounds}; it must be at least 1, at most {MOST_ROUNDS}.")
    for member in runs:
        if not 0 <= member.seed < 2**63:
            raise ScafflixError(f"seed is {member.seed}; it must be at least 0 and below 2^63.")
    if part not in ("test", "validation"):
        raise ScafflixError(f"part is {part!r}; it must be test or validation.")
    x0 = start_point(start, problem)
    groups, solved = _groups(runs), _solve(problem, runs)
    outcomes: dict[int, Outcome] = {}
    for number, indices in enumerate(groups):
        members = [runs[index] for index in indices]
        if len(members[0].person.active):
            report = progress and partial(_part, progress, number * rounds, len(groups) * rounds)
            solutions = [solved[index] for index in indices]
            batch = Batch(problem, members, solutions, x0, h0, strict)
            made = batch.outcomes(rounds, report, checkpoints.within(f"group-{number}"))
        else:
            made = [_nobody(x0)] * len(members)
        outcomes |= dict(zip(indices, made, strict=True))
    return [
        record(problem, member, outcomes[index], epsilon or EPSILON, scores, part)
        for index, member in enumerate(runs)
    ]


def start_lyapunov(
    problem: Problem, runs: Sequence[Run], *, start: str | Array = "ones", h0: str | Array = "zero"
) -> list[float]:
    """Psi^0 of every run, over the clients that take part."""
    x0, solved = start_point(start, problem), _solve(problem, runs)
    found: dict[int, float] = {}
    for indices in _groups(runs):
        members = [runs[index] for index in indices]
        if len(members[0].person.active):
            solutions = [solved[index] for index in indices]
            psi = Batch(problem, members, solutions, x0, h0, strict=False).start_lyapunov()
        else:
            psi = np.zeros(len(members))
        found |= dict(zip(indices, psi.tolist(), strict=True))
    return [found[index] for index in range(len(runs))]


def _solve(problem: Problem, runs: Sequence[Run]) -> dict[int, Optimum]:
    """The FLIX optimum of every run in which somebody takes part, one program for all alpha."""
    together: dict[Any, list[int]] = defaultdict(list)
    for index, member in enumerate(runs):
        if len(member.person.active):
            together[_shared(member.person)].append(index)
    solved: dict[int, Optimum] = {}
    for indices in together.values():
        persons = [runs[index].person for index in indices]
        part, _ = participants(problem, persons[0])
        found = optima(part, [person.take(person.active) for person in persons])
        solved |= dict(zip(indices, found, strict=True))
    return solved


def _groups(runs: Sequence[Run]) -> list[list[int]]:
    """Runs that can share a program: the same kind of method, clients and local optima."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for index, member in enumerate(runs):
        groups[jax.tree.structure(member.method), _shared(member.person)].append(index)
    return list(groups.values())


def _shared(person: Personalization) -> Any:
    return person.active.tobytes(), id(person.x_star)


def _part(progress: Progress, before: int, total: int, done: int, state: Standing) -> None:
    progress(before + done, total, state)


def _nobody(x0: Array) -> Outcome:
    """What is left when every alpha_i is 0: each client has its own optimum, without a round."""
    zero = np.zeros(1)
    timing = {"seconds": 0.0, "compile_seconds": 0.0, "runs_side_by_side": 1}
    return Outcome(np.asarray(x0), zero, zero, zero, np.zeros(1, int), None, (0, 0), 0, timing)


def start_point(start: str | Array, problem: Problem) -> Array:
    """x0: ones, zeros or a point."""
    if isinstance(start, str):
        if start not in ("ones", "zeros"):
            raise ScafflixError(f"start is {start!r}; it must be ones or zeros.")
        return jax.device_put(np.full(problem.shape, 1.0 if start == "ones" else 0.0))
    if start.shape != problem.shape:
        raise ScafflixError(f"start has the shape {start.shape}; it must be {problem.shape}.")
    return jnp.asarray(start, float)
