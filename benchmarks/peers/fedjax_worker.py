"""FedJAX's federated averaging: `peers.fedjax_worker FOLDER`.

It takes each client's minibatches one jitted step at a time, in its default backend.
"""

from __future__ import annotations

import time
from typing import Any

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms.fed_avg import federated_averaging

from peers.task import LOOKED_AT, Ran, Run, Task, serve


def forward(model: str, classes: int, x: Any) -> Any:
    if model == "cnn":
        layers = [
            hk.Conv2D(32, 3, padding="VALID"), jax.nn.relu,
            hk.Conv2D(64, 3, padding="VALID"), jax.nn.relu,
            hk.MaxPool((1, 2, 2, 1), (1, 2, 2, 1), "VALID"), hk.Flatten(),
            hk.Linear(128), jax.nn.relu, hk.Linear(classes),
        ]  # fmt: skip
        return hk.Sequential(layers)(x)
    if model == "lstm":
        embedded = hk.Embed(classes, 8)(x)
        recurrent = hk.DeepRNN([hk.LSTM(256), hk.LSTM(256)])
        states, _ = hk.dynamic_unroll(
            recurrent, embedded, recurrent.initial_state(len(x)), time_major=False
        )
        return hk.Linear(classes)(states)
    return hk.Linear(classes)(x.astype(jnp.float32))


def mean_loss(logits: Any, labels: Any) -> Any:
    """Cross-entropy over the places that have a label."""
    counted = labels >= 0
    chosen = jnp.take_along_axis(logits, jnp.where(counted, labels, 0)[..., None], axis=-1)[..., 0]
    losses = jax.nn.logsumexp(logits, axis=-1) - chosen
    return jnp.sum(losses * counted) / jnp.sum(counted)


def as_taken(model: str, inputs: Any) -> Any:
    """Examples as the model takes them."""
    if model == "cnn":
        return 1 - np.asarray(inputs)[..., None].astype(np.float32) / 255
    return np.asarray(inputs).astype(np.int32) if model == "lstm" else inputs


def prepare(task: Task) -> Run:
    recipe = task.recipe
    network = hk.without_apply_rng(hk.transform(lambda x: forward(recipe.model, recipe.classes, x)))
    inputs, labels = as_taken(recipe.model, task.inputs), task.labels

    def loss(params: Any, batch: Any, rng: Any = None) -> Any:
        return mean_loss(network.apply(params, batch["x"]), batch["y"].astype(jnp.int32))

    algorithm = federated_averaging(
        jax.grad(loss),
        client_optimizer=fedjax.optimizers.sgd(recipe.rate),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
            batch_size=recipe.batch, num_steps=recipe.steps, num_epochs=None
        ),
    )
    first = {"x": inputs[:LOOKED_AT], "y": labels[:LOOKED_AT]}
    look = jax.jit(loss)

    def dataset(client: int) -> fedjax.ClientDataset:
        rows = slice(int(task.offsets[client]), int(task.offsets[client + 1]))
        return fedjax.ClientDataset({"x": inputs[rows], "y": labels[rows]})

    def run(rounds: int) -> Ran:
        params = network.init(jax.random.PRNGKey(0), first["x"][:1])
        state = algorithm.init(params)
        before = float(look(params, first))
        began = time.perf_counter()
        for number, cohort in enumerate(task.cohorts(rounds)):
            keys = jax.random.split(jax.random.PRNGKey(number), len(cohort))
            chosen = [
                (client, dataset(client), key)
                for client, key in zip(cohort.tolist(), keys, strict=True)
            ]
            state, _ = algorithm.apply(state, chosen)
        jax.block_until_ready(state.params)
        seconds = (time.perf_counter() - began) / rounds
        return Ran(seconds, before, float(look(state.params, first)))

    return run


if __name__ == "__main__":
    serve(prepare)
