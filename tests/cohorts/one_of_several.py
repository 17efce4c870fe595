"""One of the processes of a run: its number, how many there are, their address, where to write."""

import sys

import jax

import scafflix as sx


def main(number: int, count: int, address: str, out: str) -> None:
    if count > 1:
        jax.distributed.initialize(address, num_processes=count, process_id=number)
    fed = sx.data.load(
        "iris", clients=5, split="shuffled", scale="standard", validation=0.2, test=0.2
    )
    problem = sx.NetworkProblem(fed, sx.models.dense(features=4, classes=3))
    settings = {"alpha": 0.5, "cohort": 3, "rounds": 8, "every": 4, "batch": 4, "seed": 1}
    optima = {"optima_batch": 4, "optima_steps": 10, "optima_stepsize": 0.1}
    record = sx.train_network(problem, **settings, **optima, keep="personal", p=0.3)
    record.save(out)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
