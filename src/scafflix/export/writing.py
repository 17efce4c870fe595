"""One file of one model, in the format that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scafflix.core import durable
from scafflix.core.arguments import choice
from scafflix.core.errors import ScafflixError
from scafflix.export.coefficients import table_content
from scafflix.export.content import OWN, family
from scafflix.export.made_up import made_up_rows
from scafflix.export.onnx_file import onnx_answers, onnx_content
from scafflix.export.safetensors_file import safetensors_content
from scafflix.export.sklearn_json import sklearn_answers, sklearn_content
from scafflix.export.torch_program import torch_answers, torch_content
from scafflix.models import MODELS

if TYPE_CHECKING:
    from scafflix.prediction import Predictor


class Format(NamedTuple):
    """How a file is made, what it says of rows if it can be asked, and for which models it is."""

    content: Callable[[Predictor], bytes]
    answers: Callable[[bytes, Predictor, Any], Any] | None = None
    models: tuple[str, ...] | None = None  # None: all, also those of users


FORMATS = {
    "onnx": Format(onnx_content, onnx_answers, (*MODELS, "dense", "cnn", "lstm", OWN)),
    "sklearn-json": Format(sklearn_content, sklearn_answers, (*MODELS, "dense")),
    "safetensors": Format(safetensors_content),
    "torch": Format(torch_content, torch_answers, (*MODELS, "dense", "cnn", "lstm", OWN)),
    "table": Format(table_content, models=tuple(MODELS)),
}
TOLERANCE, OF_NETWORKS = 1e-8, 1e-4  # these compute in float32


def write(
    predictor: Predictor, path: Path, format: str, *, check: Any = None, force: bool = False
) -> float | None:
    """Write the file whole or not at all. With rows to check, the largest difference between what
    the file and what the model says of them; refused if it is no rounding.

    ONNX, where onnxruntime is installed, and programs of your own modules are always checked, on
    made-up rows if there are no others.
    """
    made = FORMATS[choice("format", format, tuple(FORMATS))]
    durable.check_new(path, force=force)
    _check_use(predictor, format, made, check)
    content = made.content(predictor)
    if check is None and _can_be_tried(predictor, format):
        difference(predictor, made, content, made_up_rows(predictor))
    found = None if check is None else difference(predictor, made, content, check)
    durable.put(path, [content])
    return found


def _can_be_tried(predictor: Predictor, format: str) -> bool:
    if format == "torch":
        return predictor.own is not None
    return format == "onnx" and find_spec("onnxruntime") is not None


def _check_use(predictor: Predictor, format: str, made: Format, check: Any) -> None:
    model = family(predictor)
    if made.models is not None and model not in made.models:
        able = [name for name, one in FORMATS.items() if not one.models or model in one.models]
        shown = f"The {model} {predictor.model}" if model == OWN else f"The model {model}"
        raise ScafflixError(f"{shown} cannot be written as {format}; choose {' or '.join(able)}.")
    if check is not None and made.answers is None:
        able = [name for name, one in FORMATS.items() if one.answers is not None]
        raise ScafflixError(
            f"A file of the format {format} gives no answers to check; those of "
            f"{', '.join(able)} do."
        )


def difference(predictor: Predictor, made: Format, content: bytes, rows: Any) -> float:
    """The largest between what a file and the model say of rows, refused if it is no rounding."""
    assert made.answers is not None
    ours = predictor(rows)
    expected = ours.values if ours.probabilities is None else ours.probabilities
    found = float(np.abs(made.answers(content, predictor, rows) - expected).max(initial=0))
    exact = predictor.model in MODELS and predictor.own is None
    allowed = TOLERANCE if exact else OF_NETWORKS
    if not found <= allowed * (1 + np.abs(expected).max(initial=0)):
        raise ScafflixError(
            f"The file's answers differ from the model's by up to {found:.2g}, more than rounding, "
            "so that it was not written; export another format, and report this."
        )
    return found
