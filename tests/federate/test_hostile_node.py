"""A registered node that cheats, over real sockets with TLS and node keys."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

import httpx
import psutil
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Array, ArrayRecord, Message
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.node_pb2 import Node as FlowerNode
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from hostile import HostileNode
from in_process_grid import SERVER  # and a name for a task, without which there is no message

from scafflix.federate.client import ClientCore
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.flower_server import plan_run
from scafflix.federate.local import LocalFederation
from scafflix.federate.messages import Hello, Introduction, Refusal, Reply, Request, Train, Upload
from scafflix.federate.node import client_of
from scafflix.federate.partition import write_nodes
from scafflix.federate.roster import new_roster
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import Failure, serve
from scafflix.federate.status import FILE
from scafflix.federate.wire import pack, unpack
from scafflix_flower.replies import LARGEST

ROUNDS = 7
HONEST = 2  # rounds before it cheats
FORGED = "\x1b[2J\nround 7/7 of a forger\nscafflix: finished\r"


def enormous(upload: Upload) -> Any:
    """A few bytes that claim to be 8 TiB."""
    record = pack(upload)
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + b"\0" * 8
    record["point"] = ArrayRecord({"000000": Array("float64", (2**40,), "numpy.ndarray", data)})
    return record


class Cheat:
    """Trains as an honest client, and sends something else."""

    def __init__(self, core: ClientCore, other: str, other_node: int) -> None:
        self.core, self.other, self.other_node = core, other, other_node
        self.taken: dict[str, bool] = {}
        self.first: Message | None = None

    def __call__(self, node: HostileNode, message: Message) -> None:
        request = unpack(message.content)
        reply = self.core.handle(request)
        if not isinstance(request, Train) or not isinstance(reply, Upload):
            node.send(Message(pack(reply), reply_to=message))
            return
        if request.round == 0:
            self.first = Message(pack(reply), reply_to=message)
            self.old = reply
            node.send(self.first)
            return
        if request.round == 1:
            self._beside(node, message, request, reply)
        told = self._told(request, reply)
        record = told if not isinstance(told, tuple) else pack(cast(Any, told))
        node.send(Message(record, reply_to=message))

    def _told(self, request: Train, reply: Upload) -> Any:
        place = (reply.run, reply.epoch, reply.client, reply.round)
        return {
            2: self.old,
            3: reply._replace(client=self.other),
            4: reply._replace(point=(np.zeros(10**6),)),
            5: enormous(reply),
            6: Refusal(*place, "k" * 200, FORGED),
        }.get(request.round, reply)

    def _beside(self, node: HostileNode, message: Message, request: Train, reply: Upload) -> None:
        """What is no reply of its own."""
        assert self.first is not None

        def tried(what: str, made: Message, **metadata: Any) -> None:
            try:
                self.taken[what] = node.send(made, **metadata)
            except httpx.HTTPStatusError:
                self.taken[what] = False

        tried("a reply once more", self.first)
        forged = pack(reply._replace(client=self.other))
        tried("for another", Message(forged, reply_to=message), src_node_id=self.other_node)
        order = Message(pack(request._replace(epoch=99)), self.other_node, "train")
        own = {"run_id": message.metadata.run_id, "src_node_id": SERVER}
        tried("an order to another", order, **own)


class Reference:
    """The same clients in this process; those who cheated are not heard."""

    def __init__(self, cores: Mapping[str, ClientCore], cheat: str) -> None:
        self.cores, self.cheat = cores, cheat

    def exchange(self, requests: Mapping[str, Request]) -> Iterable[tuple[str, Reply | Failure]]:
        for name, request in requests.items():
            reply = self.cores[name].handle(request)
            if name != self.cheat or not isinstance(request, Train) or request.round < HONEST:
                yield name, reply


def reference(config: DeployConfig, nodes: list[Any], folder: Path) -> ServerCore:
    cores = {n["client"]: client_of(config, {**n, "folder": str(folder)}) for n in nodes}
    people = [core.handle(Hello(start=True)) for core in cores.values()]
    assert all(isinstance(one, Introduction) for one in people)
    roster = new_roster([cast(Introduction, one)._replace(start=()) for one in people])
    method, settings = plan_run(config, roster)
    (folder / "server").mkdir(parents=True)
    start = cast(Introduction, people[0]).start
    core = ServerCore(folder / "server", roster, method, start, settings)
    serve(core, Reference(cores, nodes[-1]["client"]))
    return core


def test_a_registered_node_that_cheats_is_refused_and_counted_and_the_models_are_right(
    tmp_path: Path,
) -> None:
    data = "synthetic:rows=20,features=5"
    config = DeployConfig(data=data, clients=3, alpha=0.5, seed=1, rounds=ROUNDS, minimum=2)
    made, nodes = write_nodes(checked(config), 3, tmp_path / "nodes")
    federation = LocalFederation(tmp_path, made, nodes, secure=True)
    shown: list[int] = []
    lines: set[str] = set()

    def watch(done: int, total: int, state: str) -> None:
        shown.append(done)
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                lines.add(" ".join(process.cmdline()))

    with federation.processes:
        federation.link.start()
        federation.link.wait()
        federation.start_node(0)
        federation.start_node(1)
        others = federation.link.nodes[nodes[0]["client"]]
        cheat = Cheat(client_of(made, nodes[2]), nodes[0]["client"], others)
        address, ca = f"127.0.0.1:{federation.link.port}", tmp_path / "keys" / "ca.crt"
        hostile = HostileNode(address, ca, federation.keys[2], cheat)
        hostile.start()
        private = cast(Any, load_ssh_private_key(federation.keys[2].read_bytes(), None))
        signed = [NodeAuthHttpInterceptor(private, private.public_key())]
        with (
            FleetHttpClient.from_server_address(
                address, False, ca.read_bytes(), interceptors=signed
            ) as client,
            pytest.raises(httpx.HTTPStatusError, match="401"),
        ):
            client.PullMessages(PullMessagesRequest(node=FlowerNode(node_id=others)))
        with httpx.Client(verify=ssl.create_default_context(cafile=ca)) as stranger:
            url = f"https://{address}/v1/fleet/push-object"
            assert stranger.post(url, content=bytes(LARGEST + 1)).status_code == 413
            assert stranger.post(url, content=iter([b"0"])).status_code == 411
        record = federation.run(watch)
        hostile.ended.set()
        hostile.join(60)
        assert hostile.failed is None, hostile.failed
    tried = ("a reply once more", "for another", "an order to another")
    assert cheat.taken == dict.fromkeys(tried, False)
    assert len(lines) > 6  # SuperLink, job, watcher, nodes and workers
    assert not [line for line in lines if re.search("[0-9a-f]{32}", line)]  # a token or a secret
    troubles = record.summary["troubles"]
    counted = {"late": 1, "unknown_client": 1, "shape": 1, "type": 1, "client_other": 1}
    assert {kind: troubles[kind] for kind in counted} == counted
    assert record.clients["refused"].tolist() == [0, 0, 3]
    assert record.clients["rounds"].tolist() == [ROUNDS, ROUNDS, HONEST]
    expected = reference(made, nodes, tmp_path / "reference")
    np.testing.assert_allclose(record.models["global"], expected.x[0], rtol=0, atol=1e-12)
    # words in a log are not believed, and do nothing to a terminal
    assert shown == sorted(shown)
    assert shown[-1] <= ROUNDS
    assert json.loads((tmp_path / "server" / FILE).read_text())["finished"] is True
    log = (tmp_path / "logs" / "job.log").read_text()
    assert r"\x1b[2J\nround 7/7 of a forger" in log
    assert FORGED not in log
