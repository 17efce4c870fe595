"""Flower's simulation engine driving PyTorch: `peers.flower_worker FOLDER`.

A Ray worker of one thread for each core, FedAvg as Flower has it. A simulation has a node for each
client, but at most 100 or a whole cohort of them, because Flower asks every node for messages many
times a second. Every run is a simulation of its own, whose first round, in which the workers start
and read the data, is left out.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else they would yield to every other process
}

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from peers.flower_app import app
from peers.task import Ran, Run, Task, serve
from peers.torch_models import Examples, first_loss, make_model


def prepare(task: Task) -> Run:
    examples = Examples(task)
    cohort = task.recipe.cohort
    nodes = min(task.clients, max(cohort, 100))
    folder = str(Path(sys.argv[1]).resolve())

    def run(rounds: int) -> Ran:
        model = make_model(task)
        before = first_loss(model, examples)
        ends: list[float] = []

        def note(number: int, arrays: ArrayRecord) -> None:
            ends.append(time.perf_counter())  # before the first round and after each
            if number == rounds + 1:
                model.load_state_dict(arrays.to_torch_state_dict())

        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            strategy = FedAvg(
                fraction_train=cohort / nodes,
                min_train_nodes=cohort,
                fraction_evaluate=0.0,
                min_available_nodes=nodes,
            )
            strategy.start(
                grid,
                ArrayRecord(model.state_dict()),
                num_rounds=rounds + 1,
                train_config=ConfigRecord({"folder": folder}),
                evaluate_fn=note,
            )

        began = time.perf_counter()
        run_simulation(server, app, nodes, backend_config={"client_resources": {"num_cpus": 1}})
        seconds = (ends[-1] - ends[1]) / rounds
        return Ran(seconds, before, first_loss(model, examples), ends[1] - began)

    return run


if __name__ == "__main__":
    serve(prepare)
