"""Messages of a federation as they arrive, and damaged ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from damage import TEXT, VALUES, Random, damaged
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from scafflix.federate import messages
from scafflix.federate.parcels import KINDS, TYPE
from scafflix.federate.wire import pack, unpack
from scafflix_flower.records import SCALARS

POINT = (np.arange(6.0).reshape(2, 3), np.ones(4))
LAYOUT = messages.layout_of(POINT)
SAMPLES: dict[Any, Any] = {str: "demo", int: 1, float: 0.5, bool: False}


def samples() -> list[Any]:
    """A valid message of each kind."""
    return [
        kind(*(SAMPLES.get(hint, POINT) for hint in messages._hints(kind).values()))
        for kind in KINDS.values()
    ]


def try_message(r: Random, folder: Path) -> None:
    """Unpack a damaged message and ask what is wrong with it; it must be a problem or a message
    whose fields are what they say."""
    record = pack(r.choice(samples()))
    scalars = dict(record[SCALARS])
    arrays = {name: dict(part) for name, part in record.items() if name != SCALARS}
    for _ in range(r.choice((1, 1, 2))):
        if arrays and r.random() < 0.5:
            field = r.choice(list(arrays))
            key = r.choice(list(arrays[field]))
            arrays[field][key] = broken_array(r, arrays[field][key])
        else:
            scalars = broken_scalars(r, scalars)
    made: dict[str, Any] = {name: ArrayRecord(part) for name, part in arrays.items()}
    if r.random() < 0.05 and made:
        made[r.choice(("point", "strange", "x"))] = made.pop(r.choice(list(made)))
    try:
        made[SCALARS] = ConfigRecord(scalars)
    except (TypeError, ValueError):
        made[SCALARS] = ConfigRecord({TYPE: "Hello"})  # what Flower itself does not carry
    message = unpack(RecordDict(made))
    problem = messages.fault_of(message, LAYOUT if r.random() < 0.8 else None)
    if problem is not None:
        assert problem.kind and problem.reason.isprintable()  # noqa: PT018
        return
    for name, value in message._asdict().items():
        if isinstance(value, float) and name not in ("loss", "score"):
            assert math.isfinite(value)
        if isinstance(value, tuple):
            assert all(np.isfinite(array).all() for array in value)


def broken_scalars(r: Random, scalars: dict[str, Any]) -> dict[str, Any]:
    name = r.choice(list(scalars))
    match r.randrange(6):
        case 0:
            return {key: value for key, value in scalars.items() if key != name}
        case 1:
            return {**scalars, r.choice(("strange", "__class__", "")): 1}
        case _:
            odd = (*VALUES, b"\xff", [1.5], [b"a"], -(2**63), -math.inf)
            return {**scalars, name: r.choice(odd)}


def broken_array(r: Random, array: Any) -> Any:
    data, kind, shape = array.data, array.stype, array.shape
    match r.randrange(5):
        case 0:
            kind = r.choice(("", "pickle", "numpy.ndarray.v2"))
        case 1:
            shape = r.choice(((), (-1,), (10**9, 10**9), (0,)))
        case 2:
            data = damaged(r, data)
        case 3:
            data = damaged(r, data[:128], TEXT) + data[128:]
        case _:
            odd = (np.array([None]), np.zeros(6, complex), np.full((2, 3), np.nan), np.array("a"))
            return Array.from_numpy_ndarray(r.choice(odd[1:]))
    return Array(array.dtype, shape, kind, data)
