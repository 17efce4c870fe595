"""f_1, ..., f_n of a PyTorch module: examples on its device, and workers that share clients."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scafflix.core.digest import digest_of
from scafflix.core.store import Store
from scafflix.core.streams import Stream
from scafflix.core.tensors import Tensors, in_tensors
from scafflix.data.admission import check_dense_size
from scafflix.data.federation import Examples
from scafflix.models.pytorch import TorchNetwork, source_texts
from scafflix.problems.making import start_of
from scafflix.problems.modules import (
    Module,
    Seed,
    Tree,
    as_input,
    drawn_rows,
    tensors_of,
)
from scafflix.problems.restoring import about, check_same

A_FEW = 4  # examples by which a module is tried
SMALL = 2**17  # parameters of a module for which one thread is quicker than several
LARGE = 2**23  # of one whose steps use all threads better than clients side by side do
One = TypeVar("One")
Made = TypeVar("Made")


def best_device() -> torch.device:
    """A CUDA device where PyTorch sees one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Rows(NamedTuple):
    """The examples of all clients on the device, as small as the data hold them."""

    inputs: Tensor
    labels: Tensor
    first: NDArray[np.int64]  # of each client
    counts: NDArray[np.int64]

    def of(self, client: int, most: int | None = None) -> tuple[Tensor, Tensor]:
        """The examples of a client, or the first of them."""
        first, count = int(self.first[client]), int(self.counts[client])
        span = slice(first, first + (count if most is None else min(count, most)))
        return self.inputs[span], self.labels[span]

    def batch(self, client: int, size: int | None, seed: Seed) -> tuple[Tensor, Tensor]:
        """As many examples of a client, drawn with replacement, or all; as a module takes them."""
        drawn = drawn_rows(int(self.counts[client]), size, seed)
        if drawn is None:
            inputs, labels = self.of(client)
        else:
            where = torch.as_tensor(drawn + self.first[client], device=self.inputs.device)
            inputs, labels = self.inputs[where], self.labels[where]
        return as_input(inputs), labels


