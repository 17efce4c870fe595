"""From the words of a configuration to data and methods, for every kind of model."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from scafflix import data
from scafflix.config import ProblemConfig, RunConfig, TrainingConfig, build
from scafflix.data import Federation
from scafflix.errors import ScafflixError
from scafflix.methods import METHODS, PACED, Method
from scafflix.theory import Plan


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
        "label": config.label,
        "intercept": config.intercept,
        "scale": config.scale,
    }
    return data.load(**{**asked, **changes})


def one_run(config: TrainingConfig, **own: Any) -> RunConfig:
    """One of the runs that a configuration of several asks for."""
    shared = {entry.name: getattr(config, entry.name) for entry in fields(TrainingConfig)}
    given = {name: value for name, value in shared.items() if value is not None}
    made: RunConfig = build(RunConfig, {**given, **own})
    return made


def make_method(advice: Plan, name: str, stepsize: Any, p: Any, pace: str = "auto") -> Method:
    """A method by name, with `auto`, `common` or given stepsizes and `auto` or given p."""
    if name not in METHODS:
        raise ScafflixError(f"method is {name!r}; it must be one of {', '.join(METHODS)}.")
    steps: Any = None if stepsize == "auto" else stepsize
    if stepsize == "common":
        if name != "scafflix":
            raise ScafflixError(f"stepsize common goes with scafflix; for {name} use auto.")
        steps = advice.gamma.min()
    if isinstance(steps, str):
        raise ScafflixError(f"stepsize is {stepsize!r}; it must be auto, common or a number.")
    probability = None if p == "auto" else p
    if isinstance(probability, str):
        raise ScafflixError(f"p is {p!r}; it must be auto or a number in (0, 1].")
    options = {"pace": pace} if name in PACED and pace != "auto" else {}
    return METHODS[name](advice, stepsize=steps, p=probability, **options)
