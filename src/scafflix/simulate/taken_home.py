"""The models that a run leaves: the global one, and each client's own and what it takes home."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.tree_util import keystr
from numpy.typing import NDArray

from scafflix.core.store import Store
from scafflix.core.vector import Vector
from scafflix.methods.method import Client, Method
from scafflix.models.network import Params
from scafflix.personalization.mixing import mixture
from scafflix.personalization.personalize import Personalization
from scafflix.problems.problem import Problem


def models_of(
    problem: Problem, person: Personalization, method: Method, x: Params, ended: Any
) -> dict[str, Any]:
    """Global, local and personal, in trees; `ended` are the states of the clients."""
    models = {"global": x}
    if person.x_star is None and method.mixes:
        return models
    everyone = np.arange(problem.n)
    stars = person.x_star
    if isinstance(stars, Store):
        stars = stars.read(everyone)
    if stars is not None:
        models["local"] = jax.tree.map(np.asarray, stars)
    if not len(person.active):  # all have x_i*
        return {**models, "personal": models["local"]}
    alpha = person.alpha.astype(problem.dtype)
    if method.mixes:
        mixed = jax.tree.map(lambda mine, star: mixture(alpha, mine, star), x, models["local"])
        return {**models, "personal": mixed}
    gamma = np.ones(problem.n, problem.dtype)
    gamma[person.active] = method.gamma
    clients = Client(
        alpha,
        gamma,
        None if stars is None else Vector(stars),
        problem.federation.train.counts.astype(problem.dtype),
        np.full(problem.n, len(person.active), problem.dtype),
    )
    some = person.active  # states are of those who take part
    states = ended.read(some) if isinstance(ended, Store) else ended
    chosen = jax.tree.map(lambda leaf: leaf[some], clients)
    made = jax.vmap(method.personal, (0, 0, None))(chosen, states, Vector(x)).tree
    if len(some) < problem.n:  # the others have x_i*
        made = jax.tree.map(_put(some), models["local"], made)
    models["personal"] = jax.tree.map(np.asarray, made)
    return models


def _put(places: NDArray[np.int64]) -> Any:
    def put(all_of_them: NDArray[Any], some: Any) -> NDArray[Any]:
        made = np.array(all_of_them)
        made[places] = some
        return made

    return put


def named(kind: str, tree: Params) -> dict[str, NDArray[Any]]:
    """The arrays of a tree under their path, such as `global/conv1/weight`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    names = [keystr(path, simple=True, separator="/") for path, _ in leaves]
    return {
        f"{kind}/{name}" if name else kind: np.asarray(value)
        for name, (_, value) in zip(names, leaves, strict=True)
    }
