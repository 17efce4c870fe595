"""The two sentences at the end of a run say what its record says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import made
import numpy as np
import pytest

from scafflix.record import Record
from scafflix.report.recommendation import NAMED, NOT_TOLD, recommendation
from scafflix.simulate.taking_part import gained, taken_home


def with_losses(
    local: Any, personal: Any, error: Any = None, shared: Any = None, **summary: Any
) -> Record:
    """A record whose clients have these losses, and accuracies of nearly one."""
    record, n = made.numbers(clients=len(local)), len(local)
    table = {
        **record.clients,
        "client": np.array([f"site-{k}" for k in range(n)]),
        "test_loss_local": np.array(local, float),
        "test_loss_personal": np.array(personal, float),
        "test_loss_global": np.array(local if shared is None else shared, float),
        "test_local": np.full(n, 0.9),
        "test_global": np.full(n, 0.95),
        "test_personal": np.linspace(0.93, 0.95, n),
    }
    table |= {} if error is None else {"test_gain_error": np.array(error, float)}
    found = {
        "taking_part": gained(table),
        "taken_home": taken_home(table, None, "accuracy", 0),
        **summary,
    }
    return replace(record, clients=table, summary={**record.summary, **found})


def test_the_first_sentence_has_the_mean_and_both_differences_with_their_intervals() -> None:
    record = with_losses([0.4] * 8, [0.3] * 8)
    first, _ = recommendation(record)
    home = record.summary["taken_home"]
    low, high = (f"{100 * end:.1f}" for end in home["interval"])
    assert (
        f"test accuracy of 94.0 % on average over 8 clients (95 % interval {low} to {high}" in first
    )
    low, high = (f"{100 * end:+.1f}" for end in home["local"]["interval"])
    assert f"4.0 points above each alone ({low} to {high})" in first
    assert "1.0 points below one model for all (-" in first
    assert "chance" not in first


def test_a_difference_whose_interval_holds_zero_may_be_chance() -> None:
    record = with_losses([0.4] * 6, [0.3] * 6)
    noisy = {**record.clients, "test_local": np.array([0.5, 1, 0.9, 1, 1, 1])}
    home = taken_home(noisy, None, "accuracy", 0)
    first, _ = recommendation(replace(record, summary={**record.summary, "taken_home": home}))
    assert first.endswith("; the first may be chance.")


def test_few_clients_for_whom_it_does_not_pay_are_named() -> None:
    local, personal = [0.4, 0.4, 0.4, 0.4], [0.3, 0.5, 0.6, 0.4]
    _, second = recommendation(with_losses(local, personal, [0.1, 0.1, 0.05, 0.1]))
    assert (
        "taking part does not pay for 3 of 4 clients: site-1 and site-2 have more than alone"
        in (second)
    )
    assert "(site-2 by more than 2 standard errors), site-3 has as much" in second
    assert "By test loss, on average 0.05 above alone (-" in second


def test_many_are_counted() -> None:
    n = 4 * NAMED
    _, few = recommendation(with_losses([0.4] * n, [0.5] + [0.4] * (n - 1)))
    assert f"does not pay for {n} of {n} clients: site-0 has more than alone, {n - 1} have" in few
    personal = np.where(np.arange(n) % 2, 0.5, 0.3)
    _, second = recommendation(with_losses([0.4] * n, personal, np.full(n, 0.01)))
    half = n // 2
    assert (
        f"does not pay for {half} of {n} clients: {half} have more than alone ({half} by" in second
    )
    assert "site-" not in second


def test_where_it_pays_for_all_it_says_so_and_what_it_took() -> None:
    record = with_losses([0.4] * 3, [0.3] * 3)
    _, second = recommendation(record)
    bits = record.metrics["bits_up"][-1] + record.metrics["bits_down"][-1]
    assert "taking part pays for all 3 clients; it took 50 rounds and " in second
    assert second.endswith(f" {bits / 8e6:.3g} megabytes.")


def test_clients_without_test_examples_are_not_counted() -> None:
    _, second = recommendation(with_losses([0.4, 0.4, np.nan], [0.3, 0.5, np.nan]))
    assert "does not pay for 1 of 2 clients with test examples: site-1 has more" in second


def test_where_nobody_has_a_model_of_its_own_the_second_says_what_is_missing() -> None:
    record = with_losses([0.4] * 3, [0.3] * 3, taking_part=None)
    assert recommendation(record)[1].startswith("For whom taking part pays is not known")


def test_a_run_without_a_test_part_or_without_rounds_ends_without_words() -> None:
    record = made.numbers()
    assert recommendation(record) == ()
    held_out = with_losses([0.4] * 3, [0.3] * 3)
    assert recommendation(replace(held_out, summary={**held_out.summary, "rounds": 0})) == ()
    home = {**held_out.summary["taken_home"], "part": "validation"}
    assert recommendation(replace(held_out, summary={**held_out.summary, "taken_home": home})) == ()


def test_a_federation_speaks_of_losses_or_says_that_it_was_not_told() -> None:
    deployed = made.deployment()
    assert recommendation(deployed) == (NOT_TOLD,)
    losses = with_losses([0.4] * 4, [0.3, 0.3, 0.3, 0.5])
    table = {name: v for name, v in losses.clients.items() if name.startswith(("client", "test_l"))}
    del table["test_local"]
    summary = {
        **deployed.summary,
        "taking_part": gained(table),
        "taken_home": taken_home(table, None, "", 0),
    }
    first, second = recommendation(replace(deployed, clients=table, summary=summary))
    assert "test loss of 0.35 on average over 4 clients (95 % interval" in first
    assert "0.05 below each alone (" in first
    assert second.startswith("By test loss, taking part does not pay for 1 of 4 clients: site-3")


# made in the test: workers that collect at once would compile the same programs at once
@pytest.mark.parametrize("make", [lambda: made.convex()[0], made.network])
def test_real_runs_of_both_kinds_end_with_two_sentences(make: Callable[[], Record]) -> None:
    record = make()
    first, second = recommendation(record)
    assert first.startswith("The models that clients take home have a test accuracy of ")
    assert "taking part" in second
