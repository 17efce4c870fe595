"""Secure aggregation makes the same models, whoever drops out and whatever crashes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hospitals import (
    ALPHA,
    LEARNERS,
    Crash,
    Direct,
    Faulty,
    Hospital,
    Quadratic,
    flat,
    flix_optimum,
    fresh_roster,
    imbalance,
    make_server,
    quadratic_hospitals,
    quick_folder,
)
from jax.tree_util import Partial

from made_up import made_up
from scafflix.core.errors import DivergenceError, ScafflixError
from scafflix.core.vector import Vector
from scafflix.federate.client import ClientCore
from scafflix.federate.closing import Farewell
from scafflix.federate.learner import Place
from scafflix.federate.messages import Evaluate, Refusal, Request, Train
from scafflix.federate.records import record
from scafflix.federate.secure.messages import Keys, Mask, Masked, Share, Unmask, Unmasked
from scafflix.federate.serving import Failure, serve
from scafflix.methods import METHODS, Method
from scafflix.methods.fedavg import fedavg
from scafflix.theory import Plan

START = LEARNERS[0].start()
STAGES: list[Any] = [Train, Share, Mask, Unmask]


class Dropping(Direct):
    """Messages of some kinds do not reach some clients, a number of times."""

    def __init__(
        self, hospitals: Mapping[str, Hospital], lost: Mapping[Any, Collection[str]], times: int = 1
    ) -> None:
        super().__init__(hospitals)
        self.lost, self.times = lost, dict.fromkeys(lost, times)

    def exchange(self, requests: Mapping[str, Request]) -> Iterable[tuple[str, Any]]:
        kind: Any = type(next(iter(requests.values())))
        away = self.lost.get(kind, ()) if self.times.get(kind) else ()
        if self.times.get(kind):
            self.times[kind] -= 1
        for name in away:
            if name in requests:
                yield name, Failure("it is away.")
        yield from super().exchange({k: v for k, v in requests.items() if k not in away})


def controls(server: Any, hospitals: Mapping[str, Hospital]) -> list[Any]:
    """h_i of all clients, or nothing for a method without."""
    messages = {name: Farewell(server).request(name) for name in hospitals}
    found = [hospital.core.control(messages[name]) for name, hospital in hospitals.items()]
    return [] if found[0] is None else [flat(one) for one in found]


def outcome(
    name: str = "scafflix",
    lost: Mapping[Any, Collection[str]] | None = None,
    users: Callable[..., Method] | None = None,
    learners: Any = LEARNERS,
    **settings: Any,
) -> tuple[Any, list[Any], Any]:
    """x, h_i, and the server at the end of a short run."""
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder, method=users, learners=learners)
        start, asked = learners[0].start(), {"rounds": 3, "seed": 2, **settings}
        server = make_server(folder, fresh_roster(hospitals), start, name, make=users, **asked)
        serve(server, Dropping(hospitals, lost or {}))
        return flat(server.x), controls(server, hospitals), server


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", [*METHODS, "made_up"])
def test_every_method_makes_the_models_that_it_makes_without(name: str) -> None:
    users = made_up if name == "made_up" else None
    plain, secure = (
        outcome(name, users=users, cohort=4, secure_aggregation=on) for on in (False, True)
    )
    scale = max(1.0, np.abs(plain[0]).max())
    np.testing.assert_allclose(secure[0], plain[0], rtol=0, atol=1e-13 * scale)
    np.testing.assert_allclose(secure[1], plain[1], rtol=0, atol=1e-12 * scale)
    losses = [[row["loss"] for row in server.rows()] for *_, server in (plain, secure)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-12)


class Small(Quadratic):
    """In single precision."""

    def start(self) -> Vector:
        return Vector((np.ones(3, np.float32), np.ones((1, 2), np.float32)))

    def gradient(self, point: Vector, place: Place) -> Vector:
        made = super().gradient(point, place)
        return Vector(tuple(leaf.astype(np.float32) for leaf in made.tree))

    def optimum(self) -> Vector:
        return Vector(tuple(leaf.astype(np.float32) for leaf in super().optimum().tree))


def test_single_precision_too_with_one_word_a_number() -> None:
    small = [Small(number) for number in range(len(ALPHA))]
    plain, secure = (outcome(learners=small, secure_aggregation=on) for on in (False, True))
    np.testing.assert_allclose(secure[0], plain[0], rtol=0, atol=2e-6)
    assert secure[2].x[0].dtype == np.float32
    assert secure[2].gathering.fixed.limbs == 1


def weighing_by_distance(plan: Plan) -> Method:
    """FedAvg whose clients count for more the further they went."""

    def upload(client: Any, state: Any, sent: Any, x: Any) -> Any:
        (first, *_) = jax.tree.leaves(x - sent.x)
        return x, 1.0 + abs(first).sum()

    return replace(fedavg(plan), name="weighing", settings={}, upload=Partial(upload))


def test_a_method_whose_weights_depend_on_data_is_refused_before_anything_is_written() -> None:
    with quick_folder() as folder:
        roster = fresh_roster(quadratic_hospitals(folder))
        asked: dict[str, Any] = {"rounds": 3, "make": weighing_by_distance}
        with pytest.raises(ScafflixError, match="those of weighing depend on data"):
            make_server(folder, roster, START, secure_aggregation=True, **asked)
        assert not list((folder / "server").iterdir())
        make_server(folder, roster, START, **asked)  # the property, not the name, is refused


# dropouts


@pytest.mark.parametrize("stage", STAGES, ids=lambda kind: kind.__name__)
def test_who_drops_out_is_in_no_sum_and_the_others_are(stage: Any) -> None:
    gone = ["clinic-1", "clinic-4"]
    in_sum = stage is Unmask
    plain = outcome(lost={} if in_sum else {Train: gone})
    secure = outcome(lost={stage: gone}, secure_aggregation=True)
    np.testing.assert_allclose(secure[0], plain[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(secure[1], plain[1], rtol=0, atol=1e-12)
    server = secure[2]
    rounds = [server.ledger.entries[name].rounds for name in server.names]
    assert rounds == [3, 3 if in_sum else 2, 3, 3, 3 if in_sum else 2]
    assert not server.tally.counts["attempts_repeated"]


@pytest.mark.parametrize("stage", STAGES[:3], ids=lambda kind: kind.__name__)
def test_with_too_few_left_the_attempt_is_repeated_with_fresh_keys(stage: Any) -> None:
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder)
        asked = {"rounds": 3, "seed": 2, "secure_aggregation": True}
        server = make_server(folder, fresh_roster(hospitals), START, **asked)
        wire = Dropping(hospitals, {stage: ["clinic-0", "clinic-1", "clinic-2"]})
        serve(server, wire)
        assert server.tally.counts["attempts_repeated"] == 1
        x, h = flat(server.x), controls(server, hospitals)
    keys = [one for one in wire.seen if isinstance(one, Keys) and one.round == 0]
    assert len({one.attempt for one in keys}) == 2
    assert len({one.mask for one in keys}) == len(keys) == (7 if stage is Train else 10)
    plain = outcome()
    np.testing.assert_allclose(x, plain[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(h, plain[1], rtol=0, atol=1e-12)


def test_with_too_few_left_to_unmask_they_are_asked_again_and_nobody_for_another_sum() -> None:
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder)
        roster = fresh_roster(hospitals)
        asked = {"rounds": 2, "attempts": 2, "seed": 2, "secure_aggregation": True}
        server = make_server(folder, roster, START, **asked)
        wire = Dropping(hospitals, {Unmask: ["clinic-0", "clinic-1", "clinic-2"]}, times=3)
        with pytest.raises(ScafflixError, match="got 2 of the 3 replies it needs, in 2 attempts"):
            serve(server, wire)
        again = make_server(folder, roster, START, **asked)  # the operator starts it again
        assert all(isinstance(one, Unmask) for one in again.requests().values())
        serve(again, wire)
        attempts = {one.attempt for one in wire.seen if isinstance(one, Train) and not one.round}
        assert len(attempts) == 1
        plain = outcome(rounds=2)
        np.testing.assert_allclose(flat(again.x), plain[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(controls(again, hospitals), plain[1], rtol=0, atol=1e-12)
        left = [path.stem for path in (folder / "server").glob("masked-*")]
        assert left == ["masked-0-2-evaluation"]


# crashes


def _play(server: Any, wire: Any, until: int) -> None:
    while server.round < until:
        for name, reply in wire.exchange(server.requests()):
            server.receive(name, reply)
        server.close()


class Killing(Direct):
    """One client is killed at a moment of its work, and is given the same message again."""

    def __init__(self, hospitals: Mapping[str, Hospital], victim: str, moment: int) -> None:
        super().__init__(hospitals)
        self.victim, self.left = victim, moment
        self.killed = ""

    def exchange(self, requests: Mapping[str, Request]) -> Iterable[tuple[str, Any]]:
        hospital = self.hospitals[self.victim]

        def alarm(moment: str) -> None:
            if not self.left and not self.killed:
                self.killed = moment
                raise Crash(moment)
            self.left -= 1

        for name, request in requests.items():
            try:
                hospital.alarm = alarm
                reply = self.hospitals[name].handle(request)
            except Crash:
                self.hospitals[name].restart()
                reply = self.hospitals[name].handle(request)
            yield name, reply


def test_a_client_killed_at_any_moment_goes_on_with_the_same_secrets() -> None:
    expected = outcome(rounds=1, secure_aggregation=True)
    killed = []
    for moment in range(100):
        with quick_folder() as folder:
            hospitals = quadratic_hospitals(folder)
            hospitals["clinic-1"].core.optimum  # noqa: B018  found before the first round
            asked = {"rounds": 1, "seed": 2, "secure_aggregation": True}
            server = make_server(folder, fresh_roster(hospitals), START, **asked)
            wire = Killing(hospitals, "clinic-1", moment)
            _play(server, wire, 1)
            hospitals["clinic-1"].restart()
            assert not server.tally.counts["attempts_repeated"]
            np.testing.assert_array_equal(flat(server.x), expected[0])
            serve(server, Direct(hospitals))
            np.testing.assert_array_equal(controls(server, hospitals), expected[1])
        if not wire.killed:
            break
        killed.append(wire.killed)
    assert len(killed) == 1 + 3 + 4 * 3  # trained; three moments of each of five writes
    assert sum("secure" in one for one in killed) == 4 * 3


def test_a_server_killed_at_any_moment_closes_the_same_rounds() -> None:
    plain = outcome(rounds=1)
    killed: list[str] = []
    for moment in range(100):
        left = moment

        def alarm(what: str) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                killed.append(what)
                raise Crash(what)

        with quick_folder() as folder:
            hospitals = quadratic_hospitals(folder)
            roster, wire = fresh_roster(hospitals), Direct(hospitals)
            asked: dict[str, Any] = {"rounds": 1, "seed": 2, "secure_aggregation": True}
            with suppress(Crash):
                _play(make_server(folder, roster, START, hook=alarm, **asked), wire, 1)
            server = make_server(folder, roster, START, **asked)
            serve(server, wire)
            np.testing.assert_allclose(flat(server.x), plain[0], rtol=0, atol=1e-12)
            found = controls(server, hospitals)
            np.testing.assert_allclose(found, plain[1], rtol=0, atol=1e-12)
            for one in (one for one in wire.seen if isinstance(one, Refusal)):
                raise AssertionError(one.reason)
        if len(killed) <= moment:
            break
    assert sum("masked" in one for one in killed) == 3


@pytest.mark.parametrize("seed", range(2))
def test_any_mixture_of_faults_leaves_the_optimum_and_the_invariant(
    seed: int, torture: bool
) -> None:
    rounds = 2000 if torture else 100
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder)
        roster, faulty = fresh_roster(hospitals), Faulty(hospitals, seed, rate=0.03)
        random = np.random.default_rng(seed)

        def hook(moment: str) -> None:
            if random.random() < (0.001 if torture else 0.01):
                raise Crash(moment)

        asked: dict[str, Any] = {"rounds": rounds, "attempts": 50, "seed": seed}
        asked |= {"secure_aggregation": True, "cohort": 4 if seed else None}
        crashes, done = 0, False
        while not done:
            try:
                _play(make_server(folder, roster, START, hook=hook, **asked), faulty, rounds)
                done = True
            except Crash:
                crashes += 1
        server = make_server(folder, roster, START, **asked)
        serve(server, Direct(hospitals))
        assert crashes > 5
        assert all(faulty.happened.values())
        assert server.tally.counts["attempts_repeated"] > 3
        assert server.tally.counts["dropped"] > 30
        assert np.linalg.norm(flat(server.x) - flix_optimum()[0]) < 1e-8
        assert imbalance(server, hospitals) < 1e-10


# what a client refuses


def _until(server: Any, hospitals: Mapping[str, Hospital], stage: Any) -> None:
    """Go on until the server asks for this."""
    while not isinstance(next(iter(server.requests().values())), stage):
        for name, reply in Direct(hospitals).exchange(server.requests()):
            server.receive(name, reply)
        server.close()


def _secure(folder: Path, **settings: Any) -> tuple[Any, dict[str, Hospital]]:
    hospitals = quadratic_hospitals(folder)
    asked = {"rounds": 2, "seed": 2, "secure_aggregation": True, **settings}
    return make_server(folder, fresh_roster(hospitals), START, **asked), hospitals


def _refused(hospital: Hospital, message: Request, why: str) -> None:
    reply = hospital.handle(message)
    assert isinstance(reply, Refusal), reply
    assert why in reply.reason


def test_a_client_reveals_one_secret_of_each_and_never_both_even_when_it_is_killed() -> None:
    with quick_folder() as folder:
        for moment in (None, "before", "aside", "after"):
            server, hospitals = _secure(folder / str(moment))
            _until(server, hospitals, Unmask)
            asked = server.requests()["clinic-0"]
            other = asked._replace(
                told=asked.told.replace('"clinic-3": ["seed"]', '"clinic-3": ["key"]')
            )
            assert other != asked
            hospital = hospitals["clinic-0"]
            if moment is None:
                assert isinstance(hospital.handle(asked), Unmasked)
            else:

                def alarm(now: str, moment: str = moment) -> None:
                    if now.startswith(moment):
                        raise Crash(now)

                hospital.alarm = alarm
                with pytest.raises(Crash):
                    hospital.handle(asked)
                hospital.restart()
            if moment in (None, "after"):
                _refused(hospital, other, "another sum of this round")
                assert hospital.handle(asked) == hospital.handle(asked)
            else:  # nothing was revealed yet, so the first to ask gets it
                assert isinstance(hospital.handle(other), Unmasked)
                _refused(hospital, asked, "another sum of this round")
            again = _train(server, "clinic-0", "another")
            _refused(hospital, again, "is in another sum already")


def _train(server: Any, name: str, attempt: str) -> Train:
    """As the server would ask in another attempt."""
    return super(type(server), server).request(name)._replace(attempt=attempt)


def test_a_client_unmasks_no_sum_of_too_few_or_without_itself() -> None:
    with quick_folder() as folder:
        server, hospitals = _secure(folder)
        _until(server, hospitals, Unmask)
        asked = server.requests()["clinic-0"]

        def without(*names: str) -> Any:
            told = asked.told
            for name in names:
                told = told.replace(f'"{name}": ["seed"]', f'"{name}": ["key"]')
            return asked._replace(told=told)

        hospital = hospitals["clinic-0"]
        for wrong in (
            without("clinic-0"),
            without("clinic-1", "clinic-2", "clinic-3"),
            asked._replace(told=asked.told.replace('["seed"]', '["both"]')),
            asked._replace(told='{"clinic-0": ["seed"]}'),
            asked._replace(told="{}"),
        ):
            _refused(hospital, wrong, "a sum must have its message and those of enough others")
        _refused(hospital, asked._replace(attempt="other"), "not in this attempt")
        _refused(hospital, asked._replace(told="?"), "as JSON")
        assert isinstance(hospital.handle(asked), Unmasked)


def test_an_old_request_that_comes_again_takes_nobody_out_of_the_present_attempt() -> None:
    with quick_folder() as folder:
        server, hospitals = _secure(folder)
        _until(server, hospitals, Share)
        old = {name: _train(server, name, "old") for name in hospitals}
        _until(server, hospitals, Mask)
        for stage in (Mask, Unmask):
            _until(server, hospitals, stage)
            for name, hospital in hospitals.items():
                assert isinstance(hospital.handle(old[name]), Keys)
        _until(server, hospitals, Train)
        assert not server.tally.counts["attempts_repeated"]
        np.testing.assert_allclose(flat(server.x), outcome(rounds=1)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("threshold", [1, 2, 6])
def test_a_client_shares_no_secret_that_half_of_them_can_find(threshold: int) -> None:
    with quick_folder() as folder:
        server, hospitals = _secure(folder)
        _until(server, hospitals, Share)
        asked = server.requests()["clinic-0"]
        _refused(hospitals["clinic-0"], asked._replace(threshold=threshold), "more than half")
        assert not isinstance(hospitals["clinic-0"].handle(asked), Refusal)
        _refused(hospitals["clinic-0"], asked._replace(threshold=4), "among others")


def test_a_client_masks_once_among_the_same_clients() -> None:
    with quick_folder() as folder:
        server, hospitals = _secure(folder)
        _until(server, hospitals, Mask)
        asked = {name: server.request(name) for name in ("clinic-0", "clinic-1")}
        swapped = asked["clinic-1"].told.replace('"clinic-1": [""]', '"clinic-1": ["00"]')
        other = asked["clinic-1"]._replace(told=swapped)
        _refused(hospitals["clinic-0"], other, "not sealed by the client")
        first = hospitals["clinic-0"].handle(asked["clinic-0"])
        second = hospitals["clinic-0"].handle(asked["clinic-0"])
        assert isinstance(first, Masked)
        assert isinstance(second, Masked)
        np.testing.assert_array_equal(first.words[0], second.words[0])
        fewer = asked["clinic-0"].told.replace('"clinic-4"', '"clinic-9"')
        _refused(hospitals["clinic-0"], asked["clinic-0"]._replace(told=fewer), "among others")


def test_a_node_that_demands_it_uploads_nothing_without() -> None:
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder)
        server = make_server(folder, fresh_roster(hospitals), START, rounds=2)
        hospitals["clinic-0"].core.secure = True
        _refused(hospitals["clinic-0"], server.request("clinic-0"), "only with secure aggregation")


def test_a_message_beyond_the_range_is_in_no_sum() -> None:
    class Huge(Quadratic):
        def gradient(self, point: Vector, place: Place) -> Vector:
            return 1e20 * super().gradient(point, place)

    with quick_folder() as folder:
        learners = [Huge(0), *LEARNERS[1:]]
        hospitals = quadratic_hospitals(folder, learners=learners)
        asked = {"rounds": 1, "seed": 2, "secure_aggregation": True}
        server = make_server(folder, fresh_roster(hospitals), START, **asked)
        wire = Direct(hospitals)
        serve(server, wire)
        assert server.ledger.entries["clinic-0"].rounds == 0
        assert server.tally.counts["client_range"] == 1
        (refusal,) = (one for one in wire.seen if isinstance(one, Refusal))
        assert "beyond the range of secure aggregation" in refusal.reason


# what a server refuses


def test_a_share_that_somebody_made_up_is_refused_and_the_others_suffice() -> None:
    with quick_folder() as folder:
        server, hospitals = _secure(folder)
        _until(server, hospitals, Unmask)
        requests = server.requests()
        for name, request in requests.items():
            reply = hospitals[name].handle(request)
            if name in ("clinic-1", "clinic-2"):
                digit = "1" if reply.told[-5] == "0" else "0"
                reply = reply._replace(told=reply.told[:-5] + digit + reply.told[-4:])
            server.receive(name, reply)
        assert server.tally.counts["share"] == 2
        assert server.close()
        np.testing.assert_allclose(flat(server.x), outcome(rounds=1)[0], rtol=0, atol=1e-12)


def test_a_client_whose_shares_do_not_fit_together_is_named() -> None:
    with quick_folder() as folder:
        server, hospitals = _secure(folder)
        _until(server, hospitals, Unmask)
        server.gathering.seeds["clinic-3"] = "0" * 64
        for name, request in server.requests().items():
            server.receive(name, hospitals[name].handle(request))
        with pytest.raises(ScafflixError, match="shares of client clinic-3 do not fit together"):
            server.close()


def test_answers_of_another_shape_or_name_or_stage_are_refused_or_late() -> None:
    with quick_folder() as folder:
        server, hospitals = _secure(folder)
        _until(server, hospitals, Mask)
        reply = hospitals["clinic-0"].handle(server.request("clinic-0"))
        assert isinstance(reply, Masked)
        counts = server.tally.counts
        for wrong, kind in (
            (reply._replace(words=(reply.words[0][:, 1:],)), "shape"),
            (reply._replace(words=(reply.words[0].astype(float),)), "dtype"),
            (reply._replace(client="clinic-1"), "unknown_client"),
            (reply._replace(attempt="other"), "late"),
            (reply._replace(round=1), "late"),
            (Unmasked(*reply[:5], told="{}"), "late"),
            ("nonsense", "type"),
        ):
            before = counts[kind]
            server.receive("clinic-0", wrong)
            assert counts[kind] == before + 1
        server.receive("clinic-0", reply)
        server.receive("clinic-0", reply)
        assert counts["repeated"] == 1
        assert server.gathering.survivors == ["clinic-0"]


def test_an_average_that_is_far_from_the_model_ends_the_run() -> None:
    class Later(Quadratic):
        far = False

        def gradient(self, point: Vector, place: Place) -> Vector:
            return (-1e9 if self.far else 1.0) * super().gradient(point, place)

    liar = Later(0)
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder, learners=[liar, *LEARNERS[1:]])
        asked = {"rounds": 20, "seed": 2, "secure_aggregation": True}
        server = make_server(folder, fresh_roster(hospitals), START, **asked)
        _play(server, Direct(hospitals), 6)
        liar.far = True
        with pytest.raises(DivergenceError, match=r"average of the uploads is .* away"):
            _play(server, Direct(hospitals), 20)


# bad input


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"threshold": 6}, "threshold is 6; it must be at least 2, more than half of the 5"),
        ({"threshold": 1}, "threshold is 1"),
        ({"threshold": 2}, "threshold is 2"),
        ({"mirror": True}, "mirror needs single uploads"),
        ({"cohort": 1}, "needs at least 2 clients per round"),
        ({"secure_aggregation": False, "threshold": 3}, "threshold is for secure_aggregation"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(settings: dict[str, Any], why: str) -> None:
    with quick_folder() as folder, pytest.raises(ScafflixError, match=why):
        _secure(folder, **settings)


# the end of a run


class SecureClient(ClientCore):
    """One whose run, or owner, demands secure aggregation."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words, secure=True)


