"""Your own PyTorch module on a node. PyTorch is an optional extra: `scafflix[torch]`.

In a file that every node has, write

    learner = torch_learner(lambda: nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))

and run `scafflix deploy node --learner FILE.py:learner`; or give the file of a module that you
simulated, with `--model FILE.py:NAME`. The module computes losses and gradients in float32; the
method and the protocol are the same as for any other model. The module is in training mode for
gradients, with random numbers that depend only on their place (so a repeated message gives the same
upload), and in evaluation mode for losses and scores.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scafflix import gradients
from scafflix.core.digest import digest_of
from scafflix.core.errors import ScafflixError
from scafflix.core.streams import Stream
from scafflix.core.types import Floats
from scafflix.core.vector import Vector
from scafflix.data.federation import Federation
from scafflix.federate.configuration import DeployConfig, recipe_on_node
from scafflix.federate.examples import load_examples, numbered
from scafflix.federate.judging import Judgement
from scafflix.federate.learner import Place, Scales, own_gradient
from scafflix.gradients import Exact, Gradient
from scafflix.models.pytorch import (
    Loss,
    MakeModule,
    Score,
    TorchNetwork,
    from_torch,
    need_torch,
    torch_network,
)
from scafflix.personalization.descent import descend
from scafflix.personalization.mixing import mix
from scafflix.personalization.recipe import Recipe
from scafflix.personalization.rules.choosing import COMMON, VALIDATION, common, sifted
from scafflix.personalization.rules.contract import GRID, evidence_of
from scafflix.runs.assembly import network_defaults

if TYPE_CHECKING:
    from torch import Tensor, nn

MakeLearner = Callable[[Path, DeployConfig], "TorchLearner"]
MakeLearnerOn = Callable[[Federation, DeployConfig, tuple[Any, ...]], "TorchLearner"]


def torch_learner(
    make: MakeModule, loss: Loss | None = None, score: Score | None = None
) -> MakeLearner:
    """The function for a node's `learner`: it makes f_i from the node's file and the configuration.

    By default `loss` is cross-entropy and `score` is accuracy. Cross-entropy takes the labels as
    classes 0, 1, ...; your own loss takes them as they are.
    """
    made_on = learner_of(from_torch(make, loss, score))

    def of(path: Path, config: DeployConfig) -> TorchLearner:
        config = network_defaults(config)
        return made_on(load_examples(config, path, network=True), config, config.classes)

    return of


def learner_in(spec: str) -> MakeLearnerOn:
    """For the module that FILE.py:NAME names, with the loss and the score of its file: f_i from a
    node's examples, the configuration, and all labels that occur at any node."""
    return learner_of(torch_network(spec))


