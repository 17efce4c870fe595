"""Data sets as Hugging Face's `datasets` saves them, written with Arrow alone."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

CLASSES = 3


def encoded(pixels: Any, format: str = "PNG") -> bytes:
    content = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(content, format)
    return content.getvalue()


def letters(rows: int, seed: int = 0, side: int = 28, writers: int = 4) -> pa.Table:
    """Images in which a bright bar tells the class, by some writers."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, rows)
    pixels = random.integers(200, 255, (rows, side, side))
    for image, label in zip(pixels, labels, strict=True):
        image[label * side // CLASSES :][: side // CLASSES] -= 180
    features = {
        "image": {"_type": "Image"},
        "label": {"names": list("abc"), "_type": "ClassLabel"},
        "writer": {"dtype": "string", "_type": "Value"},
    }
    table = pa.table(
        {
            "image": [{"bytes": encoded(image), "path": None} for image in pixels],
            "label": labels,
            "writer": [f"writer-{row % writers}" for row in range(rows)],
        }
    )
    noted = json.dumps({"info": {"features": features}})
    return table.replace_schema_metadata({"huggingface": noted})


def save(table: pa.Table, folder: Path, files: int = 1) -> Path:
    """One data set, as `save_to_disk` writes it."""
    folder.mkdir(parents=True)
    names = []
    for number, rows in enumerate(np.array_split(np.arange(table.num_rows), files)):
        names.append(f"data-{number:05d}-of-{files:05d}.arrow")
        with pa.ipc.new_stream(folder / names[-1], table.schema) as writer:
            writer.write_table(table.take(pa.array(rows)))
    state = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": "0",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def save_splits(folder: Path, **splits: pa.Table) -> Path:
    """Several splits, as `DatasetDict.save_to_disk` writes them."""
    for name, table in splits.items():
        save(table, folder / name)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    return folder
