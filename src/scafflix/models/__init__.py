"""Models: pure functions from parameters and examples to losses."""

from collections.abc import Callable

from scafflix.models.adapters import from_equinox, from_flax
from scafflix.models.cnn import cnn
from scafflix.models.dense import dense
from scafflix.models.linear import LinearModel, linear, logistic, softmax
from scafflix.models.lstm import lstm
from scafflix.models.network import Network, Params, mean_loss, parameter_count, tallies
from scafflix.models.pytorch import TorchNetwork, from_torch

MODELS = {"logistic": logistic, "softmax": softmax, "linear": linear}
NETWORKS: dict[str, Callable[..., Network]] = {"cnn": cnn, "lstm": lstm, "dense": dense}


def is_network(model: str) -> bool:
    """Whether a name, perhaps with options as in `lstm:units=64`, is that of a network."""
    return model.partition(":")[0] in NETWORKS or is_own(model)


def is_own(model: str) -> bool:
    """Whether a name is FILE.py:NAME, or MODULE:NAME, of a user's own PyTorch module.

    >>> is_own("my/model.py:Net"), is_own("lstm:units=64"), is_own("cmn:units=64")
    (True, False, False)
    """
    place, _, name = model.rpartition(":")
    return bool(place) and place not in (*MODELS, *NETWORKS) and name.isidentifier()


__all__ = [
    "MODELS",
    "NETWORKS",
    "LinearModel",
    "Network",
    "Params",
    "TorchNetwork",
    "cnn",
    "dense",
    "from_equinox",
    "from_flax",
    "from_torch",
    "is_network",
    "is_own",
    "linear",
    "logistic",
    "lstm",
    "mean_loss",
    "parameter_count",
    "softmax",
    "tallies",
]
