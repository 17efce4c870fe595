"""How x_i* is looked for by stochastic gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scafflix.core.arguments import real_number, whole_number
from scafflix.core.checks import check_seed
from scafflix.core.errors import ScafflixError

GRID = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of learning rates
LARGEST = {"batch": 10**6, "steps": 10**9, "check": 10**4, "patience": 10**9}


@dataclass(frozen=True)
class Recipe:
    """How x_i* is looked for."""

    stepsize: float | None = None  # None: chosen from GRID on validation data
    batch: int = 100
    steps: int | None = 200  # at most; None: chosen as `lengths` does, without stopping early
    check: int = 10  # steps between looks at the validation loss
    patience: int = 3  # looks without a better one before stopping; 0: never, the last one counts
    seed: int = 0

    @property
    def looks(self) -> int:
        """How often, at most, the validation loss is looked at; the steps are known."""
        assert self.steps is not None
        return -(-self.steps // self.check)


# from a model that is good already: all steps, since alpha_i is chosen on the data
# that would stop them early, and those would then speak for x_i*
TUNING = Recipe(stepsize=0.05, batch=32, steps=None, patience=0)


def checked_recipe(recipe: Recipe) -> Recipe:
    """The recipe in plain numbers; refuse those that make no search."""
    stepsize, chosen = recipe.stepsize, recipe.steps is None
    if chosen and recipe.patience:
        raise ScafflixError(
            "steps of the local optima is None, to be chosen, which goes with patience 0; give a "
            "number."
        )
    if stepsize is not None:
        stepsize = real_number("stepsize of the local optima", stepsize, above=True)
    counts = {
        name: whole_number(
            f"{name} of the local optima",
            getattr(recipe, name),
            least=0 if name == "patience" else 1,
            most=most,
        )
        for name, most in LARGEST.items()
        if not (chosen and name == "steps")
    }
    return replace(
        recipe,
        stepsize=stepsize,
        **counts,
        seed=check_seed(recipe.seed, "seed of the local optima"),
    )
