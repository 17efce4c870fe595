"""What goes over the wire, field by field, and what is refused.

A message is a named tuple of plain scalars and of flat lists of arrays. x_i*, the data and h_i
are in none of them (`Train.restored` brings an h_i back to a client that lost it, from a server
that was told to keep a mirror). `fault_of` checks one message in either direction.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from scafflix.core.durable import Arrays
from scafflix.core.errors import ScafflixError
from scafflix.data.identity import fault_of_id

NONE = -1  # in place of a round: none
LARGEST_STEPS = 10**9  # local steps that a message may ask for
LONGEST_NAMES = 10**6  # letters for all of a model's arrays


# kinds of refusals that a server counts apart; a client may write anything
REFUSALS = frozenset({"stale", "lost", "damaged", "method", "error"}) | {
    *("type", "shape", "dtype", "range", "weight", "not_finite")  # as `fault_of` says
}


class Hello(NamedTuple):
    """Server to client: who are you?"""

    start: bool  # whether to send the point to start from: made from a seed, not from data


class Introduction(NamedTuple):
    """Client to server: what the server weighs and plans with."""

    client: str  # the client's own id, the same after any restart
    alpha: float  # how much of the global model it takes, in [0, 1]
    gamma: float  # its stepsize on f_i, 1/A_i; 0 where no theory gives one
    gamma_mu: float  # gamma_i mu_i, from which the server finds p; 0 where unknown
    gamma_L: float  # gamma_i L_i: 1 for exact gradients; 0 where unknown  # noqa: N815
    examples: int  # how many it trains on
    layout: str  # types and shapes of a model's arrays, as `layout_of` writes them
    start: Arrays  # the point to start from, empty unless asked for
    names: str = ""  # of a model's arrays, as `naming.names_of` writes them


class Train(NamedTuple):
    """Server to client: settle what is pending, then make K steps from x."""

    run: str
    epoch: int  # control variates of an older epoch count for nothing
    round: int  # r, from 0
    steps: int  # K_r
    iteration: int  # local steps of all rounds before: where random streams stand
    number: int  # the client's place among all clients, which its random stream depends on
    clients: int  # how many clients take part
    seed: int
    method: str
    settings: str  # its hyperparameters besides the stepsizes, as JSON
    gamma: float  # the client's stepsize, as the server's method chose it
    included: int  # q, the last round of this epoch whose average held an upload of the client
    receipt: str  # of that very upload; empty for none
    report: bool  # whether to report f_i(x~_i) at x
    point: Arrays  # what goes down in this round: x_r, and of some methods more
    average: Arrays  # what went down after round q; empty if committed already, or if q = r - 1
    restored: Arrays  # the client's lost state after round q, from the mirror; else empty


class Upload(NamedTuple):
    """Client to server: where its K steps led."""

    run: str
    epoch: int
    client: str
    round: int
    committed: int  # the last round whose average its control variates have taken in
    weight: float  # implied by alpha_i and gamma_i
    loss: float  # f_i(x~_i) at the round's x; NaN unless asked for
    point: Arrays  # its message: x_hat_i, or what the method sends instead


class Evaluate(NamedTuple):
    """Server to client, at the end: settle what is pending, take x home, say how good it is."""

    run: str
    epoch: int
    round: int  # how many were closed
    clients: int
    method: str
    settings: str
    gamma: float
    included: int
    receipt: str
    point: Arrays  # the model
    average: Arrays
    restored: Arrays


class Evaluation(NamedTuple):
    """Client to server: f_i(x~_i), and the scores of the model it takes home."""

    run: str
    epoch: int
    client: str
    round: int
    committed: int
    loss: float
    score: float  # of x~_i on the client's held-out examples, or its training ones; or NaN


class Refusal(NamedTuple):
    """Client to server: not done, and why."""

    run: str
    epoch: int
    client: str
    round: int
    kind: str  # stale, lost, damaged, or what was wrong with the message
    reason: str  # a sentence


Request = Hello | Train | Evaluate
Reply = Introduction | Upload | Evaluation | Refusal


class Fault(NamedTuple):
    """What is wrong with a message."""

    kind: str  # by which the record counts it
    reason: str


def layout_of(arrays: Sequence[NDArray[Any]]) -> str:
    """Types and shapes in one word.

    >>> layout_of([np.zeros((2, 3)), np.zeros(4, np.float32)])
    'float64[2,3];float32[4]'
    """
    return ";".join(f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in arrays)


def receipt_of(arrays: Sequence[NDArray[Any]]) -> str:
    """A digest by which client and server know that they mean the same upload."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).data if array.size else b"")
    return found.hexdigest()[:32]


