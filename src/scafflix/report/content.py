"""What the page shows, in numbers: all that the browser needs, and few enough for any record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.record import COUNTS, Columns, Record
from scafflix.report.command import command
from scafflix.report.curves import Family, Floats, alpha_label
from scafflix.report.recommendation import recommendation
from scafflix.report.tables import KINDS, scored_part

MOST_POINTS, ALL_POINTS = 400, 24_000  # of a curve, of all curves
ALL_CELLS = 600_000  # numbers of clients
MOST_CURVES = 300  # clients whose curves over alpha are kept
DIGITS = 5  # of a number that is drawn
NOT_DRAWN = {*COUNTS, "bits_up", "bits_down", "replies", "refused", "lyapunov", "lyapunov_bound"}
LABELS = {
    "objective_gap": "objective gap",
    "grad_norm_sq": "squared gradient norm",
    "objective": "objective",
    "train_loss": "training loss of the cohort",
    "loss": "{part} loss of the personalized models",
    "personal": "{part} {metric} of the personalized models, over examples",
    "personal_clients": "{part} {metric} of the personalized models, over clients",
    "personal_p10": "{part} {metric} of the personalized models, 10th percentile of clients",
    "global": "{part} {metric} of the global model",
}


def content(found: Sequence[Family], target: float | None) -> dict[str, Any]:
    """The problems, and a line for each family of runs."""
    points = max(40, min(MOST_POINTS, ALL_POINTS // len(found)))
    names = list(dict.fromkeys(family.data for family in found))
    problems, lines, cells = [], [], 0
    for number, name in enumerate(names):
        mine = [family for family in found if family.data == name]
        problem = _problem(mine, target)
        made = [_line(family, problem, number, points) for family in mine]
        shared, own = _split([family.records[0].clients for family in mine])
        cells += sum(map(len, shared.values()))
        for line, columns, family in zip(made, own, mine, strict=True):
            curves = _first_curves(family.records[0])
            cells += sum(map(len, columns.values())) + sum(one.size for one in curves.values())
            fits = cells <= ALL_CELLS
            line["clients"] = _columns(columns) if fits else None
            line["curves"] = _columns(curves) if fits and curves else None
        problems.append({**problem, "clients": _columns(shared), "best": mine.index(best(mine))})
        lines += made
    return {"problems": problems, "lines": lines}


def main_metric(family: Family) -> str:
    """What a run is judged by: the gap, else what the clients' models score, else the objective."""
    names = ("objective_gap", "test_personal", "validation_personal", "objective")
    found = [name for name in names if name in family.records[0].metrics]
    if not found:
        raise ScafflixError(
            "A record of newcomers has no rounds to report; its clients.jsonl has what they got."
        )
    return found[0]


def best(mine: Sequence[Family]) -> Family:
    """The line whose personalized models score best on average; of equals, Scafflix."""

    def key(family: Family) -> tuple[float, bool]:
        score = _scores(family.records[0], scored_part(family.records[0])).get("personal")
        sign = 1 if family.records[0].summary.get("metric") == "accuracy" else -1
        return sign * score["mean"] if score else -math.inf, family.method.startswith("scafflix")

    return max(mine, key=key)


def _problem(mine: Sequence[Family], target: float | None) -> dict[str, Any]:
    record = mine[0].records[0]
    metric = record.summary.get("metric", "score")
    judged, part = main_metric(mine[0]), scored_part(record)
    drawn = [name for name in record.metrics if name not in NOT_DRAWN]
    drawn.sort(key=lambda name: name != judged)
    rising = judged.endswith("_personal") and metric == "accuracy"
    levels = _levels(mine, judged, rising, target)
    labels = {name: metric_label(name, metric) for name in drawn}
    if "objective_gap" in labels and any(family.own_models for family in mine):
        labels["objective_gap"] += " of the global model"
    reached = [
        sum(family.rounds_to(level, judged, rising) is not None for family in mine)
        for level in levels
    ]
    # the hardest level that half of the lines reach, unless one was asked for
    usual = max((k for k, many in enumerate(reached) if 2 * many >= len(mine)), default=0)
    asked = target is not None and not rising and target in levels
    return {
        "name": mine[0].data,
        "short": Path(mine[0].data).name,
        "n": record.summary["n_clients"],
        "dim": record.summary["dim"],
        "metric": metric,
        "part": part,
        "judged": judged,
        "rising": rising,
        "metrics": labels,
        "levels": [float(f"{level:.6g}") for level in levels],
        "level": levels.index(target) if asked and target is not None else usual,
    }


