"""Two real federations from their files: four hospitals, and 29 mine fields."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from scipy.io import loadmat

from scafflix.core.errors import ScafflixError
from scafflix.data import Federation, from_arrays, from_clients
from scafflix.data.arrays import Part

AMOUNTS, KINDS = (0, 1, 3, 4, 5, 7, 8, 9), {2: (1, 2, 3, 4), 6: (0, 1, 2)}  # columns of a patient
ILL = 13


def heart(division: int, test: float, validation: float = 0.0) -> Federation:
    """Patients of four hospitals; a missing value becomes the median of its hospital."""
    features, labels, hospitals = [], [], []
    for path in sorted(_folder("heart").glob("*processed.*.data")):
        lines = csv.reader(path.read_text().splitlines())
        rows = [row for row in lines if row and _is_number(row[0])]
        typical = [
            median([float(v) for v in c if _known(v)] or [0.0]) for c in zip(*rows, strict=True)
        ]
        for row in rows:
            values = [float(v) if _known(v) else t for v, t in zip(row, typical, strict=True)]
            kinds = [float(values[k] == kind) for k, many in KINDS.items() for kind in many]
            features.append([values[k] for k in AMOUNTS] + kinds)
            labels.append(int(values[ILL] > 0))
            hospitals.append(path.name.split(".")[-2])
    if not features:
        raise ScafflixError(_absent("heart", "the four files processed.*.data"))
    return from_arrays(
        features, labels, hospitals, test=test, validation=validation, seed=division,
        name="heart", scale="standard", intercept=True,
    )  # fmt: skip


def landmine(division: int, rows: int, validation: float = 0.0) -> Federation:
    """Mine fields with so many rows each to train on, all others to test."""
    path = _folder("landmine") / "LandmineData.mat"
    if not path.exists():
        raise ScafflixError(_absent("landmine", "LandmineData.mat"))
    found = loadmat(path)
    features = list(found["feature"][0])
    labels = [column.ravel().astype(int) for column in found["label"][0]]
    orders = [
        np.random.default_rng((division, k)).permutation(len(b)) for k, b in enumerate(labels)
    ]
    seen = np.concatenate([A[order[:rows]] for A, order in zip(features, orders, strict=True)])
    middle, spread = seen.mean(axis=0), seen.std(axis=0)
    held_out = round(validation * rows)
    parts: dict[str, dict[object, Part]] = {part: {} for part in ("train", "test", "validation")}
    for k, (A, b, order) in enumerate(zip(features, labels, orders, strict=True)):
        scaled = np.hstack([(A - middle) / spread, np.ones((len(A), 1))])
        cuts = {"validation": order[:held_out], "train": order[held_out:rows], "test": order[rows:]}
        for part, chosen in cuts.items():
            parts[part][f"field-{k + 1}"] = scaled[chosen], b[chosen]
    made = from_clients(parts["train"], held_out=parts["test"], name="landmine")
    if not held_out:
        return made
    return replace(made, validation=from_clients(parts["validation"]).train)


def _folder(name: str) -> Path:
    return Path(os.environ.get("SCAFFLIX_DATA", ".")) / name


def _absent(name: str, files: str) -> str:
    return (
        f"There is no {name} data: put {files} into a folder {name}, and name the folder that it "
        "is in by the environment variable SCAFFLIX_DATA."
    )


def _known(text: str) -> bool:
    return text not in ("?", "-9", "-9.0")


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()
