"""How seconds and memory grow: tiny logistic clients, one size varied at a time.

Every point is a new process with Scafflix on a made-up task; the others of its sizes stay at those
of `BASE`.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from peers.task import Recipe, write_task
from workers import interleave
from workloads import many, operations, state_bytes

BASE = {"clients": 10_000, "cohort": 100, "dimension": 100, "steps": 5}
SIZES = {
    "clients": (100, 1000, 10_000, 100_000, 300_000, 1_000_000),
    "cohort": (10, 30, 100, 300, 1000),
    "dimension": (10, 30, 100, 300, 1000),
    "steps": (1, 2, 5, 10, 20, 50),
}
QUICK = {"clients": (100, 1000, 10_000), "cohort": (10, 100)}
ROUNDS = 20


def point(sizes: dict[str, int], repeat: int, scratch: Path) -> dict[str, Any]:
    """Seconds a round and bytes in memory, with what they ought to be in proportion to."""
    folder = scratch / "tasks" / "growth"
    task = many(**sizes)
    write_task(folder, task)
    ran = interleave(folder, {"scafflix": ROUNDS}, repeat, scratch / "logs")["scafflix"]["runs"]
    shutil.rmtree(folder)
    return {
        **sizes,
        "recipe": asdict(task.recipe),
        "seconds": min(one["seconds"] for one in ran),
        "resident": max(one["resident"] for one in ran),
        "state": 2 * state_bytes(task.recipe, task.inputs.shape[1:]) * task.clients,
        "data": task.inputs.nbytes + task.labels.nbytes,
    }


def least_seconds(point: dict[str, Any], limits: dict[str, Any]) -> float:
    """A round at the limits of the machine: states and batches through the memory, products."""
    recipe = Recipe(**point["recipe"])
    shape = (point["dimension"],)
    batches = recipe.steps * recipe.batch * (point["dimension"] + 1)
    moved = 3 * state_bytes(recipe, shape) + batches  # x_i*, h_i in, h_i out
    products = recipe.steps * operations(recipe, shape)
    return recipe.cohort * (
        moved / limits["bandwidth_gigabytes"] / 1e9 + products / limits["gigaflops"] / 1e9
    )


def line(x: Any, y: Any) -> dict[str, float]:
    """The least-squares line, and the farthest point from it as a share of the mean."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    slope, start = np.polyfit(x, y, 1)
    if abs(slope) * np.ptp(x) < 1e-9 * np.abs(y).mean():
        slope = 0.0  # rounding
    off = float(np.abs(y - start - slope * x).max() / y.mean())
    return {"slope": float(slope), "start": float(start), "off": off}


def measure(repeat: int, quick: bool, scratch: Path) -> dict[str, Any]:
    """For each size: the points, and lines through the seconds and the bytes."""
    found = {}
    for name, values in (QUICK if quick else SIZES).items():
        points = [point({**BASE, name: value}, repeat, scratch) for value in values]
        x = [one[name] for one in points]
        found[name] = {
            "points": points,
            "seconds": line(x, [one["seconds"] for one in points]),
            "resident": line(x, [one["resident"] for one in points]),
        }
    return found