def metric_label(name: str, metric: str) -> str:
    """In words.

    >>> metric_label("test_global", "accuracy")
    'test accuracy of the global model'
    """
    if name in LABELS:
        return LABELS[name]
    part, _, rest = name.partition("_")
    return LABELS.get(rest, name.replace("_", " ")).format(part=part, metric=metric)


def _levels(mine: Sequence[Family], judged: str, rising: bool, target: float | None) -> list[float]:
    """Targets to choose from, from easy to hard: decades of what falls, steps of what rises."""
    values = np.concatenate([family.band(judged)[0] for family in mine])
    values = values[np.isfinite(values)]
    if rising:
        low, high = values.min(), values.max()
        step = next(
            one for one in (0.05, 0.02, 0.01, 0.005, 0.001) if high - low > 6 * one or one == 0.001
        )
        first, last = math.floor(low / step) + 1, math.floor(high / step)
        return [round(k * step, 4) for k in range(first, last + 1)]
    if judged != "objective_gap":
        return []
    first, last = math.floor(math.log10(values.max())), math.ceil(math.log10(values.min()))
    levels = {10.0**k for k in range(max(last, -14), first + 1)}
    return sorted(levels | ({target} if target else set()), reverse=True)


def _line(family: Family, problem: Mapping[str, Any], number: int, points: int) -> dict[str, Any]:
    record = family.records[0]
    summary = record.summary
    judged = family.band(problem["judged"])[0]
    kept = thin(judged, points)
    drawn = [n for n in (*problem["metrics"], "lyapunov", "lyapunov_bound") if n in record.metrics]
    if summary.get("certificate") is None:
        drawn = [name for name in drawn if name != "lyapunov_bound"]
    steps = family.metric("iterations").mean(axis=0)
    seconds = summary["seconds"] * steps / max(steps[-1], 1)
    columns = {
        "rounds": family.rounds,
        "megabytes": family.traffic,
        "steps": steps,
        "seconds": seconds,
    }
    rounds = [
        family.rounds_to(level, problem["judged"], problem["rising"]) for level in problem["levels"]
    ]
    return {
        "problem": number,
        "method": family.method,
        "alpha": alpha_label(family.alpha),
        "at": family.alpha if isinstance(family.alpha, int | float) else None,
        "seeds": [one.config.get("seed", 0) for one in family.records],
        "diverged": [_diverged(one) for one in family.records if _diverged(one)],
        "x": {name: _compact(values[kept]) for name, values in columns.items()},
        "y": {name: _band(family, name, kept) for name in drawn},
        "to": {
            "rounds": rounds,
            "megabytes": [None if k is None else _short(family.megabytes(k)) for k in rounds],
        },
        "ran": int(family.rounds[-1]),
        "scores": _scores(record, problem["part"]),
        "chosen": _plain(summary.get("alpha")),
        "alone": _plain(summary.get("taking_part")),
        "words": list(recommendation(record)),
        "calibration": _plain(summary.get("calibration")),
        "facts": _facts(record),
        "config": {name: value for name, value in record.config.items() if name != "seed"},
        "versions": summary["versions"],
        "command": command(record.config),
    }


