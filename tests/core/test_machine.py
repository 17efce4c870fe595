"""Large blocks come from memory that is kept, not from the system each time."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest

from scafflix.core import machine

BLOCK = 2**26


class Mallinfo2(ctypes.Structure):
    """What glibc says of its memory."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def mapped() -> int:
    """Bytes of blocks that were asked of the system one by one."""
    if sys.platform != "linux" or not hasattr(library := ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("the C library is not glibc 2.33 or later")
    library.mallinfo2.restype = Mallinfo2
    return int(library.mallinfo2().hblkhd)


def test_a_block_of_a_round_is_not_asked_of_the_system() -> None:
    machine.keep_blocks()
    before = mapped()
    block = np.empty(BLOCK, np.uint8)
    assert mapped() - before < BLOCK
    del block


def test_a_block_larger_than_a_rounds_is_given_back() -> None:
    machine.keep_blocks()
    before = mapped()
    block = np.empty(2 * machine.BLOCK, np.uint8)
    assert mapped() - before >= 2 * machine.BLOCK
    del block
    assert mapped() <= before
