"""What a user's module may be: random, frozen, shared, in half precision; and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "torch",
    reason="PyTorch (large) is not installed; pip install 'scafflix[torch]'",
)

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import scafflix as sx
from scafflix.core.vector import Vector
from scafflix.data.federation import Examples, Federation
from scafflix.federate.bounds import problem_with_change
from scafflix.federate.client import ClientCore
from scafflix.federate.learner import Place
from scafflix.federate.messages import Evaluate, Evaluation, Hello, Introduction, Train, Upload
from scafflix.federate.naming import under_names
from scafflix.federate.pytorch import TorchLearner
from scafflix.federate.roster import new_roster
from scafflix.personalization.recipe import Recipe

FEATURES, CLASSES = 4, 3
PLACE = Place(seed=1, round=2, step=3, iteration=9, number=0, clients=2)


def federation() -> Federation:
    random = np.random.default_rng(0)
    parts = [
        Examples(
            random.normal(size=(count, FEATURES)),
            random.integers(0, CLASSES, count),
            np.array([0, count]),
        )
        for count in (48, 9, 12)
    ]
    return Federation("ward", ("a",), *parts)


def dropping() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES)
    )


class Frozen(nn.Module):
    """A body that stays, a head that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(FEATURES, 8).requires_grad_(False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x)))


