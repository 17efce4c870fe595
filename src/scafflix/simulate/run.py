"""Run methods on a problem, one or many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import Array

from scafflix.core.arguments import flag, instance, real_number, shown
from scafflix.core.bars import watched
from scafflix.core.checkpoint import NOWHERE, Checkpoints
from scafflix.core.checks import (
    check_part,
    check_rounds,
    check_seed,
)
from scafflix.core.durable import Facts
from scafflix.core.errors import ScafflixError
from scafflix.core.precision import precision
from scafflix.core.progress import Progress
from scafflix.core.vector import names_of
from scafflix.methods.method import Method
from scafflix.methods.private import ready
from scafflix.models.network import Params
from scafflix.personalization.personalize import Personalization, check_person
from scafflix.privacy import Limit
from scafflix.problems.problem import Problem, check_problem
from scafflix.record import Record
from scafflix.simulate.accounting import (
    account_of,
    allowed_rounds,
    check_private,
    told,
    with_privacy,
)
from scafflix.simulate.afterwards import settled
from scafflix.simulate.batch import check_stepsizes
from scafflix.simulate.bits import message_bits
from scafflix.simulate.cohorts import train
from scafflix.simulate.identity import identity_of
from scafflix.simulate.planning import check_method
from scafflix.simulate.recording import Outcome, Run, Wanted, models_kept, record
from scafflix.simulate.schedule import (
    Schedule,
    check_sampled,
    check_schedule,
    check_store,
    check_unsampled,
    looks_every,
    states_file,
)
from scafflix.simulate.together import nobody, side_by_side, solve, start_controls, start_point
from scafflix.simulate.watching import Callback, Watcher

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
    """One run; the options are those of `sweep`.

    >>> import scafflix as sx
    >>> problem = sx.Problem(sx.data.synthetic(clients=3, seed=0), sx.models.logistic(), l2=0.1)
    >>> person = sx.personalize(problem, alpha=0.5)
    >>> def enough(moment):
    ...     if moment.values["objective_gap"] < 1e-3:
    ...         return sx.Stop("a gap of 1e-3 is enough")
    >>> record = run(problem, person, sx.scafflix(sx.plan(problem, person)), rounds=99,
    ...              on_round=enough)
    >>> record.summary["stopped"], record.summary["rounds"] < 99
    ('a gap of 1e-3 is enough', True)
    """
    (made,) = sweep(problem, [Run(person, method, seed)], rounds=rounds, **options)
    return made


def sweep(
    problem: Problem,
    runs: Sequence[Run],
    *,
    rounds: int,
    cohort: int | None = None,
    start: str | Array | None = None,
    h0: str | Array = "zero",
    epsilon: float | None = None,
    strict: bool = False,
    every: int | None = None,
    scores: bool = True,
    part: str = "test",
    store: str = "auto",
    keep: str = "auto",
    progress: Progress | bool | None = None,
    checkpoints: Checkpoints = NOWHERE,
    delta: float | None = None,
    budget: float | None = None,
    on_round: Callback | None = None,
    on_evaluate: Callback | None = None,
) -> list[Record]:
    """Many runs of one problem. Gradients are those that a method was planned for.

    Of a linear model, runs of all clients that differ in alpha, seed and stepsizes only go side by
    side through one compiled program. Networks, and rounds of some of the clients (`cohort`), run
    one after another, with the states of the clients in a store: in memory, on disk, or where
    there is room (`store`); they are looked at every so many rounds (`every`; unless told
    otherwise every round of a linear model, ten times a run of a network).

    `start` is ones, zeros or a point x0, for linear models; a network begins where its local
    optima did. `h0` is zero, warm (gradients at the start, projected: one communication) or
    control variates `[clients, *shape]` with sum_i alpha_i h_i = 0.

    Runs of private methods (`sx.private`, `sx.gradients.private_gradient`) record the epsilon of
    every client at `delta`, and end before it exceeds `budget`.

    `progress` is a function that is told how far the runs are, or True for a bar; in a Jupyter
    notebook there is one unless it is False.

    Of one run, `on_round` is called with a `Moment` after each round, `on_evaluate` after those in
    which the models were looked at. If they return `sx.Stop(reason)`, the run ends there: its
    record has the reason as `stopped`, and where checkpoints are kept, the same call without the
    callback goes on. If one of them fails, the run ends too, and the error has its `record`.
    """
    watcher = _watcher(on_round, on_evaluate, runs)
    check_problem(problem)
    runs = _checked(runs)
    rounds = check_rounds(rounds)
    cohort = None if cohort is None else check_rounds(cohort, "cohort")
    every = None if every is None else check_rounds(every, "every")
    epsilon = None if epsilon is None else real_number("epsilon", epsilon, above=True)
    strict, scores = flag("strict", strict), flag("scores", scores)
    check_part(part)
    check_store(store)
    keep = models_kept(keep, problem)
    instance("checkpoints", checkpoints, Checkpoints, "an sx.Checkpoints")
    for member in runs:
        check_method(problem, member.person, member.method)
    names = names_of(problem.template)
    runs = [member._replace(method=ready(member.method, names)) for member in runs]
    limit = Limit(delta, budget)
    for member in runs:
        check_private(member, h0)
    accounts = [account_of(problem, member, cohort, rounds, limit) for member in runs]
    within = [allowed_rounds(account, limit, rounds) for account in accounts]
    if len(set(within)) > 1:
        raise ScafflixError(
            "The budget ends these runs after different numbers of rounds; run them one by one."
        )
    most, rounds = rounds, within[0] if within else rounds
    asked = {"rounds": rounds, "epsilon": epsilon, "scores": scores, "part": part}
    wanted = Wanted(epsilon or EPSILON, scores, part, keep)
    sampled = cohort is not None and any(cohort != len(one.person.active) for one in runs)
    if problem.linear:
        controls = start_controls(h0, problem)
        for member in runs:
            check_stepsizes(problem, member, strict)
    else:
        _check_network(start, epsilon, strict)
    schedule = Schedule(
        rounds=rounds,
        cohort=cohort,
        every=(1 if problem.linear else looks_every(rounds)) if every is None else every,
        part=part,
    )
    together = problem.linear and not sampled
    if together:
        check_unsampled(every, store)
    else:
        for member in runs:
            check_sampled(member.method.gradient, h0)
            check_schedule(schedule, member.person.alpha, problem.federation, problem.linear)
    with watched(progress) as report:
        if len(runs) == 1 and accounts[0] is not None:
            report = report and told(report, accounts[0])
        if together:
            x0 = start_point(start, problem)
            outcomes = side_by_side(
                problem, runs, rounds, x0, controls, report, checkpoints, asked, watcher
            )
        else:
            outcomes = [
                _rounds(
                    problem,
                    member,
                    replace(schedule, seed=member.seed),
                    start_point(start, problem) if problem.linear else None,
                    store,
                    report and part_of(report, number, len(runs)),
                    checkpoints.within(f"group-{number}"),
                    asked,
                    watcher,
                )
                for number, member in enumerate(runs)
            ]
        records = []
        for number, (member, outcome) in enumerate(zip(runs, outcomes, strict=True)):
            part_told = report and part_of(report, number, len(runs))
            place = checkpoints.within(f"end-{number}")
            with (
                precision(problem.linear),
                settled(problem, member, outcome.x, part_told, place) as one,
            ):
                records.append(record(problem, one, outcome, wanted))
    records = [
        one if account is None else with_privacy(one, account, limit, most)
        for one, account in zip(records, accounts, strict=True)
    ]
    watcher.conclude(records)
    return records


def _watcher(
    on_round: Callback | None, on_evaluate: Callback | None, runs: Sequence[Run]
) -> Watcher:
    """Who calls the callbacks of the one run that there is."""
    watcher = Watcher(on_round, on_evaluate)
    if not watcher.idle and len(runs) != 1:
        raise ScafflixError(
            f"on_round and on_evaluate follow one run, and here are {len(runs)}; use sx.run."
        )
    return watcher


def _check_network(start: object, epsilon: float | None, strict: bool) -> None:
    """Refuse what needs constants, or a start that everything else was not made from."""
    if start is not None:
        raise ScafflixError(
            "start is for linear models; a network begins where its local optima did: give start "
            "to personalize."
        )
    if epsilon is not None or strict:
        raise ScafflixError(
            "epsilon and strict are for linear models: no theory covers a network. Leave them out."
        )


def _rounds(
    problem: Problem,
    member: Run,
    schedule: Schedule,
    x0: Params | None,
    store: str,
    progress: Progress | None,
    checkpoints: Checkpoints,
    asked: Facts,
    watcher: Watcher,
) -> Outcome:
    """Some of the clients in every round, or a network."""
    person, method = member.person, member.method
    if x0 is None:
        if person.start is None:
            raise ScafflixError(
                "This personalization does not say where a network begins; make it with "
                "personalize(problem, alpha)."
            )
        x0 = person.start.x
    if not len(person.active):
        return nobody(problem, x0)
    optimum = solve(problem, [member])[0] if problem.linear else None
    numbers_of, place = precision(problem.linear), states_file(problem, store, checkpoints)
    with numbers_of, place as file:
        identity = {}
        if checkpoints.folder is not None:  # else nobody asks for digests of the data
            identity = {**asked, **schedule.facts, **identity_of([member], x0, 0.0)}
            identity |= problem.identity
        trained = train(
            problem,
            person,
            method,
            x0,
            replace(schedule, store=file),
            optimum,
            progress,
            checkpoints.trail(identity),
            watcher,
        )
        size = len(person.active) if schedule.cohort is None else schedule.cohort
        return Outcome(
            x=jax.tree.map(np.asarray, trained.x),
            states=trained.states if not method.mixes else None,
            # the objective itself is that of the clients that take part
            columns={name: c for name, c in trained.metrics.items() if name != "objective"},
            local_steps=trained.local_steps,
            cohort=size,
            optimum=optimum,
            message_bits=message_bits(method, problem.template, size),
            first_messages=0,
            timing=trained.timing,
            examined=trained.examined,
            divergence=trained.divergence,
            stopped=watcher.stop,
        )


def part_of(progress: Progress, number: int, total: int) -> Progress:
    """The progress of one of several runs."""
    return lambda done, rounds, state: progress(number * rounds + done, total * rounds, state)


def _checked(runs: object) -> list[Run]:
    """Members of a sweep, each with its partners in the right places."""
    if not isinstance(runs, Sequence) or isinstance(runs, Run | str):
        raise ScafflixError(f"runs is {shown(runs)}; give a list of sx.Run(person, method, seed).")
    return [_member(one) for one in runs]


def _member(one: object) -> Run:
    run = instance("A run of the sweep", one, Run, "an sx.Run(person, method, seed)")
    check_person(run.person)
    instance("method", run.method, Method, "a method, such as sx.scafflix(plan)")
    return run._replace(seed=check_seed(run.seed))
