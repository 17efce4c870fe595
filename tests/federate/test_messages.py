"""Bad messages are refused, named and counted, and the round goes on; what is private stays."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hospitals import (
    LEARNERS,
    Direct,
    Hospital,
    flat,
    flix_optimum,
    fresh_roster,
    imbalance,
    make_server,
    quadratic_hospitals,
    quick_folder,
)

import scafflix as sx
from scafflix.federate.closing import Farewell
from scafflix.federate.messages import Introduction, Refusal, Upload, layout_of
from scafflix.federate.records import record
from scafflix.federate.roster import new_roster
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import serve

START = LEARNERS[0].start()


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made


def _with_first(value: float) -> Callable[[Upload], Upload]:
    def change(upload: Upload) -> Upload:
        first = upload.point[0].copy()
        first[1] = value
        return upload._replace(point=(first, *upload.point[1:]))

    return change


BAD: dict[str, tuple[str, Callable[[Upload], Any]]] = {
    "a wrong shape": ("shape", lambda u: u._replace(point=(np.ones(4), u.point[1]))),
    "a missing array": ("shape", lambda u: u._replace(point=u.point[:1])),
    "no array": ("shape", lambda u: u._replace(point=())),
    "a wrong type": (
        "dtype",
        lambda u: u._replace(point=tuple(a.astype(np.float32) for a in u.point)),
    ),
    "objects": (
        "dtype",
        lambda u: u._replace(point=tuple(a.astype(object) for a in u.point)),
    ),
    "NaN": ("not_finite", _with_first(np.nan)),
    "infinity": ("not_finite", _with_first(np.inf)),
    "an unknown client": ("unknown_client", lambda u: u._replace(client="stranger")),
    "another's name": ("unknown_client", lambda u: u._replace(client="clinic-0")),
    "a round to come": ("round", lambda u: u._replace(round=u.round + 1)),
    "a round below 0": ("range", lambda u: u._replace(round=-1)),
    "another epoch": ("epoch", lambda u: u._replace(epoch=u.epoch + 1)),
    "another run": ("run", lambda u: u._replace(run="other")),
    "a weight of 0": ("weight", lambda u: u._replace(weight=0.0)),
    "a negative weight": ("weight", lambda u: u._replace(weight=-1.0)),
    "an infinite weight": ("weight", lambda u: u._replace(weight=float("inf"))),
    "a NaN weight": ("weight", lambda u: u._replace(weight=float("nan"))),
    "an absurd weight": ("weight", lambda u: u._replace(weight=u.weight * 1000)),
    "a weight in words": ("type", lambda u: u._replace(weight="much")),
    "another commit": ("committed", lambda u: u._replace(committed=0)),
    "something else": ("type", lambda u: "hello"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_upload_is_refused_by_name_and_counted_and_the_round_goes_on(
    what: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind, spoil = BAD[what]
    hospitals = quadratic_hospitals(folder)
    server = make_server(folder, fresh_roster(hospitals), START, rounds=1)
    with caplog.at_level(logging.WARNING):
        for name, request in server.requests().items():
            reply = hospitals[name].handle(request)
            server.receive(name, spoil(reply) if name == "clinic-3" else reply)  # type: ignore[arg-type]
    assert server.close()
    assert server.tally.counts[kind] == 1
    assert server.tally.counts["refused"] == 1
    assert server.ledger.entries["clinic-3"].rounds == 0
    assert server.ledger.entries["clinic-2"].rounds == 1
    assert "clinic-3" in caplog.text
    made = record(server, serve(server, Direct(hospitals)), {}, 0.0)
    assert made.summary["refused"] == 1
    assert made.summary["troubles"][kind] == 1
    assert made.clients["refused"].tolist() == [0, 0, 0, 1, 0]


def _changed(upload: Upload, number: int, array: Any) -> Upload:
    point = list(upload.point)
    point[number] = array
    return upload._replace(point=tuple(point))


NATURAL, DITHERING = "natural", "dithering:5"
BAD_ENCODED: dict[str, tuple[str, str, Callable[[Upload], Upload]]] = {
    "the whole message": ("", "shape", lambda u: u._replace(point=START.tree)),
    "a number too many": ("", "shape", lambda u: _changed(u, 0, np.ones(4))),
    "a number too few": ("", "shape", lambda u: _changed(u, 0, u.point[0][:-1])),
    "nothing": ("", "shape", lambda u: u._replace(point=())),
    "half of the bits": ("", "dtype", lambda u: _changed(u, 0, u.point[0].astype(np.float32))),
    "NaN": ("", "not_finite", lambda u: _changed(u, 0, np.nan * u.point[0])),
    "what overflows": ("", "not_finite", lambda u: _changed(u, 0, 0 * u.point[0] + 1.7e308)),
    "a byte too many": (NATURAL, "shape", lambda u: _changed(u, 0, np.zeros(9, np.uint8))),
    "wide bytes": (NATURAL, "dtype", lambda u: _changed(u, 0, u.point[0].astype(np.int64))),
    "infinite exponents": (NATURAL, "not_finite", lambda u: _changed(u, 0, u.point[0] | 255)),
    "a norm of NaN": (DITHERING, "not_finite", lambda u: _changed(u, 0, np.array([np.nan]))),
    "a norm below 0": (DITHERING, "range", lambda u: _changed(u, 0, np.array([-1.0]))),
    "a level above all": (DITHERING, "range", lambda u: _changed(u, 1, u.point[1] | 255)),
    "no levels": (DITHERING, "shape", lambda u: u._replace(point=u.point[:1])),
}


@pytest.mark.parametrize("what", BAD_ENCODED)
def test_an_upload_that_encodes_no_message_is_refused_and_the_round_goes_on(
    what: str, folder: Path
) -> None:
    compressor, kind, spoil = BAD_ENCODED[what]
    hospitals = quadratic_hospitals(folder)
    chosen = {"compressor": compressor, "omega": 1.0} if compressor else {}
    name = "locodl" if compressor else "tamuna"
    server = make_server(folder, fresh_roster(hospitals), START, name, rounds=1, **chosen)
    for client, request in server.requests().items():
        reply = hospitals[client].handle(request)
        assert isinstance(reply, Upload)
        server.receive(client, spoil(reply) if client == "clinic-3" else reply)
    before = server.tally.bits_up
    assert server.tally.counts["refused"] == server.tally.counts[kind] == 1
    assert server.tally.refused_of["clinic-3"] == 1
    server.receive("clinic-3", hospitals["clinic-3"].handle(server.request("clinic-3")))
    assert server.tally.bits_up * 4 == before * 5  # what is refused is not counted
    assert server.close()
    assert server.ledger.entries["clinic-3"].rounds == 1


def test_a_stranger_is_refused(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    server = make_server(folder, fresh_roster(hospitals), START, rounds=1)
    upload = hospitals["clinic-0"].handle(server.request("clinic-0"))
    assert isinstance(upload, Upload)
    server.receive("stranger", upload._replace(client="stranger"))
    assert server.tally.counts["unknown_client"] == 1


def test_a_client_that_always_spoils_its_uploads_does_not_harm_the_others(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    server = make_server(folder, fresh_roster(hospitals), START, rounds=20)
    while not server.done:
        for name, request in server.requests().items():
            reply = hospitals[name].handle(request)
            assert isinstance(reply, Upload)
            bad = name == "clinic-1" and server.round % 2
            server.receive(name, _with_first(np.nan)(reply) if bad else reply)
        server.close()
    assert server.tally.counts["not_finite"] == 10
    assert np.isfinite(flat(server.x)).all()


def test_too_few_replies_repeat_the_round_with_the_same_point_and_steps(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    settings = {"rounds": 5, "minimum": 4, "attempts": 3}
    server = make_server(folder, fresh_roster(hospitals), START, **settings)
    first = server.requests()
    server.receive("clinic-0", hospitals["clinic-0"].handle(first["clinic-0"]))
    assert not server.close()
    again = server.requests()
    assert sorted(again) == [f"clinic-{k}" for k in (1, 2, 3, 4)]  # one is here already
    assert again["clinic-1"].steps == first["clinic-1"].steps
    assert again["clinic-1"].point is first["clinic-1"].point
    assert not server.close()
    with pytest.raises(
        sx.ScafflixError, match="Round 0 got 1 of the 4 replies it needs, in 3 attempts"
    ):
        server.close()


def test_a_repeated_message_gets_the_stored_upload_without_training(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    server = make_server(folder, fresh_roster(hospitals), START, rounds=2)
    request = server.request("clinic-1")
    first = hospitals["clinic-1"].handle(request)

    class Untouchable:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} was asked for")

    hospitals["clinic-1"].core.learner = Untouchable()  # type: ignore[assignment]
    second = hospitals["clinic-1"].handle(request)
    assert isinstance(first, Upload)
    assert isinstance(second, Upload)
    assert second[:-1] == first[:-1]
    np.testing.assert_array_equal(flat(second.point), flat(first.point))


def test_a_message_of_a_round_or_an_epoch_that_is_over_is_stale(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    server = make_server(folder, fresh_roster(hospitals), START, rounds=9)
    old = server.request("clinic-1")
    for _ in range(2):
        for name, reply in Direct(hospitals).exchange(server.requests()):
            server.receive(name, reply)
        server.close()
    found = hospitals["clinic-1"].handle(old)
    assert isinstance(found, Refusal)
    assert found.kind == "stale"
    before = server.request("clinic-1")
    server.new_epoch()
    hospitals["clinic-1"].handle(server.request("clinic-1"))
    found = hospitals["clinic-1"].handle(before)
    assert isinstance(found, Refusal)
    assert found.kind == "stale"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"point": (np.ones(5),)}, "shape"),
        ({"point": (np.full(3, np.nan), np.ones((1, 2)))}, "not_finite"),
        ({"steps": 0}, "range"),
        ({"steps": 10**12}, "range"),
        ({"gamma": float("inf")}, "not_finite"),
        ({"gamma": -1.0}, "range"),
        ({"round": "one"}, "type"),
    ],
)
def test_a_client_refuses_bad_messages_too(folder: Path, change: Any, kind: str) -> None:
    hospitals = quadratic_hospitals(folder)
    server = make_server(folder, fresh_roster(hospitals), START, rounds=2)
    message = server.request("clinic-1")._replace(**change)
    found = hospitals["clinic-1"].handle(message)
    assert isinstance(found, Refusal)
    assert found.kind == kind
    assert "clinic-1" in found.reason


def test_a_state_put_back_from_before_the_last_commit_is_not_mistaken(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    server = make_server(folder, fresh_roster(hospitals), START, rounds=9)
    path = hospitals["clinic-1"].core.folder / f"{server.run}.safetensors"
    kept: list[bytes] = []
    for _ in range(4):
        for name, reply in Direct(hospitals).exchange(server.requests()):
            server.receive(name, reply)
        server.close()
        kept.append(path.read_bytes())
    path.write_bytes(kept[1])
    found = hospitals["clinic-1"].handle(server.request("clinic-1"))
    assert isinstance(found, Refusal)
    assert found.kind == "lost"


def test_two_nodes_of_one_name_and_unlike_models_are_refused(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    people = list(fresh_roster(hospitals).introductions)
    with pytest.raises(sx.ScafflixError, match="2 nodes use the client id clinic-0"):
        new_roster([people[0], people[0]])
    other = people[1]._replace(layout="float64[7]")
    with pytest.raises(sx.ScafflixError, match="must be the same"):
        new_roster([people[0], other])


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"p": 0.9}, {"cohort": 2}, {"pace": "actual"}, {"name": "scaffnew"}]
)
def test_a_run_goes_on_by_the_terms_it_began_with(folder: Path, change: dict[str, Any]) -> None:
    hospitals = quadratic_hospitals(folder)
    roster = fresh_roster(hospitals)
    server = make_server(folder, roster, START, rounds=2)
    serve(server, Direct(hospitals))
    with pytest.raises(sx.ScafflixError, match="holds a run whose"):
        make_server(folder, roster, START, **{"rounds": 3, **change})
    assert make_server(folder, roster, START, rounds=3).round == 2  # longer is allowed


def test_neither_data_nor_local_optimum_nor_control_variate_is_on_the_wire(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    server = make_server(folder, fresh_roster(hospitals), START, rounds=30)
    wire = Direct(hospitals)
    introductions = fresh_roster(hospitals).introductions
    secret: list[np.ndarray[Any, Any]] = []
    for learner in LEARNERS:
        secret += [learner.Q.ravel(), flat(learner.optimum())]

    def remember_controls() -> None:
        for name, hospital in hospitals.items():
            h = flat(hospital.core.control(Farewell(server).request(name)))
            if np.abs(h).max() > 0:  # all start at zero
                secret.append(h)

    while not server.done:
        for name, reply in wire.exchange(server.requests()):
            server.receive(name, reply)
        server.close()
        remember_controls()
    serve(server, wire)
    remember_controls()
    sent: list[Any] = [*introductions, *wire.seen]
    assert len(secret) > 100
    assert {type(message).__name__ for message in sent} == {
        "Introduction",
        "Train",
        "Upload",
        "Evaluate",
        "Evaluation",
    }
    numbers = np.array([number for message in sent for number in _numbers(message)])
    for private in secret:
        for value in private[np.abs(private) > 1e-3]:
            if value not in (1.0, 0.5):  # also an alpha, a gamma
                assert np.abs(numbers - value).min() > 1e-13
    assert np.linalg.norm(flat(server.x) - flix_optimum()[0]) < 1e-2  # they did learn something


def _numbers(message: Any) -> Iterator[float]:
    """Every number of every field, whatever the field is called."""
    for value in message:
        if isinstance(value, tuple):
            for array in value:
                yield from np.ravel(array).tolist()
        elif isinstance(value, int | float) and np.isfinite(value):
            yield float(value)


def test_only_a_client_that_lost_its_state_is_sent_one(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    server = make_server(folder, fresh_roster(hospitals), START, rounds=6, mirror=True)
    wire = Direct(hospitals)
    serve(server, wire)
    assert all(not getattr(message, "restored", ()) for message in wire.seen)


def test_an_introduction_is_the_scalars_that_the_server_plans_with(folder: Path) -> None:
    (one, *_) = fresh_roster(quadratic_hospitals(folder)).introductions
    assert one == Introduction("clinic-0", 1.0, 0.5, 0.5, 1.0, 7, layout_of(START.tree), ())


def test_a_damaged_state_is_refused_with_a_sentence(folder: Path) -> None:
    hospitals: dict[str, Hospital] = quadratic_hospitals(folder)
    server: ServerCore = make_server(folder, fresh_roster(hospitals), START, rounds=2)
    request = server.request("clinic-1")
    hospitals["clinic-1"].handle(request)
    path = hospitals["clinic-1"].core.folder / f"{server.run}.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    found = hospitals["clinic-1"].handle(request)
    assert isinstance(found, Refusal)
    assert found.kind == "damaged"
    assert "damaged" in found.reason


def test_a_damaged_state_comes_back_from_the_mirror(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    server = make_server(folder, fresh_roster(hospitals), START, rounds=120, mirror=True)
    path = hospitals["clinic-1"].core.folder / f"{server.run}.safetensors"
    wire = Direct(hospitals)

    class Damaging:
        def exchange(self, requests: Any) -> Any:
            if server.round == 5 and not server.lost:
                path.write_bytes(path.read_bytes()[:-1])
            return wire.exchange(requests)

    serve(server, Damaging())
    assert server.tally.counts["restored"] == 1
    assert imbalance(server, hospitals) < 1e-10
    assert np.linalg.norm(flat(server.x) - flix_optimum()[0]) < 1e-8
