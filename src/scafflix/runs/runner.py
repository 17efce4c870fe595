"""From configurations to records: what several runs on one problem share is made once.

Warm-ups, local optima and, where asked, whole runs are cached on disk under digests of everything
that determines them, so that a comparison that was stopped continues where it was.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import jax

from scafflix.core import durable, specs
from scafflix.core.cache import cache_folder
from scafflix.core.checkpoint import NOWHERE, Checkpoints
from scafflix.core.digest import digest_of
from scafflix.core.errors import ScafflixError
from scafflix.core.folders import whole_folder
from scafflix.core.plugins import source_of
from scafflix.core.progress import Progress
from scafflix.core.versions import versions
from scafflix.methods import METHODS, find, parameters
from scafflix.models import is_network
from scafflix.personalization.alphas import read_alpha, rule_in
from scafflix.personalization.personalize import Personalization, Start, personalize
from scafflix.personalization.rules import blending
from scafflix.personalization.rules.choosing import fits
from scafflix.privacy import Limit
from scafflix.problems.problem import Problem
from scafflix.record import Record
from scafflix.runs import refusals
from scafflix.runs.assembly import (
    alpha_of,
    build_problem,
    estimate_of,
    make_method,
    one_run,
    private_method,
    recipe_of,
    resolve,
    rounds_of,
    training_alpha,
)
from scafflix.runs.config import (
    PARAMETERS,
    CompareConfig,
    RunConfig,
    TrainingConfig,
    changed,
    plain,
)
from scafflix.simulate.accounting import noise_within
from scafflix.simulate.bits import remembers
from scafflix.simulate.planning import plan
from scafflix.simulate.recording import Run, models_kept
from scafflix.simulate.run import part_of, run, sweep
from scafflix.theory import Plan

COHORT = 10  # clients of a network that are sampled per round, unless told otherwise
# to be raised when the same configuration gives another record, and when a default of a key
# changes: runs are named without what is by default
RECIPE = 8


class Runner:
    """A problem, and what the runs on it share."""

    def __init__(self, problem: Problem, checkpoints: Checkpoints = NOWHERE) -> None:
        self.problem, self.checkpoints = problem, checkpoints
        self._starts: dict[Any, Start] = {}
        self._persons: dict[Any, Personalization] = {}

    @classmethod
    def of(cls, config: TrainingConfig, checkpoints: Checkpoints = NOWHERE) -> Runner:
        """For the problem that a configuration names."""
        return cls(build_problem(config), checkpoints)

    def at(self, checkpoints: Checkpoints) -> Runner:
        """The same with its checkpoints elsewhere."""
        other = Runner(self.problem, checkpoints)
        other._starts, other._persons = self._starts, self._persons
        return other

    def check(self, config: RunConfig) -> None:
        """Refuse a run that cannot work, before any work."""
        refusals.check_keys(config)
        refusals.check_data(config, self.problem.federation)
        models_kept(config.keep, self.problem)

    def run(self, config: RunConfig, progress: Progress | None = None) -> Record:
        """One run."""
        self.check(config)
        (made,) = self.sweep([config], progress)
        return made

    def sweep(
        self, configs: Sequence[RunConfig], progress: Progress | None = None, scores: bool = True
    ) -> list[Record]:
        """Several runs that differ in method, alpha, stepsize and seed only."""
        asked = [resolve(config) for config in configs]
        if self.problem.linear:
            members = [self.member(config, progress) for config in asked]
            options = self._options(asked[0], scores, progress)
            # the others have nothing that could begin warm
            options["h0"] = next((one.h0 for one in asked if one.h0 != "zero"), "zero")
            made = sweep(self.problem, members, **options)
        else:
            made = []
            for number, config in enumerate(asked):
                part = progress and part_of(progress, number, len(asked))
                member = self.member(config, part)
                options = self._options(config, scores, part)
                made.append(run(self.problem, *member[:2], seed=member.seed, **options))
        shown = asked
        if self.problem.linear:
            shown = [replace(config, rounds=rounds_of(config)) for config in configs]
        return [
            replace(one, config={**plain(config), "alpha": _shown_alpha(config, one)})
            for one, config in zip(made, shown, strict=True)
        ]

    def _options(
        self, config: RunConfig, scores: bool, progress: Progress | None
    ) -> dict[str, Any]:
        """What `run` and `sweep` take besides runs."""
        place = self.checkpoints
        if not self.problem.linear:
            # named after the words: other values in a file of them are another run, and refused
            place = place.within(f"{digest_of(config.method, changed(config))[:12]}")
        return {
            "rounds": config.rounds,
            "cohort": self._cohort(config),
            "start": config.start if self.problem.linear else None,
            "h0": config.h0,
            "epsilon": config.epsilon,
            "strict": config.strict,
            "every": config.every,
            "scores": scores,
            "part": config.part,
            "store": config.store,
            "keep": config.keep,
            "progress": progress,
            "checkpoints": place,
            "delta": config.delta,
            "budget": config.budget,
        }

    def _cohort(self, config: RunConfig) -> int | None:
        """Clients of a round; None: all."""
        if self.problem.linear or config.cohort is not None:
            return config.cohort
        active = training_alpha(config, self.problem.n) > 0
        return min(COHORT, int(active.sum())) or None

    def member(self, config: RunConfig, progress: Progress | None = None) -> Run:
        """The personalization and the method of one run."""
        person = self.person(config, progress)
        noise = self.noise(config, person)
        method = private_method(
            make_method(self.plan(config, person, noise), config), config, noise
        )
        chooses = person.after is not None or fits(self.problem)
        if config.alpha is None and method.mixes and chooses:
            person = person.at("auto")
        return Run(person, method, config.seed)

    def noise(self, config: RunConfig, person: Personalization) -> float | None:
        """The noise multiplier that keeps all rounds within the budget, if none is given."""
        if config.privacy == "none" or config.noise_multiplier is not None:
            return None
        assert config.budget is not None
        method = private_method(make_method(self.plan(config, person), config), config)
        some, limit = Run(person, method, config.seed), Limit(config.delta, config.budget)
        return noise_within(self.problem, some, self._cohort(config), rounds_of(config), limit)

    def plan(self, config: RunConfig, person: Personalization, noise: float | None = None) -> Plan:
        """What theory advises for these gradients and this target; of a network, what was asked."""
        estimate = estimate_of(config, noise)
        if self.problem.linear:
            return plan(self.problem, person, gradient=estimate, epsilon=config.epsilon)
        stepsize: Any = config.stepsize
        return plan(
            self.problem, person, gradient=estimate, stepsize=stepsize, individual=config.individual
        )

    def person(self, config: RunConfig, progress: Progress | None = None) -> Personalization:
        """alpha_i, with local optima that are found once for all alpha."""
        keys = "linear" if self.problem.linear else _local_keys(config)
        if keys not in self._persons:
            self._persons[keys] = self._look_for_optima(config, progress)
        return self._persons[keys].at(alpha_of(config))

    def _look_for_optima(self, config: RunConfig, progress: Progress | None) -> Personalization:
        if self.problem.linear:
            return personalize(self.problem, 1.0)
        return personalize(
            self.problem,
            1.0,
            optima=config.optima != "none",
            after=config.optima == "after",
            start=self.start(config, progress),
            recipe=recipe_of(config),
            progress=progress,
        )

    def start(self, config: RunConfig, progress: Progress | None = None) -> Start:
        """A network's common random start, or the model after the warm-up from it."""
        keys = _start_keys(config)
        if keys not in self._starts:
            x = self.problem.start(config.model_seed)
            warm = config.optima == "warm"
            self._starts[keys] = self._warm_up(config, x, progress) if warm else Start(x)
        return self._starts[keys]

    def _warm_up(self, config: RunConfig, x: Any, progress: Progress | None) -> Start:
        """FedAvg at alpha = 1, kept on the disk for the next command."""
        name = digest_of(self.problem.identity, RECIPE, _start_keys(config))
        file = cache_folder() / "warm" / f"{name}{durable.SUFFIX}"
        with durable.making(file):
            if not file.exists():
                self._keep_warm_up(config, file, progress)
        kept = durable.read(file, " Remove it.")
        assert kept is not None
        facts, arrays = kept
        up, down = facts["bits"]
        warm = jax.tree.unflatten(jax.tree.structure(x), arrays)
        return Start(warm, config.warmup, (up, down))

    def _keep_warm_up(self, config: RunConfig, file: Path, progress: Progress | None) -> None:
        once = replace(
            config,
            method="fedavg",
            alpha=1.0,
            optima="none",
            rounds=config.warmup,
            stepsize=config.warmup_stepsize,
            individual=False,
            seed=config.model_seed,
            every=config.warmup,
            part="validation",
            keep="global",
        )
        (made,) = self.sweep([once], progress, scores=False)
        if made.summary["diverged"] is not None:
            raise ScafflixError(
                f"The warm-up diverged in round {made.summary['diverged']['round']} at client "
                f"{made.summary['diverged']['client']}; give a smaller warmup_stepsize."
            )
        bits = [int(made.metrics[name][-1]) for name in ("bits_up", "bits_down")]
        durable.new_folder(file.parent)
        durable.write(file, {"bits": bits}, list(made.models.values()))

    def cached_run(self, config: RunConfig, progress: Progress | None = None) -> Record:
        """One run without its models, from the cache if it was made before."""
        config = replace(config, keep="none")
        alpha = read_alpha(alpha_of(config), self.problem.n)
        asked = changed(resolve(config))
        del asked["data"]
        source = source_of(specs.read(config.method).name)
        made_by: tuple[Any, ...] = versions()["scafflix"], RECIPE, source
        if config.alpha is None or rule_in(config.alpha) is not None:
            made_by += (blending.RECIPE,)
        name = digest_of(self.problem.identity, made_by, asked, alpha)
        folder = cache_folder() / "runs" / name
        if not (folder / "summary.json").exists():
            made = self.at(self.checkpoints.within(name[:12])).run(config, progress)
            with whole_folder(folder, force=True) as aside:
                made.write(aside)
            self.checkpoints.announce()
        found = Record.load(folder)
        asked = {**plain(resolve(config)), "alpha": _shown_alpha(config, found)}
        return replace(found, config=asked)


