"""The messages of secure aggregation, besides Train, in the order in which they are sent.

`told` is JSON: for each client, by name, a list of texts, such as hexadecimal digits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scafflix.core.durable import Arrays
from scafflix.core.errors import ScafflixError

Told = dict[str, list[str]]


class Keys(NamedTuple):
    """Client to server: it has trained, and takes part in the secure aggregation of the round."""

    run: str
    epoch: int
    client: str
    round: int
    attempt: str
    committed: int
    weight: float
    receipt: str  # random: its name for its message, of which the server sees nothing else
    mask: str  # public key for the masks of pairs, as hexadecimal digits
    seal: str  # public key for shares that are sealed for this client
    certificate: str = ""  # of the node, signed by the federation's authority; or empty
    signature: str = ""  # by the node's key, of all fields that peers rely on


class Share(NamedTuple):
    """Server to client: share your secrets among these clients."""

    run: str
    epoch: int
    round: int
    attempt: str
    threshold: int  # t: so many shares give a secret
    unit: float  # what weights are counted in: a power of 2, at least the largest weight
    told: str  # of each client: mask, seal, certificate, signature; as JSON


class Shares(NamedTuple):
    """Client to server: shares of its secrets, sealed for each of the others."""

    run: str
    epoch: int
    client: str
    round: int
    attempt: str
    mark: str  # digest of what its own mask is made from
    told: str  # for each client: the sealed shares, and digests of both; as JSON


class Mask(NamedTuple):
    """Server to client: here are the others' shares for you; send your masked message."""

    run: str
    epoch: int
    round: int
    attempt: str
    told: str  # of each client: what it sealed for this one; as JSON


class Masked(NamedTuple):
    """Client to server: its message in fixed point, plus masks."""

    run: str
    epoch: int
    client: str
    round: int
    attempt: str
    words: Arrays


class Unmask(NamedTuple):
    """Server to client: reveal a share of each client's own mask, or of its key."""

    run: str
    epoch: int
    round: int
    attempt: str
    told: str  # of each client: seed, if its message is in the sum, or key; as JSON


class Unmasked(NamedTuple):
    """Client to server: the shares that it was asked for."""

    run: str
    epoch: int
    client: str
    round: int
    attempt: str
    told: str  # of each client: the share; as JSON


Hidden = Keys | Shares | Masked | Unmasked  # what clients answer


def text_of(told: Mapping[str, Sequence[str]]) -> str:
    """As it travels."""
    return json.dumps({name: list(words) for name, words in sorted(told.items())})


def told_in(text: str, words: int) -> Told:
    """What `text_of` wrote, with so many words for each client."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(one, list) and len(one) == words and all(isinstance(word, str) for word in one)
        for one in found.values()
    ):
        raise ScafflixError(f"it must tell {words} words of each client, as JSON.")
    return found


def bytes_in(digits: str, length: int | None = None) -> bytes:
    """Bytes from hexadecimal digits."""
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        found = b""
    if not found or len(found) != (length or len(found)):
        raise ScafflixError("it has something else where hexadecimal digits must be.")
    return found
