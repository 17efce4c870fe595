"""Keys that two clients agree on, masks made from keys, and notes for one receiver alone.

X25519, HKDF with SHA-256, AES-256 in counter mode for masks and AES-256-GCM for notes, from the
library `cryptography`. (Flower's own masks come from NumPy's generator with a seed of 32 bits,
which anybody can find by trying; and its fixed point clips numbers silently.)
"""

from __future__ import annotations

import json
import secrets
from typing import NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from scafflix.core.errors import ScafflixError
from scafflix.federate.secure.fixed import Words, add, subtract

KEY, NONCE = 32, 12  # bytes


class Occasion(NamedTuple):
    """What an attempt is for: no key of one is a key of another."""

    run: str
    epoch: int
    round: int
    attempt: str  # random, drawn by the server

    def bytes_of(self, *words: str) -> bytes:
        """The occasion and these words, so that no two lists give the same bytes."""
        return json.dumps(["scafflix", *self, *words]).encode()


def new_secret() -> bytes:
    """A private key, or what a client makes its own mask from."""
    return secrets.token_bytes(KEY)


def public_of(private: bytes) -> bytes:
    """The public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed_key(private: bytes, public: bytes, purpose: bytes) -> bytes:
    """What two clients find alike, each from its private and the other's public key."""
    try:
        ours = X25519PrivateKey.from_private_bytes(private)
        shared = ours.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise ScafflixError("A public key of another client is none.") from None
    return _derived(shared, purpose)


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), KEY, salt=None, info=purpose).derive(secret)


def mask_from(key: bytes, shape: tuple[int, int]) -> Words:
    """Words that nobody without the key can tell from random ones."""
    stream = Cipher(AES(key), CTR(bytes(16))).encryptor()
    data = stream.update(bytes(8 * shape[0] * shape[1]))
    return np.frombuffer(data, "<u8").astype(np.uint64, copy=False).reshape(shape)


def own_mask(seed: bytes, occasion: Occasion, name: str, shape: tuple[int, int]) -> Words:
    """The mask of one client alone."""
    return mask_from(_derived(seed, occasion.bytes_of("own mask", name)), shape)


def add_pair_mask(
    total: Words, occasion: Occasion, name: str, private: bytes, other: str, public: bytes
) -> None:
    """Add the mask of two clients to what the first sends: the second subtracts the same."""
    first, last = sorted([name, other])
    key = agreed_key(private, public, occasion.bytes_of("pair mask", first, last))
    mask = mask_from(key, (total.shape[0], total.shape[1]))
    (add if name == first else subtract)(total, mask)


def sealed(note: bytes, key: bytes, about: bytes) -> bytes:
    """A note that only who has the key can read, and only as one about this."""
    nonce = secrets.token_bytes(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, note, about)


def opened(note: bytes, key: bytes, about: bytes) -> bytes:
    """What was sealed."""
    try:
        return AESGCM(key).decrypt(note[:NONCE], note[NONCE:], about)
    except (InvalidTag, ValueError):
        raise ScafflixError(
            "A note was not sealed by the client that it is said to come from."
        ) from None
