"""Privacy between machines: the in-process clients of `hospitals`, each with a guard."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hospitals import (
    ALPHA,
    LEARNERS,
    Direct,
    Faulty,
    Hospital,
    imbalance,
    introduce,
)
from scipy import stats

from scafflix.core.errors import ScafflixError
from scafflix.federate.client import ClientCore
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.draws import secret_normals
from scafflix.federate.messages import Evaluation, Introduction, Refusal, Train, Upload
from scafflix.federate.planning import advice
from scafflix.federate.privacy import Guard, Terms, terms_of
from scafflix.federate.records import record
from scafflix.federate.roster import Roster, new_roster
from scafflix.federate.secure.server import SecureServer
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import serve
from scafflix.federate.settings import Settings
from scafflix.federate.spending import Asked
from scafflix.gradients import Exact
from scafflix.methods import METHODS
from scafflix.privacy import epsilon_of_gaussians
from scafflix.runs.config import build

N = len(ALPHA)
TERMS = Terms(clip=0.5, noise=2.0, delta=1e-3)


def private_hospitals(folder: Path, terms: Terms = TERMS) -> dict[str, Hospital]:
    def make(number: int, hook: Any) -> ClientCore:
        one = (f"clinic-{number}", ALPHA[number], LEARNERS[number], folder / "nodes", hook)
        return ClientCore(*one, guard=Guard(terms))

    return {f"clinic-{k}": Hospital(partial(make, k)) for k in range(N)}


def server_of(
    folder: Path,
    hospitals: Any,
    terms: Terms = TERMS,
    roster: Roster | None = None,
    **settings: Any,
) -> ServerCore:
    roster = roster or new_roster(introduce(hospitals))
    people = [one for one in roster.introductions if one.alpha > 0]
    method = METHODS["scafflix"](advice(people, Exact(), 0.2, 0.5), p=0.5)
    chosen = Settings(**{"rounds": 6, "privacy": terms, **settings})
    start = LEARNERS[0].start().tree
    (folder / "server").mkdir(exist_ok=True)
    kind = SecureServer if chosen.secure_aggregation else ServerCore
    return kind(folder / "server", roster, method, start, chosen)


def test_normal_numbers_of_the_system_are_normal() -> None:
    drawn = secret_normals((40, 50))
    assert drawn.shape == (40, 50)
    assert stats.kstest(drawn.ravel(), "norm").pvalue > 1e-4


def test_nothing_made_of_data_is_told_but_noisy_uploads(tmp_path: Path) -> None:
    hospitals = private_hospitals(tmp_path)
    for one in introduce(hospitals):
        assert (one.gamma, one.gamma_mu, one.gamma_L) == (0, 0, 0)
    core, transport = server_of(tmp_path, hospitals), Direct(hospitals)
    told = serve(core, transport)
    for message in transport.seen:
        if isinstance(message, Upload):
            assert math.isnan(message.loss)
        if isinstance(message, Evaluation):
            assert math.isnan(message.loss)
            assert math.isnan(message.score)
            assert math.isnan(message.loss_personal)
        assert not isinstance(message, Introduction)
    made = record(core, told, {"method": "scafflix"}, 1.0)
    facts = made.summary["privacy"]
    weights = np.array([core.spending.weights[name] for name in core.names]) ** 2
    share = core.least_noisy * weights / weights.sum() / TERMS.noise**2
    wanted = [epsilon_of_gaussians(6 * one, TERMS.delta) for one in share.tolist()]
    found = dict(zip(made.clients["client"].tolist(), made.clients["epsilon"], strict=True))
    np.testing.assert_allclose([found[name] for name in core.names], wanted)
    assert facts["epsilon"] == pytest.approx(max(wanted))
    assert imbalance(core, hospitals) < 1e-9


def test_uploads_are_clipped_and_as_noisy_as_said(tmp_path: Path) -> None:
    terms = Terms(clip=0.5, noise=2.0, delta=1e-3)
    hospitals = private_hospitals(tmp_path, terms)
    core = server_of(tmp_path, hospitals, terms, rounds=40)
    drawn = []
    while not core.done:
        for name, request in core.requests().items():
            reply = hospitals[name].handle(request)
            assert isinstance(reply, Upload)
            drawn += [np.ravel(a - b) for a, b in zip(reply.point, core.point, strict=True)]
            core.receive(name, reply)
        core.close()
    size = np.sqrt(np.mean(np.concatenate(drawn) ** 2))
    part = terms.clip * terms.noise / math.sqrt(core.least_noisy)
    assert part < 1.15 * size  # the noise is there,
    assert size < 1.15 * math.hypot(part, terms.clip / math.sqrt(5))  # and all else is clipped


def test_a_repeated_message_gets_the_same_reply_and_another_round_another_noise(
    tmp_path: Path,
) -> None:
    hospitals = private_hospitals(tmp_path)
    core = server_of(tmp_path, hospitals)
    name, request = next(iter(core.requests().items()))
    first, again = hospitals[name].handle(request), None
    hospitals[name].restart()
    again = hospitals[name].handle(request)
    assert isinstance(first, Upload)
    assert isinstance(again, Upload)
    for a, b in zip(first.point, again.point, strict=True):
        np.testing.assert_array_equal(a, b)


def test_noise_is_hidden_in_sums_too_and_counted_alike(tmp_path: Path) -> None:
    spent = []
    for secure in (False, True):
        folder = tmp_path / str(secure)
        folder.mkdir()
        hospitals = private_hospitals(folder)
        core, wire = server_of(folder, hospitals, secure_aggregation=secure), Direct(hospitals)
        told = serve(core, wire)
        assert imbalance(core, hospitals) < 1e-9
        spent.append(record(core, told, {"method": "scafflix"}, 1.0).summary["privacy"]["epsilon"])
        assert any(isinstance(one, Upload) for one in wire.seen) != secure
    assert spent[0] == spent[1]


def test_the_invariant_survives_faults(tmp_path: Path) -> None:
    hospitals = private_hospitals(tmp_path)
    core = server_of(tmp_path, hospitals, rounds=15, attempts=100)
    serve(core, Faulty(hospitals, 0))
    assert core.round == 15
    settled = Direct(hospitals)
    serve(core, settled)
    assert imbalance(core, hospitals) < 1e-9


def test_the_budget_ends_the_run_at_the_server_and_binds_the_client_itself(tmp_path: Path) -> None:
    hospitals = private_hospitals(tmp_path, TERMS._replace(budget=3.0))
    core = server_of(tmp_path, hospitals, TERMS._replace(budget=3.0), rounds=100)
    serve(core, Direct(hospitals))
    assert 0 < core.round < 100
    assert core.spending.worst is not None
    assert core.spending.worst <= 3.0
    name = core.names[0]
    refused = None
    for extra in range(200):  # a server that goes on asking
        message = core.request(name)._replace(round=core.round + extra)
        assert isinstance(message, Train)
        reply = hospitals[name].handle(message)
        if isinstance(reply, Refusal):
            refused = reply
            break
    assert refused is not None
    assert "beyond the budget 3" in refused.reason


def test_a_server_that_starts_again_goes_on_counting(tmp_path: Path) -> None:
    hospitals = private_hospitals(tmp_path)
    core = server_of(tmp_path, hospitals, rounds=3)
    serve(core, Direct(hospitals))
    again = server_of(tmp_path, hospitals, roster=core.roster, rounds=5)
    assert again.spending.spent == core.spending.spent
    asked = Asked({}, again.least_noisy, 1)
    again.spending.take((0, 2), again.names, asked)  # the last round, closed again
    assert again.spending.spent == core.spending.spent


GOOD = {
    "data": "digits", "model": "softmax", "classes": (0, 1), "privacy": "client", "clip": 1.0,
    "budget": 2.0, "delta": 1e-3, "stepsize": 0.1, "p": 0.5, "alpha": 0.5, "rounds": 10,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stepsize": "auto"}, "Stepsizes by theory are made of the clients' data"),
        ({"alpha": "common"}, "a client decides alone"),
        ({"delta": None}, "delta is missing"),
        ({"clip": None}, "clip is missing"),
        ({"budget": None}, "Give noise_multiplier, or budget"),
        ({"budget": -1.0}, "budget is -1"),
    ],
)
def test_what_would_tell_more_is_refused(changes: dict[str, Any], words: str) -> None:
    config: DeployConfig = build(DeployConfig, GOOD)
    terms = terms_of(checked(config))
    assert terms is not None
    assert epsilon_of_gaussians(10 / terms.noise**2, 1e-3) == pytest.approx(2.0, rel=1e-3)
    from dataclasses import replace

    with pytest.raises(ScafflixError, match=words):
        checked(replace(config, **changes))
