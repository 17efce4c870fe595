"""Clients shared out over the devices of a machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

CLIENTS = "clients"  # the axis over which devices share clients


def all_devices() -> Mesh:
    """Every device, in a row."""
    return Mesh(np.array(jax.devices()), (CLIENTS,))


def replicate(mesh: Mesh, tree: Any) -> Any:
    """The same tree on every device."""
    return jax.device_put(tree, NamedSharding(mesh, P()))


def spread(mesh: Mesh, tree: Any) -> Any:
    """A tree whose leaves have clients in front, each device with its share of them."""
    return jax.device_put(tree, NamedSharding(mesh, P(CLIENTS)))


def for_each(mesh: Mesh, function: Callable[[Any, Any], Any], common: Any, each: Any) -> Any:
    """function(common, one) for every one of `each`: a device takes its share one by one."""

    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P(), P(CLIENTS)),
        out_specs=P(CLIENTS),
        check_vma=False,
    )
    def on_device(common: Any, each: Any) -> Any:
        return jax.lax.map(partial(function, common), each)

    return on_device(common, each)