def _shown_alpha(config: RunConfig, made: Record) -> Any:
    """alpha as it was asked for; where it was not, what it was."""
    return made.config["alpha"] if config.alpha is None else config.alpha


def _start_keys(config: RunConfig) -> tuple[Any, ...]:
    """What a network's start depends on."""
    names: tuple[str, ...] = ("model_seed",)
    if config.optima == "warm":
        names += ("cohort", "p", "batch", "warmup", "warmup_stepsize")
    return config.optima == "warm", *(getattr(config, name) for name in names)


def _local_keys(config: RunConfig) -> tuple[Any, ...]:
    names = ("optima_stepsize", "optima_batch", "optima_steps")
    return config.optima, *_start_keys(config), *(getattr(config, name) for name in names)


def execute(
    config: RunConfig, progress: Progress | None = None, checkpoints: Checkpoints = NOWHERE
) -> Record:
    """One run."""
    refusals.check_keys(config)
    return Runner.of(config, checkpoints).run(config, progress)


def compare(
    config: CompareConfig,
    progress: Progress | None = None,
    checkpoints: Checkpoints = NOWHERE,
    scores: bool = True,
) -> list[Record]:
    """Every method at every alpha with every seed, as one sweep; networks one after another."""
    asked, runner = runs_of(config), Runner.of(config, checkpoints)
    for one in asked:
        runner.check(one)
    return runner.sweep(asked, progress, scores)


