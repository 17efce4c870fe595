"""What goes over the wire, field by field, and what is refused.

A message is a named tuple of plain scalars and flat lists of arrays. None of them contains x_i*,
the data or h_i, with one exception: `Train.restored` returns h_i to a client that lost it, if the
server keeps a mirror. `fault_of` checks a message in either direction.
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
from scafflix.federate.secure.messages import Hidden, Mask, Share, Unmask

NONE = -1  # stands for "no round"
LARGEST_STEPS = 10**9  # local steps that a message may ask for
LARGEST_COHORT = 10**6  # clients that a round may claim to have
LONGEST_TEXT = 10_000  # characters of a text
LONGEST_NAMES = 10**6  # characters for the names of all of a model's arrays
LONG = {"names": LONGEST_NAMES, "told": 10**7, "agreed": 10**7}  # texts that may be longer
LONG |= {"certificate": 10**5}


# kinds of refusals that the server counts separately; a client may send any text
REFUSALS = frozenset({"stale", "lost", "damaged", "method", "error", "insecure", "identity"}) | {
    *("type", "shape", "dtype", "range", "weight", "not_finite")  # from `fault_of`
}


class Hello(NamedTuple):
    """Server to client: who are you?"""

    start: bool  # whether to send the starting point, which is made from a seed, not from data
    agreed: str = ""  # what is done to the columns of tables, as JSON; empty until it is agreed on


class TableSummary(NamedTuple):
    """Client to server: what its columns hold, so that all prepare them alike."""

    client: str
    told: str  # counts, sums, quantiles and categories of the training rows, and labels, as JSON


class Introduction(NamedTuple):
    """Client to server: what the server needs for weights and planning."""

    client: str  # the client's own id, the same after any restart
    alpha: float  # how much of the global model it takes, in [0, 1]
    gamma: float  # its stepsize on f_i, 1/A_i; 0 where no theory gives one
    gamma_mu: float  # gamma_i mu_i, from which the server finds p; 0 where unknown
    gamma_L: float  # gamma_i L_i: 1 for exact gradients; 0 where unknown  # noqa: N815
    examples: int  # its number of training examples
    layout: str  # types and shapes of a model's arrays, as `layout_of` writes them
    start: Arrays  # the starting point, empty unless asked for
    names: str = ""  # of a model's arrays, as `naming.names_of` writes them
    rule: str = ""  # by which it chooses alpha_i at the end; empty where alpha is given
    computes: str = ""  # what its module makes of made-up examples, as `sameness` writes it


class Train(NamedTuple):
    """Server to client: settle the pending upload, then take K steps from x."""

    run: str
    epoch: int  # control variates of an older epoch are discarded
    round: int  # r, from 0
    steps: int  # K_r, or fewer: K_i
    stops: bool  # whether the client stops on its own with the last of them
    iteration: int  # local steps in all earlier rounds: the position in the random streams
    number: int  # the client's number, which its random stream depends on
    clients: int  # the number of clients that take part
    place: int  # the client's position among those of the round
    cohort: int  # the number of clients asked in the round
    seed: int
    method: str
    settings: str  # its hyperparameters besides the stepsizes, as JSON
    gamma: float  # the client's stepsize, as the server's method chose it
    included: int  # q, the last round of this epoch whose average included the client's upload
    receipt: str  # digest of that upload; empty if there is none
    report: bool  # whether to report f_i(x~_i) at x
    point: Arrays  # what the server sends in this round: x_r, and more for some methods
    average: (
        Arrays  # what the server sent after round q; empty if already committed, or if q = r - 1
    )
    restored: Arrays  # the client's lost state after round q, from the mirror; otherwise empty
    attempt: str = ""  # at the secure aggregation of this round; empty: answer with the upload


class Upload(NamedTuple):
    """Client to server: the result of its K steps."""

    run: str
    epoch: int
    client: str
    round: int
    committed: int  # the last round committed to its control variate
    weight: float  # implied by alpha_i and gamma_i
    loss: float  # f_i(x~_i) at the round's x; NaN unless asked for
    point: Arrays  # x_hat_i, or what the method sends instead, as its compressor encodes it


class Evaluate(NamedTuple):
    """Server to client, at the end: settle the pending upload, save x, report how good it is.

    A client that chooses alpha_i is asked twice: first for its curve, then with the mean of all.
    """

    run: str
    epoch: int
    round: int  # the number of closed rounds
    iteration: int  # local steps in them
    number: int  # the client's number, which its random stream depends on
    clients: int
    seed: int
    method: str
    settings: str
    gamma: float
    included: int
    receipt: str
    point: Arrays  # the model; empty for a client that has answered with its curve
    average: Arrays
    restored: Arrays
    # means over the clients: the costs at every alpha; 1/n_i and the noise; otherwise empty
    others: Arrays = ()
    attempt: str = ""  # at the secure aggregation of what clients report; empty: answer plainly


class Curve(NamedTuple):
    """Client to server: what it expects along its segment, before alpha_i is chosen."""

    run: str
    epoch: int
    client: str
    round: int
    committed: int
    curve: Arrays  # numbers to be added up: the costs at every alpha, and of n_i; or nothing


class Evaluation(NamedTuple):
    """Client to server: f_i(x~_i), and how good the model is that it takes home."""

    run: str
    epoch: int
    client: str
    round: int
    committed: int
    loss: float  # f_i(x~_i), as it was trained for
    score: float  # on held-out examples, or on training examples if there are none; or NaN
    loss_personal: float = math.nan  # f_i at the model taken home: another where alpha is chosen
    alpha: float = 1.0  # of that model
    gain: float = math.nan  # what alpha_i was expected to save; NaN where alpha is given
    note: str = ""  # what the client lacked to choose it, and did instead
    test_loss_local: float = math.nan  # on test examples, where alpha is chosen: of x_i*,
    test_loss_global: float = math.nan  # of x,
    test_loss_personal: float = math.nan  # and of the model taken home


class Refusal(NamedTuple):
    """Client to server: the request was refused, and why."""

    run: str
    epoch: int
    client: str
    round: int
    kind: str  # stale, lost, damaged, or what was wrong with the message
    reason: str  # a sentence


Request = Hello | Train | Share | Mask | Unmask | Evaluate
Reply = Introduction | TableSummary | Upload | Hidden | Curve | Evaluation | Refusal


class RefusedError(ScafflixError):
    """A message that the client refuses, and the kind under which the refusal is counted."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Fault(NamedTuple):
    """What is wrong with a message."""

    kind: str  # under which the record counts it
    reason: str


