"""Your own model, from Flax or Equinox, trained by Scafflix on handwritten digits of 10 clients.

python examples/own_model.py
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen
from jax import Array

import scafflix as sx


class FlaxModel(linen.Module):
    """Takes a batch of examples, as every Flax module does."""

    @linen.compact
    def __call__(self, images: Array) -> Array:
        return linen.Dense(10)(linen.relu(linen.Dense(32)(images)))


class EquinoxModel(eqx.Module):
    """Takes one example, as every Equinox module does."""

    hidden: eqx.nn.Linear
    output: eqx.nn.Linear

    def __init__(self, key: Array) -> None:
        first, second = jax.random.split(key)
        self.hidden = eqx.nn.Linear(64, 32, key=first, dtype=jnp.float32)
        self.output = eqx.nn.Linear(32, 10, key=second, dtype=jnp.float32)

    def __call__(self, image: Array) -> Array:
        return self.output(jax.nn.relu(self.hidden(image)))


def main() -> None:
    options = {"split": "dirichlet:0.5", "scale": "maxabs", "test": 0.2, "validation": 0.1}
    fed = sx.data.load("digits", clients=10, min_examples=20, **options)
    networks = [
        sx.models.from_flax(FlaxModel(), jnp.zeros((1, 64), jnp.float32)),
        sx.models.from_equinox(EquinoxModel(jax.random.key(0))),
    ]
    for network in networks:
        problem = sx.Problem(fed, network)
        person = sx.personalize(problem, 0.7, recipe=sx.Recipe(stepsize=0.1, steps=50))
        method = sx.scafflix(sx.plan(problem, person))
        record = sx.run(problem, person, method, rounds=40, cohort=5)
        found = record.summary["scores"]["test"]
        accuracies = ", ".join(f"{kind} {found[kind]['clients']:.0%}" for kind in found)
        print(f"{network.name}, {problem.size:,} parameters: test accuracy {accuracies}")


if __name__ == "__main__":
    main()
