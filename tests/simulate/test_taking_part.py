"""What a record says of the models that clients take home, against the same by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import scafflix as sx
from scafflix.core.checkpoint import Checkpoints, Often
from scafflix.core.progress import Standing
from scafflix.models.calibration import BINS
from scafflix.simulate.intervals import DIFFERENCE_OF_SHARES, SHARE, intervals
from scafflix.simulate.taking_part import taken_home

KINDS = ("local", "global", "personal")
ROUNDS = 6


@cache
def federation() -> sx.data.Federation:
    return sx.data.load(
        "synthetic:rows=24,features=5,optima=1", clients=5, test=0.4, validation=0.2
    )


@cache
def linear() -> sx.Problem:
    return sx.Problem(federation(), sx.models.logistic(), l2=0.1)


@cache
def network() -> sx.Problem:
    return sx.Problem(federation(), sx.models.dense(features=5, classes=2, hidden=(4,)))


def run(problem: sx.Problem, alpha: Any = 0.5, *, optima: bool = True, **options: Any) -> sx.Record:
    recipe = None if problem.linear else sx.Recipe(stepsize=0.1, steps=20, batch=4)
    person = sx.personalize(problem, alpha, recipe=recipe, optima=optima)
    gradient = None if problem.linear else sx.gradients.Minibatch(4)
    plan = sx.plan(problem, person, gradient=gradient)
    return sx.run(problem, person, sx.scafflix(plan), rounds=ROUNDS, **options)


def logits(problem: sx.Problem, record: sx.Record, kind: str, client: int) -> NDArray[Any]:
    """What a client's model of this kind says of its test examples; above 0 is the second class."""
    part = problem.federation.parts["test"]
    A = part.features[slice(*part.offsets[client : client + 2])]
    if problem.linear:
        model = record.models[kind]
        return np.asarray(A @ (model if kind == "global" else model[client]))
    names = [name for name in record.models if name.startswith(f"{kind}/")]
    tree: dict[str, Any] = {}
    for name in names:
        value = record.models[name] if kind == "global" else record.models[name][client]
        layer, leaf = name.removeprefix(f"{kind}/").split("/")
        tree.setdefault(layer, {})[leaf] = value
    z = np.asarray(problem.network.apply(tree, A), float)
    return np.asarray(z[:, 1] - z[:, 0])


def by_hand(problem: sx.Problem, record: sx.Record) -> dict[str, list[Any]]:
    """For each kind, for each client: the margins of its test examples, and which are right."""
    part, found = problem.federation.parts["test"], {}
    second = np.asarray(problem.labels["test"]) > 0
    for kind in KINDS:
        rows = []
        for client in range(problem.n):
            mine = second[slice(*part.offsets[client : client + 2])]
            rows.append((logits(problem, record, kind, client), mine))
        found[kind] = rows
    return found


@pytest.mark.parametrize("make", [linear, network])
def test_a_record_holds_the_reliability_of_every_kind_of_model(make: Any) -> None:
    problem = make()
    record = run(problem)
    found = record.summary["calibration"]
    assert found["part"] == "test"
    for kind, rows in by_hand(problem, record).items():
        probability = 1 / (1 + np.exp(-np.concatenate([z for z, _ in rows])))
        true = np.concatenate([mine for _, mine in rows])
        place = (probability * BINS).astype(int).clip(0, BINS - 1)
        gaps = [abs((probability - true)[place == k].sum()) for k in range(BINS)]
        assert found[kind]["error"] == pytest.approx(sum(gaps) / len(true), abs=1e-5)
        assert found[kind]["examples"] == np.bincount(place, minlength=BINS).tolist()


@pytest.mark.parametrize("make", [linear, network])
def test_a_record_says_how_sure_its_differences_are(make: Any) -> None:
    problem = make()
    record = run(problem, seed=3)
    home = record.summary["taken_home"]
    assert (home["part"], home["metric"], home["clients"]) == ("test", "accuracy", 5)
    right = {
        kind: [((z > 0) == mine).astype(float) for z, mine in rows]
        for kind, rows in by_hand(problem, record).items()
    }
    table = {None: right["personal"]}
    for kind in ("local", "global"):
        table[kind] = [a - b for a, b in zip(right["personal"], right[kind], strict=True)]
    means = np.array([[one.mean() for one in rows] for rows in table.values()])
    noise = np.array(
        [[one.std(ddof=1) / np.sqrt(len(one)) for one in rows] for rows in table.values()]
    )
    ranges = [SHARE, DIFFERENCE_OF_SHARES, DIFFERENCE_OF_SHARES]
    level, *others = intervals(means, noise, 3, ranges)
    assert level is not None
    assert home["mean"] == pytest.approx(means[0].mean())
    assert home["interval"] == pytest.approx(level)
    for kind, mean, ends in zip(("local", "global"), means[1:], others, strict=True):
        assert home[kind]["difference"] == pytest.approx(mean.mean(), abs=1e-7)
        assert home[kind]["interval"] == pytest.approx(ends, abs=1e-7)