class Shared(nn.Module):
    """One matrix under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES, bias=False)
        self.second = nn.Linear(FEATURES, FEATURES, bias=False)
        self.second.weight = self.first.weight
        self.out = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.second(torch.tanh(self.first(x))))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "dropout": dropping,
    "frozen": Frozen,
    "shared": Shared,
    "half": lambda: nn.Linear(FEATURES, CLASSES).half(),
    "one array": lambda: nn.Linear(FEATURES, CLASSES, bias=False),
}


def train(learner: TorchLearner) -> Train:
    return Train(
        run="r",
        epoch=0,
        round=0,
        steps=3,
        stops=False,
        iteration=0,
        number=1,
        clients=2,
        place=1,
        cohort=2,
        seed=5,
        method="scafflix",
        settings='{"p": 0.5, "pace": "cautious"}',
        gamma=0.1,
        included=-1,
        receipt="",
        report=True,
        point=learner.start().tree,
        average=(),
        restored=(),
    )


def upload(folder: Path, make: Callable[[], nn.Module] = dropping) -> Upload:
    learner = TorchLearner(federation(), make)
    reply = ClientCore("a", 1.0, learner, folder).handle(train(learner))
    assert isinstance(reply, Upload), reply
    return reply


def test_a_module_with_dropout_is_scored_as_it_will_be_used() -> None:
    learner = TorchLearner(federation(), dropping)
    x = learner.start()
    module = dropping().eval()
    module.load_state_dict({k: torch.from_numpy(a) for k, a in learner.named(x).items()})
    train = learner.federation.train
    outputs = module(torch.from_numpy(np.float32(train.features))).detach()
    expected = float(nn.functional.cross_entropy(outputs, torch.from_numpy(train.labels)))
    assert learner.loss(x) == pytest.approx(expected, rel=1e-6)
    assert len({learner.loss(x) for _ in range(3)} | {learner.score(x) for _ in range(3)}) == 2


def test_the_search_for_a_local_optimum_is_stopped_by_losses_without_dropout() -> None:
    modes = []

    class Watched(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            modes.append((self.training, len(x)))
            return super().forward(x)

    recipe = Recipe(stepsize=0.1, batch=7, steps=4, check=2)
    learner = TorchLearner(federation(), lambda: Watched(FEATURES, CLASSES), recipe=recipe)
    learner.optimum()
    validation = len(learner.federation.parts["validation"].labels)
    look, step = (False, validation), (True, 7)
    assert modes == [look, step, step, look, step, step, look]


def test_a_module_that_draws_in_evaluation_too_has_one_score() -> None:
    class Noisy(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.dropout(super().forward(x), 0.5)  # always

    learner = TorchLearner(federation(), lambda: Noisy(FEATURES, CLASSES))
    assert learner.loss(learner.start()) == learner.loss(learner.start())


def test_dropout_depends_on_the_place_alone_and_leaves_the_callers_numbers() -> None:
    learner = TorchLearner(federation(), dropping)
    x = learner.start()
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first = learner.gradient(x, PLACE).tree[0]
    learner.score(x)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(12)
    np.testing.assert_array_equal(learner.gradient(x, PLACE).tree[0], first)
    for other in ({"step": 4}, {"round": 3}, {"number": 1}, {"seed": 2}):
        assert np.abs(learner.gradient(x, PLACE._replace(**other)).tree[0] - first).max() > 1e-4


def test_a_repeated_message_gives_the_same_upload_bit_for_bit(tmp_path: Path) -> None:
    """Also in a process of its own and without what the first left behind."""
    words = "import sys; from pathlib import Path; import test_pytorch_modules as t; "
    words += "sys.stdout.buffer.write(t.upload(Path(sys.argv[1])).point[0].tobytes())"
    told = subprocess.run(
        [sys.executable, "-c", words, str(tmp_path / "two")],
        capture_output=True,
        cwd=Path(__file__).parent,
        check=True,
    ).stdout
    torch.rand(3)
    assert upload(tmp_path / "one").point[0].tobytes() == told


@pytest.mark.parametrize("name", MODULES)
def test_a_model_is_saved_so_that_its_module_loads_it(name: str, tmp_path: Path) -> None:
    learner = TorchLearner(federation(), MODULES[name])
    core = ClientCore("a", 1.0, learner, tmp_path)
    asked = train(learner)
    assert isinstance(core.handle(asked), Upload)
    x = tuple(array + np.float32(0.25) for array in asked.point)
    end = Evaluate("r", 0, 1, 0, 0, 2, 0, asked.method, asked.settings, 0.1, -1, "", x, (), ())
    told = core.handle(end)
    assert isinstance(told, Evaluation), told
    torch.manual_seed(0)
    module = MODULES[name]().float()
    start = {key: value.clone() for key, value in module.state_dict().items()}
    module.load_state_dict(load_file(core.model_path("r")))
    for key, value in module.state_dict().items():
        moved = 0.0 if key.startswith("body.") else 0.25
        np.testing.assert_allclose(value - start[key], moved, atol=2e-3)  # half starts are rounded
    # and the server's record has the trained ones under the same names
    names = core.introduce(Hello(False)).names
    record = under_names("global", names, x)
    trained = {f"global/{key}" for key in start if not key.startswith("body.")}
    assert set(record) == trained


def test_frozen_parameters_stay_and_are_not_sent() -> None:
    learner = TorchLearner(federation(), Frozen)
    assert [a.shape for a in learner.start().tree] == [(CLASSES, 8), (CLASSES,)]
    body = learner.module.body.weight.detach().clone()
    learner.gradient(learner.start(), PLACE)
    assert torch.equal(learner.module.body.weight, body)


class Adapted(nn.Module):
    """A frozen base, from anywhere, and adapters of rank 1 that are trained."""

    def __init__(self, base: float = 1.0) -> None:
        super().__init__()
        self.base = nn.Linear(FEATURES, CLASSES)
        nn.init.constant_(self.base.weight, base)
        self.base.requires_grad_(False)
        self.down = nn.Linear(FEATURES, 1, bias=False)
        self.up = nn.Linear(1, CLASSES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def test_of_a_module_with_adapters_only_these_travel(tmp_path: Path) -> None:
    learner = TorchLearner(federation(), Adapted)
    core = ClientCore("a", 1.0, learner, tmp_path)
    told, asked = core.introduce(Hello(start=True)), train(learner)
    sent = core.handle(asked)
    assert isinstance(sent, Upload), sent
    for arrays in (told.start, asked.point, sent.point):
        assert sum(array.size for array in arrays) == FEATURES + CLASSES


def introduced(name: str, make: Any, folder: Path, own: Federation | None = None) -> Introduction:
    core = ClientCore(name, 1.0, TorchLearner(own or federation(), make), folder / name)
    return core.introduce(Hello(start=False))


def test_nodes_whose_frozen_bases_differ_are_not_averaged(tmp_path: Path) -> None:
    one = introduced("a", Adapted, tmp_path)
    parts = federation()
    other = replace(parts, train=replace(parts.train, features=7 * parts.train.features))
    alike = introduced("b", Adapted, tmp_path, other)
    assert alike.computes == one.computes != ""  # whatever their examples are
    assert len(new_roster([one, alike]).introductions) == 2
    changed = introduced("c", lambda: Adapted(base=1.1), tmp_path)
    assert changed.layout == one.layout
    with pytest.raises(sx.ScafflixError, match="client c computes something else than that of"):
        new_roster([one, alike, changed])
    fault = problem_with_change(changed, one)
    assert fault is not None
    assert "computes something else" in fault.reason
    hostile = one._replace(client="d", computes='[[4], ["x"]]')
    with pytest.raises(sx.ScafflixError, match="client d computes something else"):
        new_roster([one, hostile])


def test_the_gradient_of_a_shared_parameter_is_that_of_both_its_places() -> None:
    learner = TorchLearner(federation(), Shared)
    x, away = learner.start(), 1e-2
    shared, *rest = x.tree
    direction = np.float32(np.random.default_rng(1).normal(size=shared.shape))
    up, down = (Vector((shared + s * away * direction, *rest)) for s in (1, -1))
    slope = (learner.loss(up) - learner.loss(down)) / (2 * away)
    found = float(np.vdot(learner.gradient(x, PLACE).tree[0], direction))
    assert found == pytest.approx(slope, rel=1e-2)


def test_a_parameter_that_the_outputs_do_not_use_has_the_gradient_zero() -> None:
    def make() -> nn.Module:
        module = nn.Linear(FEATURES, CLASSES)
        module.spare = nn.Parameter(torch.ones(2))
        return module

    learner = TorchLearner(federation(), make)
    spare = learner.gradient(learner.start(), PLACE).tree[2]
    np.testing.assert_array_equal(spare, np.zeros(2))


def tokens() -> nn.Module:
    return nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(16, CLASSES))


class Half(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.half())


def lazy() -> Any:
    return nn.LazyLinear(CLASSES)


def without(reduction: str) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda outputs, y: nn.functional.cross_entropy(outputs, y, reduction=reduction)


def plain() -> nn.Module:
    return nn.Linear(FEATURES, CLASSES)


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(
    ("make", "loss", "sentence"),
    [
        (tokens, None, r"fails on inputs of torch.float32 and shape \(48, 4\) .*tokens.long"),
        (lambda: Half(FEATURES, CLASSES), None, r"parameters and inputs are float32"),
        (plain, without("none"), r"The loss of a batch has the shape \(48,\); .* one number"),
        (plain, lambda x, y: x.detach().mean(), "The loss has no gradient"),
        (plain, lambda x, y: 1.0, "The loss has no gradient"),
        (lambda: plain().requires_grad_(False), None, "nothing to train"),
        (lazy, None, "The parameter weight has no shape yet"),
        (lambda: nn.ParameterList([nn.Parameter(torch.tensor(1.0))]), None, "0 is a scalar"),
        (lambda: nn.Linear(4, 3, dtype=torch.complex64), None, "weight is complex"),
        (lambda: nn.Linear, None, "returns a type; it must return a torch.nn.Module"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(make: Any, loss: Any, sentence: str) -> None:
    def try_it() -> None:
        learner = TorchLearner(federation(), make, loss)
        learner.gradient(learner.start(), PLACE)

    with pytest.raises(sx.ScafflixError, match=sentence) as refused:
        try_it()
    assert "\n" not in str(refused.value)


def test_a_score_that_is_no_number_is_one_sentence() -> None:
    learner = TorchLearner(federation(), plain, score=lambda x, y: x.argmax(1) == y)
    with pytest.raises(sx.ScafflixError, match=r"The score of a batch has the shape \(9,\)"):
        learner.score(learner.start())
