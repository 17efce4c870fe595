"""Parcels as Flower's records, and back.

A message is one ConfigRecord `message` with its scalars, and one ArrayRecord for each non-empty
list of arrays, under the name of the list.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.lib import format as npy

from scafflix_flower.parcel import Arrays, Parcel

SCALARS = "message"
NUMPY = "numpy.ndarray"
HEADER = 1000  # bytes in which the type and shape of an array of ours are


def record_of(parcel: Parcel) -> RecordDict:
    """A parcel of ours as Flower's records."""
    records: dict[str, Any] = {SCALARS: ConfigRecord(dict(parcel.scalars or {}))}
    for name, arrays in parcel.arrays.items():
        if arrays:
            named = {f"{k:06d}": _array(bytes(array)) for k, array in enumerate(arrays)}
            records[name] = ArrayRecord(named)
    return RecordDict(records)


def _array(data: bytes) -> Array:
    start = BytesIO(data[:HEADER])
    npy.read_magic(start)
    shape, _, dtype = npy.read_array_header_1_0(start)
    return Array(dtype=str(dtype), shape=shape, stype=NUMPY, data=data)


def parcel_of(record: RecordDict, settings: str = "") -> Parcel:
    """Flower's records as a parcel, whatever they hold."""
    found = record.get(SCALARS)
    scalars = _plain(dict(found)) if isinstance(found, ConfigRecord) else None
    arrays = {name: _data_of(value) for name, value in record.items() if name != SCALARS}
    return Parcel(scalars, arrays, settings)


def _data_of(value: Any) -> Arrays | None:
    if not isinstance(value, ArrayRecord):
        return None
    arrays = [value[key] for key in sorted(value)]
    return None if any(one.stype != NUMPY for one in arrays) else [one.data for one in arrays]


def _plain(value: Any) -> Any:
    """What JSON can hold; bytes, which no message of ours has, become what none accepts."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return {"bytes": value.hex()} if isinstance(value, bytes) else value
