"""From the words of a configuration to data and methods, for every kind of model."""

from __future__ import annotations

from dataclasses import Field, fields, replace
from inspect import signature
from typing import Any

import numpy as np

from scafflix import data, gradients, theory
from scafflix.core import specs
from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.data import Federation
from scafflix.gradients import Gradient
from scafflix.methods import Method, find, parameters
from scafflix.methods.averaging import averaged
from scafflix.methods.private import private
from scafflix.methods.transport import FULL, transported
from scafflix.models import LinearModel, Network, TorchNetwork, is_network
from scafflix.models.naming import check_model, model_by_name, usual_stepsize
from scafflix.personalization.alphas import read_alpha, rule_in
from scafflix.personalization.recipe import TUNING, Recipe
from scafflix.problems.problem import LINEAR_L2, Problem
from scafflix.runs.config import (
    LINEAR,
    OPTIMA,
    PARAMETERS,
    PRIVATE,
    SAMPLED,
    TABLES,
    WARM,
    ProblemConfig,
    RunConfig,
    TrainingConfig,
    build,
)
from scafflix.runs.config import NETWORKS as OF_NETWORKS
from scafflix.simulate.planning import BATCH, PROBABILITY
from scafflix.simulate.schedule import looks_every
from scafflix.theory import Plan

OF_TABLES = tuple(entry.name for entry in fields(ProblemConfig) if entry.metadata["only"] == TABLES)
SHARE = 0.1  # of a network's examples, held out for validation and for testing
ROUNDS, NETWORK_ROUNDS = 50, 200  # unless told


def load_data(config: ProblemConfig, **changes: Any) -> Federation:
    """The federation that the configuration names, with some of its keys changed."""
    asked: dict[str, Any] = {
        "source": config.data,
        "clients": config.clients,
        "split": config.split,
        "test": config.test or 0.0,
        "validation": config.validation or 0.0,
        "min_examples": config.min_examples,
        "seed": config.data_seed,
        "features": config.features,
        "intercept": config.intercept,
        "scale": config.scale,
        **{name: getattr(config, name) for name in OF_TABLES},
    }
    if config.intercept is None and is_network(config.model):
        asked["intercept"] = False  # a network has biases
    return data.load(**{**asked, **changes})


def one_run(config: TrainingConfig, **own: Any) -> RunConfig:
    """One of the runs that a configuration of several asks for, without what its method lacks."""
    shared = {entry.name: getattr(config, entry.name) for entry in fields(TrainingConfig)}
    given = {name: value for name, value in shared.items() if value not in (None, ())}
    made: RunConfig = build(RunConfig, {**given, **own})
    return for_method(made)


def for_method(config: RunConfig) -> RunConfig:
    """Without the hyperparameters that its method does not have."""
    known = parameters(find(config.method))
    dropped: dict[str, Any] = {name: "auto" for name in PARAMETERS if name not in known}
    return replace(config, **dropped)


def served(config: TrainingConfig, network: bool | None = None) -> set[str]:
    """What this run is among what keys may be for, where not every run reads them; a model may be
    a network by another name."""
    always = {TABLES} if config.privacy == "none" else {TABLES, PRIVATE}
    if not (is_network(config.model) if network is None else network):
        return always | ({LINEAR} if config.cohort is None else {LINEAR, SAMPLED})
    looked_for = {OPTIMA} if config.optima != "none" else set()
    warm = {WARM} if config.optima == "warm" else set()
    return always | {OF_NETWORKS, SAMPLED} | looked_for | warm


def alpha_of(config: RunConfig) -> Any:
    """alpha while the run trains, or the rule that chooses it at the end; 1 where none is given:
    it may then be chosen too."""
    return 1.0 if config.alpha is None else config.alpha


def estimate_of(config: TrainingConfig, noise: float | None = None) -> Gradient:
    """How gradients are estimated; private ones with the noise that is given or looked for."""
    batch = "full" if config.batch == "auto" else config.batch
    if config.privacy != "example":
        return gradients.gradient(batch, config.noise, config.reduced)
    if config.noise or config.reduced:
        raise ScafflixError(
            "Private gradients have noise of their own, and no memory; leave out noise and reduced."
        )
    return gradients.private_gradient(config.clip or np.inf, noise_of(config, noise), batch)


