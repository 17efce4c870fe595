"""Figures on convex problems: comparisons of methods on several data sets, with certificates."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from scafflix.core.checkpoint import NOWHERE, Checkpoints
from scafflix.core.folders import file_name
from scafflix.core.progress import Progress, Standing
from scafflix.record import Record
from scafflix.runs.config import CompareConfig, build
from scafflix.runs.runner import compare, figure_settings, runs_of


def comparisons(name: str, changes: Mapping[str, Any] | None = None) -> list[CompareConfig]:
    """One for each data set and each group of methods, which share rounds and cohort; `changes`
    to the configuration hold for all of them."""
    changes, settings = changes or {}, figure_settings(name)
    panels, groups = settings.pop("panels"), settings.pop("groups", [{}])
    unequal = settings.pop("unequal", None)

    def config(data: str, group: dict[str, Any]) -> CompareConfig:
        asked: CompareConfig = build(CompareConfig, {**settings, **group, "data": data, **changes})
        if unequal is None or "alphas" in changes:
            return asked
        low, high = unequal
        drawn = np.random.default_rng(0).uniform(low, high, asked.clients).round(3)
        return replace(asked, alphas=(*asked.alphas, drawn.tolist()))

    return [config(data, group) for data in panels for group in groups]


def run(
    configs: Sequence[CompareConfig],
    reports: Sequence[Progress],
    checkpoints: Checkpoints = NOWHERE,
) -> list[Record]:
    """Two data sets at a time: compiling hardly uses a second core."""
    for config in configs:
        runs_of(config)  # refuse what cannot work before the first run
    stopped = threading.Event()
    numbered = list(zip(itertools.count(), configs, reports, strict=False))
    panels = [
        [one for one in numbered if one[1].data == data]
        for data in dict.fromkeys(config.data for config in configs)
    ]

    def panel(comparisons: list[tuple[int, CompareConfig, Progress]]) -> list[Record]:
        return list(itertools.chain(*(one(*comparison) for comparison in comparisons)))

    def one(number: int, config: CompareConfig, report: Progress) -> list[Record]:
        def report_or_stop(done: int, total: int, state: Standing | str) -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            report(done, total, state)

        place = checkpoints.within(f"{number}-{file_name(config.data)}")
        return compare(config, report_or_stop, place, scores=False)

    with ThreadPoolExecutor(max_workers=2) as pool:
        try:
            return list(itertools.chain(*pool.map(panel, panels)))
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
