"""A Flower client that trains with PyTorch; importable by name in Flower's worker processes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from peers.task import Task, read_task
from peers.torch_models import Examples, loss_of, make_model

app = ClientApp()


@cache
def loaded(folder: str) -> tuple[Task, Examples, torch.nn.Module, Any]:
    """Once for each process: the data, a model to train, a stream of batches."""
    torch.set_num_threads(1)  # a process for each core
    task = read_task(Path(folder))
    return task, Examples(task), make_model(task), np.random.default_rng()


@app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    task, examples, model, draw = loaded(str(config["folder"]))
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    # nodes that are fewer than the clients stand for other clients in every round
    node, nodes = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
    client = (node + nodes * int(config["server-round"])) % task.clients
    optimizer = torch.optim.SGD(model.parameters(), lr=task.recipe.rate)
    for _ in range(task.recipe.steps):
        inputs, labels = examples.batch(task.rows(draw, client))
        optimizer.zero_grad()
        loss_of(model(inputs), labels).backward()
        optimizer.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": 1}),
        }
    )
    return Message(content=content, reply_to=message)