def noise_of(config: TrainingConfig, found: float | None = None) -> float:
    """The noise multiplier; where it is not known yet, 1."""
    given = config.noise_multiplier if found is None else found
    return 1.0 if given is None else given


def private_method(method: Method, config: TrainingConfig, noise: float | None = None) -> Method:
    """The method with privacy for its clients, if that is asked for."""
    if config.privacy != "client":
        return method
    return private(method, config.clip or np.inf, noise_of(config, noise), config.noise_at)


def make_method(advice: Plan, config: RunConfig, planned: bool | None = None) -> Method:
    """A method by name, with the plan's, one common or given stepsizes.

    A number as stepsize is what the method itself calls so, unless it is `planned`: in the plan
    already, as gamma for every method, as for networks and wherever else no constants are known.
    """
    planned = not advice.known if planned is None else planned
    make, stepsize, asked = find(config.method), config.stepsize, specs.read(config.method)
    options: dict[str, Any] = _own_options(config, asked)
    if stepsize == "common":
        if asked.name != "scafflix":
            raise ScafflixError(f"stepsize common goes with scafflix; for {asked.name} use auto.")
        options["stepsize"] = advice.gamma.min()
    elif isinstance(stepsize, str) and stepsize != "auto":
        raise ScafflixError(f"stepsize is {stepsize!r}; it must be auto, common or a number.")
    elif stepsize != "auto" and not planned:
        options["stepsize"] = stepsize
    if isinstance(config.p, str) and config.p != "auto":
        raise ScafflixError(f"p is {config.p!r}; it must be auto or a number in (0, 1].")
    known = parameters(make)
    options |= {
        name: getattr(config, name)
        for name in PARAMETERS
        if name in known and getattr(config, name) != "auto"
    }
    if "cohort" in known and config.cohort is not None:
        options["cohort"] = config.cohort
    if "stepsize" in options and "stepsize" not in signature(make).parameters:
        raise ScafflixError(f"{config.method} takes no stepsize; leave it out.")
    try:
        signature(make).bind(advice, **options)
    except TypeError as error:
        raise ScafflixError(
            f"{config.method} cannot be called with a plan and {', '.join(options) or 'no more'}: "
            f"{error}."
        ) from None
    made = make(advice, **options)
    if not isinstance(made, Method):
        raise ScafflixError(f"{config.method} made a {type(made).__name__}; it must make a Method.")
    if config.transport != FULL and config.privacy != "none":
        raise ScafflixError(
            f"transport is {config.transport}, which does not go with privacy; leave out one."
        )
    return averaged(transported(made, config.transport), config.average)


def _own_options(config: RunConfig, asked: specs.Spec) -> dict[str, Any]:
    """The hyperparameters that stand behind the method's name."""
    known = parameters(find(config.method))
    if asked.stepsize != "auto":
        raise ScafflixError(
            f"method is {config.method!r}; give the stepsize {asked.stepsize} as stepsize."
        )
    for name in asked.options:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ScafflixError(f"The method {asked.name} has no {name}; {has}.")
        if getattr(config, name, None) not in (None, "auto"):
            raise ScafflixError(f"{name} is given twice: as {name}, and in {config.method!r}.")
    return dict(asked.options)


def recipe_of(config: TrainingConfig) -> Recipe:
    """How the local optima of a network are looked for."""
    stepsize = config.optima_stepsize
    if isinstance(stepsize, str) and stepsize != "auto":
        raise ScafflixError(f"optima_stepsize is {stepsize!r}; it must be auto or a number.")
    usual = usual_recipe(config.optima)
    return replace(
        usual,
        stepsize=usual.stepsize if isinstance(stepsize, str) else stepsize,
        batch=usual.batch if config.optima_batch is None else config.optima_batch,
        steps=usual.steps if config.optima_steps is None else config.optima_steps,
        seed=config.model_seed,
    )


def usual_recipe(optima: str) -> Recipe:
    """How local optima are looked for from there, unless told."""
    return TUNING if optima == "after" else Recipe()


