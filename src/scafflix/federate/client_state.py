"""What a client remembers between messages, in one file that is replaced atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax

from scafflix.core import durable
from scafflix.core.durable import Arrays, Hook
from scafflix.core.errors import ScafflixError
from scafflix.federate.messages import NONE
from scafflix.methods.remembering import Kept

ADVICE = " Move it away; the client can then rejoin through the server's mirror or a new epoch."


class Pending(NamedTuple):
    """An upload that may or may not have been averaged: the client does not know yet."""

    round: int
    steps: int  # K
    receipt: str
    weight: float
    loss: float | None
    seed: int  # with the round number, what all clients of the round draw from
    place: int  # the client's position in the round
    cohort: int  # the number of clients asked
    local: Arrays  # the result of its steps
    sent: Arrays  # the point it started from; empty if the method keeps no state


class Memory(NamedTuple):
    """A client's place in a run."""

    method: str
    epoch: int
    state: Any  # the method's private state, such as h_i
    committed: int = NONE  # the last round committed to the state
    latest: int = NONE  # the last round trained for
    pending: Pending | None = None


def save(path: Path, memory: Memory, hook: Hook) -> None:
    """Replace the stored memory."""
    pending = memory.pending
    facts = {
        "method": memory.method,
        "epoch": memory.epoch,
        "committed": memory.committed,
        "latest": memory.latest,
        "pending": None if pending is None else [*pending[:-2], len(pending.local)],
    }
    last = (*pending.local, *pending.sent) if pending else ()
    arrays = [*jax.tree.leaves(memory.state), *last]
    durable.write(path, facts, arrays, hook)


def load(path: Path, template: Any) -> Memory | None:
    """The memory of a run, with the state structured like the template; None if there is none."""
    found = durable.read(path, ADVICE)
    if found is None:
        return None
    facts, arrays = found
    leaves, structure = jax.tree.flatten(template)
    count = len(leaves)
    pending, last = None, arrays[count:]
    if facts["pending"] is not None:
        *known, size = facts["pending"]
        pending = Pending._make([*known, last[:size], last[size:]])
    return Memory(
        method=facts["method"],
        epoch=facts["epoch"],
        state=jax.tree.unflatten(structure, arrays[:count]),
        committed=facts["committed"],
        latest=facts["latest"],
        pending=pending,
    )


def restored(arrays: Arrays, template: Any) -> Any:
    """A state from the server's copy of it, which has nothing of what gradients remember."""
    if isinstance(template, Kept):
        return template._replace(own=state_from(arrays, template.own))
    return state_from(arrays, template)


def state_from(arrays: Arrays, template: Any) -> Any:
    """A state from its arrays."""
    leaves, structure = jax.tree.flatten(template)
    shapes = [(a.shape, a.dtype) for a in leaves]
    if [(a.shape, a.dtype) for a in arrays] != shapes:
        raise ScafflixError(
            "The restored state does not have the shapes and types of this method's state."
        )
    return jax.tree.unflatten(structure, arrays)
