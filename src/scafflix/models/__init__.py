"""Models: pure functions from parameters and examples to losses."""

from collections.abc import Callable

from scafflix.models.adapters import from_equinox, from_flax
from scafflix.models.cnn import cnn
from scafflix.models.dense import dense
from scafflix.models.linear import LinearModel, linear, logistic, softmax
from scafflix.models.lstm import lstm
from scafflix.models.network import Network, Params, mean_loss, parameter_count, tallies

MODELS = {"logistic": logistic, "softmax": softmax, "linear": linear}
NETWORKS: dict[str, Callable[..., Network]] = {"cnn": cnn, "lstm": lstm, "dense": dense}


def is_network(model: str) -> bool:
    """Whether a name, perhaps with options as in `lstm:units=64`, is that of a network."""
    return model.partition(":")[0] in NETWORKS


__all__ = [
    "MODELS",
    "NETWORKS",
    "LinearModel",
    "Network",
    "Params",
    "cnn",
    "dense",
    "from_equinox",
    "from_flax",
    "is_network",
    "linear",
    "logistic",
    "lstm",
    "mean_loss",
    "parameter_count",
    "softmax",
    "tallies",
]
