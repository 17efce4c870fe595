"""Clients shared out over the devices of a machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from numpy.typing import NDArray

from scafflix.core.devices import devices

CLIENTS = "clients"  # the axis over which devices share clients
ALIGNMENT = 64  # bytes
SMALL = 2**12  # parameters of a model whose clients go side by side
CACHED = 2**16  # parameters of the clients that do


def all_devices() -> Mesh:
    """Every device, in a row."""
    return Mesh(np.array(devices()), (CLIENTS,))


def one_device() -> Mesh:
    """The first device, where sharing out would cost more than it saves; of several processes,
    all devices, because each has a part in every round."""
    return all_devices() if jax.process_count() > 1 else Mesh(np.array(devices()[:1]), (CLIENTS,))


def replicate(mesh: Mesh, tree: Any, *, copy: bool = True) -> Any:
    """The same tree on every device; those that are cores of one machine read it in one place.

    Without `copy`, arrays that begin in the right place are taken as they are, and must not change.
    What is there already stays.
    """
    everywhere = NamedSharding(mesh, P())
    here = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]

    def put(leaf: Any) -> Any:
        if isinstance(leaf, Array) and leaf.sharding == everywhere:
            return leaf
        leaf = np.asarray(leaf)
        if copy or not leaf.flags.c_contiguous or leaf.ctypes.data % ALIGNMENT:
            room = aligned(leaf.shape, leaf.dtype)
            room[...] = leaf
            leaf = room
        copies = [jax.device_put(leaf, device, may_alias=True) for device in here]
        return jax.make_array_from_single_device_arrays(leaf.shape, everywhere, copies)

    return jax.tree.map(put, tree)


def spread(mesh: Mesh, tree: Any) -> Any:
    """A tree whose leaves have clients in front, each device with its share of them."""
    sharding = NamedSharding(mesh, P(CLIENTS))

    def put(leaf: Any) -> Any:
        return jax.make_array_from_callback(leaf.shape, sharding, lambda share: leaf[share])

    return jax.tree.map(put, tree)


def gather(tree: Any) -> Any:
    """What the devices share, whole, as NumPy's arrays."""
    if jax.process_count() > 1:
        tree = process_allgather(tree, tiled=True)
    return jax.tree.map(np.asarray, tree)


def pieces(array: Array | NDArray[Any]) -> Iterator[tuple[slice, NDArray[Any]]]:
    """What the devices share, piece by piece, each with its place; not copied within a process."""
    if isinstance(array, np.ndarray):
        yield slice(None), array
        return
    if jax.process_count() > 1:
        yield slice(None), gather(array)
        return
    for shard in array.addressable_shards:
        yield shard.index[0], np.asarray(shard.data)


def aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array, not filled, that begins where cores can take it as theirs without a copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size].view(dtype).reshape(shape)


def side_by_side(size: int) -> int | None:
    """Clients that a device takes at once through a model with so many parameters: as many as the
    cache has room for, or one after another (None) through a network, whose products are best
    alone."""
    return CACHED // size if size <= SMALL else None


def for_each(
    mesh: Mesh,
    function: Callable[[Any, Any], Any],
    common: Any,
    each: Any,
    together: int | None = None,
) -> Any:
    """function(common, one) for every one of `each`: a device takes its share one by one, or so
    many together."""

    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P(), P(CLIENTS)),
        out_specs=P(CLIENTS),
        check_vma=False,
    )
    def on_device(common: Any, each: Any) -> Any:
        return jax.lax.map(partial(function, common), each, batch_size=together)

    return on_device(common, each)
