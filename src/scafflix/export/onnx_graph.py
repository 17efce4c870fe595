"""An ONNX graph while it is built: every value has a name of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.extras import library

OPSET, IR = 19, 9  # the first that compare texts; onnxruntime has them since 1.16

TYPES = {
    "e": "FLOAT",
    "f": "DOUBLE",
    "U": "STRING",
    "O": "STRING",
    "b": "BOOL",
    "i": "INT64",
    "u": "UINT8",
}


class Graph:
    """Inputs, constants, nodes and outputs; a value is known by its name."""

    def __init__(self, inputs: Iterable[str], outputs: Iterable[str]) -> None:
        self._onnx = library("onnx", "onnx")
        self._taken: set[str] = {""}  # an empty name is none
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        # first what users see, then whatever is between
        self._free_inputs = [self._name(name or f"column {k + 1}") for k, name in enumerate(inputs)]
        self._free_outputs = [self._name(name) for name in outputs]

    def input(self, kind: str, shape: list[str | int], words: str) -> str:
        """The next input: the letter of a NumPy type, and what to put there."""
        name = self._free_inputs[len(self.inputs)]
        self.inputs.append(self._info(name, kind, shape, words))
        return name

    def constant(self, value: Any) -> str:
        """A value that is always the same."""
        array = np.asarray(value)
        array = array.astype(object) if array.dtype.kind == "U" else array
        name = self._name("constant")
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *given: Any, title: str = "", **attributes: Any) -> str:
        """The result of an operator; what is given are names of values, or arrays."""
        names = [one if isinstance(one, str) else self.constant(one) for one in given]
        made = self._name(operator)
        node = self._onnx.helper.make_node(operator, names, [made], title or made, **attributes)
        self._nodes.append(node)
        return made

    def cast(self, value: str, kind: str) -> str:
        """The value as `DOUBLE`, `FLOAT` or `INT64`."""
        return self.add("Cast", value, to=getattr(self._onnx.TensorProto, kind))

    def include(self, model: Any, value: str) -> str:
        """The only output of another model, whose only input is this value."""
        inner = self._onnx.compose.add_prefix(model, "module ").graph
        self._taken |= {name for node in inner.node for name in (*node.output, node.name)}
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [inner.input[0].name]))
        self._nodes.extend(inner.node)
        self._constants.extend(inner.initializer)
        return str(inner.output[0].name)

    def output(self, value: str, kind: str, shape: list[str | int] | None, words: str) -> None:
        """Let a value be the next output."""
        name = self._free_outputs[len(self.outputs)]
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name], name=name))
        self.outputs.append(self._info(name, kind, shape, words))

    def refuse(self, value: str, where: str, title: str) -> str:
        """The value; an error that holds the title if `where` is true of a row.

        ONNX knows no errors but its own: the second number of one is asked for.
        """
        zeros = self.add("Gather", np.zeros(1), self.cast(where, "INT64"), title=title)
        return self.add("Add", value, zeros)

    def content(self, words: str, facts: dict[str, str]) -> bytes:
        """The file, checked by onnx."""
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._nodes, "scafflix", self.inputs, self.outputs, self._constants, doc_string=words
        )
        model = helper.make_model(
            graph,
            producer_name="scafflix",
            ir_version=IR,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        helper.set_model_props(model, facts)
        self._onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())

    def _info(self, name: str, kind: str, shape: list[str | int] | None, words: str) -> Any:
        helper, proto = self._onnx.helper, self._onnx.TensorProto
        made = helper.make_tensor_value_info(name, getattr(proto, TYPES[kind]), shape)
        made.doc_string = words
        return made

    def _name(self, wish: str) -> str:
        name, number = wish, 1
        while name in self._taken:
            number += 1
            name = f"{wish} {number}"
        self._taken.add(name)
        return name


def rows_of_one(value: float | str) -> NDArray[Any]:
    """A constant that fits every row of a column `[rows, 1]`."""
    return np.array([[value]])