def learner_of(network: TorchNetwork) -> MakeLearnerOn:
    """The same for a module as the simulator takes it."""

    def on(examples: Federation, config: DeployConfig, classes: tuple[Any, ...]) -> TorchLearner:
        config = network_defaults(config)
        federation = examples if network.loss else numbered(examples, classes)[0]
        return TorchLearner(
            federation,
            network.make,
            network.loss,
            network.score,
            l2=config.l2 or 0.0,
            gradient=gradients.gradient(config.batch, reduced=config.reduced),
            recipe=recipe_on_node(config),
        )

    return on


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
        need_torch()
        import torch

        from scafflix.problems.making import start_of
        from scafflix.problems.modules import Module

        self.estimate = own_gradient(gradient, federation)
        self.federation, self.l2, self.recipe = federation, l2, recipe or Recipe()
        network = from_torch(make, loss, score)
        self.own = Module(network, torch.device("cpu"))
        self._start = Vector(tuple(start_of(network, self.recipe.seed).values()))

    @property
    def module(self) -> nn.Module:
        """The user's own."""
        return self.own.module

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
        settings = [str(self.own.module), repr(self.l2), repr(self.recipe)]
        fixed = self.own.fixed()
        return digest_of(settings, list(fixed), *self._start.tree, *fixed.values(), *parts)

    def start(self) -> Vector:
        return self._start

    def gradient(self, point: Vector, place: Place) -> Vector:
        seed = (place.seed, int(Stream.GRADIENT), place.round, place.number, place.step)
        size = None if isinstance(self.estimate, Exact) else self.estimate.size
        return self._slope(point, size, seed)

    def full_gradient(self, point: Vector) -> Vector:
        return self._slope(point, None, (0,))

    def loss(self, point: Vector) -> float:
        square = sum(float(np.vdot(leaf, leaf)) for leaf in point.tree)
        return self._mean("loss", point, "train") + 0.5 * self.l2 * square

    def score(self, point: Vector) -> float:
        return self._mean("score", point, "test" if self.federation.test else "train")

    def named(self, point: Vector) -> dict[str, NDArray[Any]]:
        """The arrays under the names of the module's state_dict, including what is frozen and what
        batch norms count on the node's training examples."""
        self.own.observe(self._tree(point), *self._parts["train"])
        own = {id(p): a for p, a in zip(self.own.trained.values(), point.tree, strict=True)}
        found = self.module.state_dict(keep_vars=True)
        return {name: own.get(id(p), p.detach().numpy().copy()) for name, p in found.items()}

    def counted_names(self) -> tuple[str, ...]:
        return tuple(self.own.counted())

    def about(self) -> dict[str, Any]:
        from scafflix.problems.restoring import about

        return about(self.own, self.federation.train.features)

    def computes(self) -> str:
        from scafflix.problems.restoring import tried

        return tried(self.own, self.federation.train.features.shape[1:])

    def optimum(self) -> Vector:
        """By stochastic gradients from the common start, as for the simulator's networks."""
        return self._descended(self._start, (self.recipe.seed, int(Stream.OPTIMA)))

    def tuned(self, x: Vector, number: int) -> Vector:
        """The same from a model that is good already, with the stream of this client's number."""
        return self._descended(x, (self.recipe.seed, int(Stream.OPTIMA), number))

    def _descended(self, start: Vector, stream: tuple[int, ...]) -> Vector:
        if self.federation.validation is None:
            raise ScafflixError(
                "The local optimum needs validation data for early stopping, and there are none; "
                "set validation, for example to 0.1, or set alpha = 1."
            )

        def slope(point: Vector, step: int) -> Vector:
            return self._slope(point, self.recipe.batch, (*stream, step))

        found: Vector = descend(
            start, self.recipe, slope, lambda x: self._mean("loss", x, "validation")
        )
        return found

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
        losses = [self._row_losses(mix(np.float32(a), x, x_star), "validation") for a in GRID]
        rule = common(VALIDATION) if name == COMMON else VALIDATION
        found = evidence_of(np.stack(losses, axis=1), part.owners, 1)
        one = np.array([train.labels.dtype.kind in "iub" and len(np.unique(train.labels)) == 1])
        return Judgement(rule, *sifted(rule, found, one, train.counts))

    def test_loss(self, point: Vector) -> float:
        return self._mean("loss", point, "test") if self.federation.test else np.nan

    def _slope(self, point: Vector, size: int | None, seed: Sequence[int]) -> Vector:
        from scafflix.problems.modules import as_input, drawn_rows

        rows = drawn_rows(self.examples, size, seed)
        inputs, labels = self._parts["train"]
        if rows is not None:
            inputs, labels = inputs[rows], labels[rows]
        _, g = self.own.slope(self._tree(point), as_input(inputs), labels, self.l2, seed)
        return Vector(tuple(leaf.numpy() for leaf in g.values()))

    def _mean(self, what: str, point: Vector, part: str) -> float:
        """The mean loss or score over the examples of a part."""
        outputs, labels = self._outputs(point, part)
        return float(getattr(self.own, what)(outputs, labels))

    def _row_losses(self, point: Vector, part: str) -> Floats:
        """The loss of each example of a part."""
        import torch

        both = zip(*(torch.split(one, 1) for one in self._outputs(point, part)), strict=True)
        return np.array([float(self.own.loss(outputs, labels)) for outputs, labels in both])

    def _outputs(self, point: Vector, part: str) -> tuple[Tensor, Tensor]:
        """What the module makes of the examples of a part, and their labels."""
        inputs, labels = self._parts[part]
        self.own.observe(self._tree(point), *self._parts["train"])
        return self.own.evaluated(self._tree(point), inputs, labels), labels

    @cached_property
    def _parts(self) -> dict[str, tuple[Tensor, Tensor]]:
        from scafflix.problems.modules import tensors_of

        parts = self.federation.parts.items()
        return {name: tensors_of(p.features, p.labels, self.own.device) for name, p in parts}

    def _tree(self, point: Vector) -> OrderedDict[str, Tensor]:
        from scafflix.core.tensors import as_tensor

        leaves = (as_tensor(leaf, self.own.device) for leaf in point.tree)
        return OrderedDict(zip(self.own.trained, leaves, strict=True))
