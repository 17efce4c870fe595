"""What a process may take of the machine: every core, and memory that is kept between rounds."""

from __future__ import annotations

import ctypes
import os
import sys

from scafflix.core.errors import ScafflixError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
BLOCK = 2**28  # bytes
TOTAL = 2**29


def use_all_cores() -> None:
    """Let networks train on every core, and keep freed memory for the next round.

    JAX gets one device for each core, over which the clients of a round are shared out. It fixes
    its devices when it first computes, so call this before. If you have chosen a number of
    devices yourself (`JAX_NUM_CPU_DEVICES`, `XLA_FLAGS`), it stands. The `scafflix` command calls
    this for you; `import scafflix` does not.
    """
    import jax

    keep_blocks()
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if chosen or jax.config.values["jax_num_cpu_devices"] > 0:
        return
    cores = os.cpu_count() or 1
    try:
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError:
        found = jax.local_device_count("cpu")
        if found < cores:
            raise ScafflixError(
                f"JAX has already started, with {found} of {cores} cores; call use_all_cores "
                "before anything computes."
            ) from None


def keep_blocks() -> None:
    """Keep freed blocks up to a size, up to a total, for the next round.

    By default glibc returns every block above 32 MB to the system, and the next round fills new
    pages: a tenth of the time of a network's round, half of an evaluation's.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # else it is another C library
        mallopt(M_MMAP_THRESHOLD, BLOCK)
        mallopt(M_TRIM_THRESHOLD, TOTAL)
