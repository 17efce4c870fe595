"""A model on a federation: the value and the gradient of each f_i, and its constants.

f_i(x) = (1/n_i) sum_j loss(a_ij, b_ij; x) + (l2/2) ||x||^2
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import NDArray

from scafflix.core import streams
from scafflix.core.arguments import (
    check_functions,
    choice,
    instance,
    numbers,
    real_number,
    shown,
    whole_number,
)
from scafflix.core.compilation import SIMPLE_LOOPS
from scafflix.core.devices import devices
from scafflix.core.digest import digest_of
from scafflix.core.errors import ScafflixError, reason_of
from scafflix.core.precision import in_float64, precision
from scafflix.core.sharing import all_devices, one_device
from scafflix.core.streams import Stream
from scafflix.data.federation import (
    Federation,
    check_federation,
    chosen_clients,
)
from scafflix.models import LinearModel
from scafflix.models.linear import Targets, as_network
from scafflix.models.network import Network, Params, parameter_count
from scafflix.models.pytorch import TorchNetwork, need_torch, place_of
from scafflix.problems import fingerprints
from scafflix.problems.constants import Constants, constants_of
from scafflix.problems.losses import Losses, losses
from scafflix.problems.rows import Part, label_codes

if TYPE_CHECKING:
    from torch import nn

    from scafflix.problems.pytorch import TorchFunctions

# a start runs once: the last bit of speed is not worth four times the compilation
ONCE = {"xla_backend_optimization_level": 2, **SIMPLE_LOOPS}
LINEAR_L2 = 0.1  # of a linear model, unless another is given
# examples times parameters of a linear model whose rounds one device plays quicker than several
FOR_ONE_DEVICE = 2**23
LARGEST_STATE = 8 * 2**30  # bytes of one parameter array per client


class Problem:
    """A model on a federation: the functions f_1, ..., f_n of any linear model or network.

    >>> import scafflix as sx
    >>> fed = sx.data.synthetic(clients=4, seed=0)
    >>> problem = sx.Problem(fed, sx.models.logistic(), l2=0.1)
    >>> problem.n, problem.size
    (4, 20)
    >>> sx.Problem(fed, sx.models.dense(features=20, classes=2, hidden=(8,))).size
    186
    """

    def __init__(
        self,
        federation: Federation,
        model: LinearModel | Network | TorchNetwork,
        l2: float | None = None,
        smoothness: str = "tight",
        targets: Targets | None = None,
    ) -> None:
        check_federation(federation)
        _check_model(model)
        linear = isinstance(model, LinearModel)
        l2 = (LINEAR_L2 if linear else 0.0) if l2 is None else l2
        self.l2 = real_number("l2", l2)
        self.smoothness = choice("smoothness", smoothness, ("tight", "bound"))
        if targets is not None:
            instance("targets", targets, Targets, "targets of the model, or leave them out")
        devices()
        self.federation = federation.in_float64() if linear else federation
        self.model = model
        self.network: Network | TorchNetwork
        self.torch: TorchFunctions | None = None  # of a PyTorch module; all others are in JAX
        if isinstance(model, LinearModel):
            self._encode(model, targets)
            return
        self.network = model
        self.labels = dict(zip(federation.parts, self._codes(), strict=True))
        if isinstance(model, TorchNetwork):
            from scafflix.problems.pytorch import TorchFunctions

            self.torch = TorchFunctions(model, self.l2, federation.parts, self.labels)
        self.classes = self._check_network()

    def _encode(self, model: LinearModel, targets: Targets | None) -> None:
        """Labels as the numbers that a linear model takes."""
        parts = self.federation.parts
        for part in parts.values():
            if part.features.ndim != 2 or part.labels.ndim != 1:
                pixels = ", or scale maxabs for rows of pixels" if part.labels.ndim == 1 else ""
                raise ScafflixError(
                    f"The model {model.name} takes rows of numbers with one label each; the "
                    f"examples of {self.federation.name} have the shape "
                    f"{part.features.shape[1:]}. Use a network{pixels}."
                )
        labels = [part.labels for part in parts.values()]
        self.targets = targets or model.encode(np.concatenate(labels))
        cuts = np.cumsum([len(part) for part in labels])[:-1]
        self.labels = dict(zip(parts, np.split(self.targets.values, cuts), strict=True))
        self.network = as_network(model, self.federation.dim, self.targets.outputs)
        self.classes = max(2, len(self.targets.classes))
        if 8 * self.n * self.size > LARGEST_STATE:
            raise ScafflixError(
                f"{self.n} clients with {self.size} parameters each need "
                f"{8 * self.n * self.size / 2**30:.0f} GiB for one copy of their models; "
                f"at most {LARGEST_STATE / 2**30:.0f} GiB are supported."
            )

    def _codes(self) -> list[NDArray[Any]]:
        parts = self.federation.parts
        dense = all(isinstance(part.features, np.ndarray) for part in parts.values())
        if not dense and not isinstance(self.model, TorchNetwork):
            raise ScafflixError(
                f"The network {self.model.name} takes dense features, and those of "
                f"{self.federation.name} are sparse; use a linear model or a PyTorch module."
            )
        labels = [part.labels for part in parts.values()]
        own_loss = isinstance(self.model, TorchNetwork) and self.model.loss is not None
        if own_loss and all(part.dtype.kind in "iubf" for part in labels):
            return labels  # as its own loss takes them
        return label_codes(labels)

    def _check_network(self) -> int:
        """How many classes the network has; refuse labels that are none of them."""
        classes = self._outputs() if self.torch is None else self.torch.classes
        if isinstance(self.network, TorchNetwork) and self.network.loss is not None:
            return classes
        largest = max(int(part.max(initial=0)) for part in self.labels.values())
        if largest >= classes:
            where = place_of(self.network.make) if isinstance(self.network, TorchNetwork) else ""
            raise ScafflixError(
                f"{where}"
                f"The network {self.network.name} has {classes} classes, but a label is "
                f"{largest}; labels must be below the number of classes."
            )
        return classes

    def _outputs(self) -> int:
        """One example through a network in JAX, without computing anything: its classes."""
        network, labels = self.in_jax, self.labels["train"]
        features: Any = self.federation.train.features
        kind = self.dtype if features.dtype.kind == "f" else features.dtype
        example = jax.ShapeDtypeStruct((1, *features.shape[1:]), kind)
        try:
            logits = jax.eval_shape(network.apply, self.template, example)
        except (TypeError, ValueError) as error:
            raise ScafflixError(
                f"The network {network.name} does not take examples of shape "
                f"{example.shape[1:]} and type {example.dtype}: {reason_of(error)}"
            ) from None
        if logits.shape[:-1] != (1, *labels.shape[1:]):
            raise ScafflixError(
                f"The network {network.name} makes outputs of shape {logits.shape[1:]} for "
                f"labels of shape {labels.shape[1:]}; it must add one axis of classes."
            )
        return int(logits.shape[-1])

    @property
    def in_jax(self) -> Network:
        """The model as a network in JAX; not of a PyTorch module."""
        assert isinstance(self.network, Network)
        return self.network

    @property
    def n(self) -> int:
        """The number of clients."""
        return len(self.federation.clients)

    @property
    def linear(self) -> bool:
        """Whether the model is linear: convex functions, whose constants and optima are known."""
        return isinstance(self.model, LinearModel)

    @property
    def class_names(self) -> tuple[str, ...]:
        """What each class stands for; none where numbers or sequences are predicted."""
        if self.linear:
            return self.targets.classes
        labels = [part.labels for part in self.federation.parts.values()]
        if isinstance(self.network, TorchNetwork) and self.network.loss is not None:
            return ()
        if labels[0].ndim > 1 or not np.issubdtype(self.labels["train"].dtype, np.integer):
            return ()
        if label_codes(labels) is labels:
            return tuple(map(str, range(self.classes)))
        return tuple(map(str, np.unique(np.concatenate(labels)).tolist()))

    @cached_property
    def template(self) -> Params:
        """Shapes and types of the parameters."""
        if self.torch is not None:
            return self.torch.template
        with precision(self.linear):
            return jax.eval_shape(lambda: self.in_jax.init(jax.random.key(0)))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the parameters: convex problems run in float64, networks in float32."""
        return np.dtype(jax.tree.leaves(self.template)[0].dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a linear model's one array of parameters."""
        shape: tuple[int, ...] = self.template.shape
        return shape

    @cached_property
    def size(self) -> int:
        """The number of parameters of one model."""
        return parameter_count(self.template)

    def module(self, model: Mapping[str, Any], client: str) -> nn.Module:
        """Your PyTorch module with the arrays of a model, as a client uses it: in evaluation mode,
        with what is frozen, and with batch norms that counted the client's training examples."""
        if self.torch is None:
            raise ScafflixError(f"The model {self.model.name} is no PyTorch module.")
        instance("client", client, str, "the id of a client")
        if client not in self.federation.clients:
            raise ScafflixError(f"There is no client {client!r} in {self.federation.name}.")
        wanted = {name: leaf.shape for name, leaf in self.template.items()}
        given = dict(model) if isinstance(model, Mapping) else {}
        # what batch norms counted, which a record holds too, is counted again
        if {name: np.shape(given.get(name, 0)) for name in wanted} != wanted:
            raise ScafflixError(
                f"model is not of the module {self.model.name}, whose trained arrays are "
                f"{', '.join(wanted)}; give record.personal_model(client)."
            )
        return self.torch.module(given, self.federation.clients.index(client))

    def start(self, seed: int) -> Params:
        """The common random start of a seed; of a linear model, 0."""
        seed = whole_number("seed", seed, least=0, most=2**63 - 1)
        if self.torch is not None:
            return self.torch.start(seed)
        with precision(self.linear):
            init = jax.jit(self.in_jax.init, compiler_options=ONCE)
            return init(streams.key(seed, Stream.MODEL))

    @cached_property
    def mesh(self) -> Mesh:
        """The devices that share the clients of a cohort."""
        examples = len(self.federation.train.owners)
        few = self.linear and examples * self.size <= FOR_ONE_DEVICE
        return one_device() if few else all_devices()

    @cached_property
    def parts(self) -> dict[str, Part]:
        """The examples on the devices, for rounds of some of the clients."""
        return {
            name: Part(part, self.labels[name], self.dtype, self.mesh)
            for name, part in self.federation.parts.items()
        }

    @property
    def train(self) -> Part:
        """The training examples on the devices."""
        return self.parts["train"]

    @cached_property
    def losses(self) -> Losses:
        """f_1, ..., f_n of a linear model, for all clients at once."""
        return self._losses("train")

    @cached_property
    def held_out(self) -> dict[str, Losses]:
        """The same over the held-out examples, by the name of the part."""
        parts = self.federation.parts
        names = [name for name in parts if name != "train" and len(parts[name].labels)]
        return {name: self._losses(name) for name in names}

    def _losses(self, name: str) -> Losses:
        assert isinstance(self.model, LinearModel)
        examples, outputs = self.federation.parts[name], self.targets.outputs
        return losses(examples, self.labels[name], self.model, outputs, self.l2)

    @cached_property
    @in_float64
    def functions(self) -> dict[str, Any]:
        """What tells these f_i from those of another problem."""
        return {
            "model": self.model.name,
            "l2": self.l2,
            "number of clients": self.n,
            "shape": [list(leaf.shape) for leaf in jax.tree.leaves(self.template)],
            "digest of the loss": self._digest("loss"),
            "digest of the training data": self._digest_of_data("train"),
        }

    @cached_property
    @in_float64
    def identity(self) -> dict[str, Any]:
        """All of the problem that a record of a run on it depends on."""
        left_out = dict(self.federation.left_out)
        held_out = [name for name in self.federation.parts if name != "train"]
        return {
            **self.functions,
            "smoothness": self.smoothness,
            "digest of the start": self._digest("start"),
            "digest of the score": self._digest("score"),
            "digest of the held-out data": self._digest_of_data(*held_out),
            "digest of the clients left out": digest_of(left_out),
        }

    def _digest(self, what: str) -> str:
        """Of the loss, the start or the score."""
        if self.torch is not None:
            return self.torch.digests[what]
        if what == "start":
            return fingerprints.start(self.in_jax)
        if what == "score":
            return fingerprints.score(self.in_jax, self._example)
        assert not isinstance(self.model, TorchNetwork)
        return fingerprints.loss(self.model, self.in_jax, self._example)

    @property
    def _example(self) -> tuple[Params, Any, NDArray[Any]]:
        """Parameters, one example and its label, to trace functions with."""
        features: Any = self.federation.train.features[:1]
        dense = features if isinstance(features, np.ndarray) else features.toarray()
        kind = self.dtype if dense.dtype.kind == "f" else dense.dtype
        return self.template, dense.astype(kind), self.labels["train"][:1]

    def _digest_of_data(self, *names: str) -> str:
        classes = self.targets.classes if self.linear else ()
        return fingerprints.data(self.federation, self.labels, classes, *names)

    def take(self, clients: NDArray[np.int64]) -> Problem:
        """The same problem for some of the clients, given in increasing order."""
        clients = chosen_clients(clients, self.n)
        if (np.diff(clients) <= 0).any():
            raise ScafflixError("The clients to take must be given in increasing order, each once.")
        if len(clients) == self.n:
            return self
        # targets keep their meaning even where the chosen clients lack a class
        owners = np.concatenate([part.owners for part in self.federation.parts.values()])
        rows = np.flatnonzero(np.isin(owners, clients))
        targets = self.targets._replace(values=self.targets.values[rows])
        assert isinstance(self.model, LinearModel)
        chosen = self.federation.take(clients)
        return Problem(chosen, self.model, self.l2, self.smoothness, targets)

    @cached_property
    def constants(self) -> Constants:
        """L_i and mu_i, with the chosen smoothness; those of a network are unknown."""
        if not isinstance(self.model, LinearModel):
            raise ScafflixError(
                f"The constants of the network {self.model.name} are unknown; choose stepsizes."
            )
        return constants_of(self.federation, self.model.curvature, self.l2, self.smoothness)


def check_problem(problem: object) -> None:
    """Refuse what a user may have put in the place of a problem."""
    instance("problem", problem, Problem, "an sx.Problem(federation, model)")


def _check_model(model: object) -> None:
    if isinstance(model, TorchNetwork):
        need_torch()
        check_functions(f"The network {shown(model.name)}", model, ("make",))
        return
    if isinstance(model, Network):
        functions = ("init", "apply", "loss", "score")
        check_functions(f"The network {shown(model.name)}", model, functions)
        return
    wanted = "a model, such as sx.models.logistic() or sx.models.cnn()"
    made = instance("model", model, LinearModel, wanted)
    check_functions(f"The model {shown(made.name)}", made, ("encode", "loss", "slope", "score"))
    low, high = numbers("The curvature of the model", made.curvature, (2,))
    if not 0 <= low <= high or not high > 0:
        raise ScafflixError(
            f"The curvature of the model is {low:g} to {high:g}; "
            "give bounds from 0 up, the smaller first."
        )
