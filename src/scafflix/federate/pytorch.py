"""Your own PyTorch module on a node. PyTorch is an optional extra: `scafflix[torch]`.

In a file that every node has, write

    learner = torch_learner(lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))

and run `scafflix deploy node --learner FILE.py:learner`. The module computes losses and gradients
in float32; the method and the protocol are the same as for any other model. The module is in
training mode for gradients, with random numbers that depend only on their place (so a repeated
message gives the same upload), and in evaluation mode for losses and scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scafflix import gradients
from scafflix.core.digest import digest_of
from scafflix.core.errors import ScafflixError
from scafflix.core.streams import Stream
from scafflix.core.vector import Vector
from scafflix.data.federation import Examples, Federation
from scafflix.federate.configuration import DeployConfig
from scafflix.federate.descent import descend
from scafflix.federate.examples import load_examples, numbered
from scafflix.federate.judging import Judgement
from scafflix.federate.learner import Place, Scales, own_gradient
from scafflix.gradients import Gradient, Minibatch
from scafflix.personalization.mixing import mix
from scafflix.personalization.optima import Recipe
from scafflix.personalization.rules.choosing import COMMON, VALIDATION, common, sifted
from scafflix.personalization.rules.contract import GRID, Evidence
from scafflix.runs.assembly import network_defaults, recipe_of

if TYPE_CHECKING:
    from torch import Tensor, nn

MakeModule = Callable[[], "nn.Module"]
Loss = Callable[["Tensor", "Tensor"], "Tensor"]  # (outputs, labels) -> mean over a batch
Score = Callable[["Tensor", "Tensor"], "Tensor"]

AT_ONCE = 1024  # examples evaluated together
STILL = (0,)  # the seed for evaluations, for a module that draws random numbers even then


def torch_learner(
    make: MakeModule, loss: Loss | None = None, score: Score | None = None
) -> Callable[[Path, DeployConfig], TorchLearner]:
    """The function for a node's `learner`: it makes f_i from the node's file and the configuration.

    By default `loss` is cross-entropy and `score` is accuracy. Cross-entropy takes the labels as
    classes 0, 1, ...; your own loss takes them as they are.
    """

    def of(path: Path, config: DeployConfig) -> TorchLearner:
        config = network_defaults(config)
        federation = load_examples(config, path, network=True)
        if loss is None:
            federation, _ = numbered(federation, config.classes)
        return TorchLearner(
            federation,
            make,
            loss,
            score,
            l2=config.l2 or 0.0,
            gradient=gradients.gradient(config.batch),
            recipe=recipe_of(config),
        )

    return of


class TorchLearner:
    """f_i of a module; theory gives no stepsize for it, so the server must.

    The module is made with the recipe's seed, so that every node starts from the same point.
    """

    scales = Scales()

    def __init__(
        self,
        federation: Federation,
        make: MakeModule,
        loss: Loss | None = None,
        score: Score | None = None,
        *,
        l2: float = 0.0,
        gradient: Gradient | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        try:
            import torch
        except ImportError:
            raise ScafflixError(
                "PyTorch is not installed; run: pip install 'scafflix[torch]'"
            ) from None
        self._gradient = own_gradient(gradient, federation)
        self.federation, self.l2, self.recipe = federation, l2, recipe or Recipe()
        self._loss = loss or torch.nn.functional.cross_entropy
        self._score = score or _accuracy
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.recipe.seed)
            self.module = _suitable(make())
        self._parameters = [p for p in self.module.parameters() if p.requires_grad]
        self._start = Vector(tuple(p.detach().numpy().copy() for p in self._parameters))

    @property
    def examples(self) -> int:
        return int(self.federation.train.counts[0])

    @cached_property
    def fingerprint(self) -> str:
        parts = [
            array
            for name, part in self.federation.parts.items()
            for array in (name, part.features, part.labels)
        ]
        settings = [str(self.module), repr(self.l2), repr(self.recipe)]
        return digest_of(settings, *self.named(self._start).values(), *parts)

    def start(self) -> Vector:
        return self._start

    def gradient(self, point: Vector, place: Place) -> Vector:
        seed = (place.seed, int(Stream.GRADIENT), place.round, place.number, place.step)
        size = self._gradient.size if isinstance(self._gradient, Minibatch) else None
        return self._slope(point, self._rows(size, seed), seed)

    def loss(self, point: Vector) -> float:
        square = sum(float(np.vdot(leaf, leaf)) for leaf in point.tree)
        return self._mean("loss", point, self.federation.train) + 0.5 * self.l2 * square

    def score(self, point: Vector) -> float:
        part = self.federation.test or self.federation.train
        return self._mean("score", point, part)

    def named(self, point: Vector) -> dict[str, NDArray[Any]]:
        """The arrays under the names of the module's state_dict, including frozen parameters."""
        own = {id(p): leaf for p, leaf in zip(self._parameters, point.tree, strict=True)}
        found = self.module.state_dict(keep_vars=True)
        return {name: own.get(id(p), p.detach().numpy()) for name, p in found.items()}

    def optimum(self) -> Vector:
        """By stochastic gradients from the common start, as for the simulator's networks."""
        validation = self.federation.validation
        if validation is None:
            raise ScafflixError(
                "The local optimum needs validation data for early stopping, and there are none; "
                "set validation, for example to 0.1, or set alpha = 1."
            )

        def slope(point: Vector, step: int) -> Vector:
            seed = (self.recipe.seed, int(Stream.OPTIMA), step)
            return self._slope(point, self._rows(self.recipe.batch, seed), seed)

        return descend(self._start, self.recipe, slope, lambda x: self._mean("loss", x, validation))

    def rule(self, word: str) -> str:
        if word in ("loo", "james-stein"):
            raise ScafflixError(
                f"alpha is {word!r}, which needs the Hessian of a linear model; for a PyTorch "
                "module use validation."
            )
        if self.federation.validation is None:
            raise ScafflixError(
                f"alpha is {word!r}, which goes by validation examples for a PyTorch module, and "
                "this node has none; set validation, for example to 0.1, or give it a number."
            )
        return COMMON if word == COMMON else VALIDATION.name

    def judged(self, word: str, x_star: Vector, x: Vector, clients: int) -> Judgement:
        name, train, part = self.rule(word), self.federation.train, self.federation.validation
        assert part is not None
        losses = [self._mean("loss", mix(np.float32(a), x, x_star), part) for a in GRID]
        rule = common(VALIDATION) if name == COMMON else VALIDATION
        found = Evidence(np.array([losses]), part.counts.astype(float))
        one = np.array([train.labels.dtype.kind in "iub" and len(np.unique(train.labels)) == 1])
        return Judgement(rule, *sifted(rule, found, one, train.counts))

    def test_loss(self, point: Vector) -> float:
        test = self.federation.test
        return np.nan if test is None else self._mean("loss", point, test)

    def _rows(self, size: int | None, seed: Sequence[int]) -> NDArray[np.int64]:
        """The rows of a batch, drawn with replacement, or all rows."""
        if size is None:
            return np.arange(self.examples)
        return np.random.default_rng(seed).integers(0, self.examples, size)

    def _slope(self, point: Vector, rows: NDArray[np.int64], seed: Sequence[int]) -> Vector:
        import torch

        self._load(point)
        self.module.train()
        with _random(seed):
            value = self._value("loss", self.federation.train, rows)
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            raise ScafflixError(
                "The loss has no gradient in the module's parameters; compute it with PyTorch from "
                "the module's outputs, without detach() or no_grad()."
            )
        found = torch.autograd.grad(
            value, self._parameters, allow_unused=True, materialize_grads=True
        )
        g = Vector(tuple(leaf.to_dense().numpy() for leaf in found))
        return g + self.l2 * point if self.l2 else g

    def _mean(self, what: str, point: Vector, part: Examples) -> float:
        """The mean loss or score over the examples of a part."""
        import torch

        self._load(point)
        self.module.eval()
        total, count = 0.0, len(part.labels)
        with torch.no_grad(), _random(STILL):
            for first in range(0, count, AT_ONCE):
                rows = np.arange(first, min(first + AT_ONCE, count))
                total += len(rows) * float(self._value(what, part, rows))
        return total / count

    def _value(self, what: str, part: Examples, rows: NDArray[np.int64]) -> Any:
        """The loss or the score of a batch."""
        inputs, labels = _tensors(part, rows)
        function = self._loss if what == "loss" else self._score
        try:
            value = function(self.module(inputs), labels)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            why = " ".join(str(error).split())[:300]
            raise ScafflixError(
                f"The module or its {what} fails on inputs of torch.float32 and shape "
                f"{tuple(inputs.shape)} with labels of {labels.dtype}: {why} The module's "
                "parameters and inputs are float32; if it needs another type, convert the inputs "
                "in forward, for example with tokens.long()."
            ) from error
        shape = tuple(getattr(value, "shape", ()))
        if int(np.prod(shape)) != 1:
            raise ScafflixError(
                f"The {what} of a batch has the shape {shape}; it must be one number, the mean "
                "over the batch, as with reduction='mean'."
            )
        return value

    def _load(self, point: Vector) -> None:
        """Copy this point into the module's parameters."""
        import torch

        with torch.no_grad():
            for parameter, leaf in zip(self._parameters, point.tree, strict=True):
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(leaf)))


