"""What a module may be in the simulator: random, frozen, with batch norms and a loss of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "torch",
    reason="PyTorch (large) is not installed; pip install 'scafflix[torch]'",
)

import torch
from torch import Tensor, nn

import miniature
import scafflix as sx
from scafflix.core.checkpoint import Checkpoints, Often
from scafflix.gradients import Exact, Minibatch
from scafflix.problems.curvature import curvatures
from scafflix.problems.evaluation import evaluate
from scafflix.problems.logits import in_bins
from torch_pairs import pair, stars

FEATURES, CLASSES = miniature.FEATURES, miniature.CLASSES


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, CLASSES))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.BatchNorm1d(6), nn.Linear(6, CLASSES))


class Adapted(nn.Module):
    """A frozen matrix, and a product of two thin ones that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(FEATURES, CLASSES).requires_grad_(False)
        self.down = nn.Linear(FEATURES, 1, bias=False)
        self.up = nn.Linear(1, CLASSES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def problem(make: Any = plain, **own: Any) -> sx.Problem:
    return sx.Problem(miniature.federation(), sx.models.from_torch(make, **own))


def run(small: sx.Problem, name: str = "scafflix", seed: int = 0, **options: Any) -> sx.Record:
    alpha = np.full(small.n, 0.5)
    gradient = options.pop("gradient", Minibatch(4))
    method = miniature.method(name, alpha, np.full(small.n, 0.1), gradient=gradient)
    x_star = options.pop("x_star", miniature.points(small, scale=0.3))
    person = sx.Personalization(alpha, x_star, start=sx.Start(small.start(0)))
    asked = {"rounds": 6, "cohort": 3, "every": 3, **options}
    return sx.run(small, person, method, seed=seed, **asked)


def assert_same_bits(one: sx.Record, other: sx.Record) -> None:
    assert one.models.keys() == other.models.keys()
    for name, array in one.models.items():
        np.testing.assert_array_equal(array, other.models[name])
    for name, column in one.metrics.items():
        np.testing.assert_array_equal(column, other.metrics[name])


@pytest.mark.parametrize("make", [plain, dropping, normed])
def test_a_run_is_the_same_to_the_bit_and_another_seed_is_another_run(make: Any) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = run(problem(make))
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert_same_bits(one, run(problem(make)))
    other = run(problem(make), seed=1)
    name = next(name for name in one.models if name.startswith("global/"))
    assert np.abs(one.models[name] - other.models[name]).max() > 1e-4


@pytest.mark.parametrize("store", ["memory", "disk"])
@pytest.mark.parametrize("name", ["scafflix", "tamuna", "ditto"])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    name: str, store: str, tmp_path: Path
) -> None:
    small = problem(dropping)
    whole = run(small, name, store=store)

    def stop(done: int, rounds: int, standing: Any) -> None:
        if done == 4:
            raise KeyboardInterrupt

    place = Checkpoints(tmp_path, Often(rounds=2))
    with pytest.raises(KeyboardInterrupt):
        run(small, name, store=store, checkpoints=place, progress=stop)
    seen: list[int] = []

    def watch(done: int, rounds: int, standing: Any) -> None:
        seen.append(done)

    again = run(small, name, store=store, checkpoints=place, progress=watch)
    assert seen[0] > 1
    assert_same_bits(whole, again)


def test_another_module_does_not_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    place = Checkpoints(tmp_path, Often(rounds=2))

    def stop(done: int, rounds: int, standing: Any) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(problem(plain), checkpoints=place, progress=stop)
    other = problem(lambda: plain().append(nn.Tanh()), name="plain")
    with pytest.raises(sx.ScafflixError, match="its digest of the loss is"):
        run(other, checkpoints=place)


def test_frozen_parameters_are_in_no_message_and_no_state() -> None:
    small = problem(Adapted)
    assert list(small.template) == ["down.weight", "up.weight"]
    assert small.size == FEATURES + CLASSES
    record = run(small)
    per_round = 32 * small.size * 3
    assert record.metrics["bits_up"][-1] == 6 * per_round
    assert {name.partition("/")[2] for name in record.models} == set(small.template)


