"""The record of a real run: the same files as for a simulation, with what a server can know.

Personal models and local optima stay on the nodes. f~(x*) is unknown, so the record has an
objective (the mean of f_i(x~_i) over the clients that replied; `final_objective_clients` of them at
the end) but no gap to the optimum. The summary counts refused and dropped uploads. Where clients
chose alpha_i, the record has what a simulation's has, but of the curves only the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.durable import Arrays
from scafflix.core.versions import versions
from scafflix.federate.messages import NONE, Evaluation
from scafflix.federate.naming import under_names
from scafflix.federate.roster import Roster
from scafflix.federate.server import ServerCore
from scafflix.methods.averaging import share_of
from scafflix.personalization.rules.contract import GRID, Told
from scafflix.record import Record
from scafflix.simulate.taking_part import worth

SILENT = "no answer at the end: it keeps x until it is asked again"
HIDDEN = "chosen by the client, which tells nobody with secure aggregation"
COLUMNS = (
    "round",
    "iterations",
    "local_steps",
    "objective",
    "replies",
    "refused",
    "bits_up",
    "bits_down",
)


def record(
    core: ServerCore,
    evaluations: Mapping[str, Evaluation],
    config: Mapping[str, Any],
    seconds: float,
) -> Record:
    """The record of a finished run, from the server and the clients' final reports."""
    rows = [dict.fromkeys(COLUMNS, 0), *core.rows()]
    metrics = {name: np.array([row[name] for row in rows]) for name in COLUMNS if name in rows[-1]}
    # in a round, clients report on the point that the previous round produced
    reported = [np.nan if row["loss"] is None else row["loss"] for row in rows[1:]]
    told = len(evaluations)
    final = float(np.mean([one.loss for one in evaluations.values()])) if evaluations else np.nan
    if core.reported is not None:
        final, told = core.reported["loss"], int(core.reported["clients"])
    metrics["objective"] = np.array([*reported, final])
    metrics = {name: metrics[name] for name in COLUMNS}
    clients = _clients(core, evaluations) | _chosen(core, evaluations)
    summary = _summary(core, final, told, seconds)
    summary |= {"tuned": config.get("optima") == "after"}  # whether x_i* come from x
    last = rows[-1]["bits_up"], rows[-1]["bits_down"]
    summary |= {
        "closing_bits_up": core.tally.bits_up - last[0],
        "closing_bits_down": core.tally.bits_down - last[1],
        "alpha": _of_alpha(core, clients),
        "reported": core.reported,  # means over the clients, with secure aggregation
        **worth(clients, None, "", core.settings.seed),
    }
    curves = {} if core.others is None else _told(core.others)
    return Record(config, summary, metrics, clients, _models(core), curves)


def _told(others: Told) -> dict[str, NDArray[Any]]:
    """What the clients told together."""
    numbers = {"scarcity": np.array([others.scarcity]), "noise": np.array([others.noise])}
    return {"alpha": GRID, "mean": others.curve, **numbers}


def without_rounds(
    roster: Roster, start: Arrays, config: Mapping[str, Any], seconds: float
) -> Record:
    """Of clients that all have alpha_i = 0: each has its own optimum, and nobody sends anything."""
    people = roster.introductions
    summary = {
        "method": config["method"],
        "n_clients": len(people),
        "n_active": 0,
        "cohort": 0,
        "dim": sum(array.size for array in start),
        "seed": config["seed"],
        "rounds": 0,
        "iterations": 0,
        "run": roster.run,
        "seconds": seconds,
        "versions": versions(),
    }
    clients = {
        "client": np.array([one.client for one in people]),
        "train_examples": np.array([one.examples for one in people]),
        "alpha": np.zeros(len(people)),
    }
    metrics = dict.fromkeys(COLUMNS, np.zeros(1)) | {"objective": np.full(1, np.nan)}
    return Record(config, summary, metrics, clients, under_names("global", people[0].names, start))


