"""Which alpha, for a network: one seed of the study.

Every line is a run of the command's own, from the cache if it was made before. A rule mixes after
the rounds, with the shared model as each client tuned it; FLIX trains for the mixture with what
each client found alone, from a random start. The rules go by the validation part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scafflix.core.types import Floats
from scafflix.record import Record
from scafflix.runs.assembly import for_method
from scafflix.runs.config import RunConfig, build
from scafflix.runs.fates import Fate, Fates, fate
from scafflix.runs.runner import Runner

ABOUT_LINES = ("title", "divisions", "alphas", "looks", "rounds", "alone", "tuned")


def fates_of(settings: Mapping[str, Any], panel: Mapping[str, Any], seed: int) -> Fates:
    """What clients have at the end, and after how many rounds, by every line."""
    seeds = {"seed": seed, "model_seed": seed, "data_seed": seed}
    base = {name: value for name, value in panel.items() if name not in ABOUT_LINES} | seeds
    looks, last = panel["looks"], panel["rounds"]
    runner = Runner.of(build(RunConfig, base))

    def run(rounds: int, method: str = "scafflix", **own: Any) -> Record:
        asked = {"rounds": rounds, "every": rounds, "method": method, **own}
        return runner.cached_run(for_method(build(RunConfig, base | asked)))

    flix = {
        alpha: {look: run(look, alpha=alpha, **panel["alone"]) for look in looks}
        for alpha in panel["alphas"]
        if alpha < 1
    }
    alone = next(iter(flix.values()))[last].clients["test_loss_local"]
    chosen = {look: run(look, alpha="validation", **panel["tuned"]) for look in looks}
    common = {look: run(look, "fedavg", alpha=1.0, optima="none") for look in looks}

    def fates(records: Mapping[int, Record], kind: str = "personal") -> dict[int, Fate]:
        return {look: _fate(one, alone, kind) for look, one in records.items()}

    rounds = {
        "FedAvg": fates(common),
        "alpha 1, as trained": fates(chosen, "global"),
        "alpha 1, tuned": fates(chosen, "local"),
        "alpha 1, chosen": fates(chosen),
        **{f"alpha {alpha:g}, as trained": fates(records) for alpha, records in flix.items()},
    }
    ends = {
        "local": _fate(next(iter(flix.values()))[last], alone, "local"),
        "global": rounds["alpha 1, as trained"][last],
        **{f"alpha {alpha:g}": _fate(records[last], alone) for alpha, records in flix.items()},
        "alpha 1": rounds["alpha 1, as trained"][last],
        "validation": rounds["alpha 1, chosen"][last],
    }
    return Fates(ends, rounds, {})


def _fate(record: Record, alone: Floats, kind: str = "personal") -> Fate:
    """By what the record says of every client's test examples."""
    known = record.clients
    return fate(known[f"test_loss_{kind}"], known[f"test_{kind}"], alone)
