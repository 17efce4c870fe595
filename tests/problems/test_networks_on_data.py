"""What a problem takes of a network, and what tells it from another problem."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import miniature
import scafflix as sx
from miniature import CLASSES, FEATURES
from scafflix.core.digest import digest_of
from scafflix.core.errors import ScafflixError
from scafflix.data.federation import Examples, Federation
from scafflix.models.dense import dense
from scafflix.models.network import Network
from scafflix.problems.evaluation import evaluate


def digest(problem: sx.Problem) -> str:
    """Under which what was computed for it is kept."""
    return digest_of(problem.identity)


def labelled(labels: list[object]) -> sx.data.Federation:
    rows = np.random.default_rng(0).normal(size=(len(labels), 2))
    return sx.data.from_clients({"a": (rows, np.array(labels)), "b": (rows, np.array(labels))})


def test_labels_of_minus_one_and_one_are_two_classes_and_none_is_padding() -> None:
    problem = sx.Problem(labelled([-1, 1, -1, 1]), dense(2, 2, ()))
    entries = evaluate(problem, "train", problem.start(0)).entries
    assert entries.tolist() == [4.0, 4.0]


@pytest.mark.parametrize("labels", [["x", "y", "z"], [0.0, 1.0, 2.5]], ids=["words", "floats"])
def test_labels_that_are_not_whole_numbers_are_numbered_in_order(labels: list[object]) -> None:
    problem = sx.Problem(labelled(labels), dense(2, 3, ()))
    assert problem.train.labels.tolist() == [0, 1, 2, 0, 1, 2]


def test_more_labels_than_classes_are_refused() -> None:
    with pytest.raises(ScafflixError, match="has 2 classes, but a label is 2"):
        sx.Problem(labelled([0, 1, 2]), dense(2, 2, ()))


def test_a_network_for_other_features_is_refused_naming_the_shape() -> None:
    with pytest.raises(ScafflixError, match=r"does not take examples of shape \(5,\)"):
        sx.Problem(miniature.federation(), dense(FEATURES + 1, CLASSES))


@pytest.mark.parametrize("l2", [-1.0, np.nan, np.inf])
def test_an_l2_that_is_no_number_above_zero_is_refused(l2: float) -> None:
    with pytest.raises(ScafflixError, match="l2 is"):
        sx.Problem(miniature.federation(), dense(FEATURES, CLASSES), l2)


def test_a_network_trained_on_uint8_images_keeps_them_small() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (6, 4, 4), dtype=np.uint8)
    fed = Federation("images", ("a",), Examples(pixels, np.arange(6) % 2, np.array([0, 6])))
    assert sx.Problem(fed, dense(16, 2)).train.rows.inputs.dtype == jnp.uint8


def test_the_digest_is_the_same_for_equal_problems() -> None:
    fed = miniature.federation()
    pair = [sx.Problem(fed, dense(FEATURES, CLASSES, (6,)), 0.1) for _ in range(2)]
    assert digest(pair[0]) == digest(pair[1])


def scaled(factor: float) -> Network:
    """A network that holds an array of its own, such as the means of its inputs."""
    base = dense(FEATURES, CLASSES, ())
    array = np.full(FEATURES, factor, np.float32)
    return base._replace(apply=lambda params, inputs: base.apply(params, inputs * array))


def test_the_digest_changes_with_data_l2_and_model() -> None:
    fed = miniature.federation()
    changed = replace(fed, train=replace(fed.train, features=fed.train.features + 1))
    digests = [
        digest(sx.Problem(f, network, l2))
        for f, network, l2 in (
            (fed, dense(FEATURES, CLASSES, (6,)), 0.0),
            (changed, dense(FEATURES, CLASSES, (6,)), 0.0),
            (fed, dense(FEATURES, CLASSES, (6,)), 0.1),
            (fed, dense(FEATURES, CLASSES, (7,)), 0.0),
        )
    ]
    assert len(set(digests)) == len(digests)


def test_the_digest_changes_with_an_array_that_the_network_holds() -> None:
    fed = miniature.federation()
    assert digest(sx.Problem(fed, scaled(1.0))) != digest(sx.Problem(fed, scaled(2.0)))


def test_the_digest_changes_with_what_is_measured() -> None:
    # cached runs and local optima hold scores
    fed, base = miniature.federation(), dense(FEATURES, CLASSES, ())
    other = base._replace(score=lambda logits, labels: jax.nn.softmax(logits)[..., 0])
    assert digest(sx.Problem(fed, base)) != digest(sx.Problem(fed, other))


def test_the_digest_changes_with_how_the_network_starts() -> None:
    # cached runs and warm starts are named by the seed of the start and not by the start
    fed, base = miniature.federation(), dense(FEATURES, CLASSES, ())
    other = base._replace(init=lambda key: jax.tree.map(jnp.zeros_like, base.init(key)))
    assert digest(sx.Problem(fed, base)) != digest(sx.Problem(fed, other))