def runs_of(config: CompareConfig) -> list[RunConfig]:
    """The runs of a comparison; refuse what is wrong whatever the data are."""
    if config.seeds < 1:
        raise ScafflixError(f"seeds is {config.seeds}; it must be at least 1.")
    if not 0 < config.target < math.inf:
        raise ScafflixError(f"target is {config.target}; it must be a finite number above 0.")
    config = _with_all(config)
    for name, values in (("methods", config.methods), ("alphas", config.alphas)):
        if len(set(map(str, values))) < len(values):
            raise ScafflixError(f"{name} has an entry twice: {', '.join(map(str, values))}.")
    for name in PARAMETERS:
        given = getattr(config, name) != "auto"
        if given and not any(name in parameters(find(spec)) for spec, _ in _methods(config)):
            raise ScafflixError(f"None of the methods has a {name}; leave it out.")
    if is_network(config.model):
        for entry in fields(config):
            if entry.name in ("keep", "target") and getattr(config, entry.name) != entry.default:
                raise ScafflixError(
                    f"{entry.name} is for comparisons of linear models; with the model "
                    f"{config.model} leave it out."
                )
        config = replace(config, keep="none")
    asked = _with_controls(_runs(config))
    for one in asked:
        refusals.check_keys(one)
    return asked


def _with_all(config: CompareConfig) -> CompareConfig:
    """Instead of the word all, every method that takes these keys."""
    if "all" not in config.methods:
        return config
    found = []
    for name in METHODS:
        with suppress(ScafflixError):
            for alpha in config.alphas:
                refusals.check_keys(one_run(config, method=name, alpha=alpha, h0="zero"))
            found.append(name)
    return replace(config, methods=tuple(found))


def _with_controls(asked: list[RunConfig]) -> list[RunConfig]:
    """Without h0 where a method has no control variates, if another one has."""
    if asked[0].h0 == "zero":
        return asked
    have = {one.method: remembers(refusals.trial(one)) for one in asked}
    if not any(have.values()):
        raise ScafflixError("None of the methods has control variates; leave out h0.")
    return [one if have[one.method] else replace(one, h0="zero") for one in asked]


def _methods(config: CompareConfig) -> list[tuple[str, str]]:
    """The methods, with options, and their stepsizes."""
    asked = [specs.read(words) for words in config.methods]
    return [(specs.written(one.name, one.options), one.stepsize) for one in asked]


def _runs(config: CompareConfig) -> list[RunConfig]:
    """Every method at every alpha with every seed."""
    return [
        one_run(config, method=name, stepsize=stepsize, alpha=alpha, seed=seed)
        for alpha in config.alphas
        for name, stepsize in _methods(config)
        for seed in range(config.seeds)
    ]


def figure_settings(name: str) -> dict[str, Any]:
    """The settings of one of the paper's figures, or of the demonstration."""
    text = resources.files("scafflix.runs.figures").joinpath(f"{name}.toml").read_text()
    return tomllib.loads(text)