def test_every_client_has_the_statistics_of_its_own_training_examples() -> None:
    small = problem(normed)
    x = small.start(0)
    found = evaluate(small, "test", x)
    fed = small.federation
    for client in (0, 3):
        module = normed()
        with torch.no_grad():
            for name, p in module.named_parameters():
                p.copy_(torch.from_numpy(x[name]))
        module.train()[1].momentum = None
        inputs, labels = _examples(fed.train, client)
        module(inputs)
        inputs, labels = _examples(fed.parts["test"], client)
        loss = nn.functional.cross_entropy(module.eval()(inputs), labels).detach()
        assert found.loss[client] == pytest.approx(float(loss), rel=1e-5)
    assert "1.running_mean" not in small.template


def _examples(part: Any, client: int) -> tuple[Tensor, Tensor]:
    rows = slice(part.offsets[client], part.offsets[client + 1])
    return torch.from_numpy(part.features[rows]), torch.from_numpy(part.labels[rows])


def test_batch_norms_that_are_frozen_keep_their_statistics() -> None:
    def make() -> nn.Module:
        module = normed()
        module[1].requires_grad_(False)
        module[1].running_mean += 2.0
        return module

    small = problem(make)
    x = small.start(0)
    module = make().eval()
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name in x:
                p.copy_(torch.from_numpy(x[name]))
        inputs, labels = _examples(small.federation.parts["test"], 3)
        loss = nn.functional.cross_entropy(module(inputs), labels)
    assert evaluate(small, "test", x).loss[3] == pytest.approx(float(loss), rel=1e-5)


def test_a_loss_of_ones_own_takes_labels_as_they_are() -> None:
    def absolute(outputs: Tensor, labels: Tensor) -> Tensor:
        return (outputs[:, 0] - labels).abs().mean()

    def far_off(outputs: Tensor, labels: Tensor) -> Tensor:
        return ((outputs[:, 0] - labels).abs() > 1).float().mean()

    network = sx.models.from_torch(lambda: nn.Linear(FEATURES, 1), absolute, far_off)
    random = np.random.default_rng(0)
    parts = [(random.normal(size=(20, FEATURES)), random.normal(size=20)) for _ in range(3)]
    clients = {str(k): part for k, part in enumerate(parts)}
    small = sx.Problem(sx.data.from_clients(clients, held_out=clients), network)
    x = small.start(0)
    found = evaluate(small, "test", x)
    outputs = parts[1][0] @ x["weight"][0] + x["bias"]
    assert found.loss[1] == pytest.approx(np.abs(outputs - parts[1][1]).mean(), rel=1e-5)
    assert small.network.metric == "far off"


def test_curvatures_are_those_of_the_same_network_in_jax() -> None:
    theirs, mine = pair("dense")
    one, other = stars(theirs, mine)
    found = curvatures(mine, other)
    assert np.median(np.abs(found / curvatures(theirs, one) - 1)) < 0.05


def test_a_module_is_better_for_training_and_its_record_is_reported(tmp_path: Path) -> None:
    small = problem()
    person = sx.personalize(small, "auto", recipe=sx.Recipe(stepsize=0.3, steps=40, batch=8))
    plan = sx.plan(small, person, gradient=Exact(), stepsize=0.3)
    record = sx.run(small, person, sx.scafflix(plan), rounds=30, cohort=4)
    loss = record.metrics["test_loss"]
    assert loss[-1] < loss[0]
    assert sx.Record.load(record.save(tmp_path / "run")).config["model"] == "plain"
    module = small.module(record.personal_model("client-3"), "client-3")
    inputs, labels = _examples(small.federation.parts["test"], 3)
    right = (module(inputs).argmax(1) == labels).double().mean()
    assert record.clients["test_personal"][3] == pytest.approx(float(right), abs=1e-6)


def test_a_clients_module_has_its_statistics_and_what_is_frozen() -> None:
    small = problem(normed)
    x = small.start(0)
    module = small.module(x, "client-3")
    inputs, labels = _examples(small.federation.parts["test"], 3)
    loss = nn.functional.cross_entropy(module(inputs), labels).detach()
    assert evaluate(small, "test", x).loss[3] == pytest.approx(float(loss), rel=1e-5)
    adapted = problem(Adapted)
    first, second = (adapted.module(adapted.start(seed), "client-0") for seed in (0, 1))
    assert torch.equal(first.base.weight, second.base.weight)
    for model, client in (({"weight": x["0.weight"]}, "client-3"), (x, "nobody")):
        with pytest.raises(sx.ScafflixError, match=r"personal_model|no client"):
            small.module(model, client)


