"""How much each client keeps of its own optimum: alpha_i, x_i* and the mixture of the two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.core.arguments import choice, flag, instance, numbers, shown, whole_number
from scafflix.core.checkpoint import NOWHERE, Checkpoints
from scafflix.core.digest import difference
from scafflix.core.errors import ScafflixError
from scafflix.core.progress import Progress
from scafflix.core.store import Store
from scafflix.core.types import Floats
from scafflix.data.federation import chosen_clients
from scafflix.models.network import Params
from scafflix.personalization.alphas import Alpha, check_trained, checked_alpha, read_alpha, rule_in
from scafflix.personalization.exact import exact_optima
from scafflix.personalization.lengths import Length
from scafflix.personalization.mixing import mixture
from scafflix.personalization.optima import check_validation, local_optima
from scafflix.personalization.recipe import TUNING, Recipe, checked_recipe
from scafflix.personalization.rules.choosing import rule_for
from scafflix.personalization.rules.words import WORDS
from scafflix.problems.problem import Problem, check_problem


class Start(NamedTuple):
    """Where local optima and rounds begin: a point, and what it cost to get there."""

    x: Params
    rounds: int = 0
    bits: tuple[int, int] = (0, 0)  # up and down


class After(NamedTuple):
    """Local optima that are looked for when the rounds are over, from the x that these gave."""

    recipe: Recipe
    alpha: Floats | None = None  # [clients], to mix with then; None where a rule chooses


@dataclass(frozen=True)
class Personalization:
    """alpha_i and x_i* of every client."""

    alpha: Floats  # [clients]
    # the local optima: [clients, *shape] of a linear model, a store of a network's; or none
    x_star: Floats | Store | None
    quality: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # of each, in columns
    start: Start | None = None  # from which a network's were looked for
    stepsize: float | None = None  # with which they were
    length: Length | None = None  # where it was chosen how long to look for them
    made_for: Mapping[str, Any] | None = None  # a problem's functions; None where nobody knows
    rule: str | None = (
        None  # by which alpha_i is chosen anew at the end, for what clients take home
    )
    after: After | None = None  # of a network: x_i* come at the end, and rounds are at alpha = 1

    def __post_init__(self) -> None:
        clients = len(numbers("alpha", self.alpha, finite=False).ravel())
        if not isinstance(self.x_star, Store | None):
            x_star = numbers("x_star", self.x_star)
            if x_star.ndim < 2:
                raise ScafflixError(
                    f"x_star has the shape {x_star.shape}; give a row of parameters for each "
                    "client."
                )
            clients = len(x_star)
            object.__setattr__(self, "x_star", x_star)
        if not isinstance(self.quality, Mapping):
            raise ScafflixError(
                f"quality is {shown(self.quality)}; give columns with a number for each client."
            )
        for name, column in self.quality.items():
            numbers(f"quality[{name!r}]", column, (clients,), finite=False)
        if self.rule is not None:
            choice("rule", self.rule, WORDS)
        checked = checked_alpha(self.alpha, clients, self.x_star is not None)
        object.__setattr__(self, "alpha", checked)

    @property
    def active(self) -> NDArray[np.int64]:
        """The clients that take part. One with alpha_i = 0 does not depend on x: its model is
        x_i*, and it neither computes nor communicates."""
        return np.flatnonzero(self.alpha > 0)

    @property
    def points(self) -> Floats:
        """The local optima of a linear model, one after another."""
        assert isinstance(self.x_star, np.ndarray)
        return self.x_star

    def at(self, alpha: Alpha) -> Personalization:
        """The same local optima under another alpha."""
        values, rule = read_alpha(alpha, len(self.alpha)), rule_in(alpha)
        if self.after is None:
            return replace(self, alpha=values, rule=rule)
        check_trained(alpha)
        after = self.after._replace(alpha=None if rule else values)
        return replace(self, alpha=np.ones(len(values)), rule=rule, after=after)

    @property
    def tuned(self) -> bool:
        """Whether x_i* were looked for from a model that the clients trained together: then they
        are not what a client has alone."""
        return self.after is not None or (self.start is not None and self.start.rounds > 0)

    def take(self, clients: NDArray[np.int64]) -> Personalization:
        """Some of the clients of a linear model."""
        clients = chosen_clients(clients, len(self.alpha))
        if np.array_equal(clients, np.arange(len(self.alpha))):
            return self
        quality = {name: column[clients] for name, column in self.quality.items()}
        return Personalization(self.alpha[clients], self.points[clients], quality)

    def store(self, problem: Problem) -> Store | None:
        """The local optima as rounds of some of the clients read them."""
        if self.x_star is None or isinstance(self.x_star, Store):
            return self.x_star
        store = Store(problem.template, problem.n)
        store.write(np.arange(problem.n), self.x_star)
        return store

    def check(self, problem: Problem) -> None:
        """Refuse a problem whose local optima these are not."""
        mine = _shapes(self.x_star)
        shapes = [leaf.shape for leaf in jax.tree.leaves(problem.template)]
        wanted = [(problem.n, *shape) for shape in shapes]
        if self.alpha.shape != (problem.n,) or mine not in (wanted, None):
            raise ScafflixError(
                f"This personalization has local optima of shape {_words(mine)}, but the "
                f"problem's have {_words(wanted)}; make it with personalize(problem, alpha)."
            )
        if self.made_for is None:
            return
        if found := difference(self.made_for, problem.functions):
            raise ScafflixError(
                f"This personalization was made for another problem: {found}; make it with "
                "personalize(problem, alpha)."
            )

    def mix(self, x: Any) -> Floats:
        """The models that the clients take home when the global model, a linear one, is x."""
        point = numbers("x", x, self.points.shape[1:])
        mixed: Floats = mixture(self.alpha, point, self.points)
        return mixed


def _shapes(x_star: Floats | Store | None) -> list[tuple[int, ...]] | None:
    if isinstance(x_star, Store):
        return [(x_star.clients, *shape) for shape in x_star.layout.shapes]
    return None if x_star is None else [tuple(np.shape(x_star))]


def _words(shapes: list[tuple[int, ...]] | None) -> str:
    return ", ".join(map(str, shapes)) if shapes else "none"


def personalize(
    problem: Problem,
    alpha: Alpha,
    *,
    optima: bool = True,
    after: bool | None = None,
    start: Start | None = None,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
    checkpoints: Checkpoints = NOWHERE,
) -> Personalization:
    """Read alpha (a number, one number a client, or a file of them) and find every x_i*.

    Instead, alpha may be the word of a rule: auto, loo, validation, james-stein or common. Then x
    is trained at alpha = 1, and each client's alpha_i is chosen and mixed with at the end.

    A linear model's are found by Newton's method, to rounding. A network's are looked for by
    stochastic gradients, as the recipe says, from a common start: a random one, or a given one.
    Without `optima` they are not looked for, which will do where every alpha_i is 1. Those of a
    network may be looked for `after` the rounds, from the model that these gave: then x is trained
    at alpha = 1, and mixed with at the end. This is the default where a rule chooses alpha_i and no
    start is given.
    """
    check_problem(problem)
    rule = rule_in(alpha)
    if after is None:
        after = rule is not None and not problem.linear and optima and start is None
    values = checked_alpha(alpha, problem.n, flag("optima", optima) or flag("after", after))
    if rule is not None:
        rule_for(rule, problem)
    if start is not None:
        instance("start", start, Start, "a Start, or leave it out")
    if recipe is not None:
        instance("recipe", recipe, Recipe, "a Recipe, or leave it out")
    if progress is not None and not callable(progress):
        raise ScafflixError(f"progress is {shown(progress)}; give a function, or None.")
    if problem.linear:
        if start is not None or recipe is not None or not optima or after:
            raise ScafflixError(
                "optima, after, start and recipe are for networks; a linear model's local optima "
                "are found by Newton's method. Leave them out."
            )
        x_star, norms = exact_optima(problem)
        quality = {"local_grad_norm": norms}
        return Personalization(values, x_star, quality, made_for=problem.functions, rule=rule)
    recipe = recipe or (TUNING if after else Recipe())
    start = Start(problem.start(recipe.seed)) if start is None else _checked_start(problem, start)
    if after:
        check_validation(problem.federation)
        trained, later = np.ones(problem.n), After(checked_recipe(recipe))
        made = Personalization(trained, None, start=start, made_for=problem.functions, after=later)
        return made.at(alpha)
    if not optima:
        return Personalization(values, None, start=start, made_for=problem.functions)
    found = local_optima(problem, start.x, recipe, progress, checkpoints)
    return Personalization(
        values,
        found.x_star,
        dict(found.quality),
        start,
        found.stepsize,
        found.length,
        problem.functions,
        rule,
    )


def with_optima(
    problem: Problem,
    person: Personalization,
    x: Params,
    place: Path,
    progress: Progress | None = None,
    checkpoints: Checkpoints = NOWHERE,
) -> Personalization:
    """With the local optima that were left for the end, now that x is there."""
    assert person.after is not None
    found = local_optima(problem, x, person.after.recipe, progress, checkpoints, place)
    return replace(
        person,
        x_star=found.x_star,
        quality=dict(found.quality),
        stepsize=found.stepsize,
        length=found.length,
    )


def _checked_start(problem: Problem, start: Start) -> Start:
    """The start as parameters of the problem's network, and plain numbers."""
    shapes = jax.tree.map(np.shape, start.x)
    wanted = jax.tree.map(lambda leaf: leaf.shape, problem.template)
    if shapes != wanted:
        raise ScafflixError(
            f"start.x is {shown(start.x)} that is no parameters of the network "
            f"{problem.network.name}; begin from problem.start(seed)."
        )
    for leaf in jax.tree.leaves(start.x):
        numbers("start.x", leaf)
    numbers("start.bits", start.bits, (2,))
    up, down = (whole_number("start.bits", number, least=0) for number in np.asarray(start.bits))
    return Start(start.x, whole_number("start.rounds", start.rounds, least=0), (up, down))


def check_person(person: object) -> None:
    """Refuse what a user may have put in the place of a personalization."""
    wanted = "a personalization, as sx.personalize(problem, alpha) makes it"
    instance("person", person, Personalization, wanted)
