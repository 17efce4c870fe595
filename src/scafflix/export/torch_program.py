"""A model as a program of `torch.export`, in a .pt2 file without pickle.

It takes features as `Preprocessing.names` has them, in the columns' own units: a number for each
column of numbers, 0 or 1 for each value of a text. Scaling is inside.
"""

from __future__ import annotations

import io
import json
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.core.extras import library
from scafflix.data.tabular import columns_for
from scafflix.export.content import facts, family, feature_names
from scafflix.models.pytorch import explained

if TYPE_CHECKING:
    from scafflix.prediction import Predictor

FACTS = "scafflix.json"  # beside the program, in the same file


def torch_content(predictor: Predictor) -> bytes:
    """The bytes of the file."""
    torch = library("torch", "torch")
    from scafflix.export.torch_modules import answering

    module, example = answering(predictor)
    rows = ({0: torch.export.Dim("rows")},)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch about its own layers
            program = torch.export.export(module.eval(), (example,), dynamic_shapes=rows)
    except Exception as error:
        if predictor.own is None:
            raise
        raise cannot_follow(predictor, "torch", error) from error
    program.example_inputs = None  # they would be kept as a pickle
    words = {**facts(predictor), "features": list(_names(predictor))}
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={FACTS: json.dumps(words, allow_nan=False)})
    return file.getvalue()


def cannot_follow(predictor: Predictor, format: str, error: Exception) -> ScafflixError:
    """Why torch.export has no program for a user's module."""
    assert predictor.own is not None
    network = predictor.own.network
    what = f"{network.name} cannot be written as {format}, because torch.export cannot follow it"
    advice = " Export safetensors, or write forward without branches on values or numbers of rows."
    return explained(error, network.make, what, advice)


def torch_answers(content: bytes, predictor: Predictor, given: Any) -> NDArray[Any]:
    """The probabilities, or the numbers, that the program finds for rows as `predictor` takes
    them."""
    torch = library("torch", "torch")
    made = predictor.preprocessing
    table = made is not None and made.columns
    rows = made.encode(columns_for(made, given)) if made and table else np.asarray(given)
    if predictor.own is not None and made is None:
        rows = rows.astype(np.float32)
    found = torch.export.load(io.BytesIO(content)).module()(torch.from_numpy(rows))
    return np.asarray(found.detach().numpy())


def _names(predictor: Predictor) -> tuple[str, ...]:
    made = predictor.preprocessing
    if predictor.own is not None:
        return made.names if made is not None else ()
    return () if family(predictor) in ("cnn", "lstm") else feature_names(predictor)
