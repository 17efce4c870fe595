"""What a run of sampled clients measures when it looks at its models."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from scafflix.core.store import Store
from scafflix.core.vector import Vector
from scafflix.methods.method import Client, Method
from scafflix.models.network import Params
from scafflix.personalization.flix import Optimum
from scafflix.personalization.personalize import Personalization
from scafflix.problems.evaluation import Examined, Home, examine, over_examples
from scafflix.problems.losses import Losses
from scafflix.problems.problem import Problem
from scafflix.simulate.loop import lyapunov
from scafflix.simulate.objective import objective
from scafflix.simulate.planning import participants
from scafflix.simulate.schedule import Schedule
from scafflix.simulate.tuning import Some, tuned

Look = tuple[dict[str, float], dict[str, Examined]]


class Looks(Protocol):
    """How good models are."""

    def at(self, x: Params, states: Store | None, rounds: int) -> Look:
        """After so many rounds: what was measured, and what the global and the personal models
        made of the part looked at."""

    def loss_at_start(self, x: Params, first: dict[str, float]) -> float:
        """The loss from which a run begins; `first` is the first look."""


@jax.jit
def _largest(losses: Losses, x: Array) -> Array:
    """The largest f_i(x_i)."""
    return jnp.max(losses.values_and_gradients(x[None])[0])


_psi = jax.jit(lyapunov)


class LinearLooks:
    """Of a linear model: the objective, its gap and gradient, and Psi, over the clients that take
    part."""

    def __init__(
        self,
        problem: Problem,
        person: Personalization,
        method: Method,
        everyone: Client,
        empty: Any,
        optimum: Optimum,
    ) -> None:
        self.part, self.person = participants(problem, person)
        self.method, self.optimum, self.active = method, optimum, person.active
        self.clients: Client = jax.tree.map(lambda leaf: leaf[self.active], everyone)
        self.empty = empty

    def at(self, x: Params, states: Store | None, rounds: int) -> Look:
        x, person = np.asarray(x), self.person
        value, square = objective(self.part.losses, person.points, person.alpha, x)
        remembered = self.empty if states is None else states.read(self.active)
        clients = self.clients._replace(x_star=Vector(person.points))
        psi = _psi(self.method, self.optimum, clients, Vector(x), remembered)
        values = {
            "objective": value,
            "objective_gap": value - float(self.optimum.value),
            "grad_norm_sq": square,
            "lyapunov": float(psi),
        }
        return values, {}

    def loss_at_start(self, x: Params, first: dict[str, float]) -> float:
        """The largest, since each client's may have another scale."""
        return float(_largest(self.part.losses, self.person.mix(np.asarray(x))))


class NetworkLooks:
    """Of a network: the personal models and the global model on the clients' held-out examples."""

    def __init__(
        self,
        problem: Problem,
        person: Personalization,
        method: Method,
        everyone: Client,
        x_star: Store | None,
        schedule: Schedule,
    ) -> None:
        self.problem, self.method, self.x_star = problem, method, x_star
        self.everyone, self.part, self.seed = everyone, schedule.part, schedule.seed
        # whether clients take home the global model
        self.alike = method.mixes and (x_star is None or bool((person.alpha == 1).all()))

    def at(self, x: Params, states: Store | None, rounds: int) -> Look:
        part, n = self.part, self.problem.n
        common = own = examine(self.problem, part, x)
        if not self.alike:
            own = examine(self.problem, part, x, self._home(x, states, rounds), self.x_star)
        owners = self.problem.parts[part].owners
        shared, personal = (one.per_client(owners, n) for one in (common, own))
        values = {
            f"{part}_loss": over_examples(personal.loss, personal),
            f"{part}_personal": over_examples(personal.score, personal),
            f"{part}_personal_clients": float(np.nanmean(personal.score)),
            f"{part}_personal_p10": float(np.nanpercentile(personal.score, 10)),
            f"{part}_global": over_examples(shared.score, shared),
        }
        return values, {"global": common, "personal": own}

    def _home(self, x: Params, states: Store | None, rounds: int) -> Home:
        """What clients take home, some of them after tuning x by themselves."""

        def tune(numbers: NDArray[Any], clients: Client, states: Any) -> Params:
            some = Some(clients, states, numbers.astype(np.int32))
            return tuned(self.problem, self.method, x, some, self.seed, rounds)

        method = self.method
        remembered = None if method.mixes else states
        return Home(method.personal, self.everyone, remembered, method.tune and tune)

    def loss_at_start(self, x: Params, first: dict[str, float]) -> float:
        return first[f"{self.part}_loss"]
