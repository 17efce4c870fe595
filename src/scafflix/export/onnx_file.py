"""A model as ONNX, with its preprocessing inside, and what onnxruntime says of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.extras import library
from scafflix.data.tabular import columns_for
from scafflix.export.content import OWN, facts, family, feature_names, layers, named_weights
from scafflix.export.onnx_columns import features_of, scaled
from scafflix.export.onnx_graph import Graph
from scafflix.models.cnn import SIDE

if TYPE_CHECKING:
    from scafflix.prediction import Predictor

LABEL, PROBABILITIES, VALUE = "label", "probabilities", "value"  # outputs
GATES_OF = ("inputs", "states", "bias")  # the arrays of a layer of the LSTM
WORDS = "A model of scafflix: from columns to answers. Every input says what it takes."


def onnx_content(predictor: Predictor) -> bytes:
    """The bytes of the file: an input for every column, or one for rows of numbers or images."""
    made = predictor.preprocessing
    table = made is not None and made.columns
    single = {"cnn": "images", "lstm": "codes", OWN: "examples"}.get(family(predictor), "features")
    inputs = [column.name for column in made.columns] if made and table else [single]
    graph = Graph(inputs, (LABEL, PROBABILITIES) if predictor.classes else (VALUE,))
    if predictor.own is not None:
        outputs = _own(graph, predictor)
    elif family(predictor) == "cnn":
        outputs = _convolutions(graph, named_weights(predictor))
    elif family(predictor) == "lstm":
        outputs = _recurrent(graph, named_weights(predictor))
    else:
        outputs = _layers(graph, predictor, _inputs(graph, predictor))
    _answers(graph, predictor, outputs)
    return graph.content(WORDS, {"scafflix": json.dumps(facts(predictor), allow_nan=False)})


def onnx_answers(content: bytes, predictor: Predictor, given: Any) -> NDArray[Any]:
    """The probabilities, or the numbers, that onnxruntime finds for rows as `predictor` takes
    them."""
    runtime = library("onnxruntime", "onnx")
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    made = predictor.preprocessing
    if made is not None and made.columns:
        found = columns_for(made, given)
        arrays = []
        for column in made.columns:
            one = found[column.name]
            text = column.kind in ("text", "code")
            arrays.append(np.where(one.missing, "" if text else np.nan, one.values)[:, None])
    else:
        arrays = [np.asarray(given)]
        if predictor.own is not None and made is None:
            arrays = [arrays[0].astype(np.float32)]
    feed = dict(zip([one.name for one in session.get_inputs()], arrays, strict=True))
    said: NDArray[Any] = np.asarray(session.run(None, feed)[-1])
    alone = predictor.own is not None and said.ndim == 2 and said.shape[1] == 1
    return said[:, 0] if alone else said


def _inputs(graph: Graph, predictor: Predictor) -> str:
    """The features as the model sees them, without the constant."""
    made = predictor.preprocessing
    if made is not None and made.columns:
        return features_of(graph, made)
    shape: list[str | int] = ["rows", len(feature_names(predictor))]
    given = graph.input("f", shape, "the features as the run was given them")
    return given if made is None else scaled(graph, given, made)


def _layers(graph: Graph, predictor: Predictor, values: str) -> str:
    """The linear predictor, or the logits of a dense network in its own float32."""
    made = predictor.preprocessing
    found = layers(named_weights(predictor), made is not None and made.intercept)
    if found[0][0].dtype == np.float32:
        values = graph.cast(values, "FLOAT")
    for number, (matrix, bias) in enumerate(found):
        values = graph.add("Relu", values) if number else values
        values = graph.add("Add", graph.add("MatMul", values, matrix), bias)
    return values


def _convolutions(graph: Graph, weights: dict[str, NDArray[Any]]) -> str:
    """The logits of the convolutional network."""
    images = graph.input("u", ["rows", SIDE, SIDE], "images of 28 x 28 pixels, white = 255")
    grey = graph.add("Div", graph.cast(images, "FLOAT"), np.float32(255))
    values = graph.add("Unsqueeze", graph.add("Sub", np.float32(1), grey), np.array([1]))
    for name in ("conv1", "conv2"):
        kernel = weights[f"{name}/weight"].transpose(0, 3, 1, 2)  # channels before pixels
        values = graph.add("Relu", graph.add("Conv", values, kernel, weights[f"{name}/bias"]))
    values = graph.add("MaxPool", values, kernel_shape=[2, 2], strides=[2, 2])
    values = graph.add("Flatten", graph.add("Transpose", values, perm=[0, 2, 3, 1]), axis=1)
    for name in ("hidden", "output"):
        product = graph.add("MatMul", values, weights[f"{name}/weight"])
        values = graph.add("Add", product, weights[f"{name}/bias"])
        values = graph.add("Relu", values) if name == "hidden" else values
    return values


def _recurrent(graph: Graph, weights: dict[str, NDArray[Any]]) -> str:
    """The logits of the LSTM at every place."""
    codes = graph.input("u", ["rows", "length"], "codes of characters")
    places = graph.add("Transpose", graph.cast(codes, "INT64"), perm=[1, 0])
    values = graph.add("Gather", weights["embedding"], places)  # [length, rows, ...]
    for number in range(sum(name.endswith("/states") for name in weights)):
        inputs, states, bias = (weights[f"layers/{number}/{k}"] for k in GATES_OF)
        units = len(states)
        # ONNX has the output gate second, we have it last
        turned = [
            np.concatenate([np.split(array, 4, axis=-1)[k] for k in (0, 3, 1, 2)], axis=-1)
            for array in (inputs, states, bias)
        ]
        both = np.concatenate([turned[2], np.zeros_like(bias)])
        given = (turned[0].T[None], turned[1].T[None], both[None])
        values = graph.add("LSTM", values, *given, hidden_size=units)  # [length, 1, rows, units]
        values = graph.add("Squeeze", values, np.array([1]))
    values = graph.add("MatMul", values, weights["output/weight"])
    logits = graph.add("Add", values, weights["output/bias"])
    return graph.add("Transpose", logits, perm=[1, 0, 2])


def _own(graph: Graph, predictor: Predictor) -> str:
    """What a user's own module makes of scaled features, or of examples as they are."""
    from scafflix.export.onnx_module import module_in_onnx  # with PyTorch

    assert predictor.own is not None
    made, shape = predictor.preprocessing, list(predictor.own.about["inputs"]["shape"])
    if made is None:
        values = graph.input("e", ["rows", *shape], "examples as the module takes them")
    elif made.columns:
        values = features_of(graph, made)
    else:
        given = graph.input("f", ["rows", len(made.shift)], "features as the run was given them")
        values = scaled(graph, given, made)
    if made is not None and made.intercept:
        one = graph.add("Gather", values, np.array([0]), axis=1)
        values = graph.add(
            "Concat", values, graph.add("Add", graph.add("Mul", one, 0.0), 1.0), axis=1
        )
    outputs = graph.include(module_in_onnx(predictor), graph.cast(values, "FLOAT"))
    if not predictor.classes:
        return outputs
    ends = np.array([len(predictor.classes)])
    return graph.add("Slice", outputs, np.array([0]), ends, np.array([1]))


