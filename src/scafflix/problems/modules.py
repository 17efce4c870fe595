"""One PyTorch module: points put into its parameters, losses and gradients there.

Parameters that are frozen are no part of a point, and what batch norms count is none either: the
running means and variances of a model at a client are those of the client's own training examples,
computed where they are asked for. Training does not depend on them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from scafflix.core.errors import ScafflixError
from scafflix.core.tensors import as_tensor
from scafflix.models.calibration import BINS, SUMS
from scafflix.models.pytorch import TorchNetwork, explained, place_of
from scafflix.problems.logits import accuracy, cross_entropy, in_bins, losses
from scafflix.problems.making import seeded_module

Seed = Sequence[int]
Tree = Mapping[str, Tensor]  # the trained parameters by their names, in the module's order
STILL = (0,)  # the seed for evaluations, for a module that draws random numbers even then
AT_ONCE = 1024  # examples that are evaluated together
TYPES = (
    " The module's parameters and inputs are float32; if it needs another type, convert the inputs "
    "in forward, for example with tokens.long()."
)
ALONE = (
    " A batch norm takes no single example; give a batch of 2 or more, and min_examples of at "
    "least 3, so that nobody trains on one."
)


class Module:
    """A user's module on a device, into which any point can be put."""

    def __init__(self, network: TorchNetwork, device: torch.device) -> None:
        self.network, self.device = network, device
        self.module = seeded_module(network, 0).to(device)  # frozen arrays are those of seed 0
        self.trained = OrderedDict(
            (name, p) for name, p in self.module.named_parameters() if p.requires_grad
        )
        self._leaves = list(self.trained.values())
        self._strides = [torch.empty_like(p).stride() for p in self._leaves]
        norms = [one for one in self.module.modules() if isinstance(one, _NormBase)]
        frozen = [one for one in norms if one.weight is not None and not one.weight.requires_grad]
        self._fixed = frozen  # with their weights, a frozen norm keeps its statistics
        self.norms = [one for one in norms if one not in frozen and one.running_mean is not None]
        self.draws = True  # random numbers, until `check` knows better
        self._mode: bool | None = None
        self._loss = network.loss or cross_entropy
        self._score = network.score or accuracy

    def another(self) -> Module:
        """The same for another worker; what is frozen is there once."""
        made = Module(self.network, self.device)
        made.draws = self.draws
        mine, fixed = self.module.state_dict(), self.fixed()
        for name, value in made.module.state_dict(keep_vars=True).items():
            if name in fixed:
                value.data = mine[name]
        return made

    def fixed(self) -> dict[str, NDArray[Any]]:
        """What of the state_dict neither training nor counting changes."""
        changing = {id(p) for p in self._leaves}
        changing |= {id(buffer) for norm in self.norms for buffer in norm.buffers()}
        return {
            name: value.detach().cpu().numpy()
            for name, value in self.module.state_dict(keep_vars=True).items()
            if id(value) not in changing
        }

    def counted(self) -> dict[str, NDArray[Any]]:
        """What batch norms have counted, by its name in the state_dict."""
        counting = {id(buffer) for norm in self.norms for buffer in norm.buffers()}
        named = self.module.named_buffers(remove_duplicate=False)
        return {n: buffer.cpu().numpy().copy() for n, buffer in named if id(buffer) in counting}

    def tree(self, model: Mapping[str, Any]) -> OrderedDict[str, Tensor]:
        """The arrays of a model as a point of tensors of its own."""
        made = (torch.tensor(np.asarray(model[n]), device=self.device) for n in self.trained)
        return OrderedDict(zip(self.trained, made, strict=True))

    def put(self, tree: Tree) -> None:
        """Take these tensors for parameters, as they are, unless the module has its weights in
        another order in memory: it would convert them in every convolution."""
        for parameter, leaf, stride in zip(self._leaves, tree.values(), self._strides, strict=True):
            parameter.data = leaf if leaf.stride() == stride else _in_order(leaf, stride)

    def slope(
        self, tree: Tree, inputs: Tensor, labels: Tensor, l2: float, seed: Seed
    ) -> tuple[Tensor, Tree]:
        """The loss of a batch at a point, and the gradient there with that of (l2/2) ||x||^2; the
        seed is for what the module draws."""
        self.put(tree)
        self._to(training=True)
        with self._random(seed):
            value = self.loss(self.outputs(inputs, labels), labels)
        if not isinstance(value, Tensor) or not value.requires_grad:
            raise ScafflixError(
                f"{place_of(self._loss)}The loss has no gradient in the module's parameters; "
                "compute it with PyTorch from the module's outputs, without detach() or no_grad()."
            )
        found = torch.autograd.grad(value, self._leaves, allow_unused=True, materialize_grads=True)
        g = [leaf.to_dense() if leaf.is_sparse else leaf.contiguous() for leaf in found]
        if l2:
            g = [leaf + l2 * point for leaf, point in zip(g, tree.values(), strict=True)]
        return value.detach(), OrderedDict(zip(self.trained, g, strict=True))

    def curvature(
        self, tree: Tree, inputs: Tensor, labels: Tensor, l2: float, products: int, seed: Seed
    ) -> float:
        """The largest eigenvalue of the Hessian of a batch's loss, in absolute value, by as many
        products with it; what the module draws is the same for all."""
        self.put(tree)
        self._to(training=True)
        draw = torch.Generator().manual_seed(0)
        v = [torch.randn(p.shape, generator=draw).to(self.device) for p in self._leaves]
        size = torch.zeros(())
        for _ in range(products + 1):
            v = [one / torch.clamp(_length(v), min=1e-30) for one in v]
            with self._random(seed):
                value = self.loss(self.outputs(inputs, labels), labels)
            try:
                slope = torch.autograd.grad(
                    value, self._leaves, create_graph=True, materialize_grads=True
                )
                along = torch.stack(
                    [(g * one).sum() for g, one in zip(slope, v, strict=True)]
                ).sum()
                found = torch.autograd.grad(along, self._leaves, materialize_grads=True)
            except RuntimeError as error:
                what = "The module has no second derivative, by which individual goes"
                raise explained(error, type(self.module), what) from error
            v = [h + l2 * one for h, one in zip(found, v, strict=True)]
            size = _length(v)
        return float(size)

    def evaluated(self, tree: Tree, inputs: Tensor, labels: Tensor) -> Tensor:
        """The outputs for some examples, without dropout and the like."""
        self.put(tree)
        self._to(training=False)
        with torch.no_grad(), self._random(STILL):
            blocks = zip(*(torch.split(one, AT_ONCE) for one in (inputs, labels)), strict=True)
            made = [self.outputs(as_input(some), y) for some, y in blocks]
            return made[0] if len(made) == 1 else torch.cat(made)

    def observe(self, tree: Tree, inputs: Tensor, labels: Tensor) -> None:
        """Let batch norms count means and variances of these examples, at this point."""
        if not self.norms:
            return
        self.put(tree)
        self._to(training=False)
        momenta = [norm.momentum for norm in self.norms]
        blocks = -(-len(inputs) // AT_ONCE)  # of about as many examples each
        try:
            for norm in self.norms:
                norm.reset_running_stats()
                norm.train().momentum = None  # the mean of all batches
            with torch.no_grad(), self._random(STILL):
                parts = inputs.tensor_split(blocks), labels.tensor_split(blocks)
                for some, y in zip(*parts, strict=True):
                    self.outputs(as_input(some), y)
        finally:
            for norm, momentum in zip(self.norms, momenta, strict=True):
                norm.eval().momentum = momentum

    def outputs(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """What the module makes of a batch."""
        try:
            made: Tensor = self.module(inputs)
        except Exception as error:
            raise self._failure(error, "module or its loss", inputs, labels) from error
        return made

    def loss(self, outputs: Tensor, labels: Tensor) -> Any:
        """Of a batch: a tensor of one number."""
        return self._number("loss", outputs, labels)

    def score(self, outputs: Tensor, labels: Tensor) -> float:
        """Of a batch."""
        return float(self._number("score", outputs, labels))

    def examined(self, outputs: Tensor, labels: Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
        """Sums over the entries of each example, `[3, rows]`: loss, score, and how many count (1
        with a loss of one's own); and forecasts in bins, as `models.calibration` has them."""
        if self.network.loss is None:
            entries = (labels >= 0).reshape(len(labels), -1).sum(1).double()
            loss, bins = losses(outputs, labels), in_bins(outputs, labels)
        else:
            entries, bins = torch.ones(len(labels)).double(), np.zeros((len(SUMS), BINS))
            loss = self._one_by_one("loss", outputs, labels)
        if self.network.score is None:
            right = (outputs.argmax(dim=-1) == labels).reshape(len(labels), -1)
            score = right.sum(1).double() * (entries / right.shape[1] if self.network.loss else 1)
        else:
            score = entries.cpu() * self._one_by_one("score", outputs, labels)
        return np.stack([one.double().cpu().numpy() for one in (loss, score, entries)]), bins

    def _one_by_one(self, what: str, outputs: Tensor, labels: Tensor) -> Tensor:
        """Of a function that takes a batch to its mean."""
        each = range(len(labels))
        found = [float(self._number(what, outputs[k : k + 1], labels[k : k + 1])) for k in each]
        return torch.tensor(found, dtype=torch.float64)

    def check(self, inputs: Tensor, labels: Tensor) -> int:
        """How many classes the module has (2 with a loss of its own); refuse one that cannot be
        simulated, by a few examples, and find out whether it draws random numbers."""
        before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        versions = [p._version for p in self.module.parameters()]
        with torch.no_grad(), _left_alone(self.device):
            start = _states(self.device)
            for training in (True, False):
                self._to(training=training)
                made = self.outputs(as_input(inputs), labels)
                self._check_outputs(made, labels)
            self.draws = not all(map(torch.equal, start, _states(self.device)))
        counted = {id(buffer) for norm in self.norms for buffer in norm.buffers()}
        for name, buffer in self.module.named_buffers():
            if id(buffer) not in counted and not torch.equal(buffer, before[name]):
                raise self._refused(
                    f"The buffer {name} changes while the module trains, and it is not in a batch "
                    "norm of PyTorch, so that no client can keep its own; make it a parameter, or "
                    "leave it as it is in forward."
                )
        for (name, p), version in zip(self.module.named_parameters(), versions, strict=True):
            if p._version != version:
                raise self._refused(
                    f"The parameter {name} is changed in place by forward, such as by max_norm; "
                    "only training may change it."
                )
        return 2 if self.network.loss else int(made.shape[-1])

    def _check_outputs(self, made: object, labels: Tensor) -> None:
        if self.network.loss is not None:
            return
        shape = tuple(made.shape) if isinstance(made, Tensor) else None
        if shape is None or shape[:-1] != tuple(labels.shape) or not len(shape):
            what = f"a {type(made).__name__}" if shape is None else f"the shape {shape}"
            raise self._refused(
                f"forward returns {what} for {len(labels)} examples with labels of shape "
                f"{tuple(labels.shape)}; it must return logits, with one axis of classes more than "
                "the labels, or the file a loss of its own."
            )
        assert isinstance(made, Tensor)
        if not bool(made.isfinite().all()):
            raise self._refused(
                f"forward returns NaN or infinity for the first {len(labels)} examples, before any "
                "training; look for a division by 0 or a logarithm of it."
            )

    def _refused(self, sentence: str) -> ScafflixError:
        return ScafflixError(f"{place_of(type(self.module).forward)}{sentence}")

    def _number(self, what: str, outputs: Tensor, labels: Tensor) -> Any:
        function = self._loss if what == "loss" else self._score
        try:
            value = function(outputs, labels)
        except Exception as error:
            raise self._failure(error, f"{what} of the module", outputs, labels) from error
        if isinstance(value, Tensor) and value.numel() == 1:
            return value
        shape = tuple(getattr(value, "shape", ()))
        if int(np.prod(shape)) != 1:
            raise ScafflixError(
                f"{place_of(function)}The {what} of a batch has the shape {shape}; it must be one "
                "number, the mean over the batch, as with reduction='mean'."
            )
        return value

    def _failure(self, error: Exception, what: str, given: Any, labels: Tensor) -> ScafflixError:
        named = {"module or its loss": type(self.module), "loss of the module": self._loss}
        shape = tuple(getattr(given, "shape", ()))
        return explained(
            error,
            named.get(what, self._score),
            f"The {what} fails on inputs of {getattr(given, 'dtype', type(given).__name__)} and "
            f"shape {shape} with labels of {labels.dtype}",
            ALONE if "more than 1 value per channel" in str(error) else TYPES,
        )

    def _random(self, seed: Seed) -> Any:
        return random(seed, self.device) if self.draws else nullcontext()

    def _to(self, *, training: bool) -> None:
        if self._mode != training:
            self.module.train(training)
            for norm in self._fixed:
                norm.eval()
            self._mode = training


def _in_order(leaf: Tensor, stride: tuple[int, ...]) -> Tensor:
    """A copy in another order in memory. Of weights with one input channel the strides alone tell
    PyTorch whether a convolution goes by channels_last."""
    return leaf.new_empty_strided(leaf.shape, stride).copy_(leaf)


def _length(those: Sequence[Tensor]) -> Tensor:
    return torch.stack([(one * one).sum() for one in those]).sum().sqrt()


def as_input(inputs: Tensor) -> Tensor:
    """Inputs as modules take them: float32, also of images stored as bytes."""
    return inputs if inputs.dtype == torch.float32 else inputs.float()


def tensors_of(features: Any, labels: NDArray[Any], device: torch.device) -> tuple[Tensor, Tensor]:
    """Inputs as the data hold them; labels that are whole numbers as int64, others in float32."""
    dense = features if isinstance(features, np.ndarray) else features.astype("f4").toarray()
    inputs = dense.astype(np.float32, copy=False) if dense.dtype.kind == "f" else dense
    kind = np.int64 if labels.dtype.kind in "iub" else np.float32
    return tuple(  # type: ignore[return-value]
        as_tensor(a, device) for a in (inputs, labels.astype(kind, copy=False))
    )


def drawn_rows(count: int, size: int | None, seed: Seed) -> NDArray[np.int64] | None:
    """The rows of a batch, drawn with replacement among so many; None for all of them."""
    return None if size is None else np.random.default_rng(seed).integers(0, count, size)


@contextmanager
def random(seed: Seed, device: torch.device) -> Iterator[None]:
    """Seed PyTorch's random numbers; the caller's generator is left as it was."""
    (state,) = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    with _left_alone(device):
        torch.default_generator.manual_seed(int(state))
        if device.type == "cuda":
            torch.cuda.manual_seed(int(state))
        yield


def _left_alone(device: torch.device) -> Any:
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _states(device: torch.device) -> list[Tensor]:
    found = [torch.get_rng_state()]
    return [*found, torch.cuda.get_rng_state(device)] if device.type == "cuda" else found
