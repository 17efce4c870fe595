"""Runs of all clients of a linear model, side by side in one program."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from scafflix.core.arguments import numbers
from scafflix.core.checkpoint import Checkpoints
from scafflix.core.checks import (
    check_controls,
    check_rounds,
    check_start,
)
from scafflix.core.durable import Facts
from scafflix.core.precision import in_float64
from scafflix.core.progress import Progress, Standing
from scafflix.core.types import Floats
from scafflix.core.vector import names_of
from scafflix.methods.method import Method
from scafflix.methods.private import ready
from scafflix.models.network import Params
from scafflix.personalization.flix import Optimum
from scafflix.personalization.personalize import Personalization
from scafflix.problems.problem import Problem
from scafflix.simulate.batch import COLUMNS, Batch, check_stepsizes, start_psi
from scafflix.simulate.planning import check_method, optima, participants
from scafflix.simulate.recording import Outcome, Run
from scafflix.simulate.watching import Watcher

LONGEST_WAIT = 4  # times the shortest of the rounds that runs make side by side


@in_float64
def side_by_side(
    problem: Problem,
    runs: Sequence[Run],
    rounds: int,
    x0: Floats,
    h0: str | Floats,
    progress: Progress | None,
    checkpoints: Checkpoints,
    asked: Facts,
    watcher: Watcher,
) -> list[Outcome]:
    """All clients in every round of a linear model, many runs in one program."""
    groups, solved = _groups(runs), solve(problem, runs)
    outcomes: dict[int, Outcome] = {}
    for number, indices in enumerate(groups):
        members = [runs[index] for index in indices]
        if len(members[0].person.active):
            report = progress and partial(_part, progress, number * rounds, len(groups) * rounds)
            solutions = [solved[index] for index in indices]
            batch = Batch(problem, members, solutions, x0, h0)
            place = checkpoints.within(f"group-{number}")
            made = batch.outcomes(rounds, report, place, asked, watcher)
        else:
            made = [nobody(problem, x0)] * len(members)
        outcomes |= dict(zip(indices, made, strict=True))
    return [outcomes[index] for index in range(len(runs))]


@in_float64
def start_lyapunov(
    problem: Problem,
    person: Personalization,
    methods: Sequence[Method],
    *,
    start: str | Array = "ones",
    h0: str | Array = "zero",
) -> list[float]:
    """Psi^0 of every method, over the clients that take part."""
    controls, runs = start_controls(h0, problem), [Run(person, method) for method in methods]
    for member in runs:
        check_method(problem, person, member.method)
        check_stepsizes(problem, member, strict=False)
    if not len(person.active):
        return [0.0] * len(runs)
    x0, solved = start_point(start, problem), solve(problem, runs)
    groups = _groups(runs)
    batches = [
        Batch(problem, [runs[k] for k in group], [solved[k] for k in group], x0, controls)
        for group in groups
    ]
    found = dict(zip(itertools.chain(*groups), start_psi(batches), strict=True))
    return [found[k] for k in range(len(runs))]


@in_float64
def models_by_round(
    problem: Problem,
    runs: Sequence[Run],
    *,
    rounds: int,
    start: str | Array = "ones",
    h0: str | Array = "zero",
) -> Floats:
    """x at the start and after each round, `[runs, 1 + rounds, *shape]`, of runs of one kind of
    method of a linear model, in which all clients take part."""
    for member in runs:
        check_method(problem, member.person, member.method)
    names = names_of(problem.template)
    runs = [member._replace(method=ready(member.method, names)) for member in runs]
    solved = solve(problem, runs)
    solutions = [solved[index] for index in range(len(runs))]
    x0, controls = start_point(start, problem), start_controls(h0, problem)
    return Batch(problem, runs, solutions, x0, controls).models(check_rounds(rounds))


def solve(problem: Problem, runs: Sequence[Run]) -> dict[int, Optimum]:
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
    """Runs that can share a program: the same kind of method, clients and local optima; without
    those whose rounds are far longer, for which the others would wait."""
    groups: dict[Any, list[list[int]]] = defaultdict(list)
    length = [1 / float(member.method.p) for member in runs]  # local steps a round
    for index in sorted(range(len(runs)), key=length.__getitem__):
        member = runs[index]
        alike = groups[jax.tree.structure(member.method), _shared(member.person)]
        if not alike or length[index] > LONGEST_WAIT * length[alike[-1][0]]:
            alike.append([])
        alike[-1].append(index)
    return [sorted(group) for alike in groups.values() for group in alike]


def _shared(person: Personalization) -> Any:
    return person.active.tobytes(), id(person.x_star)


def _part(progress: Progress, before: int, total: int, done: int, state: Standing) -> None:
    progress(before + done, total, state)


def nobody(problem: Problem, x0: Params) -> Outcome:
    """What is left when every alpha_i is 0: each client has its own optimum, without a round."""
    zero = np.zeros(1)
    timing = {"seconds": 0.0, "compile_seconds": 0.0}
    columns = dict.fromkeys(COLUMNS, zero) if problem.linear else {}
    return Outcome(
        x=jax.tree.map(np.asarray, x0),
        states=None,
        columns=columns,
        local_steps=np.zeros(1, int),
        cohort=0,
        optimum=None,
        message_bits=(0, 0),
        first_messages=0,
        timing=timing,
    )


def start_point(start: str | Array | None, problem: Problem) -> Floats:
    """x0 of a linear model: ones, unless zeros or a point are asked for."""
    if start is None or isinstance(start, str):
        check_start(start or "ones")
        return np.full(problem.shape, 0.0 if start == "zeros" else 1.0)
    return numbers("start", start, problem.shape)


def start_controls(h0: object, problem: Problem) -> str | Floats:
    """h0: a word, or control variates of every client."""
    if isinstance(h0, str):
        return check_controls(h0)
    return numbers("h0", h0, (problem.n, *problem.shape))
