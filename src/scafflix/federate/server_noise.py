"""Noise that the server of a federation adds to the mean of a round's clipped messages.

It comes from a secret of the server's own, that is on its disk before the first round: the seed
of a run is known to every client, who could subtract what is drawn from it. The numbers of a round
follow from the secret, the epoch and the round, so that a server that is started again goes on as
if it had not stopped; and a round that is done again after going back, in a new epoch, has others.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scafflix.algorithm import unit_of
from scafflix.core import durable
from scafflix.core.durable import Arrays, Hook
from scafflix.federate.draws import normals_of
from scafflix.federate.files import Moment
from scafflix.federate.privacy import Terms
from scafflix.methods.disclosure import what_travels
from scafflix.methods.method import Method

SECRET_BYTES = 32


class ServerNoise:
    """The server's own source of noise, kept in its folder."""

    def __init__(self, folder: Path, terms: Terms, hook: Hook = durable.quiet) -> None:
        self.deviation = terms.clip * terms.noise  # in a sum
        path = folder / f"noise{durable.SUFFIX}"
        found = durable.read(path)
        if found is None:
            found = {"secret": secrets.token_hex(SECRET_BYTES)}, ()
            durable.write(path, *found, hook)
        self._secret = bytes.fromhex(found[0]["secret"])

    def normals(self, at: Moment, shapes: Sequence[tuple[int, ...]]) -> list[NDArray[np.float64]]:
        """Normal numbers for the open round, in these shapes."""
        place = f"{at.epoch} {at.round}".encode()
        sizes = [int(np.prod(shape)) for shape in shapes]
        # an extendable hash of a secret is a stream that nobody else can draw again
        bits = hashlib.shake_256(self._secret + place).digest(8 * sum(sizes))
        row = normals_of(bits)
        parts = np.split(row, np.cumsum(sizes)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def added(self, at: Moment, average: Arrays, weights: Sequence[float]) -> Arrays:
        """The average of messages of these weights, as noisy as `methods/private.py` says."""
        deviation = self.deviation * unit_of(np.asarray(weights))
        drawn = self.normals(at, [leaf.shape for leaf in average])
        made = zip(average, drawn, strict=True)
        return tuple((leaf + deviation * random).astype(leaf.dtype) for leaf, random in made)


def server_noise(
    folder: Path, terms: Terms | None, method: Method, names: Sequence[str], hook: Hook
) -> ServerNoise | None:
    """The server's noise, if it is to add any; refuse a method that this would break."""
    if terms is None or not terms.at_server:
        return None
    what_travels(method, names, terms.noise_at)
    return ServerNoise(folder, terms, hook)
