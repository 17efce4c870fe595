"""Small whole numbers as bytes, without an unused bit between them.

A number of 8 q + r bits is q whole bytes, and r bits that share r bytes with those of its seven
neighbours: 64-bit words with r bits in each byte are squeezed, in three steps that halve the gaps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
LANES = (8, 16, 32)  # bits, of which two become one in each step


def packed_bytes(count: int, width: int) -> int:
    """As many as these numbers take.

    >>> packed_bytes(10, 9)
    12
    """
    return -(-count * width // 8)


def packed(numbers: NDArray[Any], width: int) -> Bytes:
    """Numbers below 2^width, of at most 32 bits.

    >>> packed(np.array([1, 2, 3]), 4).tolist()
    [33, 3]
    """
    whole, rest = divmod(width, 8)
    high = (numbers >> rest).astype("<u4").view(np.uint8).reshape(-1, 4)[:, :whole]
    spread = np.zeros(-(-len(numbers) // 8) * 8, np.uint8)
    spread[: len(numbers)] = numbers & (2**rest - 1)
    words = _squeezed(spread.view("<u8"), rest)
    low = words.view(np.uint8).reshape(-1, 8)[:, :rest].ravel()
    return np.concatenate([high.ravel(), low[: packed_bytes(len(numbers), rest)]])


def unpacked(content: Bytes, width: int, count: int) -> NDArray[np.uint32]:
    """The numbers from which this was packed.

    >>> unpacked(packed(np.array([1, 2, 300]), 9), 9, 3).tolist()
    [1, 2, 300]
    """
    whole, rest = divmod(width, 8)
    high = np.zeros((count, 4), np.uint8)
    high[:, :whole] = content[: whole * count].reshape(count, whole)
    groups = -(-count // 8)
    low = np.zeros(groups * rest, np.uint8)
    low[: packed_bytes(count, rest)] = content[whole * count :]
    words = np.zeros((groups, 8), np.uint8)
    words[:, :rest] = low.reshape(groups, rest)
    spread = _spread(words.ravel().view("<u8"), rest).view(np.uint8)[:count]
    return (high.view("<u4").ravel() << np.uint32(rest)) | spread


def _squeezed(words: Words, bits: int) -> Words:
    """From `bits` bits in each byte to 8 `bits` bits in a row."""
    for lane in LANES:
        low = _every(2 * lane, lane)
        gap = np.uint64(lane - bits * lane // 8)
        words = (words & low) | ((words & ~low) >> gap)
    return words


def _spread(words: Words, bits: int) -> Words:
    """The words that were squeezed."""
    for lane in reversed(LANES):
        used = bits * lane // 8
        low = words & _every(2 * lane, used)
        words = low | ((words << np.uint64(lane - used)) & ~_every(2 * lane, lane))
    return words


def _every(period: int, ones: int) -> np.uint64:
    """The lowest bits of every period of a word.

    >>> hex(_every(16, 8))
    '0xff00ff00ff00ff'
    """
    return np.uint64(sum((2**ones - 1) << first for first in range(0, 64, period)))
