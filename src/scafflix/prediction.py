"""What a model says about rows: the columns of a table, or numbers as the run had them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix.core.arguments import numbers
from scafflix.core.errors import ScafflixError
from scafflix.core.vector import names_of
from scafflix.data.admission import admit_features
from scafflix.data.preprocessing import Preprocessing
from scafflix.data.tabular import columns_for
from scafflix.models import MODELS, Network, is_network, is_own
from scafflix.models.naming import model_by_name
from scafflix.models.pytorch import TorchNetwork, from_torch, torch_network

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 500  # rows that go through a network together


@dataclass(frozen=True, eq=False)
class OwnModule:
    """A user's own PyTorch module, and what the record holds of it."""

    network: TorchNetwork
    about: Mapping[str, Any]


def own_module(model: str, about: Mapping[str, Any] | None, given: Any = None) -> OwnModule | None:
    """The module that a run trained: the one that is given, or that FILE.py:NAME names; None of
    another model, and of a module without a file."""
    if given is not None and about is None:
        if is_own(model):
            raise _of_a_server(model)
        raise ScafflixError(f"The run trained {model!r}, which is no PyTorch module.")
    if about is None or (given is None and not is_own(model)):
        return None
    if given is None:
        return OwnModule(torch_network(model), about)
    return OwnModule(given if isinstance(given, TorchNetwork) else from_torch(given), about)


def _of_a_server(model: str) -> ScafflixError:
    return ScafflixError(
        f"The run trained {model}, and its record is that of a server, which never loads a module; "
        'use a node\'s own record, or put record.model(None, "global") into the module yourself.'
    )


@dataclass(frozen=True, eq=False)
class Answers:
    """The answer for every row, and for classes how probable each is."""

    values: NDArray[Any]  # [rows]
    probabilities: NDArray[np.float64] | None  # [rows, classes]
    classes: tuple[str, ...]

    def table(self, label: str, beside: pa.Table | None = None) -> pa.Table:
        """The answers under the name of the label, then the probability of every class; with the
        columns of another table before them."""
        import pyarrow as pa

        named = {name: beside.column(name) for name in beside.column_names} if beside else {}
        name = f"predicted {label}"
        made = {name: self.values}
        if self.values.ndim > 1:  # what a module with a loss of its own returns
            columns = self.values.reshape(len(self.values), -1).T
            made = {f"{name} {k + 1}": column for k, column in enumerate(columns)}
        if self.probabilities is not None:
            for name, column in zip(self.classes, self.probabilities.T, strict=True):
                made[f"probability of {name}"] = column
        return pa.table({**named, **made})


@dataclass(frozen=True, eq=False)
class Predictor:
    """A trained model with everything that it takes to answer."""

    model: str  # its name
    weights: Any  # an array of a linear model; of a network arrays by name
    classes: tuple[str, ...]  # none for numbers
    label_kind: str  # text, boolean, integer or real
    preprocessing: Preprocessing | None
    own: OwnModule | None = None

    def __call__(self, given: Any) -> Answers:
        """The answers for a path, a pandas frame, an Arrow table, or an array of examples."""
        outputs = self.outputs(self.inputs(given))
        if not self.classes:
            return Answers(outputs, None, ())
        probabilities = self.probabilities(outputs)
        return Answers(self.named(probabilities.argmax(axis=1)), probabilities, self.classes)

    def probabilities(self, outputs: NDArray[Any]) -> NDArray[np.float64]:
        """Of each class, from the outputs of the model."""
        if self.model == "logistic":
            outputs = np.stack([np.zeros_like(outputs), outputs], axis=1)
        raised = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True))
        found: NDArray[np.float64] = raised / raised.sum(axis=1, keepdims=True)
        return found

    def named(self, codes: NDArray[np.int64]) -> NDArray[Any]:
        """The classes as the labels were: text, booleans or numbers."""
        names = np.array(self.classes)
        if self.label_kind == "boolean":
            names = names == "True"
        elif self.label_kind != "text":
            names = names.astype(np.float64)
        return (names.astype(np.int64) if self.label_kind == "integer" else names)[codes]

    def inputs(self, given: Any) -> NDArray[Any]:
        """What the model takes, of whatever the rows are."""
        made = self.preprocessing
        if made is not None and made.columns:
            return made.features(columns_for(made, given))
        if isinstance(given, str | Path):
            raise ScafflixError(
                f"The run had no table, so that {given} cannot be read for it; give an array of "
                "examples."
            )
        if self.own is not None and made is None:
            return self._examples(given, tuple(self.own.about["inputs"]["shape"]))
        if is_network(self.model) and made is None:
            return np.asarray(given)
        features = admit_features(given, "the examples")
        dense = features if isinstance(features, np.ndarray) else features.toarray()
        expected = len(self.weights) if made is None else len(made.shift)
        if dense.shape[1] != expected:
            raise ScafflixError(
                f"The examples have {dense.shape[1]} features, but the run had {expected}."
            )
        return dense if made is None else made.scale(dense)

    def _examples(self, given: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """An array of examples, as a module was trained on them."""
        found = numbers("the examples", given)
        if found.shape[1:] != shape:
            raise ScafflixError(
                f"The examples have the shape {found.shape}; those of the run had {shape} each."
            )
        return found

    def outputs(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """The linear predictor, or the logits of a network."""
        if self.own is not None:
            from scafflix.problems.restoring import answers, restored

            found = answers(restored(self.own.network, self.weights, self.own.about), inputs)
            return found[:, : len(self.classes)] if self.classes else found
        if not is_network(self.model):
            return np.asarray(inputs @ self.weights)
        made = model_by_name(self.model, math.prod(inputs.shape[1:]), len(self.classes))
        assert isinstance(made, Network)
        template = jax.eval_shape(made.init, jax.random.key(0))
        leaves = [self.weights[name] for name in names_of(template)]
        params = jax.tree.unflatten(jax.tree.structure(template), leaves)
        apply = jax.jit(made.apply)
        parts = [apply(params, inputs[i : i + BATCH]) for i in range(0, len(inputs), BATCH)]
        if not parts:  # of an empty table
            return np.zeros((0, len(self.classes)))
        return np.concatenate([np.asarray(part) for part in parts])


def check_answers(predictor: Predictor) -> None:
    """Refuse a model that cannot be made again by its name, or that has no answer for a row."""
    model, own = predictor.model, predictor.own
    if own is None and is_own(model):
        raise _of_a_server(model)
    if own is None and model not in MODELS and not is_network(model):
        raise ScafflixError(
            f"The run trained {model!r}, a model of your own, which its record does not hold; give "
            "the class of a PyTorch module as module=..., or call your model with "
            "record.personal_model(client)."
        )
    if (own is not None or is_network(model)) and not predictor.classes:
        if own is not None and own.about["own_loss"]:
            return  # what it returns are the answers
        raise ScafflixError(
            f"The run trained {model} on sequences, which has no single answer for a row."
        )
