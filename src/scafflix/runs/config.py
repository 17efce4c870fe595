"""The keys of a run: one declaration of each, for TOML files and the command line."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, get_type_hints

from scafflix.core.errors import ScafflixError, reason_of
from scafflix.runs.values import Auto, in_type


class Scale(StrEnum):
    """How large an experiment is."""

    smoke = "smoke"
    laptop = "laptop"
    machine = "machine"
    paper = "paper"


NETWORKS, LINEAR, SAMPLED = "networks", "linear models", "networks and runs with a cohort"
TABLES = "tables"
OPTIMA, WARM = "networks with local optima", "networks with optima warm"
PRIVATE = "privacy client or example"
PARAMETERS = ("p", "pace", "own")  # that some methods have and others do not


def key(help: str, default: Any = MISSING, only: str | None = None) -> Any:
    """A key; `only` says for what it is, where it is not for everything."""
    metadata = {"help": help, "only": only}
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class ProblemConfig:
    """Data, split and model."""

    data: str = key(
        "A name (scafflix data list), a file, a LEAF folder, or hf:FOLDER of a Hugging Face data "
        "set."
    )
    clients: int | None = key("Number of clients to split the data over.", None)
    split: str | None = key(
        "contiguous, shuffled, dirichlet:BETA, column:NAME, flwr:PARTITIONER:KEY=VALUE,... of "
        "flwr-datasets; or, for data that come with their clients, classes:SHARE.",
        None,
    )
    features: int | None = key("Number of features in a svmlight file (default: inferred).", None)
    label: str | None = key("Label column, or COLUMN>NUMBER for two classes.", None, only=TABLES)
    categorical: tuple[str, ...] = key("Columns of numbers that stand for kinds.", (), only=TABLES)
    drop: tuple[str, ...] = key("Columns that are no features.", (), only=TABLES)
    missing: str = key(
        "Missing values: fill (median or most frequent value, and a feature that says so) or "
        "refuse.",
        "fill",
        only=TABLES,
    )
    missing_as: tuple[str, ...] = key(
        "Words that mean a missing value, such as '?,-9'.", (), only=TABLES
    )
    unknown: str = key(
        "A text that no training row has: other (a value of its own) or refuse.",
        "other",
        only=TABLES,
    )
    scale: str = key(
        "Feature scaling: none, maxabs, standard or auto (standard for tables).", "auto"
    )
    intercept: bool | None = key(
        "Append a constant feature (default: for linear models on tables).", None
    )
    test: float | None = key(
        "Share of each client's examples held out for testing (default: 0; 0.1 for networks, "
        "unless the data have a test part).",
        None,
    )
    validation: float | None = key(
        "Share of each client's training examples held out for choosing (default: 0; 0.1 for "
        "networks).",
        None,
    )
    min_examples: int | None = key(
        "Leave out clients with fewer training examples, or with none held out.", None
    )
    data_seed: int = key("Seed of the split and of the held-out parts.", 0)
    model: str = key(
        "logistic, softmax, linear, or a network: cnn, lstm, dense, or FILE.py:NAME of a PyTorch "
        "module.",
        "logistic",
    )
    model_seed: int = key("Seed of a network's start and of its local optima.", 0, only=NETWORKS)
    l2: float | None = key(
        "Regularization: adds (l2/2) ||x||^2 to every f_i (default: 0.1; 0 for networks).", None
    )
    smoothness: str = key(
        "tight (eigenvalue) or bound (the paper's row norms).", "tight", only=LINEAR
    )


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(ProblemConfig):
    """How long and with which gradients."""

    rounds: int | None = key("Communication rounds (default: 50; 200 for networks).", None)
    p: Auto = key(
        "Probability of communication: auto (by theory; 0.2 for networks) or a number.", "auto"
    )
    batch: str | int = key(
        "full, or the number of examples in a gradient (auto: full; 20 for networks).", "auto"
    )
    noise: float = key("Standard deviation of noise added to full gradients.", 0.0, only=LINEAR)
    reduced: bool = key(
        "Reduce the variance of minibatches (L-SVRG; with scafflix: ProxSkip-VR).", False
    )
    epsilon: float | None = key("Target for E Psi: stepsizes by Corollary 2.", None, only=LINEAR)
    start: str = key("Starting point: ones or zeros.", "ones", only=LINEAR)
    h0: str = key("Control variates at the start: zero or warm.", "zero", only=LINEAR)
    strict: bool = key(
        "Refuse stepsizes that theory does not cover, instead of warning.", False, only=LINEAR
    )
    pace: str = key(
        "Control variates advance by p (expected, the paper's), by 1/K (actual), by the smaller "
        "(cautious), or by a fifth of that (steady); auto: expected, steady for networks.",
        "auto",
    )
    average: float = key(
        "Share of the rounds, counted from the last, whose mean is the model: below 1; 0: the last "
        "model alone.",
        0.0,
    )
    own: str = key(
        "Arrays that stay at home: patterns of their names, such as 'output/*' (auto: the last "
        "layer; for fedbn normalizations).",
        "auto",
        only=NETWORKS,
    )
    part: str = key("Held-out part to score: test, or validation to leave test alone.", "test")
    cohort: int | None = key("Clients sampled per round (default: all; 10 for networks).", None)
    individual: bool = key("Scale stepsizes by each client's curvature.", False, only=NETWORKS)
    every: int | None = key(
        "Rounds between evaluations (default: 1; for networks a tenth of the rounds, at least 10).",
        None,
        only=SAMPLED,
    )
    optima: str = key(
        "Where local optima start: common (random), warm (a model after a warm-up), after (the "
        "model at the end of the rounds), or none (do without); auto: after if alpha is chosen, "
        "common if it is given, none for methods with models of their own.",
        "auto",
        only=NETWORKS,
    )
    optima_stepsize: Auto = key(
        "Learning rate of the local optima (auto: chosen on validation data; 0.05 after the "
        "rounds).",
        "auto",
        only=OPTIMA,
    )
    optima_batch: int | None = key(
        "Batch size of the local optima (default: 100; 32 after the rounds).", None, only=OPTIMA
    )
    optima_steps: int | None = key(
        "Steps to a local optimum: at most (default: 200), or after the rounds exactly (default: "
        "chosen on validation data).",
        None,
        only=OPTIMA,
    )
    warmup: int = key("Rounds of FedAvg (alpha = 1) in the warm-up.", 100, only=WARM)
    warmup_stepsize: float = key("Learning rate of the warm-up.", 0.1, only=WARM)
    store: str = key(
        "Keep client states in memory, on disk, or auto (by size).", "auto", only=SAMPLED
    )
    keep: str = key(
        "Models to keep: personal (all of them), global or none; auto: all, or the global one if "
        "those of the clients take more than 8 GiB.",
        "auto",
    )
    privacy: str = key(
        "Differential privacy: none, client (updates are clipped, with noise) or example (the "
        "gradients of examples are).",
        "none",
    )
    clip: float | None = key(
        "Largest norm of what a client, or an example, contributes.", None, only=PRIVATE
    )
    noise_multiplier: float | None = key(
        "Standard deviation of the noise in a sum of contributions, divided by the clip (default: "
        "what the budget asks for).",
        None,
        only=PRIVATE,
    )
    noise_at: str = key(
        "Who adds the noise of privacy client: client (each its part) or server (to the mean of "
        "clipped updates, which it sees).",
        "client",
        only=PRIVATE,
    )
    budget: float | None = key(
        "Epsilon that no client exceeds: chooses the noise for all rounds, or, with "
        "noise_multiplier, ends the run.",
        None,
        only=PRIVATE,
    )
    delta: float | None = key(
        "Delta of the epsilon (default: 1e-5, or a tenth of one over the number of clients or "
        "examples if that is less).",
        None,
        only=PRIVATE,
    )


@dataclass(frozen=True, kw_only=True)
class RunConfig(TrainingConfig):
    """One run."""

    method: str = key(
        "A name (scafflix methods), or FILE.py:FUNCTION; options after a colon: NAME:KEY=VALUE,...",
        "scafflix",
    )
    alpha: Any = key(
        "Personalization: auto (each client's own, chosen at the end by leave-one-out; for "
        "networks by validation examples), a rule (loo, validation, james-stein, common), a number "
        "in [0, 1], or a file with one number per client (default: auto; 1 for methods with models "
        "of their own).",
        None,
    )
    stepsize: Auto = key(
        "auto (individual, by theory; for networks 0.1, or 1 with lstm), common, or a number.",
        "auto",
    )
    transport: str = key(
        "Type of the numbers that travel: full (as they are), float32 or bfloat16.", "full"
    )
    seed: int = key("Seed of the coin, the cohorts and the batches.", 0)


@dataclass(frozen=True, kw_only=True)
class CompareConfig(TrainingConfig):
    """Several methods on one problem, at several alpha."""

    methods: tuple[str, ...] = key(
        "Methods, separated by commas, each NAME, NAME:STEPSIZE or NAME:KEY=VALUE,...; or all.",
        ("gd", "fedavg", "scafflix"),
    )
    alphas: tuple[Any, ...] = key(
        "Values of alpha, separated by commas: numbers, rules or files, as in run.", (1.0, 0.1)
    )
    seeds: int = key("Number of seeds.", 1)
    target: float = key("Count rounds and megabytes up to this objective gap.", 1e-3)


@dataclass(frozen=True, kw_only=True)
class TuneConfig(TrainingConfig):
    """A grid of stepsizes for each of several methods."""

    methods: tuple[str, ...] = key("Methods, separated by commas.", ("scafflix",))
    alpha: Any = key("Personalization: a number, a rule or a file, as in run.", 1.0)
    stepsizes: tuple[Any, ...] = key(
        "Stepsizes to try, separated by commas.", (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    )
    seed: int = key("Seed of the coin, the cohorts and the batches.", 0)


def read(
    kind: type[Any],
    file: Path | None,
    given: Mapping[str, Any],
    assignments: list[str],
) -> Any:
    """A configuration from a TOML file, options and `key=value` words, the later ones winning."""
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values |= converted(kind, _read_toml(file))
        except ScafflixError as error:
            raise ScafflixError(f"{file}: {error}") from None
    values |= {name: value for name, value in given.items() if value is not None}
    values |= assigned(assignments)
    if file is not None and not values.get("data"):
        raise ScafflixError(f"{file}: {_NO_DATA}")
    return build(kind, values)


def assigned(assignments: list[str]) -> dict[str, str]:
    """The keys and values of `key=value` words."""
    values = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ScafflixError(f"--set {assignment!r} is not of the form key=value.")
        values[name.strip()] = text.strip()
    return values


def build(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Check names and types.

    >>> build(RunConfig, {"data": "digits", "rounds": "20", "p": "0.5"}).p
    0.5
    """
    found = converted(kind, values)
    if "data" in get_type_hints(kind) and "data" not in found:
        raise ScafflixError(_NO_DATA)
    return kind(**found)


_NO_DATA = "data is missing; give a name (see scafflix data list) or a file."


def converted(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values in the types of their keys."""
    hints = get_type_hints(kind)
    known = {entry.name for entry in fields(kind)}
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = (
                f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}."
            )
            raise ScafflixError(f"There is no key {name!r}; {hint}")
    return {name: in_type(name, hints[name], value) for name, value in values.items()}


def plain(config: ProblemConfig) -> dict[str, Any]:
    """The configuration as TOML can hold it."""
    values = {entry.name: getattr(config, entry.name) for entry in fields(config)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None and not (isinstance(value, tuple) and not value)
    }


def changed(config: ProblemConfig) -> dict[str, Any]:
    """The same without what is by default, so that a new key changes nothing for older ones.

    >>> changed(RunConfig(data="digits", data_seed=0, alpha=0.5))
    {'data': 'digits', 'alpha': 0.5}
    """
    usual = {entry.name for entry in fields(config) if getattr(config, entry.name) == entry.default}
    return {name: value for name, value in plain(config).items() if name not in usual}


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScafflixError(f"it cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError) as error:
        raise ScafflixError(f"it is not valid TOML ({reason_of(error)}).") from None