def layout_of(arrays: Sequence[NDArray[Any]]) -> str:
    """Types and shapes as one string.

    >>> layout_of([np.zeros((2, 3)), np.zeros(4, np.float32)])
    'float64[2,3];float32[4]'
    """
    return ";".join(f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in arrays)


def receipt_of(arrays: Sequence[NDArray[Any]]) -> str:
    """A digest that tells client and server whether they mean the same upload."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).data if array.size else b"")
    return found.hexdigest()[:32]


def fault_of(message: Any, layout: str | None = None) -> Fault | None:
    """What is wrong with the fields of a message by themselves; None if nothing is.

    `layout` is the layout of a model; without it, points are only checked for non-finite numbers.
    """
    kind: Any = type(message)
    hints = _hints(kind)
    for name, value in zip(message._fields, message, strict=True):
        wrong = _problem_with_field(name, hints[name], value, layout)
        if wrong is not None:
            return wrong
    return None


_MAY_BE_UNKNOWN = {"loss", "score", "loss_personal", "gain"} | {
    f"test_loss_{kind}" for kind in ("local", "global", "personal")
}
_TYPES = {bool: "true or false", int: "an integer", float: "a floating-point number", str: "text"}


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _problem_with_field(name: str, hint: Any, value: Any, layout: str | None) -> Fault | None:
    if hint == Arrays:
        # a client's state may be several points or none; the client itself checks it
        expected = None if name == "restored" or (not value and name != "point") else layout
        return problem_with_arrays(name, value, expected)
    if type(value) is not hint:
        return Fault("type", f"{name} is {value!r}; it must be {_TYPES[hint]}.")
    if hint is float and not math.isfinite(value) and name not in _MAY_BE_UNKNOWN:
        kind = "weight" if name == "weight" else "not_finite"
        return Fault(kind, f"{name} is {value}; it must be finite.")
    longest = LONG.get(name, LONGEST_TEXT)
    if hint is str and len(value) > longest:
        return Fault("type", f"{name} has {len(value)} characters; at most {longest} are allowed.")
    if name == "client" and not is_name(value):
        return Fault("type", "client is not a valid name; use letters, digits, '.', '_' and '-'.")
    return _problem_with_number(name, value)


def _problem_with_number(name: str, value: Any) -> Fault | None:
    least = {"epoch": 0, "round": 0, "iteration": 0, "number": 0, "clients": 1, "seed": 0}
    least |= {"included": NONE, "committed": NONE, "steps": 1, "examples": 1}
    least |= {"place": 0, "cohort": 1}
    most = {"steps": LARGEST_STEPS, "cohort": LARGEST_COHORT}
    if name in least and value < least[name]:
        return Fault("range", f"{name} is {value}; it must be at least {least[name]}.")
    if name in most and value > most[name]:
        return Fault("range", f"{name} is {value}; it must be at most {most[name]}.")
    if name == "weight" and not value > 0:
        return Fault("weight", f"weight is {value:g}; it must be above 0.")
    if name == "unit" and not value > 0:
        return Fault("range", f"unit is {value:g}; it must be above 0.")
    if name in ("gamma", "gamma_mu", "gamma_L") and value < 0:
        return Fault("range", f"{name} is {value:g}; it must be at least 0.")
    if name == "alpha" and not 0 <= value <= 1:
        return Fault("range", f"alpha is {value:g}; it must be between 0 and 1.")
    return None


def problem_with_arrays(name: str, arrays: Any, layout: str | None) -> Fault | None:
    """What is wrong with the number, types, shapes or values of a point's arrays.

    Without a layout they must be floating-point numbers; with one, what it says.
    """
    if not isinstance(arrays, tuple) or not all(isinstance(a, np.ndarray) for a in arrays):
        return Fault("type", f"{name} must be a list of arrays.")
    if layout is not None and layout_of(arrays) != layout:
        found = layout_of(arrays)
        shapes = [[word.partition("[")[2] for word in text.split(";")] for text in (found, layout)]
        kind = "dtype" if shapes[0] == shapes[1] else "shape"
        return Fault(kind, f"{name} has the layout {found or '(empty)'}; it must be {layout}.")
    for array in arrays:
        if layout is None and array.dtype.kind != "f":
            return Fault(
                "dtype", f"{name} contains {array.dtype}; it must contain floating-point numbers."
            )
        if not np.isfinite(array).all():
            return Fault(
                "not_finite", f"{name} contains a non-finite number; all numbers must be finite."
            )
    return None


def refusal_of(request: Any, client: str, kind: str, reason: str) -> Refusal:
    """A client's refusal of any request, in a sentence that names it."""
    place = (getattr(request, "run", ""), getattr(request, "epoch", 0))
    who = f"Client {client}"
    told = reason if reason.startswith(who) else f"{who}: {reason}"
    return Refusal(*place, client, getattr(request, "round", 0), kind, told[:LONGEST_TEXT])


def is_name(name: str) -> bool:
    """Whether this is a valid name for a client or a run, and so for a file."""
    good = 0 < len(name) <= 100 and not name.startswith(".") and fault_of_id(name) is None
    return good and all(c.isalnum() or c in "._-" for c in name)


def checked_name(name: str) -> str:
    """The name of a client or a run, if it is valid."""
    if not is_name(name):
        raise ScafflixError(
            f"{json.dumps(name)} is not a valid name; use up to 100 letters, digits, '.', '_' and "
            "'-', and do not begin with '.'."
        )
    return name