def _ended(folder: Path, lost: Mapping[Any, Collection[str]] | None = None) -> Any:
    hospitals = quadratic_hospitals(folder, SecureClient)
    asked = {"rounds": 2, "seed": 2, "secure_aggregation": True}
    server = make_server(folder, fresh_roster(hospitals), START, **asked)
    wire = Dropping(hospitals, lost or {})
    return server, wire, serve(server, wire)


def test_what_clients_report_at_the_end_is_known_as_a_mean_alone(tmp_path: Path) -> None:
    server, wire, told = _ended(tmp_path / "secure")
    assert len(told) == len(ALPHA)
    numbers = [one for reply in told.values() for one in reply[5:] if isinstance(one, float)]
    assert {one for one in numbers if np.isfinite(one)} <= {1.0}  # alpha's default
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder)
        plain = make_server(folder, fresh_roster(hospitals), START, rounds=2, seed=2)
        expected = serve(plain, Direct(hospitals))
        known = record(plain, expected, {"method": "scafflix"}, 1.0)
    found = record(server, told, {"method": "scafflix"}, 1.0)
    objective = known.summary["final_objective"]
    assert found.summary["final_objective"] == pytest.approx(objective, rel=1e-12)
    assert found.summary["final_objective_clients"] == len(ALPHA)
    assert found.summary["reported"]["alpha"] == pytest.approx(np.mean(ALPHA))
    np.testing.assert_allclose(found.metrics["objective"], known.metrics["objective"], rtol=1e-12)
    assert np.isnan(found.clients["loss_personal"]).all()
    found.save(tmp_path / "record")
    again = serve(server, wire)  # the command is given again: nobody is in another sum
    assert server.reported is not None
    assert server.reported["clients"] == len(ALPHA)
    assert len(again) == len(ALPHA)
    assert server.tally.counts["client_stale"] == 0


