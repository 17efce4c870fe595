"""Small federations, and ways for messages to go wrong between server and clients."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.core.vector import Vector
from scafflix.federate.client import ClientCore
from scafflix.federate.closing import Farewell
from scafflix.federate.learner import Place, Scales
from scafflix.federate.messages import Hello, Introduction, Reply, Request
from scafflix.federate.planning import advice
from scafflix.federate.roster import Roster, new_roster
from scafflix.federate.secure.server import SecureServer
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import Failure
from scafflix.federate.settings import Settings
from scafflix.gradients import Exact, Reduced
from scafflix.methods import METHODS, Method, parameters

DIM = 5
SECOND = "000001"  # the second of their arrays, which have no names but numbers
ALPHA = (1.0, 0.5, 0.2, 0.8, 0.3)


class Crash(Exception):  # noqa: N818
    """A process that ends without having the last word."""


class Quadratic:
    """f_i(x) = (x - b)^T Q (x - b) / 2, in NumPy alone: a backend that a user might bring."""

    examples = 7
    fingerprint = ""

    def __init__(self, number: int) -> None:
        random = np.random.default_rng(number)
        basis, _ = np.linalg.qr(random.normal(size=(DIM, DIM)))
        self.spectrum = np.linspace(1.0, 2.0 + number, DIM)
        self.Q = basis @ np.diag(self.spectrum) @ basis.T
        self.b = 3 * random.normal(size=DIM) + number

    @property
    def scales(self) -> Scales:
        gamma = 1 / float(self.spectrum[-1])
        return Scales(gamma, gamma * float(self.spectrum[0]), 1.0)

    def start(self) -> Vector:
        return Vector((np.ones(3), np.ones((1, 2))))

    def _flat(self, point: Vector) -> NDArray[np.float64]:
        return np.concatenate([leaf.ravel() for leaf in point.tree])

    def gradient(self, point: Vector, place: Place) -> Vector:
        g = self.Q @ (self._flat(point) - self.b)
        return Vector((g[:3], g[3:].reshape(1, 2)))

    def loss(self, point: Vector) -> float:
        off = self._flat(point) - self.b
        return float(off @ self.Q @ off / 2)

    def score(self, point: Vector) -> float:
        return float("nan")

    def optimum(self) -> Vector:
        return Vector((self.b[:3], self.b[3:].reshape(1, 2)))


class Sampled(Quadratic):
    """The same, as the mean of two functions of which a gradient takes one by chance; clients
    reduce the variance of that."""

    estimate = Reduced(1, q=0.3)

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.other = np.random.default_rng(50 + number).normal(size=DIM)

    @property
    def scales(self) -> Scales:
        return Scales(*(0.2 * part for part in super().scales))

    def gradient(self, point: Vector, place: Place) -> Vector:
        sign = np.random.default_rng([place.seed, place.round, place.number, place.step]).choice(
            [-1, 1]
        )
        g = self.Q @ (self._flat(point) - self.b) + sign * 0.5 * (self._flat(point) - self.other)
        return Vector((g[:3], g[3:].reshape(1, 2)))

    def full_gradient(self, point: Vector) -> Vector:
        return super().gradient(point, Place(0, 0, 0, 0, 0, 0))


LEARNERS = [Quadratic(number) for number in range(len(ALPHA))]
SAMPLED = [Sampled(number) for number in range(len(ALPHA))]


def flix_optimum(
    without: int | None = None, pull: NDArray[np.float64] | float = 0.0
) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """x* of the quadratics, and h_i* = grad f_i(x~_i*); maybe without a client, and with <pull, x>
    added to the sum."""
    weights = [0.0 if k == without else a * a for k, a in enumerate(ALPHA)]
    left = sum(w * f.Q for w, f in zip(weights, LEARNERS, strict=True))
    right = sum(w * f.Q @ f.b for w, f in zip(weights, LEARNERS, strict=True))
    x = np.linalg.solve(left, right - pull)
    return x, [a * f.Q @ (x - f.b) for a, f in zip(ALPHA, LEARNERS, strict=True)]


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder where flushing costs nothing: thousands of rounds flush several times each."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="scafflix-", dir=where))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class Hospital:
    """A client that may crash and start again: only its folder stays."""

    def __init__(self, make: Callable[[Callable[[str], None]], ClientCore]) -> None:
        self.make = make
        self.alarm: Callable[[str], None] = lambda moment: None
        self.core = make(self._moment)

    def _moment(self, moment: str) -> None:
        self.alarm(moment)

    def handle(self, message: Request) -> Reply:
        return self.core.handle(message)

    def restart(self) -> None:
        self.alarm = lambda moment: None
        self.core = self.make(self._moment)

    def forget(self) -> None:
        """Amnesia: all but x_i*, which could be found again, is gone."""
        for path in self.core.folder.iterdir():
            if path.is_file() and not path.name.startswith("optimum"):
                path.unlink()


def quadratic_hospitals(
    folder: Path,
    kind: type[ClientCore] = ClientCore,
    method: Callable[..., Method] | None = None,
    learners: Sequence[Quadratic] = LEARNERS,
) -> dict[str, Hospital]:
    """One for each quadratic; maybe with a method that is not of the package."""

    def maker(number: int) -> Callable[[Callable[[str], None]], ClientCore]:
        return lambda hook: kind(
            f"clinic-{number}", ALPHA[number], learners[number], folder / "nodes", hook, method
        )

    return {f"clinic-{k}": Hospital(maker(k)) for k in range(len(ALPHA))}


def introduce(hospitals: Mapping[str, Hospital]) -> list[Introduction]:
    """The handshake."""
    made = [hospital.handle(Hello(start=False)) for hospital in hospitals.values()]
    return [one for one in made if isinstance(one, Introduction)]


def make_server(
    folder: Path,
    roster: Roster,
    start: Vector,
    name: str = "scafflix",
    hook: Callable[[str], None] = lambda moment: None,
    back_to: int | None = None,
    make: Callable[..., Method] | None = None,
    **settings: Any,
) -> ServerCore:
    """A server for the clients of a roster."""
    (folder / "server").mkdir(exist_ok=True, parents=True)
    plan = advice([one for one in roster.introductions if one.alpha > 0], Exact())
    make = make or METHODS[name]
    settings = {**({"own": SECOND} if "own" in parameters(make) else {}), **settings}
    own = {key: settings[key] for key in parameters(make) if key in settings}
    method = make(plan, **own)
    chosen = Settings(
        **{key: value for key, value in settings.items() if key == "cohort" or key not in own}
    )
    kind = SecureServer if chosen.secure_aggregation else ServerCore
    return kind(folder / "server", roster, method, start.tree, chosen, hook, back_to)


class Direct:
    """Every message arrives, once."""

    def __init__(self, hospitals: Mapping[str, Hospital]) -> None:
        self.hospitals = hospitals
        self.seen: list[Any] = []

    def exchange(self, requests: Mapping[str, Request]) -> Iterable[tuple[str, Reply | Failure]]:
        for name, request in requests.items():
            reply = self.hospitals[name].handle(request)
            self.seen += [request, reply]
            yield name, reply


class Faulty:
    """Requests and replies are lost, late, repeated and out of order; clients crash."""

    def __init__(
        self, hospitals: Mapping[str, Hospital], seed: int, rate: float = 0.15, crashes: bool = True
    ) -> None:
        self.hospitals, self.rate, self.crashes = hospitals, rate, crashes
        self.random = np.random.default_rng(seed)
        self.late: list[tuple[str, Reply]] = []  # replies on their way
        self.old: list[tuple[str, Request]] = []  # requests that may come once more
        self.amnesia = 0.0
        self.happened: dict[str, int] = {}

    def _chance(self, what: str, rate: float | None = None) -> bool:
        struck = bool(self.random.random() < (self.rate if rate is None else rate))
        self.happened[what] = self.happened.get(what, 0) + struck
        return struck

    def _handle(self, name: str, request: Request) -> Reply | None:
        hospital = self.hospitals[name]
        if self.amnesia and self._chance("amnesia", self.amnesia):
            hospital.forget()
        if self.crashes and self._chance("crash"):
            moments = int(self.random.integers(0, 5))

            def alarm(moment: str) -> None:
                nonlocal moments
                if not moments:
                    raise Crash(moment)
                moments -= 1

            hospital.alarm = alarm
        try:
            return hospital.handle(request)
        except Crash:
            return None
        finally:
            hospital.restart()

    def exchange(self, requests: Mapping[str, Request]) -> Iterable[tuple[str, Reply | Failure]]:
        tasks: list[tuple[str, Request]] = []
        for name, request in requests.items():
            if not self._chance("request lost"):
                tasks.append((name, request))
                if self._chance("request repeated"):
                    tasks.append((name, request))
            self.old.append((name, request))
        self.old = self.old[-40:]
        if self.old and self._chance("old request again"):
            tasks.append(self.old[self.random.integers(len(self.old))])
        self.random.shuffle(tasks)  # type: ignore[arg-type]
        arrived: list[tuple[str, Reply]] = []
        for name, request in tasks:
            reply = self._handle(name, request)
            if reply is None or self._chance("reply lost"):
                continue
            if self._chance("reply late"):
                self.late.append((name, reply))
                continue
            arrived.append((name, reply))
            if self._chance("reply repeated"):
                arrived.append((name, reply))
        while self.late and self._chance("late reply arrives", 0.5):
            arrived.append(self.late.pop(int(self.random.integers(len(self.late)))))
        self.random.shuffle(arrived)  # type: ignore[arg-type]
        yield from arrived


def flat(point: Any) -> NDArray[np.float64]:
    """A point's numbers in one row."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(point)])


def imbalance(server: ServerCore, hospitals: Mapping[str, Hospital]) -> float:
    """||sum_i alpha_i h_i|| over what the clients themselves have on disk."""
    farewell = {name: Farewell(server).request(name) for name in server.names}
    total = sum(
        hospital.core.alpha * flat(hospital.core.control(farewell[name]))
        for name, hospital in hospitals.items()
    )
    return float(np.linalg.norm(total))


def fresh_roster(hospitals: Mapping[str, Hospital]) -> Roster:
    return new_roster(introduce(hospitals))
