"""Methods some of whose arrays stay at home: against the papers' lines, in their special cases, on
their messages; and models that they refuse."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import miniature
import personalizers
import scafflix as sx
from executions import schedule
from miniature import CLASSES, FEATURES, N
from personalizers import Rounds
from scafflix.core.vector import names_of
from scafflix.gradients import Exact
from scafflix.methods import METHODS, Client
from scafflix.methods.method import fitted
from scafflix.methods.own import Parts, joined, last_layer
from scafflix.record import Record
from scafflix.runs import refusals
from scafflix.runs.config import RunConfig, build
from scafflix.theory import without_theory
from test_algorithm import softmax_gradient

CLOSE: dict[str, Any] = {"rtol": 3e-5, "atol": 3e-5}
ONES, SEED, ROUNDS = np.ones(N), 2, 6
GAMMA = np.full(N, 0.2)


def run(name: str, clients: int = N, **options: Any) -> Record:
    """Softmax regression with a bias, which stays at home."""
    small, one = miniature.problem(clients=clients), np.ones(clients)
    method = miniature.method(name, one, GAMMA[:clients], **options)
    cohort = min(3, clients)
    return miniature.record(small, method, one, None, rounds=ROUNDS, cohort=cohort, seed=SEED)


def matrices(record: Record, kind: str) -> NDArray[np.float64]:
    """Weights, and the bias as the last row."""
    bias, weight = (record.models[f"{kind}/layer0/{name}"] for name in ("bias", "weight"))
    return miniature.matrix({"layer0": {"bias": bias, "weight": weight}})


@pytest.mark.parametrize("options", [{}, {"head_steps": 0}, {"head_steps": 3}], ids=str)
@pytest.mark.parametrize("name", ["fedper", "fedrep"])
def test_models_are_those_of_the_papers_lines(name: str, options: dict[str, int]) -> None:
    if name == "fedper" and options:
        pytest.skip("its head is trained together with the rest")
    small = miniature.problem()
    method = miniature.method(name, ONES, GAMMA, **options)
    drawn = schedule(method, Client(ONES, GAMMA), SEED, ROUNDS, 3)
    own = np.arange(FEATURES + 1)[:, None] == np.full(CLASSES, FEATURES)

    def gradient(i: int, r: int, k: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
        point = {"layer0": {"weight": x[:-1], "bias": x[-1]}}
        return miniature.matrix(softmax_gradient(small, i, point))

    rounds = Rounds(
        gradient,
        N,
        [one.cohort for one in drawn],
        [one.steps for one in drawn],
        float(GAMMA[0]),
        {**method.settings, "own": own},
    )
    start = miniature.matrix(jax.tree.map(np.asarray, small.start(0)))
    found = getattr(personalizers, name)(rounds, start)
    record = run(name, **options)
    np.testing.assert_allclose(matrices(record, "global"), found.x, **CLOSE)
    np.testing.assert_allclose(matrices(record, "personal"), found.own, **CLOSE)
    heads = matrices(record, "personal")[:, -1]
    assert (np.ptp(heads, axis=0).max() > 1e-2) == (options.get("head_steps") != 0)


def test_only_shared_arrays_travel() -> None:
    record = run("fedper")
    assert record.summary["settings"]["own"] == "*/bias"
    metrics = record.metrics
    shared = np.arange(ROUNDS + 1) * 3 * 32 * FEATURES * CLASSES
    np.testing.assert_array_equal(metrics["bits_up"], shared)
    np.testing.assert_array_equal(metrics["bits_down"], shared)


def test_for_one_client_fedper_is_fedavg() -> None:
    own, fedavg = run("fedper", clients=1), run("fedavg", clients=1)
    np.testing.assert_allclose(
        matrices(own, "personal")[0], matrices(fedavg, "global"), rtol=1e-6, atol=1e-7
    )


def test_fedbn_is_fedper_with_other_arrays() -> None:
    for kind in ("global", "personal"):
        pair = [matrices(run(name), kind) for name in ("fedbn", "fedper")]
        np.testing.assert_array_equal(*pair)


def test_fedbn_finds_the_normalizations_of_a_module() -> None:
    linen = pytest.importorskip("flax.linen")

    class Module(linen.Module):  # type: ignore[misc, name-defined]
        @linen.compact
        def __call__(self, x: Any) -> Any:
            return linen.Dense(CLASSES)(linen.LayerNorm()(linen.Dense(4)(x)))

    network = sx.models.from_flax(Module(), np.zeros((1, FEATURES), np.float32))
    small = sx.Problem(miniature.federation(), network)
    method = METHODS["fedbn"](without_theory(ONES, GAMMA, 0.3, Exact()))
    record = miniature.record(small, method, ONES, None, rounds=2)
    for name, values in record.models.items():
        if name.startswith("personal/"):
            assert (np.ptp(values, axis=0).max() > 0) == ("LayerNorm" in name)


def test_parts_of_a_point_make_it_whole() -> None:
    point = {"a": np.ones(2), "b": [np.zeros(3), np.full(1, 2.0)]}
    parts = Parts((1,))
    own, shared = parts.owned(point), parts.shared(point)
    assert [leaf.size for leaf in jax.tree.leaves(own)] == [3]
    assert [leaf.size for leaf in jax.tree.leaves(shared)] == [2, 1]
    for whole in (joined(own, shared), joined(shared, own), joined(own, point)):
        assert jax.tree.all(jax.tree.map(np.array_equal, whole, point))


DENSE = ("layer0/bias", "layer0/weight", "layer1/bias", "layer1/weight")


@pytest.mark.parametrize(
    ("name", "options", "names", "words"),
    [
        ("fedper", {"own": "head/*"}, DENSE, "own is 'head/\\*', which matches none of the arrays"),
        ("fedper", {"own": "*"}, DENSE, "own is '\\*', which matches all of the arrays layer0/bia"),
        ("fedper", {"own": "layer1/* layer0/*"}, DENSE, "which matches all"),
        ("fedrep", {}, DENSE[:2], "own is 'layer0/\\*', which matches all"),
        ("fedbn", {}, DENSE, "which matches none"),
        ("fedper", {}, ("",), "this model has one array; take a network"),
        (
            "fedrep",
            {},
            ("one/weight", "two/weight"),
            "fedrep needs own, since the last layer is not k",
        ),
    ],
)
def test_a_model_without_arrays_to_keep_or_to_share_is_refused(
    name: str, options: dict[str, Any], names: tuple[str, ...], words: str
) -> None:
    method = METHODS[name](without_theory(ONES, GAMMA, 0.3, Exact()), **options)
    with pytest.raises(sx.ScafflixError, match=words):
        fitted(method, names)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("fedper", {"own": 3}, "own is 3; give patterns"),
        ("fedrep", {"head_steps": -1}, "head_steps is -1"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(sx.ScafflixError, match=words):
        miniature.method(name, ONES, GAMMA, **options)


def test_a_linear_model_is_refused() -> None:
    problem = sx.Problem(sx.data.synthetic(clients=3, seed=0), sx.models.logistic())
    person = sx.personalize(problem, 1.0)
    method = METHODS["fedper"](sx.plan(problem, person))
    with pytest.raises(sx.ScafflixError, match="this model has one array; take a network"):
        sx.run(problem, person, method, rounds=1)


def test_the_last_layer_of_each_network_stays_at_home() -> None:
    for network, last in (
        (sx.models.cnn(), "output/*"),
        (sx.models.lstm(units=2), "output/*"),
        (sx.models.dense(features=2, classes=2, hidden=(3, 3)), "layer2/*"),
    ):
        template = jax.eval_shape(network.init, jax.random.key(0))
        assert last_layer(names_of(template)) == last
        method = METHODS["fedper"](without_theory(ONES, GAMMA, 0.3, Exact()))
        assert fitted(method, names_of(template)).settings["own"] == last  # as the record has it


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"model": "cnn", "own": "dense2/*"}, "own is 'dense2/\\*', which matches none"),
        ({"model": "cnn", "method": "fedper:own=*"}, "which matches all of the arrays conv1/bias"),
        ({"model": "dense", "method": "fedbn"}, "which matches none"),
        ({"model": "logistic"}, "this model has one array; take a network"),
        ({"model": "logistic", "own": "output/*"}, "own is for networks"),
        ({"model": "cnn", "method": "apfl", "own": "output/*"}, "The method apfl has no own"),
    ],
)
def test_keys_are_refused_before_data_are_read(keys: dict[str, str], words: str) -> None:
    asked = build(RunConfig, {"data": "nowhere", "method": "fedper", **keys})
    with pytest.raises(sx.ScafflixError, match=words):
        refusals.check_keys(asked)
