"""Messages as parcels, and back: as they travel between a node and its worker, and inside Flower's
records."""

from __future__ import annotations

from io import BytesIO
from typing import Any, NoReturn, get_type_hints

import numpy as np
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
    TableSummary,
    Train,
    Upload,
)
from scafflix.federate.secure.messages import (
    Keys,
    Mask,
    Masked,
    Share,
    Shares,
    Unmask,
    Unmasked,
)
from scafflix_flower.parcel import Parcel

KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        Hello,
        TableSummary,
        Introduction,
        Train,
        Upload,
        Keys,
        Share,
        Shares,
        Mask,
        Masked,
        Unmask,
        Unmasked,
        Evaluate,
        Curve,
        Evaluation,
        Refusal,
    )
}
TYPE = "type"


def packed(message: Request | Reply) -> Parcel:
    """Convert a message to a parcel."""
    scalars: dict[str, Any] = {TYPE: type(message).__name__}
    arrays: dict[str, Any] = {}
    for name, value in zip(message._fields, message, strict=True):
        if not isinstance(value, tuple):
            scalars[name] = value
        elif value:
            arrays[name] = [_bytes(array) for array in value]
    return Parcel(scalars, arrays)


def unpacked(parcel: Parcel) -> Any:
    """Convert a parcel to a message; anything else is refused in one sentence.

    `messages.fault_of` checks types and values.
    """
    if parcel.scalars is None:
        _refuse("it contains no scalars")
    scalars = dict(parcel.scalars)
    name = scalars.pop(TYPE, None)
    kind = KINDS.get(str(name))
    if kind is None:
        _refuse(f"its type is {name!r}, not one of {', '.join(KINDS)}")
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for field, hint in hints.items():
        if hint == Arrays:
            values[field] = _arrays(field, parcel)
        elif field in scalars:
            values[field] = scalars.pop(field)
        else:
            _refuse(f"{field} is missing")
    strange = [*scalars, *(key for key in parcel.arrays if key not in hints)]
    if strange:
        _refuse(f"it contains {strange[0]!r}, which is not a field of {kind.__name__}")
    return kind(**values)


def _bytes(array: NDArray[Any]) -> memoryview:
    """An array as an .npy file."""
    file = BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getbuffer()


def _arrays(field: str, parcel: Parcel) -> Arrays:
    found = parcel.arrays.get(field, ())
    if found is None:
        _refuse(f"{field} is not a list of arrays")
    try:
        return tuple(read_array(BytesIO(data), len(data)) for data in found)
    except Exception:  # malformed bytes can raise anything
        _refuse(f"{field} contains an array that cannot be read")


def _refuse(why: str) -> NoReturn:
    raise ScafflixError(f"A message cannot be read: {why}.")
