"""What tells runs from others, so that a checkpoint is only ever taken up by the same run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from scafflix import algorithm
from scafflix.core.digest import digest_of, program_of, without_addresses
from scafflix.core.vector import Vector
from scafflix.methods.method import Client, Method, Turn
from scafflix.simulate.recording import Run


def identity_of(runs: Sequence[Run], x0: Any, h0: Any) -> dict[str, Any]:
    """What tells runs of one problem from others."""
    methods = [member.method for member in runs]
    kinds = {jax.tree.structure(method): method for method in methods}
    texts = [without_addresses(jax.tree.structure(method)) for method in methods]
    functions = [made for method in kinds.values() for made in _functions_of(method, x0)]
    leaves = [np.asarray(leaf) for method in methods for leaf in jax.tree.leaves(method)]
    return {
        "methods": [method.name for method in methods],
        "seeds": [member.seed for member in runs],
        "digest of alpha": digest_of(*(member.person.alpha for member in runs)),
        "rules for alpha": [member.person.rule for member in runs],
        "digest of the start": digest_of(*jax.tree.leaves(x0), *jax.tree.leaves(h0)),
        "digest of the method": digest_of(texts, *functions, *leaves),
    }


def _functions_of(method: Method, x0: Any) -> list[Any]:
    """What the functions of a method do in a round from such a point, operation by operation:
    an edited file of a user's own makes another method of the same name."""

    def one_round(x: Any) -> Any:
        n = np.size(method.gamma)
        turn = Turn(jax.random.key(0), n // 2, n)
        point, client = Vector(x), Client(0.5, 0.25, Vector(x), 3.0, 4.0, turn)
        server, state = method.init_server(point), method.init_client(client, point, point)
        sent = method.broadcast(server)
        local = method.begin(client, state, sent)
        gradients = method.asks(client, state, sent, local)  # any points of the right shapes
        local = method.local_step(client, state, sent, local, gradients)
        if method.stop is not None:
            local = method.stop(client, state, sent, local, gradients)
        message, weight = algorithm.upload(method, client, state, sent, local)
        server, after = algorithm.communicate(method, server, 3, message, 0.5)
        state = method.commit(client, state, sent, local, after, 2)
        home = method.personal(client, state, server.x)
        if method.tune is not None:
            home = method.personal(client, state, method.tune(client, state, server.x, home))
        return weight, after, state, home, method.controls(client, state)

    program, held = program_of(one_round, x0)
    draws = np.linspace(0.05, 1.0, 20)
    steps = [np.asarray(method.local_steps(np.arange(len(draws)), draws))]
    if method.own_steps is not None:
        client = Client(0.5, 0.25, None, 3.0, 4.0)
        steps += [np.asarray(method.own_steps(client, 10, draw)) for draw in draws]
    return [program, *held, *steps]
