"""A copy of every h_i on the server, for a client that loses its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from scafflix.core.durable import Arrays
from scafflix.core.vector import Vector
from scafflix.federate import client_state
from scafflix.federate.files import Mirror, ServerFiles
from scafflix.federate.messages import NONE
from scafflix.methods.method import Client, Method, Turn


class Mirrors:
    """The states of all clients, with a file per client and round, so that repeating is safe."""

    def __init__(
        self,
        files: ServerFiles,
        method: Method,
        clients: Mapping[str, Client],
        numbers: Mapping[str, int],
        start: Vector,
    ) -> None:
        self.files, self.method, self.clients, self.numbers = files, method, clients, numbers
        self._start = start

    def fresh(self, name: str) -> Any:
        """The state of a client at the start of an epoch."""
        return self.method.init_client(self.clients[name], self._start, 0 * self._start)

    def where(self, name: str, epoch: int, round: int) -> Mirror:
        """The file of a client's state after a round."""
        return Mirror(epoch, self.numbers[name], round)

    def arrays(self, name: str, epoch: int, round: int) -> Arrays:
        """A client's state after a round, as arrays to send."""
        return tuple(jax.tree.leaves(self._state(name, epoch, round)))

    def advance(
        self,
        name: str,
        moment: tuple[int, int, int],
        sent: Any,
        local: Any,
        after: Any,
        steps: int,
        turn: Turn,
    ) -> None:
        """Line 13 for a client; `moment` is the epoch, the last round it was in, and this round."""
        epoch, included, round = moment
        state = self._state(name, epoch, included)
        client = self.clients[name]._replace(turn=turn)
        state = self.method.commit(client, state, sent, local, after, steps)
        self.files.keep_mirror(self.where(name, epoch, round), name, jax.tree.leaves(state))

    def _state(self, name: str, epoch: int, round: int) -> Any:
        template = self.fresh(name)
        if round == NONE:
            return template
        return client_state.state_from(self.files.mirror(self.where(name, epoch, round)), template)
