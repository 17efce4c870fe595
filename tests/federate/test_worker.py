"""The process that holds a node's learner: what it is handed, and what is left if it is killed."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socket import socketpair
from threading import Thread
from typing import Any, cast

import numpy as np
import psutil
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from flwr.app import ConfigRecord, Message, Metadata, RecordDict
from flwr.app.message import make_message
from hospitals import (
    ALPHA,
    Direct,
    flat,
    fresh_roster,
    imbalance,
    make_server,
    quadratic_hospitals,
    quick_folder,
)
from killable_worker import WAIT

from scafflix import ScafflixError
from scafflix.core.vector import Vector
from scafflix.federate.messages import Hello, Introduction, Reply, Request, Upload
from scafflix.federate.parcels import packed, unpacked
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import Failure, serve
from scafflix_flower import handover, parcel
from scafflix_flower.handover import ATTEMPTS, Worker
from scafflix_flower.parcel import Parcel, ParcelError, receive, send
from scafflix_flower.supernode import Post, pause_after

HERE = Path(__file__).parent
WORDS = (str(HERE / "killable_worker.py"),)
MOMENTS = ("received", "trained", "made a reply", "half a reply", "replied")


def sent(message: Parcel) -> Parcel | None:
    """A parcel after its way through a socket."""
    here, there = socketpair()
    with here, there:
        sending = Thread(target=send, args=(here, message))
        sending.start()
        found = receive(there)
        sending.join()
    return found


def test_a_message_arrives_at_the_worker_as_it_was_sent() -> None:
    point = (np.arange(6.0).reshape(2, 3), np.float32([math.pi, -0.0]), np.zeros(0))
    upload = Upload("run", 1, "clinic", 2, -1, 0.1, math.nan, point)
    found = sent(packed(upload)._replace(settings="alpha = 1"))
    assert found is not None
    assert found.settings == "alpha = 1"
    again = unpacked(found)
    assert math.isnan(again.loss)
    assert again._replace(loss=0.0, point=()) == upload._replace(loss=0.0, point=())
    for one, other in zip(again.point, point, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_what_is_too_large_or_no_message_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = socketpair()
    with here, there:
        here.sendall(parcel.LENGTH.pack(2**60))
        with pytest.raises(ParcelError, match="bytes of scalars; at most"):
            receive(there)
        for head in (b"[1, 2]", b"{", b'[null, {"point": "many"}, "", ""]', b"[1, 2, 3, 4]"):
            here.sendall(parcel.LENGTH.pack(len(head)) + head)
            with pytest.raises(ParcelError, match="cannot be read"):
                receive(there)
        head = b'[{}, {"point": [99999999999999]}, "", ""]'
        here.sendall(parcel.LENGTH.pack(len(head)) + head)
        with pytest.raises(ParcelError, match="bytes of arrays; at most"):
            receive(there)
        monkeypatch.setattr(parcel, "LARGEST", 10)
        with pytest.raises(ParcelError, match="bytes of arrays; at most"):
            send(here, Parcel({}, {"point": [bytes(11)]}))


def test_a_sender_that_ends_in_mid_message_has_sent_nothing() -> None:
    for cut in (1, 20, 60):
        here, there = socketpair()
        with there:
            with here:
                whole = bytearray()
                monitor, gather = socketpair()
                with monitor, gather:
                    send(monitor, Parcel({"type": "Hello"}, {"point": [bytes(40)]}))
                    whole += gather.recv(2**16)
                here.sendall(whole[:cut])
            assert receive(there) is None


@pytest.mark.parametrize(
    ("module", "foreign"),
    [("scafflix_flower.supernode", ("jax", "scafflix")), ("scafflix.federate.worker", ("flwr",))],
)
def test_what_passes_messages_on_loads_no_jax_and_what_learns_no_flower(
    module: str, foreign: tuple[str, ...]
) -> None:
    test = f"import sys, {module}; print([name for name in {foreign} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", test], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_node_asks_often_when_it_may_expect_something_and_seldom_otherwise() -> None:
    seconds = 0.0
    asked = 0
    while seconds < 60:
        seconds += pause_after(seconds)
        asked += 1
    assert 40 < asked < 80
    assert all(pause_after(t) <= max(0.1 * t, 0.1) for t in (0.0, 0.5, 1.0, 20.0, 1000.0))


class Workers:
    """Every client in a worker of its own; each message may be the last of the one that has it."""

    def __init__(self, folder: Path, moments: Iterator[int]) -> None:
        self.folder, self.moments = folder, moments
        self.workers = {f"clinic-{k}": Worker(folder / str(k), WORDS) for k in range(len(ALPHA))}

    def ask(self, name: str, request: Request) -> Reply:
        reply = self.workers[name].ask(packed(request))
        assert not reply.error
        found: Reply = unpacked(reply)
        return found

    def exchange(self, requests: Mapping[str, Request]) -> Iterable[tuple[str, Reply | Failure]]:
        for name, request in requests.items():
            left = (self.folder / name.removeprefix("clinic-")).with_suffix(".moments")
            count = next(self.moments, None)
            if count is not None:
                left.write_text(str(count))
            yield name, self.ask(name, request)
            deadline = time.monotonic() + 5
            while count is not None and left.exists() and time.monotonic() < deadline:
                time.sleep(0.01)  # the last moment comes after the reply
            left.unlink(missing_ok=True)

    def end(self) -> None:
        for worker in self.workers.values():
            worker.__exit__(None, None, None)


@contextmanager
def workers(folder: Path, moments: Iterable[int]) -> Iterator[Workers]:
    made = Workers(folder, iter(moments))
    try:
        yield made
    finally:
        made.end()


def server_of(folder: Path, hospitals: Any) -> ServerCore:
    return make_server(
        folder, fresh_roster(hospitals), Vector((np.ones(3), np.ones((1, 2)))), rounds=4
    )


def test_a_worker_killed_at_any_moment_of_a_message_changes_nothing() -> None:
    with quick_folder() as folder, quick_folder() as other:
        hospitals = quadratic_hospitals(folder)
        server = server_of(folder, hospitals)
        with workers(folder, range(9)) as transport:
            serve(server, transport)
        killed = (folder / "killed").read_text().splitlines()
        assert set(killed) >= set(MOMENTS)
        assert len(killed) >= 7  # with those of the disk
        undisturbed = quadratic_hospitals(other)
        expected = server_of(other, undisturbed)
        serve(expected, Direct(undisturbed))
        np.testing.assert_array_equal(flat(server.x), flat(expected.x))
        assert imbalance(server, hospitals) < 1e-12
        assert server.round == 4


def test_a_message_that_ends_every_worker_is_given_up_with_a_reason(tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text("import socket, sys\nsocket.socket(fileno=int(sys.argv[1])).recv(1)\n")
    with Worker(tmp_path / "settings", [str(script)]) as worker:
        reply = worker.ask(packed(Hello(start=False)))
        assert reply.error == f"The worker ended {ATTEMPTS} times during this message."


def test_a_worker_that_ended_between_two_messages_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "SOON", 0.0)
    with Worker(tmp_path / "0", WORDS) as worker:
        first = worker.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        while psutil.Process(first).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        worker.keep()
        assert worker.pid not in (None, first)
        reply = unpacked(worker.ask(packed(Hello(start=False))))
        assert isinstance(reply, Introduction)


NODE = """
import sys
from pathlib import Path
from scafflix_flower.handover import Worker
from scafflix_flower.parcel import Parcel
with Worker(Path(sys.argv[1]), sys.argv[2:]) as worker:
    print(worker.pid, flush=True)
    worker.ask(Parcel({"type": "Hello", "start": False}))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_ends_with_its_node_also_in_the_middle_of_a_message(
    tmp_path: Path, number: signal.Signals
) -> None:
    moments = tmp_path / "0.moments"
    moments.write_text(str(WAIT))
    words = [sys.executable, "-c", NODE, str(tmp_path / "0"), *WORDS]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        worker = psutil.Process(int(node.stdout.readline()))
        while moments.exists():  # until it has the message
            time.sleep(0.02)
        node.send_signal(number)
        node.wait()
    worker.wait(30)
    assert not worker.is_running()


