from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import miniature
import scafflix as sx
from miniature import ALPHA, N
from scafflix.core.compilation import COMPILATIONS
from scafflix.core.store import Store
from scafflix.data.federation import Examples, Federation
from scafflix.models.network import Network
from scafflix.problems.evaluation import evaluate, examine, examine_each

CODES, LENGTH = 6, 7


def table_of_codes() -> Network:
    """The next code from the one before: a table of logits."""
    return Network(
        "table",
        lambda key: {"table": jax.random.normal(key, (CODES, CODES), jnp.float32)},
        lambda params, inputs: params["table"][inputs],
    )


def sequences() -> sx.Problem:
    """Clients with sequences of which some places do not count; the third has none for testing."""
    random = np.random.default_rng(0)

    def part(counts: list[int]) -> Examples:
        rows = random.integers(0, CODES, (sum(counts), LENGTH)).astype(np.uint8)
        labels = random.integers(-1, CODES, (sum(counts), LENGTH)).astype(np.int8)
        return Examples(rows, labels, np.concatenate([[0], np.cumsum(counts)]))

    clients = tuple(f"role-{i}" for i in range(4))
    fed = Federation("play", clients, part([5, 40, 3, 18]), part([2, 33, 0, 6]))
    return sx.Problem(fed, table_of_codes())


def directly(problem: sx.Problem, part: str, models: list[Any]) -> tuple[NDArray[np.float64], ...]:
    """Loss, score and count of each client, one example and one place after another."""
    chosen = problem.federation.parts[part]
    rows = []
    for i, params in enumerate(models):
        loss = right = count = 0.0
        for row in range(chosen.offsets[i], chosen.offsets[i + 1]):
            logits = np.asarray(problem.network.apply(params, chosen.features[row][None])[0], float)
            labels = np.atleast_1d(chosen.labels[row])
            for place, label in zip(logits.reshape(len(labels), -1), labels, strict=True):
                if label >= 0:
                    loss += np.log(np.sum(np.exp(place))) - place[label]
                    right += place.argmax() == label
                    count += 1
        rows.append((loss / count, right / count, count) if count else (np.nan, np.nan, 0.0))
    return tuple(np.array(rows).T)


def mixed(x: Any, alpha: NDArray[np.float64], stars: Any) -> list[Any]:
    return [
        jax.tree.map(lambda a, b, i=i: alpha[i] * a + (1 - alpha[i]) * b[i], x, stars)
        for i in range(len(alpha))
    ]


def check(scores: Any, expected: tuple[NDArray[np.float64], ...]) -> None:
    np.testing.assert_allclose(scores.loss, expected[0], rtol=1e-5)
    np.testing.assert_allclose(scores.score, expected[1], rtol=1e-6)
    np.testing.assert_array_equal(scores.entries, expected[2])


@pytest.mark.parametrize("part", ["train", "test", "validation"])
def test_the_global_model_is_scored_on_each_clients_examples(part: str) -> None:
    problem = miniature.problem((6,), 0.0)
    x = problem.start(1)
    check(evaluate(problem, part, x), directly(problem, part, [x] * N))


def test_local_models_are_scored_with_alpha_zero() -> None:
    problem = miniature.problem((6,), 0.0)
    x, x_star = problem.start(1), miniature.points(problem)
    models = mixed(x, np.zeros(N), x_star.read(np.arange(N)))
    check(
        evaluate(problem, "test", x, miniature.mixtures(np.zeros(N)), x_star),
        directly(problem, "test", models),
    )


def test_personal_models_are_scored_as_mixtures() -> None:
    problem = miniature.problem((6,), 0.0)
    x, x_star = problem.start(1), miniature.points(problem)
    models = mixed(x, ALPHA, x_star.read(np.arange(N)))
    check(
        evaluate(problem, "train", x, miniature.mixtures(ALPHA), x_star),
        directly(problem, "train", models),
    )


def test_more_clients_than_are_read_together_are_scored_one_by_one() -> None:
    problem = miniature.problem((), 0.0, clients=19)
    alpha = np.linspace(0, 1, 19)
    x, x_star = problem.start(1), miniature.points(problem)
    models = mixed(x, alpha, x_star.read(np.arange(19)))
    check(
        evaluate(problem, "test", x, miniature.mixtures(alpha), x_star),
        directly(problem, "test", models),
    )


def test_places_without_a_label_do_not_count() -> None:
    problem = sequences()
    x = problem.start(0)
    check(evaluate(problem, "test", x), directly(problem, "test", [x] * 4))


def test_personal_models_on_sequences_leave_out_places_without_a_label() -> None:
    problem = sequences()
    alpha = np.array([0.2, 0.8, 0.5, 1.0])
    x, x_star = problem.start(0), miniature.points(problem)
    models = mixed(x, alpha, x_star.read(np.arange(4)))
    check(
        evaluate(problem, "test", x, miniature.mixtures(alpha), x_star),
        directly(problem, "test", models),
    )


def test_the_sums_of_single_examples_are_those_of_their_clients() -> None:
    problem, alpha = sequences(), np.array([0.2, 0.8, 0.5, 1.0])
    x, x_star, home = problem.start(0), miniature.points(problem), miniature.mixtures(alpha)
    rows = examine(problem, "test", x, home, x_star)
    expected = evaluate(problem, "test", x, home, x_star)
    owners = problem.federation.parts["test"].owners
    entries = np.bincount(owners, rows.entries, minlength=4)
    np.testing.assert_array_equal(entries, expected.entries)
    for one, other in ((rows.loss, expected.loss), (rows.score, expected.score)):
        sums = np.bincount(owners, one, minlength=4)
        np.testing.assert_allclose(sums[entries > 0], (other * entries)[entries > 0], rtol=1e-12)


def test_local_optima_are_read_once_for_several_mixtures(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = miniature.problem((6,), 0.0)
    x, x_star = problem.start(1), miniature.points(problem)
    homes = [miniature.mixtures(np.full(N, alpha)) for alpha in (0.0, 0.3, 1.0)]
    alone = [examine(problem, "test", x, home, x_star) for home in homes]
    read, real = list[int](), Store.read

    def counted(store: Store, clients: NDArray[Any], *rest: Any) -> Any:
        read.extend(np.unique(clients).tolist())
        return real(store, clients, *rest)

    monkeypatch.setattr(Store, "read", counted)
    together = examine_each(problem, "test", x, homes, x_star)
    assert sorted(read) == [i for i in range(N) if i != 5]  # that one has no test examples
    for one, other in zip(alone, together, strict=True):
        for mine, its in zip(one, other, strict=True):
            np.testing.assert_array_equal(mine, its)


def test_a_client_without_examples_has_no_score() -> None:
    problem = miniature.problem((6,), 0.0)
    x, x_star = problem.start(1), miniature.points(problem)
    for scores in (
        evaluate(problem, "test", x),
        evaluate(problem, "test", x, miniature.mixtures(ALPHA), x_star),
    ):
        assert np.isnan(scores.loss).tolist() == [i == 5 for i in range(N)]
        assert scores.entries[5] == 0


def test_evaluating_another_model_compiles_nothing() -> None:
    problem, x_star = miniature.problem((6,), 0.0), miniature.points(miniature.problem((6,), 0.0))
    x = problem.start(1)
    evaluate(problem, "test", x, miniature.mixtures(ALPHA), x_star)
    other = problem.start(2)
    before = COMPILATIONS.count
    evaluate(problem, "test", other, miniature.mixtures(np.roll(ALPHA, 1)), x_star)
    assert COMPILATIONS.count == before
