"""A model over a tree of parameters, and what training and evaluation ask of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

Params = Any  # a tree (nested dict) of arrays of one type
Inputs = Any  # examples as the data holds them: an array, or a tree of arrays
STEPSIZE = 0.1  # of a network of which nothing better is known


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Minus the log-probability of each label: `[..., classes]` and `[...]` to `[...]`."""
    chosen = jnp.take_along_axis(logits, labels[..., None].astype(jnp.int32), axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen


def correct(logits: Array, labels: Array) -> Array:
    """One where the largest logit is the label's, zero elsewhere."""
    return (jnp.argmax(logits, axis=-1) == labels).astype(logits.dtype)


class Network(NamedTuple):
    """A model over a parameter tree; hashable, so that it can be a static argument.

    `apply` takes examples as the data holds them (`[batch, ...]`, uint8 pixels or codes) to logits
    `[batch, classes]`, or `[batch, length, classes]` with a label at every position. `loss` and
    `score` take logits `[..., classes]` and labels `[...]` to `[...]`; entries whose label is
    negative do not count (padding), and where labels are real numbers, those that are NaN.
    """

    name: str
    init: Callable[[Array], Params]  # key -> parameters
    apply: Callable[[Params, Inputs], Array]
    metric: str = "accuracy"  # what `score` measures, averaged over counted entries
    loss: Callable[[Array, Array], Array] = cross_entropy
    score: Callable[[Array, Array], Array] = correct
    linear_model: str = ""  # the name of the linear model that is the same function, if one is
    stepsize: float = STEPSIZE  # unless one is given; with minibatches of 20


def is_counted(labels: Array) -> Array:
    """Which entries have a label."""
    whole = jnp.issubdtype(labels.dtype, jnp.integer)
    return labels >= 0 if whole else ~jnp.isnan(labels)


def mean_loss(network: Network, params: Params, inputs: Inputs, labels: Array) -> Array:
    """The loss averaged over the counted entries of a batch; zero if there are none."""
    logits = network.apply(params, inputs)
    counted = is_counted(labels)
    losses = jnp.where(counted, network.loss(logits, jnp.where(counted, labels, 0)), 0)
    return jnp.sum(losses) / jnp.maximum(jnp.sum(counted), 1).astype(losses.dtype)


def tallies(
    network: Network, params: Params, inputs: Inputs, labels: Array
) -> tuple[Array, Array, Array]:
    """Sums over each example's counted entries: loss, score, count (each `[batch]`)."""
    return tallies_of(network, network.apply(params, inputs), labels)


def tallies_of(network: Network, logits: Array, labels: Array) -> tuple[Array, Array, Array]:
    """The same from what the model made of the examples."""
    counted = is_counted(labels)
    known = jnp.where(counted, labels, 0)

    def total(values: Array) -> Array:
        return jnp.sum(jnp.where(counted, values, 0), axis=tuple(range(1, labels.ndim)))

    losses, scores = network.loss(logits, known), network.score(logits, known)
    return total(losses), total(scores), total(jnp.ones_like(losses))


def parameter_count(params: Params) -> int:
    """Numbers in a parameter tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