def test_a_report_that_too_few_make_is_unknown_and_all_have_their_models(tmp_path: Path) -> None:
    hospitals = quadratic_hospitals(tmp_path, SecureClient)
    asked = {"rounds": 1, "seed": 2, "secure_aggregation": True}
    server = make_server(tmp_path, fresh_roster(hospitals), START, **asked)
    _play(server, Direct(hospitals), 1)
    silent = Dropping(hospitals, {Share: list(hospitals)[1:]}, times=100)
    told = serve(server, silent)
    assert len(told) == len(ALPHA)
    assert server.reported is not None
    assert np.isnan(server.reported["loss"])
    assert server.reported["clients"] == 0
    for one in hospitals.values():
        assert one.core.model_path(server.run).exists()


def test_no_number_of_a_single_client_travels_plainly(tmp_path: Path) -> None:
    _, wire, _ = _ended(tmp_path)
    kinds = {type(one).__name__ for one in wire.seen}
    assert "Upload" not in kinds
    assert "Curve" not in kinds
    uploaded = [one for one in wire.seen if isinstance(one, Masked)]
    assert len(uploaded) == 3 * len(ALPHA)  # two rounds, and the report
    for one in wire.seen:
        for name, value in one._asdict().items():
            if name in ("point", "average") and value:
                assert isinstance(one, Train | Evaluate)  # what the server sends to all
            elif name not in ("words", "gamma", "weight", "unit", "alpha"):
                assert not isinstance(value, float) or np.isnan(value)
