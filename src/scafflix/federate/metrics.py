"""The figures of a run for Prometheus, from what the page shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from scafflix.federate.live import REPLIED

Shown = Mapping[str, Any]  # of `live.read_live`, with `nodes` and `phase`
GAUGES = (
    ("rounds_planned", "rounds", "Rounds of the whole run."),
    ("epoch", "epoch", "Times that all control variates were reset."),
    ("cohort_clients", "cohort", "Clients asked in a round."),
    ("minimum_clients", "minimum", "Replies that a round needs."),
    ("epsilon", "epsilon", "Privacy loss so far, where the run counts it."),
    ("seconds_left", "seconds_left", "Seconds until the last round, by the rounds so far."),
)


def families(shown: Shown) -> Iterable[Metric]:
    """All that is known; a figure that the run does not have is left out."""
    phase = GaugeMetricFamily("scafflix_phase", "What the run is doing.", labels=["phase"])
    phase.add_metric([shown["phase"]], 1)
    yield phase
    yield GaugeMetricFamily("scafflix_nodes", "Nodes that the server waits for.", shown["nodes"])
    if "round" not in shown:
        return
    yield CounterMetricFamily("scafflix_rounds", "Closed rounds.", shown["round"])
    yield CounterMetricFamily("scafflix_replies", "Replies in averages.", shown["replies"])
    refusals = CounterMetricFamily(
        "scafflix_refusals", "Refused messages, by what was wrong with them.", labels=["reason"]
    )
    for kind, many in shown["refusals"].items():
        refusals.add_metric([kind], many)
    yield refusals
    events = shown["events"]
    yield CounterMetricFamily("scafflix_failures", "Clients that did not reply.", events["error"])
    yield CounterMetricFamily(
        "scafflix_repeated_attempts", "Rounds begun again.", events["attempts_repeated"]
    )
    sent = CounterMetricFamily(
        "scafflix_bytes", "Bytes of models and messages.", labels=["direction"]
    )
    for way in ("up", "down"):
        sent.add_metric([way], shown[f"bytes_{way}"])
    yield sent
    clients = shown["clients"]
    yield GaugeMetricFamily("scafflix_clients", "Clients that take part.", len(clients))
    answering = sum(one["said"] == REPLIED for one in clients)
    yield GaugeMetricFamily(
        "scafflix_clients_answering", "Clients that replied when last asked.", answering
    )
    for name, key, about in GAUGES:
        if shown.get(key) is not None:
            yield GaugeMetricFamily(f"scafflix_{name}", about, shown[key])
    losses = [loss for _, loss in shown["loss"] if loss is not None]
    if losses:
        yield GaugeMetricFamily("scafflix_loss", "Mean loss of the clients.", losses[-1])
    yield _histogram(shown["seconds"])


def _histogram(seconds: Mapping[str, Any]) -> Metric:
    """Prometheus counts what is at most each bound."""
    bounds = [*map(str, seconds["bounds"]), "+Inf"]
    total, buckets = 0, []
    for bound, many in zip(bounds, seconds["counts"], strict=True):
        total += many
        buckets.append((bound, float(total)))
    return HistogramMetricFamily(
        "scafflix_round_seconds", "Seconds of a round.", buckets=buckets, sum_value=seconds["sum"]
    )


class Collector:
    """Reads anew for every scrape."""

    def __init__(self, read: Callable[[], Shown]) -> None:
        self.read = read

    def collect(self) -> Iterable[Metric]:
        """What `generate_latest` writes."""
        return families(self.read())


def exposition(read: Callable[[], Shown]) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(read))
    return generate_latest(registry)
