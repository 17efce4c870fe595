"""What taking part was worth, in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from scafflix.record import Record


def facts(record: Record) -> dict[str, str]:
    """How alpha was chosen, and who is worse off than alone."""
    made = {}
    chosen: dict[str, Any] | None = record.summary.get("alpha")
    if chosen is not None:
        alpha = np.percentile(record.clients["alpha"], (0, 50, 100))
        low, middle, high = (f"{value:.2g}" for value in alpha)
        made[f"alpha, by {chosen['rule']}"] = f"{low} to {high}, median {middle}"
        if chosen["expected_gain"] is not None:
            made["expected gain of loss"] = f"{chosen['expected_gain']:.4g}"
    found: dict[str, Any] | None = record.summary.get("taking_part")
    if found is not None:
        for kind in ("personal", "global"):
            made[f"{found['part']} loss, {kind}"] = _against_alone(found, kind)
    return made


def _against_alone(found: dict[str, Any], kind: str) -> str:
    one = found[kind]
    side = "above" if one["gain"] < 0 else "below"
    words = f"{abs(one['gain']):.4g} {side} alone; "
    words += f"{one['hurt']} of {found['clients']} clients worse off"
    return words + (f", by {one['harm']:.4g}" if one["hurt"] else "")


def taking_part(record: Record) -> str | None:
    """One sentence for a run with a test part: what taking part gained, for how many of the
    clients, and what it cost."""
    found = record.summary.get("taking_part")
    if found is None or found["part"] != "test" or not record.summary["rounds"]:
        return None
    clients, metrics, metric = record.clients, record.metrics, record.summary["metric"]
    before, after = (np.nanmean(clients[f"test_loss_{kind}"]) for kind in ("local", "personal"))
    mine = found["personal"]
    megabytes = (metrics["bits_up"][-1] + metrics["bits_down"][-1]) / 8e6
    rounds = record.summary["rounds"] + record.summary["warmup_rounds"]
    scores = ""
    if metric == "accuracy":
        alone, home = (100 * np.nanmean(clients[f"test_{kind}"]) for kind in ("local", "personal"))
        scores = f" (accuracy {alone:.1f} to {home:.1f} %)"
    cost = f"at the cost of {rounds} rounds and {megabytes:.3g} megabytes"
    if not after < before:
        return f"Taking part did not lower the mean test loss of {before:.4g}, {cost}."
    return (
        f"Taking part lowered the mean test loss from {before:.4g} to {after:.4g}{scores}, for "
        f"{mine['gaining']} of {found['clients']} clients ({mine['hurt']} are worse off than "
        f"alone), {cost}."
    )
