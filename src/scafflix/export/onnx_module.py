"""A user's own PyTorch module as an ONNX model, by PyTorch's own exporter."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

import torch

from scafflix.core.extras import library
from scafflix.export.onnx_graph import OPSET
from scafflix.export.torch_modules import own_module
from scafflix.export.torch_program import cannot_follow

if TYPE_CHECKING:
    from scafflix.prediction import Predictor


def module_in_onnx(predictor: Predictor) -> Any:
    """From examples in float32 to what the module returns."""
    library("onnxscript", "onnx")
    assert predictor.own is not None
    shape = predictor.own.about["inputs"]["shape"]
    noise = logging.getLogger("torch.onnx")
    level = noise.level
    noise.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch about itself
            program = torch.onnx.export(
                own_module(predictor),
                (torch.zeros(2, *shape),),
                dynamic_shapes=({0: torch.export.Dim("rows")},),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
    except Exception as error:
        raise cannot_follow(predictor, "onnx", error) from error
    finally:
        noise.setLevel(level)
    assert program is not None
    return program.model_proto
