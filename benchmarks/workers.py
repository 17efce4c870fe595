"""The peers, the environments they live in, and the processes that answer for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".bench"  # made by `make bench`
SETTINGS = {"PYTHONPATH": str(HERE), "JAX_ENABLE_COMPILATION_CACHE": "false"}


@dataclass(frozen=True)
class Peer:
    """A module of `peers/`, the environment it runs in, and its arguments after the task."""

    label: str
    module: str
    environment: str | None = None  # None: this one
    arguments: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        if self.environment is None:
            return Path(sys.executable)
        return ENVIRONMENTS / self.environment / "bin" / "python"


PEERS = {
    "scafflix": Peer("Scafflix (ours)", "scafflix_worker", None, ("scafflix",)),
    "fedavg": Peer("FedAvg (ours)", "scafflix_worker", None, ("fedavg",)),
    "scaffold": Peer("SCAFFOLD (ours)", "scafflix_worker", None, ("scaffold",)),
    "tamuna": Peer("TAMUNA (ours)", "scafflix_worker", None, ("tamuna",)),
    "ditto": Peer("Ditto (ours)", "scafflix_worker", None, ("ditto",)),
    "apfl": Peer("APFL (ours)", "scafflix_worker", None, ("apfl",)),
    "fedavg_module": Peer("FedAvg, PyTorch (ours)", "scafflix_worker", None, ("fedavg", "module")),
    "scafflix_module": Peer(
        "Scafflix, PyTorch (ours)", "scafflix_worker", None, ("scafflix", "module")
    ),
    "numpy": Peer("NumPy loop", "numpy_loop"),
    "torch1": Peer("PyTorch, 1 thread", "torch_eager", "torch", ("1",)),
    "torch2": Peer("PyTorch, 2 threads", "torch_eager", "torch", ("2",)),
    "fedjax": Peer("FedJAX", "fedjax_worker", "fedjax"),
    "flower": Peer("Flower simulation", "flower_worker", "torch"),
    "pfl1": Peer("pfl, 1 thread", "pfl_worker", "torch", ("1",)),
    "pfl2": Peer("pfl, 2 threads", "pfl_worker", "torch", ("2",)),
}


class Worker:
    """A process with one task, idle until it is asked to run some rounds."""

    def __init__(self, peer: Peer, folder: Path, log: Path) -> None:
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [peer.python, "-m", f"peers.{peer.module}", folder.resolve(), *peer.arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(HERE),
                    "JAX_ENABLE_COMPILATION_CACHE": "false",
                },
            )
        self.start = float(self._answer()["start"])  # seconds: reading, compiling, a first round

    def run(self, rounds: int) -> dict[str, Any]:
        """What so many rounds from the start took."""
        assert self.process.stdin is not None
        print(rounds, file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended; see {self.log}")
        return json.loads(line)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def interleave(
    folder: Path, rounds: dict[str, int], repeat: int, logs: Path
) -> dict[str, dict[str, Any]]:
    """Run each peer in turn, several times over; the others wait meanwhile.

    `rounds` says how many rounds each peer is asked for at a time. A peer whose environment is
    not there, or that fails, is reported as such and left out.
    """
    logs.mkdir(parents=True, exist_ok=True)
    workers: dict[str, Worker] = {}
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        for name in rounds:
            with left_out(name, workers):
                worker = Worker(PEERS[name], folder, logs / f"{folder.name}-{name}.log")
                workers[name] = stack.enter_context(worker)
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
        for _ in range(repeat):
            for name in list(workers):
                with left_out(name, workers):
                    runs[name].append(workers[name].run(rounds[name]))
        for name, worker in workers.items():
            label = PEERS[name].label
            found[name] = {"label": label, "start_seconds": worker.start, "runs": runs[name]}
    return found


@contextmanager
def left_out(name: str, workers: dict[str, Worker]) -> Iterator[None]:
    """Go on without a peer that fails."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        workers.pop(name, None)
        print(f"{name} is left out: {error}", file=sys.stderr)
