"""The devices that JAX computes on."""

from __future__ import annotations

import os
from functools import cache

import jax

from scafflix.core.errors import ScafflixError, reason_of


@cache
def devices() -> list[jax.Device]:
    """Every device; asking for the first time starts JAX, on what JAX_PLATFORMS says."""
    try:
        return jax.devices()
    except (RuntimeError, AssertionError) as error:  # the latter where a plugin is absent
        raise ScafflixError(
            f"JAX finds no device for the platform {os.environ.get('JAX_PLATFORMS', '')!r} "
            f"({reason_of(error)}); unset JAX_PLATFORMS, or set it to cpu."
        ) from None
