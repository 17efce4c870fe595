"""The tasks that scafflix and its peers are given, and how many operations they take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

import scafflix as sx
from peers.task import Recipe, Task

EXAMPLES = 10  # of a client of `many`


def femnist() -> Task:
    """Written characters of 30 writers."""
    fed = sx.data.load("femnist", clients=30, min_examples=20)
    recipe = Recipe("cnn", "cnn", classes=62, cohort=10, steps=5, batch=20, rate=0.05)
    return Task(recipe, fed.train.features, fed.train.labels, fed.train.offsets)


def shakespeare() -> Task:
    """Lines of 30 roles, 80 characters each."""
    fed = sx.data.load("shakespeare", clients=30, min_examples=20, test=0.1)
    recipe = Recipe("lstm", "lstm", classes=90, cohort=10, steps=5, batch=20, rate=0.5)
    return Task(recipe, fed.train.features, fed.train.labels, fed.train.offsets)


def many(
    clients: int = 1_000_000, cohort: int = 1000, dimension: int = 100, steps: int = 5
) -> Task:
    """Logistic regressions on 10 rows of zeros and ones each, labelled by a common plane."""
    draw = np.random.default_rng(0)
    rows = EXAMPLES * clients
    inputs = draw.integers(0, 2, (rows, dimension), dtype=np.uint8)
    plane = draw.standard_normal(dimension, np.float32)
    labels = np.empty(rows, np.uint8)
    for block in np.array_split(np.arange(rows), max(1, rows // 100_000)):
        labels[block] = (inputs[block] - np.float32(0.5)) @ plane > 0
    offsets = np.arange(clients + 1) * EXAMPLES
    recipe = Recipe("many", "logistic", 2, cohort, steps, batch=EXAMPLES, rate=0.05)
    return Task(recipe, inputs, labels, offsets)


@dataclass(frozen=True)
class Workload:
    """A task and the peers that run it."""

    title: str
    make: Callable[..., Task]
    peers: tuple[str, ...]
    rounds: dict[str, int] = field(default_factory=dict)  # of one measurement where not 1
    quick_sizes: dict[str, int] = field(default_factory=dict)  # to try it
    quick_recipe: dict[str, int] = field(default_factory=dict)


COMMON = ("scafflix", "fedavg", "torch1", "torch2", "fedjax", "flower")
NETWORK_PEERS = (*COMMON, "pfl2")
MODULE_PEERS = ("scafflix_module", "fedavg_module", "torch2", "flower", "pfl2")
OURS = ("scafflix", "fedavg", "scaffold", "tamuna", "ditto", "apfl")
FEW = {"cohort": 2, "steps": 2, "batch": 4}
WORKLOADS = {
    "cnn": Workload(
        "CNN, FEMNIST",
        femnist,
        NETWORK_PEERS,
        dict.fromkeys(NETWORK_PEERS, 3),
        quick_recipe=FEW,
    ),
    "lstm": Workload("LSTM, Shakespeare", shakespeare, NETWORK_PEERS, quick_recipe=FEW),
    "cnn_module": Workload(
        "CNN as a PyTorch module, FEMNIST",
        femnist,
        MODULE_PEERS,
        dict.fromkeys(MODULE_PEERS, 3),
        quick_recipe=FEW,
    ),
    "lstm_module": Workload(
        "LSTM as a PyTorch module, Shakespeare", shakespeare, MODULE_PEERS, quick_recipe=FEW
    ),
    "methods": Workload(
        "Methods, CNN on FEMNIST", femnist, OURS, dict.fromkeys(OURS, 3), quick_recipe=FEW
    ),
    "many": Workload(
        "Many tiny clients",
        many,
        (*COMMON, "pfl1", "numpy"),
        {"scafflix": 20, "fedavg": 20},
        quick_sizes={"clients": 1000, "cohort": 50},
    ),
}


def operations(recipe: Recipe, shape: tuple[int, ...]) -> float:
    """Floating-point operations of one gradient step: products only, two for each term.

    The backward pass has two products for each of the forward pass, but none for the slope of
    the data.
    """
    if recipe.model == "cnn":
        first = 26 * 26 * 32 * 9
        terms = first + 24 * 24 * 64 * 9 * 32 + 9216 * 128 + 128 * recipe.classes
        return 2.0 * recipe.batch * (3 * terms - first)
    if recipe.model == "lstm":
        gates = (8 + 256) * 1024 + (256 + 256) * 1024
        return 2.0 * recipe.batch * shape[0] * 3 * (gates + 256 * recipe.classes)
    return 2.0 * recipe.batch * 2 * shape[0] * recipe.classes


def state_bytes(recipe: Recipe, shape: tuple[int, ...]) -> int:
    """Of one tree of parameters in float32."""
    sizes = {"cnn": 1_206_590, "lstm": 820_522}
    return 4 * sizes.get(recipe.model, (math.prod(shape) + 1) * recipe.classes)
