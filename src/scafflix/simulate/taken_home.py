"""The models that a run leaves: the global one, and each client's own and what it takes home."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.core.store import Store
from scafflix.core.types import Floats
from scafflix.core.vector import Vector, names_of
from scafflix.methods.method import Client, Method
from scafflix.models.network import Params
from scafflix.personalization.mixing import mixture
from scafflix.personalization.personalize import Personalization
from scafflix.problems.evaluation import clients_at_once
from scafflix.problems.problem import Problem
from scafflix.simulate.planning import participants
from scafflix.simulate.tuning import Some, tuned


class End(NamedTuple):
    """Where a run ended."""

    x: Params
    states: Any  # of the clients that take part, stacked, or a store of all; None where none
    seed: int
    rounds: int


def models_of(
    problem: Problem, person: Personalization, method: Method, end: End
) -> dict[str, Any]:
    """Global, local and personal, in trees."""
    x, ended = end.x, end.states
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
    if method.mixes:
        return {**models, "personal": mixtures(person.alpha, x, models["local"])}
    gamma = np.ones(problem.n, problem.dtype)
    gamma[person.active] = method.gamma
    clients = Client(
        person.alpha.astype(problem.dtype),
        gamma,
        None if stars is None else Vector(stars),
        problem.federation.train.counts.astype(problem.dtype),
        np.full(problem.n, len(person.active), problem.dtype),
    )
    some = person.active  # states are of those who take part
    states = ended.read(some) if isinstance(ended, Store) else ended
    chosen = jax.tree.map(lambda leaf: leaf[some], clients)
    point, axis = Vector(x), None
    if method.tune is not None:
        those = Some(chosen, states, some.astype(np.int32))
        point, axis = Vector(_tuned(problem, person, method, end, those)), 0
    made = jax.vmap(method.personal, (0, 0, axis))(chosen, states, point).tree
    if len(some) < problem.n:  # the others have x_i*
        made = jax.tree.map(_put(some), models["local"], made)
    models["personal"] = jax.tree.map(np.asarray, made)
    return models


def mixtures(alpha: Floats, x: Params, stars: Params) -> Params:
    """alpha_i x + (1 - alpha_i) x_i* of every client."""

    def mixed(leaf: Any, star: Any) -> NDArray[Any]:
        return np.asarray(mixture(alpha.astype(star.dtype), np.asarray(leaf), star))

    return jax.tree.map(mixed, x, stars)


def _tuned(
    problem: Problem, person: Personalization, method: Method, end: End, those: Some
) -> Params:
    """x_i of those who take part, each tuned by itself; of a network, as many at once as when
    models are evaluated."""
    place = end.seed, end.rounds
    if problem.linear:
        return tuned(participants(problem, person)[0], method, end.x, those, *place)
    count = len(those.number)
    at_once, made = clients_at_once(problem, count), []
    for start in range(0, count, at_once):
        group = np.resize(np.arange(start, min(start + at_once, count)), at_once)
        some = jax.tree.map(lambda leaf, group=group: np.asarray(leaf)[group], those)
        made.append(tuned(problem, method, end.x, some, *place))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *made)


def _put(places: NDArray[np.int64]) -> Any:
    def put(all_of_them: NDArray[Any], some: Any) -> NDArray[Any]:
        made = np.array(all_of_them)
        made[places] = some
        return made

    return put


def named(kind: str, tree: Params) -> dict[str, NDArray[Any]]:
    """The arrays of a tree under their path, such as `global/conv1/weight`."""
    return {
        f"{kind}/{name}" if name else kind: np.asarray(value)
        for name, value in zip(names_of(tree), jax.tree.leaves(tree), strict=True)
    }
