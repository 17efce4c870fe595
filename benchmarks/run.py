"""Measure everything, on one machine and in one go: `make bench`.

    python benchmarks/run.py [--quick] [--only cnn,lstm] [--repeat 5] [--docs]

Each part writes its JSON file when it is done; tables (bench.md), one JSON file (bench.json) and a
chart (bench.png) are made of all parts in the folder.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import chart
import convex
import growth
import machine
import scafflix as sx
import store
import tables
from peers.task import read_task, write_task
from workers import ENVIRONMENTS, interleave
from workloads import WORKLOADS, operations, state_bytes

PARTS = ("machine", "convex", *WORKLOADS, "growth", "store")
DOCS = Path(__file__).parents[1] / "docs"
PICTURE = "![Milliseconds a client-step of every peer; growth with each size](images/bench.png)"
MARKS = ("<!-- measured: begin -->", "<!-- measured: end -->")


def workload(name: str, repeat: int, quick: bool, scratch: Path) -> dict[str, Any]:
    """One task through all its peers."""
    made = WORKLOADS[name]
    folder = scratch / "tasks" / name
    task = made.make(**made.quick_sizes) if quick else made.make()
    if quick:
        task = replace(task, recipe=replace(task.recipe, **made.quick_recipe))
    write_task(folder, task)
    del task
    rounds = {peer: 1 if quick else made.rounds.get(peer, 1) for peer in made.peers}
    found = interleave(folder, rounds, repeat, scratch / "logs")
    task = read_task(folder)
    recipe = task.recipe
    state = state_bytes(recipe, task.inputs.shape[1:])
    example = task.inputs[0].nbytes + task.labels[0].nbytes
    result = {
        "title": made.title,
        "date": date.today().isoformat(),
        "recipe": asdict(recipe),
        "clients": task.clients,
        "operations": operations(recipe, task.inputs.shape[1:]),
        # x_i* and h_i are read and h_i is written; every batch is read
        "client_bytes": 3 * state + recipe.steps * recipe.batch * example,
        "state_bytes": 2 * state * task.clients,
        "data_bytes": example * len(task.inputs),
        "peers": found,
    }
    shutil.rmtree(folder)
    return result


def with_limits(found: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    """Growth beside what the machine would need at its limits."""
    for name, grown in found.items():
        points = grown["points"]
        x = [point[name] for point in points]
        least = [growth.least_seconds(point, limits) for point in points]
        held = [point["state"] + point["data"] for point in points]
        grown["limit_slope"] = growth.line(x, least)["slope"]
        grown["bytes_slope"] = growth.line(x, held)["slope"]
    return found


def measure(part: str, repeat: int, quick: bool, scratch: Path) -> Any:
    if part == "machine":
        return machine.describe(2 if quick else 10)
    if part == "convex":
        return {"title": "Figure 1", **convex.measure(repeat, quick)}
    if part == "growth":
        return growth.measure(min(repeat, 2), quick, scratch)
    if part == "store":
        return store.measure(quick, scratch)
    return workload(part, repeat, quick, scratch)


def publish(out: Path, text: str) -> None:
    """Put tables and chart where the documentation has them."""
    shutil.copy(out / "bench.png", DOCS / "images" / "bench.png")
    shutil.copy(out / "bench.json", DOCS / "results" / "bench.json")
    page = DOCS / "benchmarks.md"
    begin, end = MARKS
    measured = re.compile(f"{begin}.*?{end}", re.DOTALL)
    block = f"{begin}\n\n{PICTURE}\n\n{text}\n{end}"
    page.write_text(measured.sub(lambda _: block, page.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try it")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path, default=ENVIRONMENTS / "results")
    parser.add_argument("--docs", action="store_true", help="also write docs/benchmarks.md")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    chosen = asked.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    for part in PARTS:
        if part in chosen or (part == "machine" and not (asked.out / "machine.json").exists()):
            print(f"measuring {part}", flush=True)
            found = measure(part, 1 if asked.quick else asked.repeat, asked.quick, asked.out)
            (asked.out / f"{part}.json").write_text(json.dumps(found, indent=1) + "\n")
    results = {
        part: json.loads(file.read_text())
        for part in PARTS
        if (file := asked.out / f"{part}.json").exists()
    }
    if "growth" in results:
        with_limits(results["growth"], results["machine"])
    (asked.out / "bench.json").write_text(json.dumps(results, indent=1) + "\n")
    text = tables.page(results)
    (asked.out / "bench.md").write_text(text)
    chart.draw(results, asked.out / "bench.png")
    print(text)
    if asked.docs:
        publish(asked.out, text)


if __name__ == "__main__":
    sx.use_all_cores()
    main()
