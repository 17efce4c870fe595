"""Federated averaging as a plain PyTorch loop: `peers.torch_eager FOLDER THREADS`."""

from __future__ import annotations

import sys
import time

import numpy as np
import torch

from peers.task import Ran, Run, Task, serve
from peers.torch_models import Examples, first_loss, loss_of, make_model


def prepare(task: Task) -> Run:
    torch.set_num_threads(int(sys.argv[2]))
    recipe = task.recipe
    examples = Examples(task)

    def run(rounds: int) -> Ran:
        model = make_model(task)
        parameters = list(model.parameters())
        optimizer = torch.optim.SGD(parameters, lr=recipe.rate)
        draw = np.random.default_rng(1)
        before = first_loss(model, examples)
        began = time.perf_counter()
        for cohort in task.cohorts(rounds):
            server = [p.detach().clone() for p in parameters]
            total = [torch.zeros_like(p) for p in server]
            for client in cohort:
                with torch.no_grad():
                    torch._foreach_copy_(parameters, server)
                for _ in range(recipe.steps):
                    inputs, labels = examples.batch(task.rows(draw, client))
                    optimizer.zero_grad()
                    loss_of(model(inputs), labels).backward()
                    optimizer.step()
                with torch.no_grad():
                    torch._foreach_add_(total, parameters, alpha=1 / recipe.cohort)
            with torch.no_grad():
                torch._foreach_copy_(parameters, total)
        seconds = (time.perf_counter() - began) / rounds
        return Ran(seconds, before, first_loss(model, examples))

    return run


if __name__ == "__main__":
    serve(prepare)