class StrangeFleet:
    """A SuperLink that sends one message that cannot be read, and then another."""

    def __init__(self, *messages: Any) -> None:
        self.messages = list(messages)
        self.sent: list[Message] = []
        self.confirmed: list[tuple[str, int]] = []  # which message, and after how many replies

    def receive(self) -> Message | None:
        if not self.messages:
            return None
        message = self.messages.pop(0)
        if isinstance(message, Exception):
            raise message
        assert isinstance(message, Message)
        return message

    def send(self, reply: Message, seconds: float) -> None:
        self.sent.append(reply)

    def confirm(self, message: Message) -> None:
        self.confirmed.append((message.metadata.message_id, len(self.sent)))


def test_a_node_lives_on_after_a_message_that_cannot_be_read() -> None:
    class Settled(Post):
        def _settings_of(self, number: int) -> str:
            return "settings"

    asked: list[Parcel] = []

    def ask(message: Parcel) -> Parcel:
        asked.append(message)
        return Parcel(None, error="there are too few examples")

    metadata = Metadata(7, "id", 1, 2, "", "", 0.0, 60.0, "query")
    strange = RecordDict({"message": ConfigRecord({"type": b"bytes", "list": [b"more"]})})
    message = make_message(metadata, strange)
    fleet = StrangeFleet(ValueError("no message"), message, message)
    post = Settled(cast(Any, fleet), ask)
    assert [post.turn() for _ in range(4)] == [False, True, True, False]
    assert fleet.confirmed == [("id", 1), ("id", 2)]  # once it is answered
    first, second = fleet.sent
    assert first.object_id == second.object_id  # by which the SuperLink knows it is the same
    assert asked[0].scalars == {"type": {"bytes": b"bytes".hex()}, "list": [{"bytes": "6d6f7265"}]}
    assert asked[0].settings == "settings"
    with pytest.raises(ScafflixError, match="its type is"):
        unpacked(asked[0])
    assert fleet.sent[0].error.reason == "there are too few examples"