def thin(values: Floats, most: int) -> NDArray[np.int64]:
    """Where to draw a curve: the ends, and of about `most`/2 stretches the least and the largest.

    Stretches are short at the start, where curves are steep and a logarithmic axis looks closely.

    >>> thin(np.array([3.0, np.nan, 1.0]), 10).tolist()
    [0, 2]
    """
    (known,) = np.nonzero(np.isfinite(values))
    if len(known) <= most:
        return known
    many = most // 4
    edges = {*np.linspace(1, len(known) - 1, many).astype(int).tolist()}
    edges |= {*np.geomspace(1, len(known) - 1, many).astype(int).tolist()}
    chosen = {0, len(known) - 1}
    for begin, end in pairwise(sorted(edges)):
        stretch = values[known[begin:end]]
        chosen |= {begin + int(stretch.argmin()), begin + int(stretch.argmax())}
    return known[sorted(chosen)]


def _band(family: Family, name: str, kept: NDArray[np.int64]) -> list[list[Any]]:
    """The mean; with several seeds also the least and the largest."""
    band = family.band(name) if len(family.records) > 1 else family.band(name)[:1]
    return [_compact(values[kept]) for values in band]


def _scores(record: Record, part: str | None) -> dict[str, dict[str, float]]:
    """Over clients: what a model of each kind scores on average, and in the unlucky tenth."""
    tenth = 10 if record.summary.get("metric") == "accuracy" else 90
    found = {}
    for kind in KINDS:
        values = np.asarray(record.clients.get(f"{part}_{kind}", []), float)
        values = values[np.isfinite(values)]
        if len(values) and (kind != "global" or record.summary["n_active"]):
            found[kind] = {
                "mean": round(float(values.mean()), 8),
                "tenth": round(float(np.percentile(values, tenth)), 8),
            }
    return found


def _first_curves(record: Record) -> Columns:
    """What the first clients expected at every alpha, beyond the loss of their own model."""
    if "own" not in record.curves:  # nobody chose, or clients of a federation, who keep them
        return {}
    first = {name: column[:MOST_CURVES] for name, column in record.curves.items()}
    own = first["own"] - first["own"][:, :1]
    made = {"alpha": record.curves["alpha"], "own": own, "expected": first["expected"]}
    if "error" in first:
        sure = np.isfinite(first["error"]) & np.isfinite(own)
        made["error"] = np.where(sure, first["error"], np.nan)
    return made


def _plain(found: Any) -> Any:
    """An entry of the summary with numbers as they are drawn."""
    if isinstance(found, Mapping):
        return {name: _plain(value) for name, value in found.items()}
    if isinstance(found, list):
        return [_plain(value) for value in found]
    return _short(found) if isinstance(found, float) else found


def _facts(record: Record) -> dict[str, Any]:
    """The entries of the summary that are a number or a word, and are not shown elsewhere."""
    facts = {}
    for name, value in record.summary.items():
        single = value.item() if isinstance(value, np.generic) else value
        if name not in ("method", "seed") and not isinstance(single, dict | list | tuple):
            facts[name] = _short(single) if isinstance(single, float) else single
    return facts


def _diverged(record: Record) -> int | None:
    found = record.summary.get("diverged")
    return None if found is None else int(found["round"])


def _split(tables: Sequence[Columns]) -> tuple[Columns, list[Columns]]:
    """Columns that are the same in all tables, and those that are not."""
    first = tables[0]
    same = {
        name
        for name in first
        if all(name in table and _alike(first[name], table[name]) for table in tables[1:])
    }
    shared = {name: first[name] for name in first if name in same}
    return shared, [{n: v for n, v in table.items() if n not in same} for table in tables]


def _alike(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == other.dtype.kind == "f")


def _columns(table: Columns) -> dict[str, list[Any]]:
    """Without parts of the data that nobody has."""
    return {
        name: _compact(values)
        for name, values in table.items()
        if not name.endswith("_examples") or values.any()
    }


def _compact(values: NDArray[Any]) -> list[Any]:
    if values.ndim > 1:
        return [_compact(row) for row in values]
    if values.dtype.kind == "f":
        return [_short(value) for value in values.tolist()]
    listed: list[Any] = values.tolist()
    return listed


def _short(value: float) -> float | int | None:
    """A few digits; what is not a number is null."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