def _answers(graph: Graph, predictor: Predictor, outputs: str) -> None:
    """From outputs `[rows, ...]` to what a user asks for."""
    if family(predictor) == "lstm":
        logits = graph.cast(outputs, "DOUBLE")
        graph.output(
            logits, "f", ["rows", "length", "codes"], "logits of the character that follows"
        )
        return
    if predictor.own is not None and not predictor.classes:
        graph.output(graph.cast(outputs, "DOUBLE"), "f", None, "what the module returns")
        return
    if not predictor.classes:
        value = graph.add("Squeeze", outputs, np.array([1]))
        graph.output(value, "f", ["rows"], "the number that the model says")
        return
    outputs = graph.cast(outputs, "DOUBLE")
    if predictor.model == "logistic":
        against = graph.add("Sigmoid", graph.add("Neg", outputs))
        probabilities = graph.add("Concat", against, graph.add("Sigmoid", outputs), axis=1)
    else:
        probabilities = graph.add("Softmax", outputs, axis=1)
    best = graph.add("ArgMax", probabilities, axis=1, keepdims=0)
    names = predictor.named(np.arange(len(predictor.classes)))
    graph.output(
        graph.add("Gather", names, best), names.dtype.kind, ["rows"], "the likeliest class"
    )
    words = f"of the classes {', '.join(predictor.classes)}, in this order"
    shape: list[str | int] = ["rows", len(predictor.classes)]
    graph.output(probabilities, "f", shape, words)
