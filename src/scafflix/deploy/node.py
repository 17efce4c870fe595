"""From a configuration and a node's own settings to its client.

A node's settings: `client` (its id), `data` (its file), `folder` (for its state), and if wanted
`alpha` (its own) and `learner` (MODULE:FUNCTION or FILE.py:FUNCTION of a user's backend: from the
data's path and the configuration to a `Learner`).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scafflix import gradients
from scafflix.deploy.client import ClientCore
from scafflix.deploy.configuration import DeployConfig
from scafflix.deploy.convex import ConvexLearner
from scafflix.deploy.examples import load_examples, numbered
from scafflix.deploy.learner import Learner
from scafflix.deploy.network import NetworkLearner, network_of
from scafflix.errors import ScafflixError
from scafflix.experiment import L2
from scafflix.laboratory import recipe_of
from scafflix.models import MODELS, NETWORKS, is_network


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
    make = users_learner(str(own["learner"])) if own.get("learner") else learner_of
    learner = make(Path(str(own["data"])), config)
    return ClientCore(str(own["client"]), float(alpha), learner, Path(str(own["folder"])))


def users_learner(name: str) -> Any:
    """A function of the user's: MODULE:FUNCTION, or FILE.py:FUNCTION."""
    module, _, function = name.rpartition(":")
    try:
        return getattr(_import(module), function)
    except (ImportError, AttributeError, ValueError, OSError, SyntaxError) as error:
        raise ScafflixError(f"learner is {name!r}, which cannot be imported: {error}.") from None


def _import(name: str) -> Any:
    path = Path(name)
    if path.suffix != ".py":
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def learner_of(path: Path, config: DeployConfig) -> Learner:
    """The model of the configuration on a node's file."""
    if is_network(config.model):
        return _network_learner(path, config)
    if config.model not in MODELS:
        known = ", ".join((*MODELS, *NETWORKS))
        raise ScafflixError(f"model is {config.model!r}; it must be one of {known}.")
    if not config.classes and config.model != "linear":
        raise ScafflixError(
            "classes is empty; list all labels that any node may have, for nodes may lack some."
        )
    return ConvexLearner(
        load_examples(config, path, network=False),
        MODELS[config.model](),
        L2 if config.l2 is None else config.l2,
        smoothness=config.smoothness,
        gradient=gradients.gradient("full" if config.batch == "auto" else config.batch),
        start=config.start,
        classes=config.classes or None,
    )


def _network_learner(path: Path, config: DeployConfig) -> NetworkLearner:
    examples = load_examples(config, path, network=True)
    federation, classes = numbered(examples, config.classes)
    return NetworkLearner(
        federation,
        network_of(config.model, federation, classes),
        config.l2 or 0.0,
        gradient=gradients.gradient(config.batch),
        model_seed=config.model_seed,
        recipe=recipe_of(config),
    )
