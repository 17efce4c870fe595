"""Compression of a message of 1.2 million numbers, beside a local step of the CNN and on the wire.

python benchmarks/messages.py

On one core. A local step and a compression are compiled programs, as in a simulation; they take
turns, and the best of each counts. Encoding and decoding, at the two ends of a federation, are
NumPy. Bytes are those of an upload as protobuf, as Flower sends it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from flwr.common.serde import recorddict_to_proto

import scafflix as sx
from scafflix import algorithm
from scafflix.core.durable import Arrays
from scafflix.core.vector import Vector
from scafflix.federate.messages import Upload
from scafflix.federate.wire import pack
from scafflix.methods.compressors import Identity, compressor_of
from scafflix.methods.method import Compressor, Turn
from scafflix.methods.tamuna import Mask
from scafflix.problems.rows import objective

REPEAT, BATCH, COHORT, TARGET = 100, 20, 10, 0.05
COMPRESSORS: dict[str, Compressor] = {
    "none": Identity(),
    "mask of `tamuna:s=2`": Mask(2),
    "`rand_k:0.1`": compressor_of("rand_k:0.1"),
    "`natural`": compressor_of("natural"),
    "`dithering:8`": compressor_of("dithering:8"),
}


def seconds(work: Callable[[], Any]) -> float:
    """Of the second time, which does not depend on what was computed before."""
    jax.block_until_ready(work())
    began = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - began


def best(works: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The least seconds of each, taking turns."""
    times = [{name: seconds(work) for name, work in works.items()} for _ in range(REPEAT)]
    return {name: min(one[name] for one in times) for name in works}


def local_step(network: Any, x: Any, images: Any, labels: Any) -> Any:
    """x - gamma g, of one batch."""
    g, _ = jax.grad(partial(objective, network, 0.0), has_aux=True)(x, images, labels)
    return jax.tree.map(lambda mine, other: mine - 0.01 * other, x, g)


def sent_bytes(arrays: Arrays) -> int:
    upload = Upload("run", 0, "client-0", 1, 0, 1.0, 0.0, arrays)
    return int(recorddict_to_proto(pack(upload)).ByteSize())


def main() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before JAX counts cores
    network, draw = sx.models.cnn(), np.random.default_rng(0)
    x = network.init(jax.random.key(0))
    images = draw.integers(0, 256, (BATCH, 28, 28)).astype(np.uint8)
    labels = draw.integers(0, 62, BATCH)
    turn = algorithm.turn_of(0, 1, 3, COHORT)
    message = Vector(tuple(map(np.asarray, jax.tree.leaves(x))))
    train = jax.jit(partial(local_step, network))
    works: dict[str, Callable[[], Any]] = {"step": lambda: train(x, images, labels)}

    def applied(one: Compressor) -> Callable[[], Any]:
        made = jax.jit(lambda key, message: one.apply(Turn(key, 3, COHORT), message))
        return lambda: made(turn.key, Vector(x))

    works |= {name: applied(one) for name, one in COMPRESSORS.items()}
    packed = {name: one.encode(turn, message) for name, one in COMPRESSORS.items()}
    for name, one in COMPRESSORS.items():
        works[f"{name} in"] = partial(one.encode, turn, message)
        works[f"{name} out"] = partial(one.decode, turn, packed[name], message)
    found = best(works)
    step = found["step"]
    print(f"A local step, batch {BATCH}: {1e3 * step:.1f} ms.\n")
    print("| compressor | ms in a round | of a step | ms to encode, decode | bytes |")
    print("|---|---:|---:|---:|---:|")
    for name in COMPRESSORS:
        share = found[name] / step
        far = "" if share <= TARGET else " (above the target)"
        ends = f"{1e3 * found[f'{name} in']:.0f}, {1e3 * found[f'{name} out']:.0f}"
        row = (name, f"{1e3 * found[name]:.2f}", f"{share:.1%}{far}", ends)
        print("| " + " | ".join((*row, f"{sent_bytes(packed[name]):,}")) + " |")


if __name__ == "__main__":
    main()