@contextmanager
def _random(seed: Sequence[int]) -> Iterator[None]:
    """Seed PyTorch's random numbers; the caller's generator is left as it was."""
    import torch

    (state,) = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(state))
        yield


def _suitable(module: Any) -> nn.Module:
    """The module in float32, if it can be averaged."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise ScafflixError(
            f"The function for the module returns a {type(module).__name__}; it must return a "
            "torch.nn.Module."
        )
    if list(module.buffers()):
        raise ScafflixError(
            "The module has buffers, such as the running means of BatchNorm, which are not "
            "parameters and would not be averaged; use GroupNorm or LayerNorm, for example."
        )
    for name, parameter in module.named_parameters():
        if torch.nn.parameter.is_lazy(parameter):
            raise ScafflixError(
                f"The parameter {name} has no shape yet; pass a batch through the module in the "
                "function that makes it."
            )
        if parameter.is_complex() or (parameter.requires_grad and parameter.ndim == 0):
            raise ScafflixError(
                f"The parameter {name} is {'complex' if parameter.is_complex() else 'a scalar'}; "
                "it must be a real array; use a real type, and give a scalar the shape (1,)."
            )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ScafflixError(
            "The module has nothing to train; set requires_grad for at least one parameter."
        )
    return module.cpu().float()


def _tensors(part: Examples, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Inputs and labels of some rows: whole numbers as int64, the rest in float32."""
    import torch

    features, labels = part.features[rows], part.labels[rows]
    features = features if isinstance(features, np.ndarray) else features.toarray()
    kinds = [np.int64 if a.dtype.kind in "iub" else np.float32 for a in (features, labels)]
    kinds[0] = np.float32  # also for images stored as bytes
    return torch.from_numpy(features.astype(kinds[0])), torch.from_numpy(labels.astype(kinds[1]))


def _accuracy(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs.argmax(dim=1) == labels).float().mean()