@pytest.mark.parametrize("make", [linear, network])
def test_who_is_clearly_hurt_is_counted_by_the_noise_of_its_own_examples(make: Any) -> None:
    problem = make()
    record = run(problem)
    losses = {
        kind: [np.log1p(np.exp(np.where(mine, -z, z))) for z, mine in rows]
        for kind, rows in by_hand(problem, record).items()
    }
    saved = [a - b for a, b in zip(losses["local"], losses["personal"], strict=True)]
    error = np.array([one.std(ddof=1) / np.sqrt(len(one)) for one in saved])
    gain = np.array([one.mean() for one in saved])
    np.testing.assert_allclose(record.clients["test_gain_error"], error, rtol=1e-4)
    found = record.summary["taking_part"]["personal"]
    assert found["clearly_hurt"] == (gain < -2 * error).sum()
    assert found["interval"][0] <= found["gain"] <= found["interval"][1]


@pytest.mark.parametrize("make", [linear, network])
def test_a_stopped_run_goes_on_to_the_same_intervals(make: Any, tmp_path: Path) -> None:
    problem = make()

    class StoppedError(Exception):
        pass

    def stop(done: int, total: int, state: Standing | str) -> None:
        if done >= 3 and isinstance(state, Standing):
            raise StoppedError

    kept = Checkpoints(tmp_path, Often(rounds=1))
    with pytest.raises(StoppedError):
        run(problem, checkpoints=kept, progress=stop)
    again, whole = run(problem, checkpoints=kept), run(problem)
    for name in ("taken_home", "taking_part", "calibration"):
        assert again.summary[name] == whole.summary[name]


def test_a_network_that_had_ended_is_read_from_its_checkpoint_with_the_same_words(
    tmp_path: Path,
) -> None:
    kept = Checkpoints(tmp_path, Often(rounds=1))
    first = run(network(), checkpoints=kept)
    again = run(network(), checkpoints=kept)
    for name in ("taken_home", "calibration"):
        assert again.summary[name] == first.summary[name]


def test_models_that_are_the_same_differ_by_nothing() -> None:
    record = run(linear(), 1.0)
    assert record.summary["taken_home"]["global"]["interval"] == [0.0, 0.0]
    alone = run(linear(), 0.0)
    assert alone.summary["taken_home"]["local"]["interval"] == [0.0, 0.0]


def test_without_local_models_nothing_is_said_of_them() -> None:
    record = run(network(), 1.0, optima=False)
    home = record.summary["taken_home"]
    assert "local" not in home
    assert home["interval"][0] < home["mean"] < home["interval"][1]
    assert record.summary["taking_part"] is None
    assert record.summary["calibration"].keys() == {"part", "of", "global", "personal"}


def test_a_regression_has_intervals_of_its_error_and_no_calibration() -> None:
    fed = sx.data.load("diabetes", clients=6, split="shuffled", scale="standard", test=0.3)
    problem = sx.Problem(fed, sx.models.linear(), l2=0.1)
    record = run(problem, "auto")
    home = record.summary["taken_home"]
    assert home["metric"] == "squared error"
    assert home["mean"] == pytest.approx(record.clients["test_personal"].mean())
    assert record.summary["calibration"] is None


def test_a_server_that_knows_losses_alone_says_so() -> None:
    """As in a federation: no score, no noise of examples, one client that did not answer."""
    loss = {"local": [0.4, 0.2, np.nan], "global": [0.3, 0.5, np.nan]}
    loss["personal"] = [0.3, 0.2, np.nan]
    table = {f"test_loss_{kind}": np.array(values) for kind, values in loss.items()}
    home = taken_home(table, None, "", 0)
    assert home is not None
    assert (home["metric"], home["over"], home["clients"]) == ("loss", "clients", 2)
    assert home["global"]["difference"] == pytest.approx(-0.15)


def test_the_folder_of_a_run_keeps_all_of_it(tmp_path: Path) -> None:
    record = run(linear())
    found = sx.Record.load(record.save(tmp_path / "run"))
    for name in ("taken_home", "taking_part", "calibration"):
        assert found.summary[name] == record.summary[name]
