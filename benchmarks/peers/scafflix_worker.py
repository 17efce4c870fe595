"""scafflix: `peers.scafflix_worker FOLDER METHOD`, with the state of every client in memory."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.tree_util import Partial

import scafflix as sx
from peers.task import LOOKED_AT, Ran, Run, Task, serve
from scafflix import gradients, theory
from scafflix.core.store import Store
from scafflix.data.federation import Examples, Federation
from scafflix.methods import Method, parameters
from scafflix.models.calibration import BINS, SUMS
from scafflix.models.network import Network, mean_loss
from scafflix.problems.evaluation import Examined
from scafflix.simulate import cohorts as training
from scafflix.simulate.cohorts import train
from scafflix.simulate.schedule import Schedule

ALPHA = 0.5
MIXING = ("scafflix", "scaffold", "tamuna")  # run with it; the others with alpha = 1


def network_of(task: Task) -> Network | sx.models.TorchNetwork:
    if sys.argv[3:] == ["module"]:
        return sx.models.from_torch(lambda: module_of(task))
    if task.recipe.model == "logistic":
        return sx.models.dense(task.inputs.shape[1], task.recipe.classes, hidden=())
    return sx.models.NETWORKS[task.recipe.model]()


def module_of(task: Task) -> Any:
    """The peers' module, with examples converted as it takes them."""
    import torch

    from peers.torch_models import make_model

    class Converting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = make_model(task)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if task.recipe.model == "cnn":
                inputs = (1 - inputs / 255)[:, None].contiguous(memory_format=torch.channels_last)
            return self.model(inputs.long() if task.recipe.model == "lstm" else inputs)

    return Converting()


def module_loss(functions: Any, x: Any) -> float:
    """On the first examples, the same for every peer."""
    from scafflix.core.tensors import in_tensors

    rows, tree = functions.parts["train"], in_tensors(x, functions.device).tree
    inputs, labels = rows.inputs[:LOOKED_AT], rows.labels[:LOOKED_AT]
    (found,) = functions.each(lambda module, _: loss_at(module, tree, inputs, labels), [0])
    return found


def loss_at(module: Any, tree: Any, inputs: Any, labels: Any) -> float:
    return float(module.loss(module.evaluated(tree, inputs, labels), labels))


def federation_of(task: Task) -> Federation:
    """All examples for training; a few of the first client's again, as something to look at."""
    few = min(int(task.offsets[1]), 10)
    inputs, labels = np.asarray(task.inputs), np.asarray(task.labels)
    test = Examples(inputs[:few], labels[:few], np.minimum(task.offsets, few))
    names = tuple(map(str, range(task.clients)))
    return Federation(task.recipe.name, names, Examples(inputs, labels, task.offsets), test)


def always(steps: int, rounds: Any, uniforms: Any) -> Any:
    return np.full(len(uniforms), steps)


def fixed_steps(name: str, task: Task, alpha: float) -> Method:
    """A method with the same number of local steps in every round, as the peers have it."""
    n, recipe = task.clients, task.recipe
    alphas, gammas = np.full(n, alpha), np.full(n, recipe.rate)
    p = 1 / recipe.steps
    plan = theory.without_theory(alphas, gammas, p, gradients.Minibatch(recipe.batch))
    make = sx.METHODS[name]
    pace = {"pace": "actual"} if "pace" in parameters(make) else {}
    made = make(plan, p=p, **pace)
    return replace(made, local_steps=Partial(always, recipe.steps))


def filled(store: Store, params: Any) -> Store:
    """The same tree for every client, written a block at a time."""
    everyone = np.arange(store.clients)
    for clients in np.array_split(everyone, -(-store.clients // 10_000)):
        shape = (len(clients),)
        copies = jax.tree.map(partial(lambda n, x: np.broadcast_to(x, n + x.shape), shape), params)
        store.write(clients, copies)
    return store


def not_looked_at(problem: sx.Problem, part: str, *_: Any) -> Examined:
    """Scores that nobody computes: rounds are timed, and evaluating a million clients is long."""
    ones = np.ones(len(problem.parts[part].owners))
    return Examined(ones, ones, ones, np.zeros((len(SUMS), BINS)))


def prepare(task: Task) -> Run:
    training.examine = not_looked_at
    problem = sx.Problem(federation_of(task), network_of(task))
    name = sys.argv[2]
    start = problem.start(0)
    # these mix with local optima, here the common start, and read one for each client
    personal = name in MIXING
    share = ALPHA if personal else 1.0
    method = fixed_steps(name, task, share)
    x_star = filled(Store(problem.template, problem.n), start) if personal else None
    person = sx.Personalization(np.full(problem.n, share), x_star)
    first = np.asarray(task.inputs[:LOOKED_AT]), np.asarray(task.labels[:LOOKED_AT])

    def loss(x: Any) -> float:
        mixed = jax.tree.map(lambda mine, common: share * mine + (1 - share) * common, x, start)
        if problem.torch is not None:
            return module_loss(problem.torch, mixed)
        return float(mean_loss(problem.in_jax, mixed, *first))

    def run(rounds: int) -> Ran:
        ends: list[float] = []
        # the first round and the last, around which a run begins and ends, are left out
        schedule = Schedule(rounds=rounds + 2, cohort=task.recipe.cohort, every=rounds + 2)
        began = time.perf_counter()
        trained = train(
            problem, person, method, start, schedule,
            progress=lambda *_: ends.append(time.perf_counter()),
        )  # fmt: skip
        assert trained.divergence is None, trained.divergence
        seconds = (ends[rounds] - ends[0]) / rounds
        return Ran(seconds, loss(start), loss(trained.x), ends[0] - began)

    return run


if __name__ == "__main__":
    sx.use_all_cores()
    serve(prepare)
