"""Starts the command again and again from one process that has imported it: a start is then a
matter of milliseconds, and a kill costs little more than what it destroys.

Reads a line of words a start; answers each with the exit code. First stands `^FOLDER`, for what the
command caches. A word `@SECONDS` behind it kills the command with signal 9 as long after it began
to compute its rounds or local optima.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import redirect_stdout

from scafflix.cli import main
from scafflix.core.checkpoint import Trail


def start(words: list[str]) -> None:
    os.environ["SCAFFLIX_CACHE"] = words.pop(0)[1:]
    if words[0].startswith("@"):
        seconds = float(words.pop(0)[1:])
        enter = Trail.__enter__

        def and_die(trail: Trail) -> Trail:
            if not armed.is_set():
                armed.set()
                threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
            return enter(trail)

        armed = threading.Event()
        Trail.__enter__ = and_die  # type: ignore[method-assign]
    sys.argv[1:] = words
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        main()


if __name__ == "__main__":
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            start(line.split())
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