class TorchFunctions:
    """What rounds, evaluations and searches ask of a module on a federation.

    On processors as many modules as PyTorch has threads take clients side by side, each with one
    thread: no step waits for another's. A large module is alone and takes all threads for each
    client, whose steps are long enough to share out. One that draws random numbers is alone too,
    since PyTorch has one generator for all threads, with one thread if it is small: its threads
    would wait for each other longer than they compute. So is one on a CUDA device.
    """

    def __init__(
        self,
        network: TorchNetwork,
        l2: float,
        parts: Mapping[str, Examples],
        labels: Mapping[str, NDArray[Any]],
    ) -> None:
        self.network, self.l2 = network, l2
        self.device = best_device()
        self._examples, self._labels = parts, labels
        self._first = Module(network, self.device)
        train = parts["train"]
        if not isinstance(train.features, np.ndarray):  # modules take rows as they are
            check_dense_size(*train.features.shape, "The training part")
        few = tensors_of(train.features[:A_FEW], labels["train"][:A_FEW], self.device)
        self.classes = self._first.check(*few)

    @property
    def template(self) -> OrderedDict[str, jax.ShapeDtypeStruct]:
        """Shapes and types of what is trained, by name."""
        shapes = ((name, tuple(p.shape)) for name, p in self._first.trained.items())
        return OrderedDict((n, jax.ShapeDtypeStruct(shape, np.float32)) for n, shape in shapes)

    def start(self, seed: int) -> OrderedDict[str, NDArray[np.float32]]:
        """Where a module of this seed begins."""
        return start_of(self.network, seed)

    @cached_property
    def parts(self) -> dict[str, Rows]:
        """The examples on the device."""
        return {
            name: Rows(
                *tensors_of(part.features, self._labels[name], self.device),
                part.offsets[:-1],
                part.counts,
            )
            for name, part in self._examples.items()
        }

    def module(self, model: Mapping[str, Any], client: int) -> nn.Module:
        """The user's module with these arrays, as a client uses it: a new one, on the processor,
        whose batch norms have counted the client's training examples."""
        own, train = Module(self.network, torch.device("cpu")), self._examples["train"]
        tree = own.tree(model)
        rows = slice(*train.offsets[client : client + 2].tolist())
        own.observe(
            tree, *tensors_of(train.features[rows], self._labels["train"][rows], own.device)
        )
        own.put(tree)
        return own.module.eval()

    @property
    def counts_statistics(self) -> bool:
        """Whether a model needs the means and variances of a client's own examples."""
        return bool(self._first.norms)

    def each(self, function: Callable[[Module, One], Made], those: Iterable[One]) -> list[Made]:
        """function(module, one) of each, in order; the workers share them."""
        pool = self._pool
        if pool is None:
            return [function(self._first, one) for one in those]

        def work(one: One) -> Made:
            module = self._modules.get()
            try:
                return function(module, one)
            finally:
                self._modules.put(module)

        return list(pool.map(work, those))

    def slopes(
        self, module: Module, client: int, points: Any, size: int | None, seed: Seed
    ) -> tuple[Any, Tensor]:
        """Gradients at one or several points on one batch of a client's, and the loss of the batch
        at the first."""
        batch = self.parts["train"].batch(client, size, seed)
        asked, form = jax.tree.flatten(points, is_leaf=lambda one: isinstance(one, Tensors))
        found = [module.slope(point.tree, *batch, self.l2, seed) for point in asked]
        value, _ = found[0]
        return jax.tree.unflatten(form, [Tensors(g) for _, g in found]), value

    def curvatures(self, x: Any, most: int, products: int) -> NDArray[np.float64]:
        """L_i of every client at its own x_i* in a store, or at one point, by as many products with
        the Hessian of at most as many examples."""
        train = self.parts["train"]

        def at_client(module: Module, client: int) -> float:
            tree = x
            if isinstance(x, Store):
                tree = jax.tree.map(lambda leaf: leaf[0], x.read(np.array([client])))
            inputs, labels = train.of(client, most)
            point = in_tensors(tree, self.device).tree
            seed = (0, int(Stream.OPTIMA), client)
            return module.curvature(point, as_input(inputs), labels, self.l2, products, seed)

        return np.array(self.each(at_client, range(len(train.counts))))

    def mean_loss(self, module: Module, client: int, tree: Tree, part: str, most: int) -> float:
        """Of the first examples that a client has in a part, without l2."""
        inputs, labels = self.parts[part].of(client, most)
        module.observe(tree, *self.parts["train"].of(client))
        return float(module.loss(module.evaluated(tree, inputs, labels), labels))

    @property
    def versions(self) -> dict[str, str]:
        """What computes."""
        kind = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        return {"torch": torch.__version__, "torch device": kind}

    @cached_property
    def digests(self) -> dict[str, str]:
        """What tells this module, its start and its score from others: the text of the files in
        which they are written, the module in words, and what of it is frozen."""
        module = self._first.module
        kinds = {type(one) for one in module.modules()}
        own = [kind for kind in kinds if not kind.__module__.startswith("torch.")]
        fixed = self._first.fixed()
        written = source_texts(self.network.make, *own)
        loss = source_texts(self.network.loss) if self.network.loss else []
        score = source_texts(self.network.score) if self.network.score else []
        body = [str(module), list(fixed), written, loss]
        return {
            "loss": digest_of(body, *fixed.values()),
            "start": digest_of(written),
            "score": digest_of(self.network.metric, score),
        }

    @cached_property
    def about(self) -> dict[str, Any]:
        """What a record holds of the module besides arrays."""
        return about(self._first, self._examples["train"].features)

    def check_same(self, known: Mapping[str, Any] | None) -> None:
        """Refuse to go on with the arrays of a record whose module computed something else."""
        if known is not None:
            check_same(self._first, known)

    def counted(self, model: Mapping[str, Any], *, of_each: bool) -> dict[str, NDArray[Any]]:
        """What batch norms count of every client's training examples, stacked: at a model for all,
        or at one of each."""
        if not self.counts_statistics:
            return {}

        def at_client(module: Module, client: int) -> dict[str, NDArray[Any]]:
            own = {name: array[client] if of_each else array for name, array in model.items()}
            tree = module.tree(own)
            module.observe(tree, *self.parts["train"].of(client))
            return module.counted()

        found = self.each(at_client, range(len(self.parts["train"].counts)))
        return {name: np.stack([one[name] for one in found]) for name in found[0]}

    @cached_property
    def _pool(self) -> ThreadPoolExecutor | None:
        """A thread for each worker, that leaves the number of threads of all others as it was."""
        threads, draws = torch.get_num_threads(), self._first.draws
        size = sum(p.numel() for p in self._first.module.parameters())
        if threads == 1 or self.device.type != "cpu" or size > (SMALL if draws else LARGE):
            return None
        workers = 1 if draws else threads
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
        together = threading.Barrier(workers)
        list(pool.map(lambda _: together.wait(), range(workers)))
        torch.set_num_threads(threads)
        self._modules: SimpleQueue[Module] = SimpleQueue()
        self._modules.put(self._first)
        for _ in range(1, workers):
            self._modules.put(self._first.another())
        return pool
