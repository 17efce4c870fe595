"""From what a run measured to the record of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scafflix import theory
from scafflix.core.arguments import choice
from scafflix.core.errors import ScafflixError
from scafflix.core.versions import versions
from scafflix.data import Federation
from scafflix.gradients import Exact, Private
from scafflix.methods.averaging import share_of
from scafflix.methods.method import Method
from scafflix.models.network import Network, Params
from scafflix.models.pytorch import TorchNetwork
from scafflix.personalization.flix import Optimum
from scafflix.personalization.personalize import Personalization
from scafflix.personalization.rules.choosing import GIVEN, Choice, choose, given
from scafflix.problems.evaluation import Examined
from scafflix.problems.problem import Problem
from scafflix.record import COUNTED, Record
from scafflix.simulate.scoring import (
    KINDS,
    Columns,
    distribution,
    linear_look,
    linear_scores,
    network_look,
)
from scafflix.simulate.taken_home import End, mixtures, models_of, named
from scafflix.simulate.taking_part import gain_errors, worth
from scafflix.simulate.watching import Stop

KEEP = ("auto", "personal", "global", "none")
LARGEST_MODELS = 8 * 2**30  # bytes of the clients' models in one file


class Run(NamedTuple):
    """A method with a personalization and a seed: one member of a sweep."""

    person: Personalization
    method: Method
    seed: int = 0


class Divergence(NamedTuple):
    """Where a run went wrong; everything kept is from before."""

    round: int
    client: str
    loss: float


class Outcome(NamedTuple):
    """What a run measured: the first entry of a column is the start, then one a round."""

    x: Params  # the global model
    states: Any  # of the clients that take part, stacked, or a store of all; None where none
    columns: Columns
    local_steps: NDArray[np.int64]
    cohort: int  # clients a round
    optimum: Optimum | None  # None where nobody knows it
    message_bits: tuple[int, int]  # that a client sends and receives in a communication
    first_messages: int  # communications of all clients before the first round
    timing: dict[str, float]
    # what a network's models made of the part looked at
    examined: Mapping[str, Examined] = MappingProxyType({})
    divergence: Divergence | None = None
    stopped: Stop | None = None  # by a callback


class Wanted(NamedTuple):
    """What of a run is kept, besides what it measured."""

    epsilon: float  # the Psi for which rounds are predicted
    scores: bool = True  # of a linear model's models on every part
    part: str = "test"  # a run that looks at validation data leaves the test data alone
    keep: str = "personal"  # models: personal, global or none


def models_kept(keep: str, problem: Problem) -> str:
    """Which models are kept: unless told, those of all clients if they fit. If they are asked for
    and do not fit, this is refused before anything runs."""
    choice("keep", keep, KEEP)
    needed = 2 * problem.dtype.itemsize * problem.n * problem.size
    fit = needed <= LARGEST_MODELS
    if keep == "personal" and not fit:
        raise ScafflixError(
            f"The models of {problem.n} clients take {needed / 1e9:.0f} GB; run with keep global, "
            "or with fewer clients."
        )
    return keep if keep != "auto" else "personal" if fit else "global"


def record(problem: Problem, member: Run, outcome: Outcome, wanted: Wanted) -> Record:
    """The record of one run; means are over all clients, also those that do not take part."""
    metrics = _metrics(problem, member, outcome)
    certificate, reason = _certificate(problem, member, outcome, metrics)
    summary = _summary(problem, member, outcome, metrics, wanted)
    summary |= {"certificate": certificate and certificate._asdict(), "no_certificate": reason}
    clients, chosen = _clients(problem, member), _chosen(problem, member, outcome)
    if chosen is not None:
        clients |= {"alpha": chosen.alpha, "alpha_note": chosen.note, "expected_gain": chosen.gain}
    models: dict[str, Any] = {}
    look = None
    if problem.linear:
        models = _models_of(problem, member, outcome, chosen)
        if wanted.scores:
            clients |= linear_scores(problem, models, wanted.part)
            look = linear_look(problem, models, wanted.part)
    elif wanted.keep == "personal":
        models = _models_of(problem, member, outcome, chosen)
    elif wanted.keep == "global":
        models = {"global": outcome.x}
    if not problem.linear:
        look = network_look(
            problem, member.person, outcome.x, outcome.examined, chosen, wanted.part
        )
        found = {k: one.per_client(look.owners, problem.n) for k, one in look.kinds.items()}
        for kind, values in found.items():
            clients[f"{wanted.part}_{kind}"] = values.score
            clients[f"{wanted.part}_loss_{kind}"] = values.loss
        summary["scores"] = {wanted.part: {k: distribution(v) for k, v in found.items()}}
    clients |= gain_errors(problem.n, look, member.person.tuned)
    summary |= {"alpha": _of_alpha(member, chosen)}
    summary |= worth(clients, look, problem.network.metric, member.seed)
    kept = {"personal": KINDS, "global": ("global",), "none": ()}[wanted.keep]
    arrays: Columns = {}
    for kind in kept:
        arrays |= named(kind, models[kind]) if kind in models else {}
        if problem.torch is not None and kind in models:
            own = problem.torch.counted(models[kind], of_each=kind != "global")
            arrays |= {f"{COUNTED}/{kind}/{name}": array for name, array in own.items()}
    curves = {} if chosen is None else chosen.curves
    asked = {**_asked(problem, member, outcome, metrics), "part": wanted.part}
    return Record(
        asked, summary, metrics, clients, arrays, curves, problem.federation.preprocessing
    )


def _chosen(problem: Problem, member: Run, outcome: Outcome) -> Choice | None:
    """alpha_i by the rule, for x as it is at the end."""
    person = member.person
    if person.after is not None and person.after.alpha is not None:
        return given(person.after.alpha)
    if person.rule is None:
        return None
    return choose(problem, person.rule, person.x_star, outcome.x)


def _of_alpha(member: Run, chosen: Choice | None) -> dict[str, Any] | None:
    """By which rule alpha was chosen, and what it was expected to gain over the clients' own
    models; None where alpha was given."""
    if chosen is None or chosen.rule == GIVEN:
        return None
    notes = [note for note in chosen.note.tolist() if note]
    return {
        "rule": chosen.rule,
        "trained_at": float(member.person.alpha.max()),
        "mean": float(chosen.alpha.mean()),
        "expected_gain": float(chosen.gain.mean()),
        "notes": {note: notes.count(note) for note in dict.fromkeys(notes)},
    }


def _models_of(
    problem: Problem, member: Run, outcome: Outcome, chosen: Choice | None
) -> dict[str, Any]:
    end = End(outcome.x, outcome.states, member.seed, len(outcome.local_steps) - 1)
    made = models_of(problem, member.person, member.method, end)
    if chosen is not None:
        made["personal"] = mixtures(chosen.alpha, outcome.x, made["local"])
    return made


def _asked(problem: Problem, member: Run, outcome: Outcome, metrics: Columns) -> dict[str, Any]:
    """As much of a configuration as is known without one."""
    alpha = member.person.alpha
    in_short = float(alpha[0]) if (alpha == alpha[0]).all() else alpha.tolist()
    return {
        "data": problem.federation.name,
        "model": problem.model.name,
        "l2": problem.l2,
        "smoothness": problem.smoothness,
        "method": member.method.name,
        **member.method.settings,
        "alpha": member.person.rule or in_short,
        "cohort": outcome.cohort,
        "rounds": len(metrics["round"]) - 1,
        "seed": member.seed,
    }


def over_all(active: int, n: int) -> dict[str, float]:
    """What turns a mean over the clients that take part into one over all."""
    share = active / n
    return {"objective_gap": share, "grad_norm_sq": share**2, "lyapunov": share}


def _metrics(problem: Problem, member: Run, outcome: Outcome) -> Columns:
    """What was measured, over all clients; the bound where theory has one."""
    active, start = len(member.person.active), member.person.start
    share = active / problem.n
    scale = over_all(active, problem.n)
    measured = {name: scale.get(name, 1) * column for name, column in outcome.columns.items()}
    iterations = np.cumsum(outcome.local_steps)
    rounds = np.arange(len(iterations))
    up, down = outcome.message_bits
    messages = rounds * outcome.cohort + active * outcome.first_messages
    before = (0, 0) if start is None else start.bits
    rate = member.method.rate
    if "lyapunov" in measured and rate.covers(outcome.cohort, active):
        psi0 = outcome.columns["lyapunov"][0]
        measured["lyapunov_bound"] = share * rate.bound(iterations, psi0)
    return {
        "round": rounds,
        "iterations": iterations,
        "local_steps": outcome.local_steps,
        **measured,
        "bits_up": messages * up + before[0],
        "bits_down": messages * down + before[1],
    }


def _certificate(
    problem: Problem, member: Run, outcome: Outcome, metrics: Columns
) -> tuple[theory.Certificate | None, str | None]:
    """The certificate, or in one sentence why there is none."""
    person, method = member.person, member.method
    active = person.active
    if not len(active):
        return None, "Nobody takes part: there is nothing to certify."
    if outcome.optimum is None:
        return None, _why_not(problem.network)
    if not (method.mixes or np.isfinite(method.rate.zeta)):
        return None, (
            f"With {method.name} clients take home models of their own; gap and Psi are those of "
            "the global model, about which no theorem speaks."
        )
    if not method.rate.covers(outcome.cohort, len(active)):
        least = method.rate.least
        some = f"at least {least:.0f}" if least < len(active) else f"all {len(active)}"
        return None, (
            f"The theorem is for rounds of {some} clients; here {outcome.cohort} "
            "take part in a round."
        )
    if isinstance(method.gradient, Private) and np.isnan(method.rate.noise):
        return None, (
            f"Gradients of examples may be longer than the clip, {float(method.gradient.clip):g}, "
            "and no theorem covers clipping; with rows of bounded norms and a larger clip there is "
            "a certificate."
        )
    if method.release is not None and not np.isfinite(method.rate.zeta):
        return None, "No theorem covers updates that are clipped."
    if share_of(method) > 0:
        return None, "Theorems are about the last round; here the model is a mean over rounds."
    if not np.isfinite(method.rate.zeta):
        return None, f"No theorem covers {method.name} with these stepsizes and this pace."
    floor = theory.rounding_floor(
        np.asarray(person.take(active).mix(outcome.optimum.x)),
        np.asarray(outcome.optimum.h),
        np.asarray(method.gamma),
        problem.constants.mu[active],
        float(method.p),
    )
    share = len(active) / problem.n
    psi, bound = metrics["lyapunov"], metrics["lyapunov_bound"]
    exact = isinstance(method.gradient, Exact)
    return theory.certify(psi, bound, share * floor, exact), None


def _why_not(network: Network | TorchNetwork) -> str:
    if network.linear_model:
        return (
            f"The optimum of a network is not computed; this one is the linear model "
            f"{network.linear_model}, which has a gap and a certificate: run that."
        )
    return "No theorem covers a network."


def _summary(
    problem: Problem, member: Run, outcome: Outcome, metrics: Columns, wanted: Wanted
) -> dict[str, Any]:
    method, person = member.method, member.person
    active = person.active
    gamma = np.asarray(method.gamma) if len(active) else np.full(1, np.nan)
    known: dict[str, Any] = {}
    if problem.linear:
        psi0 = float(outcome.columns["lyapunov"][0])
        iterations = predicted_iterations(problem, member, psi0, wanted.epsilon)
        spoken_of = method.rate.covers(outcome.cohort, len(active))
        known = {
            "zeta": float(method.rate.zeta),
            "kappa_max": problem.constants.kappa[active].max() if len(active) else None,
            "final_gap": metrics["objective_gap"][-1],
            "epsilon": wanted.epsilon,
            "predicted_rounds": (
                None if iterations is None or not spoken_of else math.ceil(iterations * method.p)
            ),
            "local_optima_grad_norm": person.quality["local_grad_norm"].max(),
            "optimum_grad_norm": outcome.optimum and float(outcome.optimum.gradient_norm),
        }
    return {
        "method": method.name,
        "settings": dict(method.settings),
        "average": share_of(method),
        "own_models": not method.mixes,  # then gap and Psi are not of what clients take home
        "n_clients": problem.n,
        "n_active": len(active),
        "n_left_out": len(problem.federation.left_out),
        "cohort": outcome.cohort,
        "dim": problem.size,
        "seed": member.seed,
        "p": float(method.p),
        "gamma_min": _or_none(gamma.min()),
        "gamma_median": _or_none(np.median(gamma)),
        "gamma_max": _or_none(gamma.max()),
        "rounds": int(metrics["round"][-1]),
        "tuned": person.tuned,  # whether x_i* come from a model that all trained together
        "warmup_rounds": 0 if person.start is None else person.start.rounds,
        "iterations": int(metrics["iterations"][-1]),
        "diverged": outcome.divergence and outcome.divergence._asdict(),
        "stopped": outcome.stopped and outcome.stopped.reason,
        "kept": wanted.keep,
        **known,
        **outcome.timing,
        "metric": problem.network.metric,
        "classes": list(problem.class_names),
        "label_kind": label_kind(problem.federation),
        "local_optima": None if problem.linear else _local(person),
        **({} if problem.torch is None else {"module": problem.torch.about}),
        "versions": versions() if problem.torch is None else versions() | problem.torch.versions,
    }


def _or_none(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def predicted_iterations(problem: Problem, member: Run, psi0: float, epsilon: float) -> int | None:
    """When theory promises E Psi <= epsilon, with psi0 over the clients that take part."""
    share = len(member.person.active) / problem.n
    return member.method.rate.iterations(psi0, epsilon / share) if share else 0


def _local(person: Personalization) -> dict[str, Any] | None:
    """How good a network's local optima are on average; from train to validation is overfitting."""
    if person.x_star is None:
        return None
    means = {
        name: float(np.nanmean(values))
        for name, values in person.quality.items()
        if np.isfinite(values).any()
    }
    length = person.length
    chosen = {} if length is None else {"steps": length.steps, "tried": dict(length.losses)}
    return {"stepsize": person.stepsize, **chosen, **means}


def _clients(problem: Problem, member: Run) -> Columns:
    """The table of clients; those that do not take part have no stepsize."""
    person = member.person
    gamma = np.full(problem.n, np.nan)
    if len(person.active):
        gamma[person.active] = member.method.gamma
    table: Columns = {
        "client": np.array(problem.federation.clients),
        **example_counts(problem.federation),
        "alpha": person.alpha,
        "gamma": gamma,
    }
    if problem.linear:
        constants = problem.constants
        table |= {"L": constants.L, "mu": constants.mu, "kappa": constants.kappa}
    return {**table, **person.quality}


def label_kind(federation: Federation) -> str:
    """What labels are, so that answers can be the same."""
    return {"U": "text", "b": "boolean", "f": "real"}.get(
        federation.train.labels.dtype.kind, "integer"
    )


def example_counts(federation: Federation) -> dict[str, NDArray[np.int64]]:
    """How many examples each client has in each part."""
    none = np.zeros(len(federation.clients), np.int64)
    return {
        f"{name}_examples": federation.parts[name].counts if name in federation.parts else none
        for name in ("train", "validation", "test")
    }
