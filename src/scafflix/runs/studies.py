"""What studies share: panels by their numbers, data divided into parts, models of every client
scored on the test part, what a division gave in the cache."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix.core import durable
from scafflix.core.cache import cache_folder
from scafflix.core.digest import digest_of
from scafflix.core.errors import ScafflixError
from scafflix.core.precision import in_float64
from scafflix.core.types import Floats
from scafflix.data import Federation, from_clients
from scafflix.data.arrays import Part
from scafflix.data.scaling import to_dense
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem

Panel = TypeVar("Panel")
Found = dict[str, Any]  # what a division gave, as JSON can hold it


def whole_numbers(name: str, words: str, least: int = 1) -> list[int]:
    """Whole numbers, separated by commas.

    >>> whole_numbers("looks", "1,10")
    [1, 10]
    """
    try:
        numbers = [int(word) for word in words.split(",")]
    except ValueError:
        raise ScafflixError(f"{name} is {words!r}; give whole numbers.") from None
    if min(numbers) < least:
        raise ScafflixError(f"{name} is {words!r}; give numbers of at least {least}.")
    return numbers


def chosen_panels(
    panels: Sequence[Panel], asked: str | Sequence[int] | None, what: str = "panel"
) -> list[Panel]:
    """Those with these numbers, the first of which is 0; without any, all.

    >>> chosen_panels(["heart", "landmine", "digits"], "2,0")
    ['digits', 'heart']
    """
    if asked is None:
        return list(panels)
    numbers = whole_numbers(f"{what}s", asked, least=0) if isinstance(asked, str) else asked
    if max(numbers) >= len(panels):
        raise ScafflixError(
            f"There is no {what} {max(numbers)}; give numbers from 0 to {len(panels) - 1}."
        )
    return [panels[number] for number in dict.fromkeys(numbers)]


def kept(study: str, recipe: int, facts: Any, make: Callable[[], Found]) -> Found:
    """What the study makes of these facts, from the cache if it was made before; `recipe` is to be
    raised when the same facts give other numbers."""
    name = digest_of(recipe, json.dumps(facts, sort_keys=True))
    file = cache_folder() / study / f"{name}.json"
    if not file.exists():
        made = make()
        # other divisions have other shapes: their programs would use up the process's memory maps
        jax.clear_caches()
        durable.new_folder(file.parent)
        durable.put(file, [json.dumps(made).encode()])
    try:
        found: Found = json.loads(file.read_text())
    except ValueError:
        raise ScafflixError(f"{file} does not hold a division of the study; remove it.") from None
    return found


def divided(
    whole: Federation, cuts: Sequence[Mapping[str, NDArray[Any]]], each: bool = False
) -> Federation:
    """The training rows of a federation in parts, by the numbers that `cuts` has of each client.

    Features are standardized by all rows that are not for testing, those of all clients together or
    `each` client by its own, and an intercept is appended. A feature that is the same in all of
    them is only centred.
    """
    spans = [slice(*span) for span in itertools.pairwise(whole.train.offsets)]
    features = [to_dense(whole.train.features[span]) for span in spans]
    seen = [
        A[np.concatenate([cut[part] for part in cut if part != "test"])]
        for A, cut in zip(features, cuts, strict=True)
    ]
    if not each:
        seen = [np.concatenate(seen)] * len(seen)
    parts: dict[str, dict[object, Part]] = {part: {} for part in cuts[0]}
    for client, span, A, known, cut in zip(whole.clients, spans, features, seen, cuts, strict=True):
        constant = known.min(axis=0) == known.max(axis=0)
        scaled = (A - known.mean(axis=0)) / np.where(constant, 1.0, known.std(axis=0))
        ready, labels = np.hstack([scaled, np.ones((len(A), 1))]), whole.train.labels[span]
        for part, rows in cut.items():
            parts[part][client] = ready[rows], labels[rows]
    made = from_clients(parts["train"], held_out=parts["test"], name=whole.name)
    having = [len(cut.get("validation", ())) > 0 for cut in cuts]
    if not any(having):
        return made
    with_rows = itertools.compress(whole.clients, having)
    chosen: dict[object, Part] = {one: parts["validation"][one] for one in with_rows}
    return replace(made, validation=from_clients(parts["train"], held_out=chosen).test)


@in_float64
def scored(problem: Problem, models: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Loss and score of every kind of model on each client's test part, `[kinds, clients]`."""
    everyone = problem.n, *problem.shape
    points = np.stack([np.broadcast_to(one, everyone) for one in models])
    losses, scores = _scored(problem.held_out["test"], points)
    return np.asarray(losses), np.asarray(scores)


@jax.jit
def _scored(losses: Losses, points: Array) -> tuple[Array, Array]:
    return losses.mean_losses(points), losses.scores(points)
