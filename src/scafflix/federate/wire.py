"""Messages as Flower's records, and back.

A message becomes one ConfigRecord `message`, with its scalars under their names and its `type`, and
one ArrayRecord for each non-empty list of arrays, under the name of the field.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, NoReturn, get_type_hints

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from scafflix.core.durable import Arrays
from scafflix.core.errors import ScafflixError
from scafflix.data.archive import read_array
from scafflix.federate.messages import (
    Curve,
    Evaluate,
    Evaluation,
    Hello,
    Introduction,
    Refusal,
    Reply,
    Request,
    Train,
    Upload,
)

KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Hello, Introduction, Train, Upload, Evaluate, Curve, Evaluation, Refusal)
}
SCALARS, TYPE = "message", "type"


def pack(message: Request | Reply) -> RecordDict:
    """Convert a message to Flower's records."""
    records: dict[str, Any] = {}
    scalars: dict[str, Any] = {TYPE: type(message).__name__}
    for name, value in zip(message._fields, message, strict=True):
        if isinstance(value, tuple):
            if value:
                arrays = {f"{k:06d}": Array.from_numpy_ndarray(a) for k, a in enumerate(value)}
                records[name] = ArrayRecord(arrays)
        else:
            scalars[name] = value
    return RecordDict({SCALARS: ConfigRecord(scalars), **records})


def unpack(record: RecordDict) -> Any:
    """Convert Flower's records to a message; anything else is refused in one sentence.

    `messages.fault_of` checks types and values.
    """
    found = record.get(SCALARS)
    if not isinstance(found, ConfigRecord):
        _refuse("it contains no scalars")
    scalars = dict(found)
    name = scalars.pop(TYPE, None)
    kind = KINDS.get(str(name))
    if kind is None:
        _refuse(f"its type is {name!r}, not one of {', '.join(KINDS)}")
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for field, hint in hints.items():
        if hint == Arrays:
            values[field] = _arrays(field, record.get(field))
        elif field in scalars:
            values[field] = scalars.pop(field)
        else:
            _refuse(f"{field} is missing")
    strange = [*scalars, *(key for key in record if key != SCALARS and key not in hints)]
    if strange:
        _refuse(f"it contains {strange[0]!r}, which is not a field of {kind.__name__}")
    return kind(**values)


def _arrays(field: str, found: Any) -> Arrays:
    if found is None:
        return ()
    if not isinstance(found, ArrayRecord):
        _refuse(f"{field} is not a list of arrays")
    try:
        return tuple(_array(found[key]) for key in sorted(found))
    except Exception:  # malformed bytes can raise anything
        _refuse(f"{field} contains an array that cannot be read")


def _array(found: Array) -> NDArray[Any]:
    """Like Flower's own `numpy`, but without allocating the memory that a header claims."""
    if found.stype != "numpy.ndarray":
        raise ValueError(found.stype)
    return read_array(BytesIO(found.data), len(found.data))


def _refuse(why: str) -> NoReturn:
    raise ScafflixError(f"A message cannot be read: {why}.")
