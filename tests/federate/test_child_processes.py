"""What was started is stopped, with all that it started itself, whatever becomes of its starter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from living import of, wait_until_ended

from scafflix import ScafflixError
from scafflix.federate import watcher
from scafflix.federate.processes import (
    LOGS,
    NOTE,
    Processes,
    alone,
    environment,
    free_port,
    wait_for_port,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")

# a process that ignores a polite request, and its child in a session of its own, which has one too
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
depth, folder = int(sys.argv[1]), sys.argv[2]
if depth:
    words = [sys.executable, "-c", sys.argv[3], str(depth - 1), folder, sys.argv[3]]
    subprocess.Popen(words, start_new_session=True)
open(f"{folder}/ready-{depth}", "w").close()
time.sleep(600)
"""

# a command that starts it and waits
COMMAND = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores
from scafflix.federate.processes import Processes, alone, environment
folder = Path(sys.argv[1])
(folder / "logs").mkdir(exist_ok=True)
with alone(folder), Processes(folder / "logs", environment(folder, folder)) as processes:
    processes.start("stubborn", "python", "-c", sys.argv[2], "2", str(folder), sys.argv[2])
    time.sleep(600)
"""


def wait_until_started(folder: Path) -> None:
    while not all((folder / f"ready-{depth}").exists() for depth in range(3)):
        time.sleep(0.02)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-c", COMMAND, str(tmp_path), STUBBORN]
    process = subprocess.Popen(words, start_new_session=True)
    try:
        wait_until_started(tmp_path)
        yield process
    finally:
        process.kill()
        process.wait()
        wait_until_ended(tmp_path)


def test_an_interrupt_stops_processes_and_their_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scafflix.federate.processes.GRACE", 0.3)
    processes = Processes(tmp_path, environment(tmp_path, tmp_path))

    def interrupted() -> None:
        with processes:
            processes.start("stubborn", "python", "-c", STUBBORN, "2", str(tmp_path), STUBBORN)
            wait_until_started(tmp_path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert of(tmp_path) == []


def test_a_process_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    with Processes(tmp_path, environment(tmp_path, tmp_path)) as processes:
        processes.start("stubborn", "python", "-c", STUBBORN, "2", str(tmp_path), STUBBORN)
        wait_until_started(tmp_path)
        processes.kill("stubborn")
        left = [words for words in of(tmp_path) if "watcher" not in words]
        assert left == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_what_a_command_started_ends_with_it_however_it_is_ended(
    command: subprocess.Popen[bytes], number: signal.Signals, tmp_path: Path
) -> None:
    os.killpg(command.pid, number)
    command.wait()
    wait_until_ended(tmp_path)
    assert not (tmp_path / LOGS / NOTE).exists()


def test_what_is_left_of_a_command_and_its_watcher_is_ended_by_the_next(
    command: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    note = tmp_path / LOGS / NOTE
    while not note.exists() or len(note.read_text().splitlines()) < 4:  # three, and the watcher
        time.sleep(0.05)
    watching = [one for one in watcher.read_note(note) if "watcher.py" in " ".join(one.cmdline())]
    assert len(watching) == 1
    watching[0].kill()
    command.kill()
    command.wait()
    assert len(of(tmp_path)) == 3
    with alone(tmp_path):
        assert of(tmp_path) == []


def test_a_folder_in_use_is_refused_in_a_sentence_and_left_alone(
    command: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    before = sorted(of(tmp_path))
    with pytest.raises(ScafflixError, match="in use by another process"), alone(tmp_path):
        pass
    assert sorted(of(tmp_path)) == before


def test_a_number_that_was_given_to_another_process_is_not_ended(tmp_path: Path) -> None:
    own = psutil.Process()
    (tmp_path / LOGS).mkdir()
    (tmp_path / LOGS / NOTE).write_text(json.dumps([own.pid, own.create_time() - 60]))
    with alone(tmp_path):
        pass
    (tmp_path / LOGS / NOTE).write_text("no note at all")
    with alone(tmp_path):
        pass


def test_a_child_whose_parent_dies_before_the_watcher_knows_of_it_never_becomes_the_program(
    tmp_path: Path,
) -> None:
    (tmp_path / LOGS).mkdir()
    killed = "from scafflix.federate.processes import Watch\nimport os\n"
    killed += "Watch.add = lambda self, pid: os.kill(os.getpid(), 9)\n"
    program = "import sys\nopen(sys.argv[2] + '/mark', 'w')"
    words = [sys.executable, "-c", killed + COMMAND, str(tmp_path), program]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    wait_until_ended(tmp_path)
    assert not (tmp_path / "mark").exists()


def test_a_process_that_ended_is_named_with_its_last_words(tmp_path: Path) -> None:
    with Processes(tmp_path, environment(tmp_path, tmp_path)) as processes:
        process = processes.start("broken", "python", "-c", "raise SystemExit('no such port')")
        process.wait()
        with pytest.raises(ScafflixError, match="broken ended with code 1: no such port"):
            wait_for_port(free_port(), processes)


def test_a_missing_program_says_what_to_install(tmp_path: Path) -> None:
    processes = Processes(tmp_path, environment(tmp_path, tmp_path))
    with pytest.raises(ScafflixError, match="pip install"):
        processes.start("absent", "flower-of-no-kind")
