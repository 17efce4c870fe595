"""From a configuration to records of networks: what several runs share is made once.

Warm-ups, local optima and, where asked, whole runs are cached on disk under digests of everything
that determines them, so that a comparison that was stopped goes on where it was.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix import durable, gradients
from scafflix.building import load_data, make_method
from scafflix.checkpoint import NOWHERE, Checkpoints
from scafflix.cohorts.curvature import curvatures, individual_stepsizes
from scafflix.cohorts.evaluation import Scores, evaluate
from scafflix.cohorts.optima import LocalOptima, Recipe, local_optima
from scafflix.cohorts.problem import NetworkProblem
from scafflix.cohorts.recording import Member, check_keep, record
from scafflix.cohorts.store import Store, disk_errors
from scafflix.cohorts.training import Schedule, Trained, train
from scafflix.config import ProblemConfig, RunConfig, TrainingConfig, build, plain
from scafflix.data import Federation
from scafflix.data.catalogue import cache_folder
from scafflix.digest import digest_of
from scafflix.engine.recording import versions
from scafflix.errors import ScafflixError
from scafflix.methods import Method
from scafflix.models import NETWORKS
from scafflix.models.network import Network, Params
from scafflix.personalize import read_alpha
from scafflix.progress import Progress
from scafflix.record import Record, new_folder
from scafflix.theory import without_theory

BATCH, PROBABILITY, STEPSIZE, COHORT, SHARE = 20, 0.2, 0.1, 10, 0.1
LARGEST_IN_MEMORY = 4 * 2**30  # bytes of client states
RECIPE = 3  # to be raised when the same configuration gives another record
STATES = "states.f32"


class Start(NamedTuple):
    """Where the runs begin: a point, and what it cost to get there."""

    x: Params
    rounds: int
    bits: tuple[int, int]


def resolve(config: Any) -> Any:
    """The configuration with the defaults of networks written out."""
    batch = BATCH if config.batch == "auto" else config.batch
    filled: dict[str, Any] = {
        "l2": 0.0 if config.l2 is None else config.l2,
        "validation": SHARE if config.validation is None else config.validation,
        "batch": batch,
        "p": PROBABILITY if config.p == "auto" else config.p,
        "pace": "cautious" if config.pace == "auto" else config.pace,
    }
    if config.min_examples is None and isinstance(batch, int):
        filled["min_examples"] = batch
    if hasattr(config, "stepsize") and config.stepsize == "auto":
        filled["stepsize"] = STEPSIZE
    return replace(config, **filled)


class Laboratory:
    """A network on a federation, and what the runs on it share."""

    def __init__(self, problem: NetworkProblem, checkpoints: Checkpoints = NOWHERE) -> None:
        self.problem, self.checkpoints = problem, checkpoints
        self._made: dict[Any, Any] = {}

    @classmethod
    def of(cls, config: TrainingConfig, checkpoints: Checkpoints = NOWHERE) -> Laboratory:
        """For the problem that a configuration names."""
        config = resolve(config)
        federation = load_federation(config)
        network = build_network(config.model, federation)
        return cls(NetworkProblem(federation, network, config.l2 or 0.0), checkpoints)

    def run(self, config: RunConfig, progress: Progress | None = None) -> Record:
        """One run."""
        config = resolve(config)
        check_keep(config.keep, self.problem)
        alpha = read_alpha(config.alpha, self.problem.n)
        start = self._once(self._start, _start_keys(config), progress)
        local = alone = curvature = None
        if config.optima != "none":
            local = self._once(self._local, _local_keys(config), progress)
            own = (*_local_keys(config), ("part", config.part))
            alone = self._once(self._alone, own, progress)
        if config.individual:
            curvature = self._once(self._curvature, _local_keys(config), progress)
        method = _method(config, alpha, curvature)
        x_star = None if local is None else local.x_star
        schedule, trained = self._train(config, method, alpha, x_star, start.x, progress)
        member = Member(method, alpha, local, alone, curvature, schedule, start.rounds, start.bits)
        return record(self.problem, member, trained, config.keep, plain(config))

    def cached_run(self, config: RunConfig, progress: Progress | None = None) -> Record:
        """One run without its models, from the cache if it was made before."""
        config = resolve(replace(config, keep="none"))
        name = digest_of(self.problem.digest, versions()["scafflix"], RECIPE, self._asked(config))
        folder = cache_folder() / "runs" / name
        if not (folder / "summary.json").exists():
            made = self.run(config, progress)
            with new_folder(folder, force=True) as aside:
                made.write(aside)
            self.checkpoints.announce()
        return replace(Record.load(folder), config=plain(config))

    def _once(
        self, make: Callable[..., Any], keys: tuple[Any, ...], progress: Progress | None
    ) -> Any:
        if (make.__name__, keys) not in self._made:
            self._made[make.__name__, keys] = make(RunConfig(**dict(keys)), progress)
        return self._made[make.__name__, keys]

    def _asked(self, config: RunConfig) -> dict[str, Any]:
        """What a run is determined by, besides the problem."""
        asked = {name: value for name, value in plain(config).items() if name != "data"}
        return asked | {"alpha": read_alpha(config.alpha, self.problem.n).tolist()}

    def _train(
        self,
        config: RunConfig,
        method: Method,
        alpha: NDArray[np.float64],
        x_star: Store | None,
        start: Params,
        progress: Progress | None,
    ) -> tuple[Schedule, Trained]:
        """The rounds, with checkpoints where they are kept."""
        name = f"{config.method}-{digest_of(self._asked(config))[:12]}"
        checkpoints = self.checkpoints.within(name)
        identity: dict[str, Any] = {}
        if checkpoints.folder is not None:
            shapes = [list(leaf.shape) for leaf in jax.tree.leaves(self.problem.template)]
            identity = {"model": self.problem.network.name, "arrays": shapes}
            identity |= {"clients": self.problem.n, "digest of data and model": self.problem.digest}
        with self._schedule(config, alpha, checkpoints) as schedule:
            trail = checkpoints.trail(identity)
            parts = (self.problem, method, alpha, x_star, start, schedule)
            return schedule, train(*parts, progress, trail)

    @contextmanager
    def _schedule(
        self, config: RunConfig, alpha: NDArray[np.float64], checkpoints: Checkpoints
    ) -> Iterator[Schedule]:
        """With a place on the disk where the states are large: beside the checkpoints, or for as
        long as the run takes."""
        if config.store not in ("auto", "memory", "disk"):
            raise ScafflixError(f"store is {config.store!r}; it must be auto, memory or disk.")
        active = int((alpha > 0).sum())
        schedule = Schedule(
            rounds=config.rounds,
            cohort=min(COHORT, active) if config.cohort is None else config.cohort,
            seed=config.seed,
            every=config.every,
            part=config.part,
        )
        large = 4 * self.problem.n * self.problem.size > LARGEST_IN_MEMORY
        if config.store == "memory" or (config.store == "auto" and not large):
            yield schedule
        elif checkpoints.folder is not None:
            checkpoints.announce()
            yield replace(schedule, store=checkpoints.folder / STATES)
        else:
            states = cache_folder() / "states"
            with disk_errors(states):
                states.mkdir(parents=True, exist_ok=True)
                place = TemporaryDirectory(dir=states)
            with place as folder:
                yield replace(schedule, store=Path(folder) / STATES)

    def _start(self, config: RunConfig, progress: Progress | None) -> Start:
        """The common random start, or the model after the warm-up from it."""
        x = self.problem.start(config.model_seed)
        if config.optima not in ("common", "warm", "none"):
            raise ScafflixError(f"optima is {config.optima!r}; it must be common, warm or none.")
        if config.optima != "warm":
            return Start(x, 0, (0, 0))
        name = digest_of(self.problem.digest, RECIPE, _start_keys(config)[1:])
        file = cache_folder() / "warm" / f"{name}{durable.SUFFIX}"
        structure = jax.tree.structure(x)
        rounds = config.rounds
        alpha = np.ones(self.problem.n)
        method = _method(config, alpha, None)
        if not file.exists():
            once = replace(config, every=rounds)
            _, trained = self._train(once, method, alpha, None, x, progress)
            if trained.divergence is not None:
                raise ScafflixError(
                    f"The warm-up diverged in round {trained.divergence.round} at client "
                    f"{trained.divergence.client}; give a smaller warmup_stepsize."
                )
            found = jax.tree.leaves(trained.x)
            bits = [int(trained.metrics[name][-1]) for name in ("bits_up", "bits_down")]
            durable.new_folder(file.parent)
            durable.write(file, {"bits": bits}, [np.asarray(leaf) for leaf in found])
        kept = durable.read(file, " Remove it.")
        assert kept is not None
        facts, arrays = kept
        up, down = facts["bits"]
        return Start(jax.tree.unflatten(structure, arrays), rounds, (up, down))

    def _local(self, config: RunConfig, progress: Progress | None) -> LocalOptima:
        start = self._once(self._start, _start_keys(config), progress)
        return local_optima(self.problem, start.x, recipe_of(config), progress)

    def _alone(self, config: RunConfig, progress: Progress | None) -> Scores:
        """The local optima on held-out data."""
        local: LocalOptima = self._once(self._local, _local_keys(config), progress)
        start: Start = self._once(self._start, _start_keys(config), progress)
        if config.part not in self.problem.parts:
            raise ScafflixError(f"There are no {config.part} data to look at.")
        return evaluate(self.problem, config.part, start.x, np.zeros(self.problem.n), local.x_star)

    def _curvature(self, config: RunConfig, progress: Progress | None) -> NDArray[np.float64]:
        if config.optima == "none":
            start: Start = self._once(self._start, _start_keys(config), progress)
            return curvatures(self.problem, start.x)
        local: LocalOptima = self._once(self._local, _local_keys(config), progress)
        return curvatures(self.problem, local.x_star)


def train_network(
    problem: NetworkProblem, progress: Progress | None = None, **settings: Any
) -> Record:
    """One run of a network, with the keys of `scafflix run` as settings.

    >>> import scafflix as sx
    >>> options = {"split": "shuffled", "scale": "standard", "validation": 0.2, "test": 0.2}
    >>> fed = sx.data.load("iris", clients=3, **options)
    >>> problem = sx.NetworkProblem(fed, sx.models.dense(features=4, classes=3))
    >>> record = sx.train_network(problem, alpha=1.0, optima="none", rounds=20, seed=1)
    >>> record.summary["rounds"], record.summary["diverged"]
    (20, None)
    """
    named = {"data": problem.federation.name, "model": problem.network.name, "l2": problem.l2}
    return Laboratory(problem).run(build(RunConfig, {**named, **settings}), progress)


def recipe_of(config: TrainingConfig) -> Recipe:
    """How the local optima are looked for."""
    stepsize = config.optima_stepsize
    if isinstance(stepsize, str) and stepsize != "auto":
        raise ScafflixError(f"optima_stepsize is {stepsize!r}; it must be auto or a number.")
    return Recipe(
        stepsize=None if isinstance(stepsize, str) else stepsize,
        batch=config.optima_batch,
        steps=config.optima_steps,
        seed=config.model_seed,
    )


def load_federation(config: ProblemConfig) -> Federation:
    """The data of a network: without a test part of their own, a share becomes it."""
    federation = load_data(config)
    if federation.test is None and config.test is None:
        federation = load_data(config, test=SHARE)
    return federation


def build_network(model: str, federation: Federation) -> Network:
    """A network by name, as `lstm` or `lstm:units=64,layers=1`, of the size that the data ask."""
    name, _, words = model.partition(":")
    options: dict[str, Any] = {}
    for word in filter(None, words.split(",")):
        key, _, value = word.partition("=")
        if not value.isdecimal():
            raise ScafflixError(f"model is {model!r}; give its options as KEY=NUMBER,...")
        options[key.strip()] = int(value)
    if name == "dense":
        labels = np.concatenate([part.labels.ravel() for part in federation.parts.values()])
        classes = len(np.unique(labels))
        if np.issubdtype(labels.dtype, np.integer) and labels.min() >= 0:
            classes = int(labels.max()) + 1  # whole numbers from 0 keep their meaning
        options |= {"features": federation.dim, "classes": classes}
    try:
        return NETWORKS[name](**options)
    except TypeError:
        allowed = ", ".join(inspect.signature(NETWORKS[name]).parameters)
        raise ScafflixError(f"model is {model!r}; {name} has the options {allowed}.") from None


def _method(
    config: RunConfig, alpha: NDArray[np.float64], curvature: NDArray[np.float64] | None
) -> Method:
    """A method by name, with a common learning rate gamma or individual gamma_i."""
    stepsize, n = config.stepsize, len(alpha)
    if isinstance(stepsize, str) or not 0 < stepsize < np.inf:
        raise ScafflixError(f"stepsize is {stepsize!r}; for a network it must be a number above 0.")
    gamma = np.full(n, float(stepsize))
    if curvature is not None:
        gamma = individual_stepsizes(float(stepsize), curvature)
    # a client with alpha_i = 0 is never chosen: what stands in its place must not divide by zero,
    # nor be the smallest stepsize of a method that has one for all
    active = alpha > 0
    if active.any():
        gamma = np.where(active, gamma, gamma[active].max())
        alpha = np.where(active, alpha, alpha[active].max())
    else:
        alpha = np.ones(n)
    p: Any = config.p
    plan = without_theory(alpha, gamma, p, gradients.gradient(config.batch))
    return make_method(plan, config.method, "auto", p, config.pace)


def _start_keys(config: RunConfig) -> tuple[Any, ...]:
    """What the start depends on, as a configuration of its own: FedAvg at alpha = 1."""
    kept: dict[str, Any] = {"data": config.data, "model_seed": config.model_seed}
    kept |= {"optima": config.optima, "method": "fedavg"}
    if config.optima == "warm":
        kept |= {"cohort": config.cohort, "p": config.p, "batch": config.batch}
        kept |= {"rounds": config.warmup, "stepsize": config.warmup_stepsize}
        kept |= {"warmup": config.warmup, "warmup_stepsize": config.warmup_stepsize}
        kept |= {"seed": config.model_seed, "part": "validation"}
    return tuple(kept.items())


def _local_keys(config: RunConfig) -> tuple[Any, ...]:
    names = ("optima_stepsize", "optima_batch", "optima_steps")
    return *_start_keys(config), *((name, getattr(config, name)) for name in names)
