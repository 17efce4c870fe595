"""pfl's federated averaging with PyTorch: `peers.pfl_worker FOLDER THREADS`.

Each client's data set is `steps` batches drawn from its examples, so that one pass over it makes as
many steps as everybody else's. The first round, in which pfl evaluates, is left out.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn

from peers.task import Ran, Run, Task, serve
from peers.torch_models import Examples, first_loss, loss_of, make_model


class WithLoss(nn.Module):
    """A network with the two functions that pfl asks for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, inputs: Any, labels: Any) -> Any:
        return loss_of(self.network(inputs), labels)

    def metrics(self, inputs: Any, labels: Any) -> dict[str, Weighted]:
        with torch.no_grad():
            return {"loss": Weighted(float(self.loss(inputs, labels)) * len(labels), len(labels))}


class Clock(TrainingProcessCallback):
    """When each round ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.ends.append(time.perf_counter())
        return False, Metrics()


def prepare(task: Task) -> Run:
    torch.set_num_threads(int(sys.argv[2]))
    recipe = task.recipe
    examples = Examples(task)

    def run(rounds: int) -> Ran:
        network = make_model(task)
        before = first_loss(network, examples)
        draw = np.random.default_rng(1)

        def dataset(client: int) -> Dataset:
            rows = np.concatenate([task.rows(draw, client) for _ in range(recipe.steps)])
            return Dataset(examples.batch(rows), user_id=str(client))

        def sampler() -> int:
            return int(draw.integers(task.clients))

        with_loss = WithLoss(network)
        model = PyTorchModel(
            with_loss, torch.optim.SGD, torch.optim.SGD(with_loss.parameters(), lr=1.0)
        )
        clients = FederatedDataset(dataset, sampler)
        clock = Clock()
        began = time.perf_counter()
        FederatedAveraging().run(
            NNAlgorithmParams(
                central_num_iterations=rounds + 1,
                evaluation_frequency=rounds + 1,
                train_cohort_size=recipe.cohort,
                val_cohort_size=None,
            ),
            SimulatedBackend(clients, clients),
            model,
            NNTrainHyperParams(
                local_num_epochs=1,
                local_learning_rate=recipe.rate,
                local_batch_size=recipe.batch,
            ),
            NNEvalHyperParams(local_batch_size=None),
            callbacks=[clock],
            send_metrics_to_platform=False,
        )
        seconds = (clock.ends[-1] - clock.ends[0]) / rounds
        return Ran(seconds, before, first_loss(network, examples), clock.ends[0] - began)

    return run


if __name__ == "__main__":
    serve(prepare)
