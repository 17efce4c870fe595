"""Which method is predicted to be the quickest, over networks of every latency and bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap

from scafflix.core.specs import read
from scafflix.report.figures import Picture
from scafflix.runs.costs import Costs
from scafflix.runs.forecast import Prediction

LATENCIES = np.logspace(-4, 2, 200)  # seconds
RATES = np.logspace(3, 9, 200)  # bits a second, up


def winners(tried: Sequence[Prediction], costs: Costs) -> Picture:
    """The plane of latency and bandwidth up, with the others of the costs as they are; the
    bandwidth down keeps its proportion."""
    latency, up = np.meshgrid(LATENCIES, RATES)
    plane = Costs(latency, up, up * (costs.down / costs.up), costs.gradient)
    least: dict[str, Any] = {}  # seconds of each method with its best options
    for one in tried:
        if one.seconds is not None:
            found = plane.seconds(one.iterations, one.rounds, *one.bits)
            name = read(one.method).name
            least[name] = np.minimum(found, least.get(name, np.inf))
    quickest = np.argmin(list(least.values()), axis=0)
    present = [place for place in range(len(least)) if (quickest == place).any()]
    made = Picture(figsize=(7, 4.5), layout="constrained")
    axes = made.subplots()
    colours = [f"C{place}" for place in range(len(present))]
    shown = np.searchsorted(present, quickest)
    axes.pcolormesh(
        LATENCIES,
        RATES,
        shown,
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(present) - 0.5,
        rasterized=True,
    )
    for place, number in enumerate(present):
        axes.plot([], [], "s", color=colours[place], label=[*least][number])
    axes.plot(costs.latency, costs.up, "*", color="white", markeredgecolor="black", markersize=14)
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel("latency of a round (s)")
    axes.set_ylabel("bandwidth up (bits/s)")
    axes.set_title("The method that is predicted to be the quickest")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return made
