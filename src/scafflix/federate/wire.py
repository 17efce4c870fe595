"""Messages as Flower's records, and back."""

from __future__ import annotations

from typing import Any

from flwr.app import RecordDict

from scafflix.federate.messages import Reply, Request
from scafflix.federate.parcels import packed, unpacked
from scafflix_flower.records import parcel_of, record_of


def pack(message: Request | Reply) -> RecordDict:
    """Convert a message to Flower's records."""
    return record_of(packed(message))


def unpack(record: RecordDict) -> Any:
    """Convert Flower's records to a message; anything else is refused in one sentence."""
    return unpacked(parcel_of(record))
