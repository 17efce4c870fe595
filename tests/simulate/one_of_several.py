"""One of the processes of a run: its number, how many there are, their address, where to write."""

import sys

import jax

import scafflix as sx
from scafflix.personalization.recipe import Recipe


def main(number: int, count: int, address: str, out: str) -> None:
    if count > 1:
        jax.distributed.initialize(address, num_processes=count, process_id=number)
    fed = sx.data.load(
        "iris", clients=5, split="shuffled", scale="standard", validation=0.2, test=0.2
    )
    problem = sx.Problem(fed, sx.models.dense(features=4, classes=3))
    recipe = Recipe(batch=4, steps=10, stepsize=0.1)
    person = sx.personalize(problem, 0.5, recipe=recipe)
    plan = sx.plan(problem, person, gradient=sx.gradients.Minibatch(4))
    method = sx.scafflix(plan, p=0.3)
    record = sx.run(problem, person, method, rounds=8, cohort=3, every=4, seed=1)
    record.save(out)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