def _summary(core: ServerCore, final: float, told: int, seconds: float) -> dict[str, Any]:
    gamma = np.asarray(core.method.gamma)
    return {
        "method": core.method.name,
        "average": share_of(core.method),
        "n_clients": len(core.roster.introductions),
        "n_active": len(core.names),
        "cohort": core.cohort_size,
        "dim": sum(array.size for array in core.x),
        "seed": core.settings.seed,
        "p": float(core.method.p),
        "zeta": float(core.method.rate.zeta),
        "gamma_min": gamma.min(),
        "gamma_max": gamma.max(),
        "rounds": core.round,
        "iterations": core.iteration,
        "final_objective": final,
        "final_objective_clients": told,
        "epoch": core.epoch,
        "run": core.run,
        "refused": core.tally.counts["refused"],
        "dropped": core.tally.counts["dropped"],
        "troubles": {kind: many for kind, many in sorted(core.tally.counts.items()) if many},
        "seconds": seconds,
        "versions": versions(),
        **core.spending.facts(core.round, core.settings.rounds),
    }


def _clients(core: ServerCore, evaluations: Mapping[str, Evaluation]) -> dict[str, NDArray[Any]]:
    people = core.roster.introductions

    def told(name: str, field: str) -> float:
        found = evaluations.get(name)
        return float(getattr(found, field)) if found is not None else np.nan

    def gamma(name: str) -> float:
        return float(core.clients[name].gamma) if name in core.clients else np.nan

    def rounds(name: str) -> int:
        return core.ledger.entries[name].rounds if name in core.clients else 0

    return {
        "client": np.array([one.client for one in people]),
        "train_examples": np.array([one.examples for one in people]),
        "alpha": np.array([one.alpha for one in people]),
        "gamma": np.array([gamma(one.client) for one in people]),
        "rounds": np.array([rounds(one.client) for one in people]),
        "refused": np.array([core.tally.refused_of[one.client] for one in people]),
        "loss_personal": np.array([told(one.client, "loss_personal") for one in people]),
        "score_personal": np.array([told(one.client, "score") for one in people]),
        **core.spending.column([one.client for one in people]),
    }


def _chosen(core: ServerCore, evaluations: Mapping[str, Evaluation]) -> dict[str, NDArray[Any]]:
    """What the clients that chose alpha_i said about it; nothing if alpha was given to all."""
    people = core.roster.introductions
    if not any(one.rule for one in people):
        return {}
    if core.reported is not None:
        unknown = np.full(len(people), np.nan)
        notes = [HIDDEN if one.rule else "" for one in people]
        alphas = np.where([bool(one.rule) for one in people], np.nan, [one.alpha for one in people])
        return {"alpha": alphas, "alpha_note": np.array(notes), "expected_gain": unknown}
    silent = Evaluation(core.run, core.epoch, "", core.round, NONE, np.nan, np.nan)
    told = [evaluations.get(one.client, silent) for one in people]
    alpha = [one.alpha if e is silent else e.alpha for one, e in zip(people, told, strict=True)]
    notes = [
        SILENT if e is silent and one.rule else e.note for one, e in zip(people, told, strict=True)
    ]
    table = {
        "alpha": np.array(alpha),
        "alpha_note": np.array(notes),
        "expected_gain": np.array([e.gain for e in told]),
    }
    for kind in ("local", "global", "personal"):
        losses = np.array([getattr(e, f"test_loss_{kind}") for e in told])
        table |= {f"test_loss_{kind}": losses} if np.isfinite(losses).any() else {}
    return table


def _of_alpha(core: ServerCore, clients: Mapping[str, NDArray[Any]]) -> dict[str, Any] | None:
    """By which rule alpha was chosen, and what it was expected to gain; None where it was given."""
    choosing = [one for one in core.roster.introductions if one.rule]
    if not choosing:
        return None
    notes = [note for note in clients["alpha_note"].tolist() if note]
    gain = clients["expected_gain"]
    return {
        "rule": choosing[0].rule,
        "trained_at": max(one.alpha for one in choosing),
        "mean": float(_mean_alpha(core, clients)),
        "expected_gain": float(np.nanmean(gain)) if np.isfinite(gain).any() else None,
        "notes": {note: notes.count(note) for note in dict.fromkeys(notes)},
    }


def _mean_alpha(core: ServerCore, clients: Mapping[str, NDArray[Any]]) -> Any:
    return clients["alpha"].mean() if core.reported is None else core.reported["alpha"]


def _models(core: ServerCore) -> dict[str, NDArray[Any]]:
    return under_names("global", core.roster.introductions[0].names, core.x)
