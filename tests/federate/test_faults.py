"""Exactly once: after any mixture of faults the run converges and sum_i alpha_i h_i = 0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hospitals import (
    LEARNERS,
    SAMPLED,
    Crash,
    Direct,
    Faulty,
    Quadratic,
    flat,
    flix_optimum,
    fresh_roster,
    imbalance,
    make_server,
    quadratic_hospitals,
    quick_folder,
)

from scafflix.core.errors import ScafflixError
from scafflix.core.vector import Vector
from scafflix.federate.client import ClientCore
from scafflix.federate.client_state import Memory
from scafflix.federate.closing import Farewell
from scafflix.federate.serving import serve
from scafflix.methods.method import Sent

START = LEARNERS[0].start()
ROUNDS = 300


class Outcome:
    """Where a run with faults ended."""

    def __init__(self, distance: float, invariant: float, server: Any, transport: Any) -> None:
        self.distance, self.invariant = distance, invariant
        self.server, self.transport = server, transport


def play(
    folder: Path,
    seed: int,
    *,
    rounds: int = ROUNDS,
    rate: float = 0.15,
    kind: type[ClientCore] = ClientCore,
    learners: Sequence[Quadratic] = LEARNERS,
    amnesia: float = 0.0,
    server_crashes: float = 0.0,
    **settings: Any,
) -> Outcome:
    """A run with faults, then quiet farewells so that everybody settles."""
    hospitals = quadratic_hospitals(folder, kind, learners=learners)
    roster = fresh_roster(hospitals)
    random = np.random.default_rng(1000 + seed)
    faulty = Faulty(hospitals, seed, rate)
    faulty.amnesia = amnesia

    def hook(moment: str) -> None:
        if random.random() < server_crashes:
            raise Crash(moment)

    options = {"rounds": rounds, "minimum": 1, "attempts": 50, "seed": seed, **settings}
    server = None
    while server is None or not server.done:
        try:
            server = make_server(folder, roster, START, hook=hook, **options)
            while not server.done:
                again = [
                    n for n, reply in faulty.exchange(server.requests()) if server.receive(n, reply)
                ]
                for name, reply in faulty.exchange({n: server.request(n) for n in again}):
                    server.receive(name, reply)
                server.close()
        except Crash:
            server = None
    quiet = make_server(folder, roster, START, **options)
    serve(quiet, Direct(hospitals))
    x, _ = flix_optimum()
    return Outcome(
        float(np.linalg.norm(flat(quiet.x) - x)), imbalance(quiet, hospitals), quiet, faulty
    )


@pytest.mark.parametrize("seed", range(4))
def test_any_mixture_of_faults_leaves_the_optimum_and_the_invariant(seed: int) -> None:
    with quick_folder() as folder:
        made = play(folder, seed, cohort=None if seed % 2 else 3)
    assert made.distance < 1e-8
    assert made.invariant < 1e-8
    assert all(made.transport.happened.values())  # every kind of fault struck
    assert made.server.tally.counts["late"] > 0


@pytest.mark.parametrize(
    ("name", "chosen"), [("tamuna", {}), ("locodl", {"compressor": "rand_k:0.6"})]
)
def test_compressed_uploads_are_committed_exactly_once_too(
    name: str, chosen: dict[str, Any]
) -> None:
    ends = []
    for faults in (False, True):
        with quick_folder() as folder:
            hospitals = quadratic_hospitals(folder)
            wire = Faulty(hospitals, seed=2) if faults else Direct(hospitals)
            everybody: dict[str, Any] = {"minimum": len(hospitals), "attempts": 100}
            server = make_server(
                folder, fresh_roster(hospitals), START, name, rounds=15, **everybody, **chosen
            )
            while not server.done:
                for client, reply in wire.exchange(server.requests()):
                    server.receive(client, reply)
                server.close()
            assert server.tally.counts["refused"] == 0
            ends.append((flat(server.x), server.tally.bits_up))
    assert server.tally.counts["attempts_repeated"] > 10
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


@pytest.mark.parametrize("seed", range(2))
def test_a_server_that_crashes_at_any_write_goes_on_from_its_checkpoint(seed: int) -> None:
    with quick_folder() as folder:
        made = play(folder, seed, server_crashes=0.03, mirror=bool(seed))
    assert made.distance < 1e-8
    assert made.invariant < 1e-8
    assert made.server.tally.counts["resumed"] > 10


class NaiveClient(ClientCore):
    """Commits whatever it sent last with whatever average it hears of next."""

    def _settle(self, message: Any, kept: Memory, method: Any, client: Any) -> Memory:
        if kept.pending is None:
            return kept
        x_hat = Vector(kept.pending.local)
        sent, after = (Sent(Vector(point)) for point in (kept.pending.sent, message.point))
        state = method.commit(client, kept.state, sent, x_hat, after, kept.pending.steps)
        committed = message.included  # as the server hopes
        return kept._replace(state=state, committed=committed, pending=None)


def test_the_naive_rule_fails_the_same_test() -> None:
    with quick_folder() as folder:
        made = play(folder, seed=1, kind=NaiveClient)
    assert made.invariant > 1e-2
    assert made.distance > 1e-2


def test_the_naive_rule_is_right_where_nothing_goes_wrong() -> None:
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder, NaiveClient)
        server = make_server(folder, fresh_roster(hospitals), START, rounds=150)
        serve(server, Direct(hospitals))
        assert np.linalg.norm(flat(server.x) - flix_optimum()[0]) < 1e-8


def test_clients_with_amnesia_get_their_state_back_from_the_mirror() -> None:
    with quick_folder() as folder:
        made = play(folder, seed=5, amnesia=0.05, mirror=True, server_crashes=0.01)
    assert made.transport.happened["amnesia"] > 20
    assert made.server.tally.counts["restored"] > 10
    assert made.distance < 1e-8
    assert made.invariant < 1e-8


def test_what_gradients_remember_outlives_faults_and_is_found_anew_where_it_is_lost() -> None:
    with quick_folder() as folder:
        made = play(folder, seed=6, learners=SAMPLED, amnesia=0.03, mirror=True, minimum=2)
    assert made.transport.happened["amnesia"] > 10
    assert made.server.tally.counts["restored"] > 5
    assert made.distance < 1e-8  # plain minibatches stop at about 0.1
    assert made.invariant < 1e-8


def test_without_a_mirror_amnesia_is_refused_until_a_new_epoch() -> None:
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder)
        server = make_server(folder, fresh_roster(hospitals), START, rounds=400, minimum=1)
        faulty = Faulty(hospitals, seed=3)

        def play_until(round: int) -> None:
            while server.round < round:
                for name, reply in faulty.exchange(server.requests()):
                    server.receive(name, reply)
                server.close()

        play_until(60)
        hospitals["clinic-2"].forget()
        before = server.ledger.entries["clinic-2"].rounds
        play_until(120)
        assert server.tally.counts["client_lost"] > 10
        assert server.ledger.entries["clinic-2"].rounds == before
        reply = hospitals["clinic-2"].handle(server.request("clinic-2"))
        assert "mirror" in reply.reason
        assert "new epoch" in reply.reason
        server.new_epoch()
        play_until(400)
        serve(server, Direct(hospitals))
        assert server.ledger.entries["clinic-2"].rounds > before
        assert np.linalg.norm(flat(server.x) - flix_optimum()[0]) < 1e-8
        assert imbalance(server, hospitals) < 1e-8


def test_in_a_new_epoch_the_server_forgets_the_mean_of_control_variates_too() -> None:
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder)
        server = make_server(folder, fresh_roster(hospitals), START, "scaffold", rounds=400)
        while server.round < 3:
            for name, reply in Direct(hospitals).exchange(server.requests()):
                server.receive(name, reply)
            server.close()
        assert np.abs(flat(server.server.c)).max() > 1e-3
        x = flat(server.x)
        server.new_epoch()
        assert not flat(server.server.c).any()
        np.testing.assert_array_equal(flat(server.x), x)
        serve(server, Direct(hospitals))
        assert np.linalg.norm(flat(server.x) - flix_optimum()[0]) < 1e-8


def test_a_method_whose_clients_and_server_begin_at_one_point_has_no_new_epoch() -> None:
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder)
        server = make_server(folder, fresh_roster(hospitals), START, "locodl", rounds=4)
        with pytest.raises(ScafflixError, match="With locodl clients cannot begin anew"):
            server.new_epoch()
        assert server.epoch == 0


def test_control_variates_end_at_the_gradients_of_the_optimum() -> None:
    with quick_folder() as folder:
        made = play(folder, seed=7)
        _, expected = flix_optimum()
        hospitals = quadratic_hospitals(folder)
        for h, (name, hospital) in zip(expected, hospitals.items(), strict=True):
            found = hospital.core.control(Farewell(made.server).request(name))
            np.testing.assert_allclose(flat(found), h, atol=1e-8)


def test_an_average_is_kept_until_everybody_in_it_has_committed_and_then_dropped() -> None:
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder)
        server = make_server(folder, fresh_roster(hospitals), START, rounds=60, minimum=1)

        def averages() -> list[str]:
            return sorted(path.name for path in server.files.folder.glob("average-*"))

        def round_without(*away: str) -> None:
            for name, request in server.requests().items():
                if name not in away:
                    server.receive(name, hospitals[name].handle(request))
            server.close()

        round_without()
        round_without("clinic-1")  # it was in round 0 and does not hear of it
        assert averages() == ["average-0.safetensors"]
        for _ in range(30):
            round_without("clinic-1")
        assert averages() == ["average-0.safetensors"]
        round_without()
        assert averages() == []
        for _ in range(10):
            round_without()
        assert averages() == []
        serve(server, Direct(hospitals))
        assert imbalance(server, hospitals) < 1e-10
