"""A mean over rounds as the model: which mean, that nothing else changes, and what it gains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import scafflix as sx
from cases import Case, follow
from scafflix.methods import averaging
from scafflix.methods.averaging import averaged
from scafflix.methods.method import Server, keep_mean
from scafflix.record import Record
from scafflix.runs.config import RunConfig, build
from scafflix.runs.runner import execute
from scafflix.simulate.planning import optima

SHARE = 0.3
MODULE = """
from torch import nn

def perceptron():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
"""


def weights(rounds: int, share: float) -> NDArray[np.float64]:
    """Of rounds 1, 2, ... in the mean, written out: w_s prod_{t > s} (1 - w_t)."""
    each = 1 / (1 + share * np.arange(rounds))
    return np.array([each[s] * np.prod(1 - each[s + 1 :]) for s in range(rounds)])


def mean_of(rows: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """What the server makes of these models, one in each round."""
    server = averaging.init_server(Server, np.ones(rows.shape[1]))
    for row in rows:
        server = averaging.combine(keep_mean, share, server, row, 1.0)
    return np.asarray(server.x)


def test_most_of_the_weight_lies_on_the_last_rounds_and_none_on_the_start() -> None:
    for rounds in (1, 7, 1000):
        made = mean_of(np.eye(rounds), SHARE)
        np.testing.assert_allclose(made, weights(rounds, SHARE), rtol=1e-9)
        assert made.sum() == pytest.approx(1)  # of a start of ones nothing is left
    many = mean_of(np.eye(1000), 0.1)
    assert many[-100:].sum() > 0.6
    assert many[:500].sum() < 0.002
    ratio = many[-1] / many[-501]  # (s/r)^(1/share - 1)
    assert ratio == pytest.approx(2.0**9, rel=0.05)


@pytest.mark.parametrize("name", ["scafflix", "fedavg", "nesterov", "fedlin", "tamuna", "feddyn"])
def test_the_model_is_the_mean_of_what_the_method_makes_and_clients_notice_nothing(
    name: str, logistic_case: Case
) -> None:
    case, method = logistic_case, sx.METHODS[name](logistic_case.plan)
    plain = follow(case.problem, case.person, method)
    made = follow(case.problem, case.person, averaged(method, SHARE))
    models = np.array([one.x for one in plain.snapshots])
    for r, one in enumerate(made.snapshots[1:], 1):
        mean = np.tensordot(weights(r, SHARE), models[1 : r + 1], 1)
        np.testing.assert_allclose(one.x, mean, rtol=1e-11)
        if one.h is not None:
            np.testing.assert_allclose(one.h, plain.snapshots[r].h, rtol=1e-11)
    assert made.local_steps == plain.local_steps
    assert np.abs(made.snapshots[-1].x - models[-1]).max() > 1e-6


def test_the_mean_of_noisy_rounds_is_nearer_to_the_optimum(logistic_case: Case) -> None:
    case = logistic_case
    (optimum,) = optima(case.problem, [case.person])
    advice = sx.plan(case.problem, case.person, gradient=sx.gradients.Noisy(1.0))

    def errors(share: float) -> NDArray[np.float64]:
        method = averaged(sx.scafflix(advice), share)
        runs = [sx.Run(case.person, method, seed) for seed in range(8)]
        records = sx.sweep(case.problem, runs, rounds=400)
        return np.array([np.sum((one.models["global"] - optimum.x) ** 2) for one in records])

    last, mean = errors(0.0), errors(0.2)
    assert mean.mean() < 0.3 * last.mean()
    assert (mean < last).all()


def test_no_share_is_the_method_itself_and_all_of_it_is_refused(logistic_case: Case) -> None:
    method = sx.scafflix(logistic_case.plan)
    assert averaged(method, 0) is method
    for share in (1.0, -0.1, float("nan")):
        with pytest.raises(sx.ScafflixError, match=r"^average is "):
            averaged(method, share)


def test_there_is_no_certificate_for_a_mean(logistic_case: Case) -> None:
    case = logistic_case
    made = sx.run(case.problem, case.person, averaged(sx.scafflix(case.plan), SHARE), rounds=3)
    assert made.summary["certificate"] is None
    assert "a mean over rounds" in made.summary["no_certificate"]


NETWORK: dict[str, Any] = {
    "data": "iris", "clients": 4, "split": "shuffled", "scale": "standard", "test": 0.2,
    "alpha": 1.0, "cohort": 2, "batch": 4, "optima": "none", "stepsize": 0.1, "p": 0.5,
}  # fmt: skip


def record(model: str, rounds: int, share: float = 0.0) -> Record:
    keys = {**NETWORK, "model": model, "rounds": rounds, "average": share}
    return execute(build(RunConfig, keys))


@pytest.mark.parametrize("model", ["dense", "module"])
def test_of_networks_and_modules_too(model: str, tmp_path: Path) -> None:
    if model == "module":
        pytest.importorskip("torch", reason="PyTorch (large) is not installed")
        (tmp_path / "module.py").write_text(MODULE)
        model = f"{tmp_path}/module.py:perceptron"
    plain = [record(model, rounds) for rounds in (1, 2, 3)]
    made = record(model, 3, SHARE)
    names = [name for name in made.models if name.startswith("global")]
    assert names
    for name in names:
        mean = np.tensordot(weights(3, SHARE), np.array([one.models[name] for one in plain]), 1)
        np.testing.assert_allclose(made.models[name], mean, rtol=2e-5, atol=1e-7)
    assert made.metrics["bits_down"][-1] == plain[-1].metrics["bits_down"][-1]
