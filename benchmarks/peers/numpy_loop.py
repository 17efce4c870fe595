"""Federated averaging of softmax regressions as a plain NumPy loop: `peers.numpy_loop FOLDER`."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from peers.task import LOOKED_AT, Ran, Run, Task, serve


def probabilities(inputs: Any, W: Any, b: Any) -> Any:
    logits = inputs @ W + b
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def prepare(task: Task) -> Run:
    recipe = task.recipe
    dim, classes, places = task.inputs.shape[1], recipe.classes, np.arange(recipe.batch)
    rate = np.float32(recipe.rate / recipe.batch)

    def first_loss(W: Any, b: Any) -> float:
        inputs, labels = task.inputs[:LOOKED_AT].astype(np.float32), task.labels[:LOOKED_AT]
        return float(-np.log(probabilities(inputs, W, b)[np.arange(LOOKED_AT), labels]).mean())

    def run(rounds: int) -> Ran:
        W, b = np.zeros((dim, classes), np.float32), np.zeros(classes, np.float32)
        draw = np.random.default_rng(1)
        before = first_loss(W, b)
        began = time.perf_counter()
        for cohort in task.cohorts(rounds):
            W_sum, b_sum = np.zeros_like(W), np.zeros_like(b)
            for client in cohort:
                W_i, b_i = W.copy(), b.copy()
                for _ in range(recipe.steps):
                    rows = task.rows(draw, client)
                    inputs = task.inputs[rows].astype(np.float32)
                    slopes = probabilities(inputs, W_i, b_i)
                    slopes[places, task.labels[rows]] -= 1
                    W_i -= rate * (inputs.T @ slopes)
                    b_i -= rate * slopes.sum(axis=0)
                W_sum += W_i
                b_sum += b_i
            W, b = W_sum / recipe.cohort, b_sum / recipe.cohort
        return Ran((time.perf_counter() - began) / rounds, before, first_loss(W, b))

    return run


if __name__ == "__main__":
    serve(prepare)
