"""The commands of an operator, killed in mid-run: nothing lives on, and the next one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from living import of, wait_until_ended

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

import psutil

from scafflix.federate.processes import free_port
from scafflix.federate.status import FILE
from scafflix.record import Record

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")

CONFIG = """
data = "synthetic:rows=20,features=5"
clients = 2
alpha = 0.5
rounds = 6
"""


def scafflix(log: Path, *words: object) -> subprocess.Popen[str]:
    """A command as in a shell: in a group of its own."""
    program = Path(sys.executable).with_name("scafflix")
    with log.open("a") as out:
        return subprocess.Popen(
            [program, "deploy", *map(str, words)],
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def wait_for(happened: object, command: subprocess.Popen[str], log: Path) -> None:
    assert callable(happened)
    while not happened():
        assert command.poll() is None, log.read_text()
        time.sleep(0.2)


def offspring(command: subprocess.Popen[str]) -> list[psutil.Process]:
    return list(psutil.Process(command.pid).children(recursive=True))


def all_ended(processes: list[psutil.Process], folder: Path) -> None:
    wait_until_ended(folder)
    left = [process for process in processes if process.is_running()]
    assert [one for one in left if one.status() != psutil.STATUS_ZOMBIE] == []


def test_a_federation_killed_in_any_way_leaves_nothing_running_and_the_same_command_goes_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "run.toml").write_text(CONFIG)
    out, log = tmp_path / "out", tmp_path / "log"
    words = ("local", "--config", tmp_path / "run.toml", "--out", out)

    def round_is_closed() -> bool:
        """Of the present command: an older one's words are removed."""
        return '"done": ' in status.read_text() if status.exists() else False

    status = out / "server" / FILE
    command = scafflix(log, *words)
    wait_for(round_is_closed, command, log)
    second = scafflix(tmp_path / "second", *words)
    assert second.wait(120) == 2
    assert "in use by another process" in " ".join((tmp_path / "second").read_text().split())
    started = offspring(command)
    assert len(started) > 6  # SuperLink, job, nodes and what Flower starts for them
    command.kill()
    command.wait()
    all_ended(started, out)

    status.unlink()
    command = scafflix(log, *words)
    wait_for(round_is_closed, command, log)
    started = offspring(command)
    os.kill(command.pid, signal.SIGTERM)  # as timeout does: to the command and to its group
    os.killpg(command.pid, signal.SIGTERM)
    assert command.wait(60) == 128 + signal.SIGTERM
    assert "run the same command again" in log.read_text()
    all_ended(started, out)

    command = scafflix(log, *words)
    assert command.wait(600) == 0, log.read_text()
    assert Record.load(out / "server" / "record").summary["rounds"] == 6
    wait_until_ended(out)


def test_what_a_server_and_a_node_started_ends_with_them(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(CONFIG)
    (tmp_path / "rows.csv").write_text("a,label\n1,0\n2,1\n")
    log, server, node = tmp_path / "log", tmp_path / "server", tmp_path / "node"
    words = ("--config", tmp_path / "run.toml", "--nodes", 2, "--port", free_port(), "--insecure")
    serving = scafflix(log, "server", *words, "--out", server)
    wait_for(lambda: "waiting for 2 nodes" in log.read_text(), serving, log)
    words = ("--superlink", "127.0.0.1:1", "--client", "a", "--data", tmp_path / "rows.csv")
    nodding = scafflix(tmp_path / "node.log", "node", *words, "--folder", node, "--insecure")
    wait_for(lambda: len(of(node)) >= 3, nodding, tmp_path / "node.log")
    again = scafflix(tmp_path / "again", "node", *words, "--folder", node, "--insecure")
    assert again.wait(120) == 2
    assert "in use by another process" in " ".join((tmp_path / "again").read_text().split())
    for command, folder in ((serving, server), (nodding, node)):
        started = offspring(command)
        command.kill()
        command.wait()
        all_ended(started, folder)


def test_a_server_whose_job_is_killed_ends_so_that_a_service_manager_starts_it_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "run.toml").write_text(CONFIG)
    log, out = tmp_path / "log", tmp_path / "out"
    words = ("--config", tmp_path / "run.toml", "--nodes", 2, "--port", free_port(), "--insecure")
    serving = scafflix(log, "server", *words, "--out", out)
    wait_for(lambda: "waiting for 2 nodes" in log.read_text(), serving, log)
    (job,) = (one for one in offspring(serving) if "scafflix_flower.job" in one.cmdline())
    job.kill()
    assert serving.wait(60) == 1
    assert "run the same command again" in " ".join(log.read_text().split())
    wait_until_ended(out)
