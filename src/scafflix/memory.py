"""What the C library does with the memory that a round gives back."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
BLOCK = 2**28  # bytes
TOTAL = 2**29


def keep_blocks() -> None:
    """Keep freed blocks up to a size, up to a total, for the next round.

    By default glibc returns every block above 32 MB to the system, and the next round fills new
    pages: a tenth of the time of a network's round, half of an evaluation's.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # else it is another C library
        mallopt(M_MMAP_THRESHOLD, BLOCK)
        mallopt(M_TRIM_THRESHOLD, TOTAL)
