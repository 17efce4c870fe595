"""A user's module from a record: what the record holds of it, and a model put into it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.core.tensors import as_tensor
from scafflix.models.pytorch import TorchNetwork
from scafflix.problems.fingerprints import answers_alike
from scafflix.problems.modules import Module, Tree

TRIED, SUMS = 2, 8  # examples by which a module is known again, and numbers kept of its outputs


def about(module: Module, features: Any) -> dict[str, Any]:
    """What a record holds of a module besides arrays, for use without the examples."""
    inputs = {
        "shape": list(features.shape[1:]),
        "type": str(features.dtype),
        "least": float(features.min()),
        "most": float(features.max()),
    }
    return {
        "own_loss": module.network.loss is not None,
        "inputs": inputs,
        "outputs": _outputs(module, inputs),
    }


def tried(module: Module, shape: Sequence[int]) -> str:
    """What two nodes compare of their modules, as JSON: the shape of an example, and what is made
    of made-up ones, which are the same whatever the nodes' own are; empty if it cannot be tried."""
    inputs = {"shape": list(shape), "type": "float32", "least": 0.0, "most": 1.0}
    made = _outputs(module, inputs)
    return "" if made is None else json.dumps([list(shape), made])


def made_up_inputs(inputs: Mapping[str, Any], rows: int) -> NDArray[Any]:
    """Examples that nobody measured, of the shape, the type and the range of a run's."""
    draw, kind = np.random.default_rng(0), np.dtype(inputs["type"])
    shape, least, most = (rows, *inputs["shape"]), inputs["least"], inputs["most"]
    if kind.kind in "iub":
        return draw.integers(int(least), int(most) + 1, shape).astype(kind)
    return draw.uniform(least, most, shape).astype(kind)


def _outputs(module: Module, inputs: Mapping[str, Any]) -> list[float] | None:
    """What a module makes of made-up examples with made-up arrays: the size of its outputs, and
    some sums of them. By these it is known again, however its file was edited meanwhile; None of
    one that cannot be tried so."""
    draw = np.random.default_rng(1)
    scales = {name: max(1, p.numel() // len(p)) ** -0.5 for name, p in module.trained.items()}
    model = {
        name: (scales[name] * draw.standard_normal(p.shape)).astype(np.float32)
        for name, p in module.trained.items()
    }
    for norm in module.norms:
        norm.reset_running_stats()
    try:
        made = _evaluated(module, module.tree(model), made_up_inputs(inputs, TRIED))
    except ScafflixError:
        return None
    leaves = [leaf for leaf in jax.tree.leaves(made) if isinstance(leaf, torch.Tensor)]
    flat = np.concatenate([leaf.double().cpu().numpy().ravel() for leaf in leaves] or [np.zeros(1)])
    size = float(np.sqrt((flat**2).mean()))
    sums = draw.standard_normal((SUMS, len(flat))) @ flat / np.sqrt(len(flat))
    return [size, *map(float, sums)] if np.isfinite(size) else None


def _evaluated(module: Module, tree: Tree, inputs: NDArray[Any]) -> Any:
    rows = as_tensor(np.asarray(inputs, np.float32), module.device)
    return module.evaluated(tree, rows, torch.zeros(len(rows), dtype=torch.long))


def restored(network: TorchNetwork, model: Mapping[str, Any], known: Mapping[str, Any]) -> Module:
    """The module of a record with the arrays of a model; what is frozen is as the file makes it.

    Refuse a module that is not the one that was trained.
    """
    made = Module(network, torch.device("cpu"))
    shapes = {name: tuple(p.shape) for name, p in made.trained.items()}
    if {name: np.shape(model.get(name, 0)) for name in shapes} != shapes:
        raise ScafflixError(
            f"{network.name} trains {_listed(shapes)}, but the run trained "
            f"{_listed({name: np.shape(array) for name, array in model.items()})}; give the module "
            "of the run."
        )
    check_same(made, known)
    counted = made.counted()
    if lacking := [name for name in counted if name not in model]:
        raise ScafflixError(
            f"{network.name} has batch norms, and {lacking[0]} is each client's own; name a client "
            "of the run."
        )
    made.put(made.tree(model))
    with torch.no_grad():
        for name, buffer in made.module.named_buffers(remove_duplicate=False):
            if name in counted:
                buffer.copy_(torch.tensor(np.asarray(model[name])))
    return made


def check_same(module: Module, known: Mapping[str, Any]) -> None:
    """Refuse a module that computes something else than that of a record."""
    then, now = known["outputs"], _outputs(module, known["inputs"])
    if then is None:
        return
    if now is None or not answers_alike(now, then):
        raise ScafflixError(
            f"{module.network.name} is not what it was when the run was made: it answers otherwise "
            "with the same arrays, because its code or what is frozen in it has changed; bring "
            "back the file of then, or put record.personal_model(client) into a module yourself."
        )


def answers(module: Module, inputs: NDArray[Any]) -> NDArray[Any]:
    """What a module with its arrays makes of examples; one number of each without its axis."""
    made = _evaluated(module, {name: p.data for name, p in module.trained.items()}, inputs)
    if not isinstance(made, torch.Tensor):
        raise ScafflixError(
            f"{module.network.name} returns a {type(made).__name__}, which is no answer for rows; "
            "call the module itself, record.module(client)."
        )
    found = made.numpy()
    return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    words = [f"{name} {shape}" for name, shape in shapes.items()]
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")
