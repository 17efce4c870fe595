"""What was started is stopped, with all that it started itself."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from scafflix import ScafflixError
from scafflix.deploy.processes import Processes, environment, free_port, wait_for_port

# a process that ignores a polite request, and its child in a session of its own
STUBBORN = (
    "import os, signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], "
    "start_new_session=True); "
    "open(sys.argv[1], 'w').write(str(child.pid)); time.sleep(600)"
)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(os.name != "posix", reason="process groups are of POSIX")
def test_an_interrupt_stops_processes_and_their_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scafflix.deploy.processes.GRACE", 0.3)
    processes = Processes(tmp_path, environment(tmp_path, tmp_path))
    note = tmp_path / "child"

    def interrupted() -> None:
        with processes:
            processes.start("stubborn", "python", "-c", STUBBORN, str(note))
            while not note.exists() or not note.read_text():
                time.sleep(0.02)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    until = time.monotonic() + 5
    while alive(int(note.read_text())) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(int(note.read_text()))


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
