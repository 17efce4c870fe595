"""What a run is doing now, for whoever watches it: a file in the server's folder.

The job's loop only notes what happens; a thread writes the file, at most once a second. A file that
cannot be written costs the watcher a picture, and the run nothing.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any

from scafflix.core import durable
from scafflix.core.errors import ScafflixError, one_line
from scafflix.federate.files import JOURNAL
from scafflix.federate.messages import Evaluate, Refusal, Reply, Request
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import Failure, Transport
from scafflix.federate.status import Progress

FILE = "live.json"
PAUSE = 1.0  # seconds between two writings
ROUNDS = 500  # newest rounds whose loss is shown
USUAL = 20  # newest rounds from which the time left is reckoned
BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)  # seconds of a round
REPLIED = "replied"
# counts that are no refusals; every other one is named after what was wrong with a message
EVENTS = frozenset(
    {"refused", "late", "repeated", "dropped", "restored", "epochs", "resumed", "went_back"}
) | {"attempts_repeated", "error"}


class Live:
    """A transport that notes who answers when, on the way to the clients and back."""

    def __init__(
        self, transport: Transport, core: ServerCore, job: str = "", pause: float = PAUSE
    ) -> None:
        self.transport, self.core, self.pause = transport, core, pause
        self.path = core.files.folder / FILE
        self._journal = Journal(core.files.folder / JOURNAL)
        self._lock, self._news, self._end = Lock(), Event(), Event()
        self._clients: dict[str, dict[str, Any]] = {
            name: dict.fromkeys(("asked", "heard", "answered", "seconds")) | {"said": ""}
            for name in core.names
        }
        self._times: deque[float] = deque(maxlen=USUAL)
        self._buckets = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0
        self._opened, self._round = time.time(), core.round
        began = {"job": job, "began": self._opened, "run": core.run, "method": core.method.name}
        self._facts: dict[str, Any] = began | {"phase": "training"}
        self._thread = Thread(target=self._write_on, daemon=True)

    def __enter__(self) -> Live:
        self._note()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._facts["phase"] = "finished" if kind is None else "stopped"
        self._note()
        self._end.set()
        self._news.set()
        self._thread.join()

    def exchange(self, requests: Mapping[str, Request]) -> Iterable[tuple[str, Reply | Failure]]:
        """What the transport does, noted; a reply is noted when the core has taken it in."""
        if any(isinstance(one, Evaluate) for one in requests.values()):
            self._facts["phase"] = "closing"
        now = time.time()
        with self._lock:
            for name in requests:
                self._clients[name]["asked"] = now
        self._note()
        for name, reply in self.transport.exchange(requests):
            before = self.core.tally.refused_of[name]
            yield name, reply
            refused = self.core.tally.refused_of[name] > before
            self._heard(name, reply, refused=refused)

    def noting(self, progress: Progress | None) -> Progress:
        """What is called when a round is closed: it is noted, and reported as before."""

        def report(done: int, total: int, state: str) -> None:
            self._closed()
            if progress is not None:
                progress(done, total, state)

        return report

    def _closed(self) -> None:
        now = time.time()
        seconds, rounds = now - self._opened, self.core.round - self._round
        with self._lock:
            self._times.append(seconds)
            self._sum += seconds
            self._buckets[sum(seconds > bound for bound in BUCKETS)] += rounds
        self._opened, self._round = now, self.core.round
        self._note()

    def _heard(self, name: str, reply: Any, *, refused: bool) -> None:
        now, said = time.time(), REPLIED
        if isinstance(reply, Failure):
            said = f"failed: {reply.reason}"
        elif isinstance(reply, Refusal):
            said = f"refused: {reply.reason}"
        elif refused:
            said = "its reply was refused"
        with self._lock:
            one = self._clients.get(name)
            if one is not None:
                one |= {"heard": now, "said": one_line(said)[:300]}
                if not isinstance(reply, Failure):
                    one |= {"answered": now, "seconds": now - (one["asked"] or now)}
        self._note()

    def _note(self) -> None:
        """Note where the core is; this is all that its loop waits for."""
        core, tally = self.core, self.core.tally
        with self._lock:
            self._facts |= {
                "round": core.round,
                "rounds": core.settings.rounds,
                "epoch": core.epoch,
                "attempt": core.attempt,
                "opened": self._opened,
                "cohort": core.cohort_size,
                "minimum": core.minimum,
                "asked": list(core.cohort),
                "accepted": list(core.accepted),
                "counts": dict(tally.counts),
                "bytes_up": tally.bits_up // 8,
                "bytes_down": tally.bits_down // 8,
            }
        self._news.set()

    def _write_on(self) -> None:
        """Write what is new, until the end."""
        while not self._end.is_set():
            self._news.wait()
            self._news.clear()
            self._write()
            self._end.wait(self.pause)
        self._write()

    def _write(self) -> None:
        with suppress(ScafflixError, OSError):  # nobody waits for it
            text = json.dumps(self._told(), allow_nan=False)
            durable.put(self.path, [text.encode()])

    def _told(self) -> dict[str, Any]:
        rows = self._journal.rows()
        with self._lock:
            facts = dict(self._facts)
            clients = [self._of(name) | one for name, one in self._clients.items()]
            usual = statistics.median(self._times) if self._times else None
            histogram = {"bounds": BUCKETS, "counts": list(self._buckets), "sum": self._sum}
        counts = facts.pop("counts")
        left = None if usual is None else usual * (facts["rounds"] - facts["round"])
        return facts | {
            "clients": clients,
            "seconds": histogram,
            "seconds_a_round": usual,
            "seconds_left": left,
            "replies": self._journal.replies,
            "loss": [[row["round"], row["loss"]] for row in rows],
            "epsilon": rows[-1].get("epsilon") if rows else None,
            "refusals": {kind: n for kind, n in counts.items() if kind not in EVENTS and n},
            "events": {kind: counts.get(kind, 0) for kind in sorted(EVENTS)},
        }

    def _of(self, name: str) -> dict[str, Any]:
        refused = self.core.tally.refused_of.get(name, 0)
        rounds = self.core.ledger.entries[name].rounds
        return {"name": name, "rounds": rounds, "refused": refused}


class Journal:
    """The newest rows of a journal, read on from where it was read before."""

    def __init__(self, path: Path) -> None:
        self.path, self._read, self.replies = path, 0, 0
        self._rows: deque[dict[str, Any]] = deque(maxlen=ROUNDS)

    def rows(self) -> list[dict[str, Any]]:
        """The newest closed rounds."""
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if line.endswith(b"\n"):
                    self._read += len(line)
                    self._rows.append(json.loads(line))
                    self.replies += self._rows[-1]["replies"]
        return list(self._rows)


def read_live(folder: Path) -> dict[str, Any]:
    """What was written last; nothing if no round has begun."""
    with suppress(FileNotFoundError):
        found: dict[str, Any] = json.loads((folder / FILE).read_text())
        return found
    return {}