class Two(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()


class Pairs(nn.Linear):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x), x


class Counting(nn.Linear):
    def __init__(self) -> None:
        super().__init__(FEATURES, CLASSES)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return super().forward(x)


class Failing(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[:, :2])


class Logarithm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(0 * x)


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "arguments": (Two, r"test_torch_modules.py, line \d+: Two needs the arguments width; name"),
    "no logits": (lambda: Pairs(FEATURES, CLASSES), r"line \d+: forward returns a tuple for 4 ex"),
    "few axes": (
        lambda: nn.Sequential(nn.Linear(FEATURES, 1), nn.Flatten(0)),
        r"forward returns the shape \(4,\) .*; it must return logits",
    ),
    "few classes": (
        lambda: nn.Linear(FEATURES, 2),
        r"line \d+: The network .* has 2 classes, but a label is 2",
    ),
    "a count": (Counting, r"line \d+: The buffer seen changes while the module trains, and it is"),
    "an error": (
        lambda: Failing(FEATURES, CLASSES),
        rf"test_torch_modules.py, line \d+: The module or its loss fails on inputs of "
        rf"torch.float32 and shape \(4, {FEATURES}\)",
    ),
    "no numbers": (
        lambda: nn.Sequential(nn.Linear(FEATURES, CLASSES), Logarithm()),
        "forward returns NaN or infinity for the first 4 examples, before any training",
    ),
    "no module": (lambda: 3, r"line \d+: The function for the module returns a int"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_simulated_is_one_sentence_with_file_and_line(case: str) -> None:
    make, sentence = REFUSED[case]
    with pytest.raises(sx.ScafflixError, match=sentence) as refused:
        problem(make)
    assert "\n" not in str(refused.value)


def test_a_run_that_diverges_is_scored_to_its_end() -> None:
    record = run(problem(plain, loss=lambda outputs, labels: -(outputs**8).sum()), rounds=4)
    assert record.summary["diverged"] is not None
    for outputs in (torch.full((3, CLASSES), np.nan), torch.full((3, CLASSES), np.inf)):
        assert np.isfinite(in_bins(outputs, torch.zeros(3, dtype=torch.long))).all()


def test_an_instance_is_no_function_that_makes_modules() -> None:
    for module in (plain(), Adapted()):
        with pytest.raises(sx.ScafflixError, match="every worker makes its own"):
            sx.models.from_torch(module)


def test_weights_keep_the_memory_format_in_which_the_module_has_them() -> None:
    seen: list[tuple[tuple[int, ...], ...]] = []

    class Striped(nn.Module):
        """Made and used in channels_last."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(1, 3, 2)  # of one channel the strides alone tell the order
            self.second = nn.Conv2d(3, 6, 2)
            self.last = nn.Linear(6, CLASSES)
            self.to(memory_format=torch.channels_last)

        def forward(self, x: Tensor) -> Tensor:
            seen.append((self.first.weight.stride(), self.second.weight.stride()))
            image = (x[:, None, :, None] * x[:, None, None, :]).tanh()
            return self.last(self.second(self.first(image)).mean((2, 3)))

    class Plain(Striped):
        """The same in PyTorch's usual order."""

        def __init__(self) -> None:
            super().__init__()
            self.to(memory_format=torch.contiguous_format)

    one, as_made = run(problem(Striped)), Striped()
    assert set(seen) == {(as_made.first.weight.stride(), as_made.second.weight.stride())}
    other = run(problem(Plain))
    for name, array in one.models.items():
        np.testing.assert_allclose(array, other.models[name], atol=1e-5)


@pytest.mark.parametrize(("width", "workers"), [(8, 2), (2**20, None)])
def test_clients_of_a_large_module_follow_each_other(
    width: int, workers: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    functions = problem(
        lambda: nn.Sequential(nn.Linear(FEATURES, width), nn.Linear(width, CLASSES))
    )
    assert functions.torch is not None
    pool = functions.torch._pool
    assert workers == (None if pool is None else pool._max_workers)
