"""What is kept of a run of cohorts: the same record as of any other run."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.tree_util import keystr
from numpy.typing import NDArray

from scafflix.cohorts.evaluation import Scores
from scafflix.cohorts.optima import LocalOptima
from scafflix.cohorts.problem import NetworkProblem
from scafflix.cohorts.training import Schedule, Trained, over_examples
from scafflix.engine.recording import example_counts, versions
from scafflix.errors import ScafflixError
from scafflix.methods.method import Method
from scafflix.models.network import Params
from scafflix.personalize import mixture
from scafflix.record import Record

KEEP = ("personal", "global", "none")
LARGEST_MODELS = 8 * 2**30  # bytes of the clients' models in one file


class Member(NamedTuple):
    """What a run was made of."""

    method: Method
    alpha: NDArray[np.float64]
    local: LocalOptima | None
    alone: Scores | None  # of the local optima on the part looked at
    curvature: NDArray[np.float64] | None
    schedule: Schedule
    warmup: int  # rounds before the first, at alpha = 1
    warmup_bits: tuple[int, int]  # that they cost


def check_keep(keep: str, problem: NetworkProblem) -> None:
    """Refuse, before anything runs, models that are not kept or do not fit."""
    if keep not in KEEP:
        raise ScafflixError(f"keep is {keep!r}; it must be one of {', '.join(KEEP)}.")
    needed = 2 * 4 * problem.n * problem.size
    if keep == "personal" and needed > LARGEST_MODELS:
        raise ScafflixError(
            f"The models of {problem.n} clients take {needed / 1e9:.0f} GB; run with keep global."
        )


def record(
    problem: NetworkProblem, member: Member, trained: Trained, keep: str, config: dict[str, Any]
) -> Record:
    """The record of one run, with the scores on the part that it looked at."""
    part = member.schedule.part
    found = trained.scores if member.alone is None else {"local": member.alone, **trained.scores}
    scores = {part: found}
    clients = _clients(problem, member, scores)
    summary = _summary(problem, member, trained, scores)
    up, down = member.warmup_bits
    metrics = dict(trained.metrics)
    metrics["bits_up"] = metrics["bits_up"] + up
    metrics["bits_down"] = metrics["bits_down"] + down
    return Record(config, summary, metrics, clients, _models(problem, member, trained.x, keep))


def _clients(
    problem: NetworkProblem, member: Member, scores: dict[str, dict[str, Scores]]
) -> dict[str, NDArray[Any]]:
    table: dict[str, NDArray[Any]] = {"client": np.array(problem.federation.clients)}
    table |= example_counts(problem.federation)
    gamma = np.asarray(member.method.gamma, float)
    table |= {"alpha": member.alpha, "gamma": np.where(member.alpha > 0, gamma, np.nan)}
    if member.curvature is not None:
        table["curvature"] = member.curvature
    if member.local is not None:
        table |= member.local.quality
    for part, kinds in scores.items():
        for kind, values in kinds.items():
            table[f"{part}_{kind}"] = values.score
            table[f"{part}_loss_{kind}"] = values.loss
    return table


def _summary(
    problem: NetworkProblem,
    member: Member,
    trained: Trained,
    scores: dict[str, dict[str, Scores]],
) -> dict[str, Any]:
    method, active = member.method, member.alpha > 0
    gamma = np.asarray(method.gamma)[active]
    metrics, federation = trained.metrics, problem.federation
    return {
        "method": method.name,
        "n_clients": problem.n,
        "n_active": int(active.sum()),
        "n_left_out": len(federation.left_out),
        "cohort": member.schedule.cohort or int(active.sum()),
        "dim": problem.size,
        "seed": member.schedule.seed,
        "p": float(method.p),
        "gamma_min": gamma.min(),
        "gamma_median": float(np.median(gamma)),
        "gamma_max": gamma.max(),
        "rounds": int(metrics["round"][-1]),
        "warmup_rounds": member.warmup,
        "iterations": int(metrics["iterations"][-1]),
        "diverged": None if trained.divergence is None else trained.divergence._asdict(),
        "metric": problem.network.metric,
        "scores": {
            part: {kind: distribution(values) for kind, values in kinds.items()}
            for part, kinds in scores.items()
        },
        "local_optima": None if member.local is None else _local(member.local),
        **trained.timing,
        "versions": versions(),
    }


def distribution(scores: Scores) -> dict[str, float]:
    """How the clients fare, in numbers."""
    known = scores.score[np.isfinite(scores.score)]
    return {
        "examples": over_examples(scores.score, scores),
        "clients": float(known.mean()),
        "std": float(known.std()),
        "p10": float(np.percentile(known, 10)),
        "worst": float(known.min()),
        "loss": over_examples(scores.loss, scores),
    }


def _local(local: LocalOptima) -> dict[str, Any]:
    """How good the local optima are on average; from train to validation is overfitting."""
    means = {
        name: float(np.nanmean(values))
        for name, values in local.quality.items()
        if np.isfinite(values).any()
    }
    return {"stepsize": local.stepsize, **means}


def _models(
    problem: NetworkProblem, member: Member, x: Params, keep: str
) -> dict[str, NDArray[Any]]:
    if keep == "none":
        return {}
    models = _named("global", x)
    if keep == "global" or member.local is None:
        return models
    stars = member.local.x_star.read(np.arange(problem.n))
    mixed = jax.tree.map(partial(mixture, member.alpha.astype(np.float32)), x, stars)
    return models | _named("local", stars) | _named("personal", mixed)


def _named(kind: str, tree: Params) -> dict[str, NDArray[Any]]:
    """The arrays of a tree under their path, such as `global/conv1/weight`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        f"{kind}/{keystr(path, simple=True, separator='/')}": np.asarray(v) for path, v in leaves
    }
