"""Which alpha, for a network: one seed of the study.

Every line is a run of the command's own, from the cache if it was made before: after a warm-up by
FedAvg, each client tunes the warm model into its x_i*, and rounds go on from it. The rules go by
the validation part, which early stopping needs anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scafflix.record import Record
from scafflix.runs.assembly import for_method
from scafflix.runs.config import RunConfig, build
from scafflix.runs.fates import Fate, Fates, fate
from scafflix.runs.runner import Runner

ABOUT_LINES = ("title", "divisions", "alphas", "looks", "rounds")
LOWER = (0.3, 0.5)  # alphas of training that are looked at round by round, besides 1


def fates_of(settings: Mapping[str, Any], panel: Mapping[str, Any], seed: int) -> Fates:
    """What clients have at the end, and after how many rounds, by every line."""
    seeds = {"seed": seed, "model_seed": seed, "data_seed": seed}
    base = {name: value for name, value in panel.items() if name not in ABOUT_LINES} | seeds
    looks, last = panel["looks"], panel["rounds"]
    runner = Runner.of(build(RunConfig, base))

    def run(alpha: Any, rounds: int = last, method: str = "scafflix") -> Record:
        own = {"alpha": alpha, "rounds": rounds, "every": rounds, "method": method}
        return runner.cached_run(for_method(build(RunConfig, base | own)))

    chosen = {look: run("validation", look) for look in looks}
    ends = {
        "local": _fate(chosen[last], "local"),
        "global": _fate(chosen[last], "global"),
        **{f"alpha {alpha:g}": _fate(run(alpha)) for alpha in panel["alphas"] if alpha < 1},
        "alpha 1": _fate(chosen[last], "global"),
        "validation": _fate(chosen[last]),
        "common": _fate(run("common")),
    }
    rounds = {
        "FedAvg": {look: _fate(run(1.0, look, "fedavg")) for look in looks},
        "alpha 1, as trained": {look: _fate(one, "global") for look, one in chosen.items()},
        "alpha 1, chosen": {look: _fate(one) for look, one in chosen.items()},
        **{
            f"alpha {alpha:g}, as trained": {look: _fate(run(alpha, look)) for look in looks}
            for alpha in LOWER
        },
    }
    return Fates(ends, rounds, {})


def _fate(record: Record, kind: str = "personal") -> Fate:
    """By what the record says of every client's test examples."""
    known = record.clients
    alone = known["test_loss_local"]
    return fate(known[f"test_loss_{kind}"], known[f"test_{kind}"], alone)
