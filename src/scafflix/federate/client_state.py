"""What a client remembers between messages, in one file: all of it changes or nothing does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax

from scafflix.core import durable
from scafflix.core.durable import Arrays, Hook
from scafflix.core.errors import ScafflixError
from scafflix.federate.messages import NONE

ADVICE = (
    " Move it away; a client without its state comes back by the server's mirror or a new epoch."
)


class Pending(NamedTuple):
    """An upload whose fate is not known: in the average of its round, or in none."""

    round: int
    steps: int  # K
    receipt: str
    weight: float
    loss: float | None
    local: Arrays  # where its steps led
    sent: Arrays  # from what; empty for a method that remembers nothing


class Memory(NamedTuple):
    """A client's place in a run."""

    method: str
    epoch: int
    state: Any  # the method's private state, such as h_i
    committed: int = NONE  # the last round that the state has taken in
    latest: int = NONE  # the last round trained for
    pending: Pending | None = None


def save(path: Path, memory: Memory, hook: Hook) -> None:
    """Replace what is remembered."""
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
    """What is remembered of a run, with the state in the form of the template; None: nothing."""
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


def state_from(arrays: Arrays, template: Any) -> Any:
    """A state from its arrays."""
    leaves, structure = jax.tree.flatten(template)
    shapes = [(a.shape, a.dtype) for a in leaves]
    if [(a.shape, a.dtype) for a in arrays] != shapes:
        raise ScafflixError("The restored state does not have the shape of this method's state.")
    return jax.tree.unflatten(structure, arrays)