def fault_of(message: Any, layout: str | None = None) -> Fault | None:
    """What is wrong with the fields of a message on their own, None if nothing is.

    `layout` is that of a model; without it points are only looked at for numbers that are not
    finite.
    """
    kind: Any = type(message)
    hints = _hints(kind)
    for name, value in zip(message._fields, message, strict=True):
        wrong = _problem_with_field(name, hints[name], value, layout)
        if wrong is not None:
            return wrong
    return None


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _problem_with_field(name: str, hint: Any, value: Any, layout: str | None) -> Fault | None:
    if hint == Arrays:
        # a client's state may be several points or none; its owner knows what it must be
        expected = None if name == "restored" or (not value and name != "point") else layout
        return problem_with_arrays(name, value, expected)
    if type(value) is not hint:
        return Fault("type", f"{name} is {value!r}; it must be of type {hint.__name__}.")
    if hint is float and not math.isfinite(value) and name not in ("loss", "score"):
        kind = "weight" if name == "weight" else "not_finite"
        return Fault(kind, f"{name} is {value}; it must be finite.")
    if hint is str and len(value) > (LONGEST_NAMES if name == "names" else 10_000):
        return Fault("type", f"{name} has {len(value)} letters.")
    if name == "client" and not is_name(value):
        return Fault("type", "client is no name of letters, digits, '.', '_' and '-'.")
    return _problem_with_number(name, value)


def _problem_with_number(name: str, value: Any) -> Fault | None:
    least = {"epoch": 0, "round": 0, "iteration": 0, "number": 0, "clients": 1, "seed": 0}
    least |= {"included": NONE, "committed": NONE, "steps": 1, "examples": 1}
    if name in least and value < least[name]:
        return Fault("range", f"{name} is {value}; it must be at least {least[name]}.")
    if name == "steps" and value > LARGEST_STEPS:
        return Fault("range", f"steps is {value}; it must be at most {LARGEST_STEPS}.")
    if name == "weight" and not value > 0:
        return Fault("weight", f"weight is {value:g}.")
    if name in ("gamma", "gamma_mu", "gamma_L") and value < 0:
        return Fault("range", f"{name} is {value:g}; it must not be below 0.")
    if name == "alpha" and not 0 <= value <= 1:
        return Fault("range", f"alpha is {value:g}; it must lie between 0 and 1.")
    return None


def problem_with_arrays(name: str, arrays: Any, layout: str | None) -> Fault | None:
    """Number, types, shapes and values of a point's arrays."""
    if not isinstance(arrays, tuple) or not all(isinstance(a, np.ndarray) for a in arrays):
        return Fault("type", f"{name} must be a list of arrays.")
    if layout is not None and layout_of(arrays) != layout:
        found = layout_of(arrays)
        shapes = [[word.partition("[")[2] for word in text.split(";")] for text in (found, layout)]
        kind = "dtype" if shapes[0] == shapes[1] else "shape"
        return Fault(kind, f"{name} is {found or 'empty'}; it must be {layout}.")
    for array in arrays:
        if array.dtype.kind != "f":
            return Fault("dtype", f"{name} holds {array.dtype}; it must hold real numbers.")
        if not np.isfinite(array).all():
            return Fault("not_finite", f"{name} holds a number that is not finite.")
    return None


def is_name(name: str) -> bool:
    """Whether this can be a client's or a run's name, which is also that of a file."""
    good = 0 < len(name) <= 100 and not name.startswith(".") and fault_of_id(name) is None
    return good and all(c.isalnum() or c in "._-" for c in name)


def checked_name(name: str) -> str:
    """A client's or a run's name."""
    if not is_name(name):
        raise ScafflixError(
            f"{json.dumps(name)} is no name; take up to 100 letters, digits, '.', '_' and '-'."
        )
    return name