def build_model(model: str, federation: Federation) -> LinearModel | Network | TorchNetwork:
    """A model by name; a network, such as `lstm` or `lstm:units=64`, of the size that the data
    ask for; or a user's own module."""
    labels = np.concatenate([part.labels.ravel() for part in federation.parts.values()])
    classes = len(np.unique(labels))
    if np.issubdtype(labels.dtype, np.integer) and labels.min() >= 0:
        classes = int(labels.max()) + 1  # whole numbers from 0 keep their meaning
    return model_by_name(model, federation.dim, classes)


def resolve(config: Any) -> Any:
    """The configuration with the defaults of its kind of model written out."""
    if is_network(config.model):
        return network_defaults(config)
    batch = "full" if config.batch == "auto" else config.batch
    l2 = LINEAR_L2 if config.l2 is None else config.l2
    return replace(config, l2=l2, batch=batch, rounds=rounds_of(config))


def network_defaults(config: Any) -> Any:
    """The configuration of a network, by whatever name, with its defaults written out."""
    batch = BATCH if config.batch == "auto" else config.batch
    optima, rounds = optima_of(config), rounds_of(config, network=True)
    usual = usual_recipe(optima)
    filled: dict[str, Any] = {
        "l2": 0.0 if config.l2 is None else config.l2,
        "validation": SHARE if config.validation is None else config.validation,
        "batch": batch,
        "rounds": rounds,
        "every": looks_every(rounds) if config.every is None else config.every,
        "optima": optima,
        "optima_batch": usual.batch if config.optima_batch is None else config.optima_batch,
        "optima_steps": usual.steps if config.optima_steps is None else config.optima_steps,
        "p": PROBABILITY if config.p == "auto" else config.p,
        "pace": "steady" if config.pace == "auto" else config.pace,
    }
    if config.min_examples is None and isinstance(batch, int):
        filled["min_examples"] = batch
    if hasattr(config, "stepsize") and config.stepsize == "auto":
        filled["stepsize"] = usual_stepsize(config.model)
    return replace(config, **filled)


def rounds_of(config: TrainingConfig, network: bool | None = None) -> int:
    """How many are asked for; a model may be a network by another name."""
    if config.rounds is not None:
        return config.rounds
    network = is_network(config.model) if network is None else network
    return NETWORK_ROUNDS if network else ROUNDS


def optima_of(config: TrainingConfig) -> str:
    """Where the local optima of a network come from, unless told: after the rounds, from the model
    that these gave, where alpha is chosen then; where it is given, from a common start, as in the
    paper. Clients that take home models of their own mix with none, so that there are none unless
    another key asks for them."""
    if config.optima != "auto" or not isinstance(config, RunConfig):
        return config.optima
    chooses = config.alpha is None or rule_in(config.alpha) is not None
    if trial_method(config).mixes:
        return "after" if chooses else "common"
    given = any(getattr(config, one.name) != one.default for one in fields(config) if _asks(one))
    trains = (read_alpha(alpha_of(config), None) < 1).any()
    return "common" if given or trains else "none"


def _asks(entry: Field[Any]) -> bool:
    """Whether a key is read only where there are local optima, or made from them."""
    return entry.metadata["only"] == OPTIMA or entry.name == "individual"


def trial_method(config: RunConfig) -> Method:
    """The method for one client of a network."""
    one = np.ones(1)
    return make_method(theory.without_theory(one, one, 0.5, estimate_of(config)), config)


def training_alpha(config: RunConfig, clients: int | None) -> Floats:
    """alpha_i while the run trains, of a configuration with its defaults written out."""
    alpha = read_alpha(alpha_of(config), clients)
    return np.ones_like(alpha) if config.optima == "after" else alpha


def load_federation(config: ProblemConfig, network: bool | None = None) -> Federation:
    """The data; for a network without a test part of their own, a share becomes it."""
    network = is_network(config.model) if network is None else network
    federation = load_data(config)
    if network and federation.test is None and config.test is None:
        federation = load_data(config, test=SHARE)
    return federation


def build_problem(config: ProblemConfig) -> Problem:
    """Load the data and put the model on it."""
    check_model(config.model)
    config = resolve(config)
    federation = load_federation(config)
    model = build_model(config.model, federation)
    return Problem(federation, model, config.l2, config.smoothness)
