"""From a configuration and a node's own settings to its client.

A node's settings: `client` (its id), `data` (its file), `folder` (for its state), and if wanted
`alpha` (its own) and `learner` (MODULE:FUNCTION of a user's backend: from the data's path and the
configuration to a `Learner`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scafflix import data, gradients
from scafflix.cohorts.optima import Recipe
from scafflix.data.archive import one_of, open_archive
from scafflix.data.arrays import Preparation, prepare
from scafflix.data.federation import Examples, Federation
from scafflix.deploy.client import ClientCore
from scafflix.deploy.configuration import DeployConfig
from scafflix.deploy.learner import ConvexLearner, Learner
from scafflix.deploy.network import NetworkLearner, network_of, numbered
from scafflix.errors import ScafflixError
from scafflix.experiment import L2
from scafflix.models import MODELS, NETWORKS


def client_of(config: DeployConfig, own: Mapping[str, Any]) -> ClientCore:
    """The client that a node's settings describe."""
    for name in ("client", "data", "folder"):
        if not own.get(name):
            raise ScafflixError(f"{name} is missing in the settings of the node (--node-config).")
    alpha = own.get("alpha", config.alpha)
    if isinstance(alpha, str):
        raise ScafflixError(
            f"alpha is {alpha!r}; a node has one: give a number, in the configuration or as "
            "alpha in the settings of the node."
        )
    maker = own.get("learner")
    learner = (
        users_learner(str(maker))(str(own["data"]), config)
        if maker
        else learner_of(config, str(own["data"]))
    )
    return ClientCore(str(own["client"]), float(alpha), learner, Path(str(own["folder"])))


def users_learner(name: str) -> Any:
    """A function of the user's by its name MODULE:FUNCTION."""
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ScafflixError(f"learner is {name!r}, which cannot be imported: {error}.") from None


def _load_images(config: DeployConfig, path: Path) -> Federation:
    """Examples of any shape, as a network takes them."""
    with open_archive(path) as archive:
        x, y = one_of(path, archive, "features", "x"), one_of(path, archive, "labels", "y")
    if x.dtype.kind not in "fiub" or not np.isfinite(x).all():
        raise ScafflixError(f"{path}: features must be finite numbers.")
    train = Examples(x, y, np.array([0, len(x)]))
    federation = Federation(path.name, (path.stem,), train)
    shares = Preparation(config.test or 0.0, config.validation or 0.0, seed=config.data_seed)
    return prepare(federation, shares)


def learner_of(config: DeployConfig, path: str) -> Learner:
    """The model of the configuration on a node's file."""
    federation = load(config, path)
    batch = "full" if config.batch == "auto" else config.batch
    gradient = gradients.gradient(batch)
    if config.model in NETWORKS:
        stepsize = config.optima_stepsize
        recipe = Recipe(
            stepsize=None if isinstance(stepsize, str) else stepsize,
            batch=config.optima_batch,
            steps=config.optima_steps,
            seed=config.model_seed,
        )
        federation, classes = numbered(federation, config.classes)
        return NetworkLearner(
            federation,
            network_of(config.model, federation, classes),
            config.l2 or 0.0,
            gradient=gradient,
            model_seed=config.model_seed,
            recipe=recipe,
        )
    if config.model not in MODELS:
        known = ", ".join((*MODELS, *NETWORKS))
        raise ScafflixError(f"model is {config.model!r}; it must be one of {known}.")
    return ConvexLearner(
        federation,
        MODELS[config.model](),
        L2 if config.l2 is None else config.l2,
        smoothness=config.smoothness,
        gradient=gradient,
        start=config.start,
        classes=config.classes or None,
    )


def load(config: DeployConfig, path: str) -> Federation:
    """A node's examples: a CSV, svmlight or npz file that stays where it is."""
    if config.model in NETWORKS and Path(path).suffix == ".npz":
        return _load_images(config, Path(path))
    return data.load(
        path,
        clients=1,
        test=config.test or 0.0,
        validation=config.validation or 0.0,
        seed=config.data_seed,
        features=config.features,
        label=config.label,
        intercept=config.intercept,
        scale=config.scale,
    )
