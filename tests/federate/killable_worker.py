"""A worker with a quadratic, which kills itself where a test says.

python killable_worker.py SOCKET FOLDER/NUMBER

FOLDER/NUMBER.moments says how many moments it lives on; without the file it just works.
FOLDER/killed lists the moments at which it was killed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from socket import socket, socketpair
from threading import Thread
from typing import Any

from hospitals import ALPHA, LEARNERS

from scafflix.federate import worker
from scafflix.federate.client import ClientCore
from scafflix_flower.parcel import Parcel, send

WAIT = -1  # instead of a number of moments: live, but do nothing more


def main() -> None:
    place = Path(sys.argv[2])
    folder, number, left = place.parent, int(place.name), place.with_suffix(".moments")

    def moment(name: str) -> None:
        if not left.exists():
            return
        count = int(left.read_text())
        if count == WAIT:
            left.unlink()
            signal.pause()
        if count:
            left.write_text(str(count - 1))
            return
        left.unlink()
        with (folder / "killed").open("a") as killed:
            killed.write(f"{name}\n")
        os.kill(os.getpid(), signal.SIGKILL)

    def send_halves(line: socket, parcel: Parcel) -> None:
        here, there = socketpair()
        whole = bytearray()

        def gather() -> None:
            while piece := there.recv(2**16):
                whole.extend(piece)

        gathering = Thread(target=gather)
        gathering.start()
        with here:
            send(here, parcel)
        gathering.join()
        there.close()
        line.sendall(whole[: len(whole) // 2])
        moment("half a reply")
        line.sendall(whole[len(whole) // 2 :])
        moment("replied")

    core = ClientCore(f"clinic-{number}", ALPHA[number], LEARNERS[number], folder / "nodes", moment)

    def reply(asked: Parcel) -> Parcel:
        moment("received")
        made = worker.answer(core, asked)
        moment("made a reply")
        return made

    changed: Any = worker
    changed.send = send_halves
    with socket(fileno=int(sys.argv[1])) as line:
        worker.serve(line, reply)


if __name__ == "__main__":
    main()
