"""Real nodes that refuse: they are named at once with their reason, and nobody waits for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from scafflix import ScafflixError
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.local import LocalFederation
from scafflix.federate.messages import Hello, Refusal
from scafflix.federate.parcels import packed, unpacked
from scafflix.federate.partition import write_nodes
from scafflix.federate.roster import Roster
from scafflix.federate.status import Status
from scafflix.federate.worker import Desk

SETTINGS = 'data = "nodes"\nclasses = [0, 1]'


def test_nodes_that_refuse_are_named_and_the_run_begins_without_them_if_enough_are_left(
    tmp_path: Path,
) -> None:
    keys = {"data": "synthetic:rows=20,features=5", "clients": 3, "alpha": 0.5}
    config = checked(DeployConfig(**keys, rounds=1000, patience=3000.0, attempts=2))
    config, nodes = write_nodes(config, 3, tmp_path / "nodes")
    first, second, third = (node["client"] for node in nodes)
    nodes[2]["min-examples"] = 1000
    file = Path(nodes[1]["data"])
    content = file.read_bytes()
    file.unlink()
    made = LocalFederation(tmp_path, config, nodes, secure=True)
    told: list[str] = []
    few, absent = f"Client {third} refuses: Client {third} trains on", f"Client {second} refuses: "

    def lose_state(done: int, total: int, state: str) -> None:
        for path in (Path(nodes[0]["folder"]) / first).glob("*.safetensors"):
            if "optimum" not in path.name:
                path.unlink()

    with made.processes:
        made.start()
        with pytest.raises(ScafflixError, match="refuse to take part, and all are needed") as error:
            made.run(notice=told.append)
        for sentence in (few, absent):  # both, if both had come by then
            assert any(one.startswith(sentence) for one in told) == (sentence in str(error.value))
        assert any(one.startswith((few, absent)) for one in told)
        assert not (tmp_path / "server" / "roster.safetensors").exists()

        file.write_bytes(content)
        made.config = replace(config, minimum=2)
        told.clear()
        with pytest.raises(ScafflixError, match="got 1 of the 2 replies") as error:
            made.run(lose_state, notice=told.append)
    assert told[0].startswith(few)
    assert told[1] == f"The run begins without {third}."
    assert told[2].startswith(f"Client {first} refuses: ")
    assert told[2].partition("refuses: ")[2] in str(error.value)
    assert len(told) == 3  # each once, however often it is said
    kept = Roster.load(tmp_path / "server")
    assert kept is not None
    assert [one.client for one in kept[0].introductions] == [first, second]
    assert kept[0].left == (third,)


def test_a_client_that_cannot_be_made_refuses_in_its_own_name(tmp_path: Path) -> None:
    own = {"client": "north", "data": str(tmp_path / "gone.npz"), "folder": str(tmp_path)}
    reply = unpacked(Desk(own).reply(packed(Hello(False))._replace(settings=SETTINGS)))
    assert isinstance(reply, Refusal)
    assert (reply.client, reply.kind, reply.round) == ("north", "error", 0)
    assert reply.reason.startswith("Client north: ")
    assert "gone.npz" in reply.reason


def test_notes_are_told_once_and_are_few_and_printable() -> None:
    status = Status("job").noting("Client north refuses:\n\x1b[2J" + "x" * 10_000)
    assert status == status.noting("Client north refuses:\n\x1b[2J" + "x" * 10_000)
    assert len(status.notes) == 1
    assert status.notes[0].isprintable()
    for number in range(2000):
        status = status.noting(str(number))
    assert len("".join(status.notes)) < 10_000
