"""Rules for alpha against refitting, formulas in NumPy, and what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import sem, ttest_1samp
from scipy.stats import t as student

import reference
import scafflix as sx
from cases import L2, Case, examples, problem
from scafflix.personalization.mixing import mixture
from scafflix.personalization.rules import blending, james_stein, loo, validation
from scafflix.personalization.rules.choosing import FEW_OF_ONE_CLASS, ONE_CLASS, choose, rule_for
from scafflix.personalization.rules.contract import GRID, Decision, Evidence, evidence_of
from scafflix.runs.studies import scored
from scafflix.simulate.planning import optima

Floats = NDArray[np.float64]


def global_model(case: Case) -> Floats:
    """Somewhere that is no client's optimum."""
    return np.asarray(case.person.points.mean(axis=0))


def loss(kind: str, A: Floats, b: Floats, x: Floats) -> float:
    """The mean loss of examples, without regularization."""
    return reference.FUNCTIONS[kind](A, b, 0.0).value(x)


def refitted(kind: str, case: Case, client: int, x: Floats) -> Floats:
    """The client's curve by fitting its model again without each of its examples."""
    A, b = examples(kind)[client]
    curve = np.zeros(len(GRID))
    for j in range(len(b)):
        rest = np.arange(len(b)) != j
        fit = reference.FUNCTIONS[kind](A[rest], b[rest], L2)
        without = reference.minimizer(fit, case.problem.shape)
        for k, alpha in enumerate(GRID):
            at = alpha * x + (1 - alpha) * without
            curve[k] += loss(kind, A[[j]], b[[j]], at) / len(b)
    return curve


def test_leave_one_out_is_close_to_refitting_and_exact_for_least_squares(case: Case) -> None:
    kind, x = case.problem.model.name, global_model(case)
    found = loo.evidence(case.problem, case.person.points, x, share=0.0)
    tolerance = 1e-6 if kind == "linear" else 0.05
    for client in (0, 1):
        expected = refitted(kind, case, client, x)
        np.testing.assert_allclose(found.curves[client], expected, rtol=tolerance)
    assert found.weight.tolist() == [9, 14, 23, 7, 31]


def test_at_alpha_1_who_took_no_part_sees_the_loss_of_x_on_its_examples(case: Case) -> None:
    x = global_model(case)
    found = loo.evidence(case.problem, case.person.points, x, share=0.0).curves[:, -1]
    kind = case.problem.model.name
    np.testing.assert_allclose(found, [loss(kind, A, b, x) for A, b in examples(kind)])


def test_alone_there_is_nothing_to_gain_from_x_which_is_the_clients_own_model(case: Case) -> None:
    """Leaving an example out of x_i* and not out of the same x would promise a gain."""
    alone = case.problem.take(np.array([4]))
    star = case.person.points[4]
    (curve,) = loo.evidence(alone, star[None], star).curves
    np.testing.assert_allclose(curve, curve[0], rtol=1e-12)


def test_leaving_an_example_out_of_x_too_is_close_to_refitting() -> None:
    """For two clients with the same features, whose Hessians are the same."""
    A, b = examples("linear")[1]
    fed = sx.data.from_clients({"a": (A, b), "b": (A, -b)})
    both = sx.Problem(fed, sx.models.linear(), L2)
    stars = sx.personalize(both, 1).points
    x = stars.mean(axis=0)
    curve = loo.evidence(both, stars, x).curves[0]
    losses = []
    for j in range(len(b)):
        rest = np.arange(len(b)) != j
        f, g = reference.linear(A[rest], b[rest], L2), reference.linear(A, -b, L2)
        shared = reference.Function(
            lambda x, f=f, g=g: f.value(x) + g.value(x),
            lambda x, f=f, g=g: f.gradient(x) + g.gradient(x),
        )
        losses.append(loss("linear", A[[j]], b[[j]], reference.minimizer(shared, both.shape)))
    assert curve[-1] == pytest.approx(np.mean(losses), rel=0.05)


def test_james_stein_is_the_formula(logistic_case: Case) -> None:
    x, stars = global_model(logistic_case), logistic_case.person.points
    found = james_stein.evidence(logistic_case.problem, stars, x)
    assert found.alpha is not None
    for i, (A, b) in enumerate(examples("logistic")):
        q = 1 / (1 + np.exp(b * (A @ stars[i])))
        g = -(b * q)[:, None] * A + L2 * stars[i]
        H = (A.T * (q * (1 - q))) @ A / len(b) + L2 * np.eye(A.shape[1])
        V = np.trace(np.linalg.solve(H, g.T @ g / len(b))) / len(b)
        D = (x - stars[i]) @ H @ (x - stars[i])
        assert found.alpha[i] == pytest.approx(min(1, V / D))
        assert found.curves[i, 0] == pytest.approx(V / 2)


def evidence(curves: object, weight: object, error: float = 0.0) -> Evidence:
    """Of clients that are sure of their curves, or so unsure."""
    known = np.asarray(curves, float)
    return Evidence(known, np.asarray(weight, float), np.full(known.shape, error))


def blended(given: Evidence) -> Decision:
    return blending.blended_with(given, blending.told(given))


def bowl(least: float) -> Floats:
    return (GRID - least) ** 2


def test_the_blend_weighs_a_clients_own_curve_by_its_examples() -> None:
    """Two parabolas and their mean: the least point is a weighted mean of their least points."""
    made = blended(evidence([bowl(0.2), bowl(0.8)], [100, 100]))
    np.testing.assert_allclose(made.alpha, [0.35, 0.65])
    made = blended(evidence([bowl(0.2), bowl(0.8)], [1e6, 1e6]))
    np.testing.assert_allclose(made.alpha, [0.2, 0.8])


def test_the_mean_curve_is_read_for_a_clients_own_number_of_examples() -> None:
    """Of (1/2) (alpha^2 B + (1 - alpha)^2 v/n) the least point is v/(v + n B)."""
    B, v = 0.3, 9.0

    def curve(n: float) -> Floats:
        return 0.5 * (GRID**2 * B + (1 - GRID) ** 2 * v / n)

    others = blending.told(evidence([curve(20), curve(60), curve(30)], [20, 60, 30]))
    for n in (3, 15, 90, 1000):
        expected = curve(n) - curve(n)[0]
        found = blending.for_size(others, np.array([n]))[0]
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_of_clients_of_one_size_the_mean_curve_is_plain_and_the_noise_is_that_of_its_shape() -> (
    None
):
    random = np.random.default_rng(5)
    curves = random.normal(size=(9, len(GRID))).cumsum(axis=1)
    others = blending.told(evidence(curves, np.full(9, 40)))
    mean = (curves - curves[:, :1]).mean(axis=0)
    np.testing.assert_allclose(others.curve, mean)
    assert others.scarcity == pytest.approx(1 / 40)
    parts = np.stack([blending.NOISE, blending.DISTANCE], axis=1)
    V, _ = np.linalg.lstsq(parts, mean, rcond=None)[0]
    assert others.noise == pytest.approx(max(0.0, 40 * V))
    np.testing.assert_allclose(blending.for_size(others, np.array([40.0]))[0], others.curve)


def test_the_noise_is_a_weighted_least_squares_fit_to_all_curves_at_once() -> None:
    random = np.random.default_rng(6)
    n = random.integers(1, 900, 30).astype(float)
    curves = -random.uniform(1, 2, (30, 1)) / n[:, None] * GRID + random.normal(size=(30, 1)) * GRID
    others = blending.told(evidence(curves, n))
    weight = np.sqrt(np.repeat(100 * n / (100 + n), len(GRID)))
    noise, distance = (
        a.ravel() for a in (blending.NOISE / n[:, None], blending.DISTANCE + 0 * curves)
    )
    parts = np.stack([noise, distance], axis=1)
    (v, _), *_ = np.linalg.lstsq(parts * weight[:, None], curves.ravel() * weight, rcond=None)
    assert others.noise == pytest.approx(v)
    assert v > 0


def test_no_client_tells_for_more_than_a_hundred_examples_and_their_order_is_of_no_account() -> (
    None
):
    random = np.random.default_rng(7)
    n = np.array([1e9, 3.0, 50.0, 700.0])
    given = evidence(random.normal(size=(4, len(GRID))), n)
    weights = [
        blending.sums(evidence(c[None], [k]))[-3] for c, k in zip(given.curves, n, strict=True)
    ]
    assert 99.9 < max(weights) < 100
    assert min(weights) == pytest.approx(3, rel=0.03)
    turned = evidence(given.curves[::-1], n[::-1])
    np.testing.assert_allclose(blending.sums(turned), blending.sums(given), atol=1e-12)


@pytest.mark.parametrize(("small", "wanted"), [(-1.0, 1.0), (1.0, 0.0)])
def test_who_has_one_example_does_as_small_clients_tell_and_not_as_large_ones(
    small: float, wanted: float
) -> None:
    """The large ones' curve rises like no parabola, so that its shape tells of no noise at all."""
    sizes = np.repeat([5000.0, 3.0, 1.0], [10, 10, 1])
    slopes = np.repeat([0.3, small, np.nan], [10, 10, 1])
    made = blended(evidence(slopes[:, None] * GRID, sizes))
    assert made.alpha[-1] == pytest.approx(wanted, abs=0.1)
    assert made.alpha[0] == 0


def tiny_beside_large() -> sx.Problem:
    """Large clients with two of five classes each, and many with one to six examples of all."""
    random = np.random.default_rng(0)
    centres = 1.5 * random.normal(size=(5, 6))
    train: dict[object, Any] = {}
    test: dict[object, Any] = {}
    for client in range(60):
        large = client % 6 == 0
        classes = random.choice(5, 2, replace=False) if large else np.arange(5)
        for part, rows in ((train, 400 if large else random.integers(1, 7)), (test, 50)):
            y = random.choice(classes, rows)
            part[client] = (centres[y] + random.normal(size=(rows, 6)), y)
    return sx.Problem(sx.data.from_clients(train, held_out=test), sx.models.softmax(), l2=0.1)


@pytest.mark.filterwarnings("ignore:alpha by")
def test_tiny_clients_beside_large_ones_that_differ_take_the_common_model() -> None:
    problem = tiny_beside_large()
    stars = sx.personalize(problem, 1).points
    x = np.asarray(optima(problem, [sx.personalize(problem, 1)])[0].x)
    made = choose(problem, "loo", stars, x)
    tiny = problem.federation.train.counts < 7
    alone, shared, mixed = scored(problem, [stars, x, np.asarray(mixture(made.alpha, x, stars))])[0]
    assert 2 * shared[tiny].mean() < alone[tiny].mean()
    assert mixed[tiny].mean() < 1.15 * shared[tiny].mean()
    assert mixed[~tiny].mean() < 1.01 * alone[~tiny].mean() < 0.6 * shared[~tiny].mean()


def test_leaving_an_example_out_of_x_moves_it_by_no_more_than_its_own_curvature_allows() -> None:
    """A client whose model fits its few examples has almost no curvature there."""
    A, b = examples("logistic")[0][0][:1], np.ones(1)
    fed = sx.data.from_clients({k: (np.vstack([A, -A]), [1, -1]) for k in range(50)})
    small = sx.Problem(fed, sx.models.logistic(), l2=1e-5)
    stars, x = sx.personalize(small, 1).points, 0.1 * A[0]
    curve = loo.evidence(small, stars, x).curves[0]
    assert curve[-1] < 1.1 * loss("logistic", A, b, x)


def test_the_blend_needs_only_sums_over_the_others() -> None:
    given = evidence([bowl(0.2), bowl(0.8), bowl(0.6)], [10, 20, 30])
    alone = evidence(given.curves[1:2], given.weight[1:2])
    made = blending.blended_with(alone, blending.told(given))
    assert made.alpha[0] == blended(given).alpha[1]


def test_nobody_takes_what_its_own_evidence_calls_worse_than_its_own_model() -> None:
    random = np.random.default_rng(0)
    curves, n = random.normal(size=(200, len(GRID))).cumsum(axis=1), random.integers(2, 400, 200)
    shares = []
    for error in (0.0, 0.5):
        made = blended(evidence(curves, n, error))
        at = np.rint(20 * made.alpha).astype(int)
        cost = curves[np.arange(200), at] - curves[:, 0]
        assert (cost <= error * student(n - 1).ppf(0.95)).all()
        shares.append((cost > 0).mean())
    assert shares[0] == 0 < shares[1]


def test_the_error_of_a_curve_is_that_of_a_mean_of_differences() -> None:
    """And the test by it is Student's, as SciPy makes it."""
    random = np.random.default_rng(1)
    losses, owners = random.exponential(size=(60, len(GRID))), np.repeat([0, 1, 3], [9, 50, 1])
    losses[:, 1:] += 0.3
    found = evidence_of(losses, owners, 4)
    assert found.error is not None
    for client, rows in ((0, slice(9)), (1, slice(9, 59))):
        apart = losses[rows, 1:] - losses[rows, :1]
        np.testing.assert_allclose(found.curves[client], losses[rows].mean(axis=0))
        np.testing.assert_allclose(found.error[client, 1:], sem(apart))
        says = ttest_1samp(apart, 0, alternative="greater").pvalue < blending.LEVEL
        np.testing.assert_array_equal(blending.harmful(found)[client, 1:], says)
    assert found.known.tolist() == [True, True, False, True]
    assert not blending.harmful(found)[[2, 3]].any()  # no example, and one


def test_at_level_one_half_the_mean_decides_and_at_0_nothing_is_harmful() -> None:
    random = np.random.default_rng(3)
    found = evidence_of(random.exponential(size=(60, len(GRID))), np.repeat([0, 1], 30), 2)
    above = found.curves > found.curves[:, :1]
    np.testing.assert_array_equal(blending.harmful(found, 0.5), above)
    assert not blending.harmful(found, 0.0).any()
    assert above.any()


def test_one_example_alone_calls_nothing_harmful() -> None:
    losses = np.zeros((40, len(GRID)))
    losses[7] = 1000 * GRID
    assert not blending.harmful(evidence_of(losses, np.zeros(40, int), 1)).any()


def test_entries_of_one_example_are_not_counted_as_independent() -> None:
    """Sequences of several characters: the mean is over characters, its error over sequences."""
    random = np.random.default_rng(2)
    losses, entries = random.exponential(size=(12, len(GRID))), np.full(12, 5.0)
    sums = evidence_of(5 * losses, np.zeros(12, int), 1, entries)
    means = evidence_of(losses, np.zeros(12, int), 1)
    for one, other in ((sums.curves, means.curves), (sums.error, means.error)):
        np.testing.assert_allclose(one, other)
    assert sums.weight.tolist() == [12]


def test_who_knows_nothing_takes_what_the_others_say_and_nobody_then_moves() -> None:
    unknown = np.full(len(GRID), np.nan)
    made = blended(evidence([bowl(0.4), bowl(0.6), unknown], [50, 50, 50]))
    assert made.alpha[2] == pytest.approx(0.5)
    assert blended(evidence([unknown, unknown], [1, 1])).alpha.tolist() == [0, 0]


def test_the_common_rule_gives_all_the_least_point_of_the_mean_over_examples() -> None:
    given = evidence([bowl(0.2), bowl(0.8), bowl(0.5)], [10, 30, 20])
    made = blending.pooled(given, blending.told(given))
    np.testing.assert_allclose(made.alpha, 0.6)


def held_out() -> sx.data.Federation:
    """Three clients, one of them without validation examples, one with a single class."""
    random = np.random.default_rng(3)
    features = random.normal(size=(61, 4))
    labels = (features[:, 0] + random.normal(size=61) > 0).astype(int)
    owner = np.repeat(["a", "b", "c"], [30, 30, 1])
    labels[30:60] = 1
    return sx.data.from_arrays(features, labels, owner, validation=0.4)


def test_the_validation_rule_is_the_loss_on_the_validation_part() -> None:
    fed = held_out()
    small = sx.Problem(fed, sx.models.logistic(), l2=0.1)
    stars, x = sx.personalize(small, 1).points, np.full(4, 0.2)
    found = validation.evidence(small, stars, x)
    part = fed.parts["validation"]
    A, b = part.features[:12], np.where(part.labels[:12] == 1, 1.0, -1.0)
    expected = [loss("logistic", A, b, a * x + (1 - a) * stars[0]) for a in GRID]
    np.testing.assert_allclose(found.curves[0], expected)
    assert found.known.tolist() == [True, True, False]


def test_a_client_with_one_example_or_one_class_is_named_in_one_warning() -> None:
    small = sx.Problem(held_out(), sx.models.logistic(), l2=0.1)
    stars = sx.personalize(small, 1).points
    with pytest.warns(sx.ScafflixWarning, match="of 3 clients") as said:
        made = choose(small, "loo", stars, np.full(4, 0.2))
    assert len(said) == 1
    assert made.note[0] == ""
    assert made.note[1] == FEW_OF_ONE_CLASS
    assert made.note[2].startswith("too few examples")
    assert "c) had too few" in str(said[0].message)


def test_many_examples_of_one_class_are_evidence_and_a_few_are_none() -> None:
    random = np.random.default_rng(1)
    features = random.normal(size=(90, 4))
    labels = (features[:, 0] > 0).astype(int)
    labels[30:] = 1
    fed = sx.data.from_arrays(features, labels, np.repeat(["both", "few", "many"], [30, 29, 31]))
    small = sx.Problem(fed, sx.models.logistic(), l2=0.1)
    with pytest.warns(sx.ScafflixWarning):
        made = choose(small, "loo", sx.personalize(small, 1).points, np.full(4, 0.2))
    assert made.note.tolist() == ["", FEW_OF_ONE_CLASS, ONE_CLASS]
    assert np.isfinite(made.own).all(axis=1).tolist() == [True, False, True]


def test_the_expected_gain_is_what_the_curve_falls_by() -> None:
    case = problem("logistic")
    person = sx.personalize(case, 1.0)
    made = choose(case, "loo", person.points, person.points.mean(axis=0))
    place = np.rint(20 * made.alpha).astype(int)
    np.testing.assert_allclose(made.gain, -made.expected[np.arange(case.n), place])
    assert (made.gain >= 0).all()


def test_auto_is_leave_one_out_and_for_networks_the_validation_part() -> None:
    fed = held_out()
    assert rule_for("auto", sx.Problem(fed, sx.models.logistic())).name == "loo"
    network = sx.Problem(fed, sx.models.dense(features=4, classes=2, hidden=()))
    assert rule_for("auto", network).name == "validation"


@pytest.mark.parametrize(
    ("word", "says"),
    [("loo", "Hessian of a linear model"), ("james-stein", "Hessian"), ("common", "held out")],
)
def test_a_rule_that_cannot_serve_a_network_says_so(word: str, says: str) -> None:
    fed = held_out()
    bare = sx.data.from_arrays(fed.train.features, fed.train.labels, 2)
    network = sx.Problem(bare, sx.models.dense(features=4, classes=2, hidden=()))
    with pytest.raises(sx.ScafflixError, match=says):
        rule_for(word, network)


def test_a_hessian_that_does_not_fit_is_refused_and_auto_takes_validation_instead() -> None:
    random = np.random.default_rng(0)
    wide = {"features": random.normal(size=(20, 2100)), "labels": np.arange(20) % 2, "clients": 2}
    small = sx.Problem(sx.data.from_arrays(**wide), sx.models.logistic())
    with pytest.raises(sx.ScafflixError, match="2100 x 2100"):
        rule_for("auto", small)
    with_part = sx.data.from_arrays(**wide, validation=0.3)
    assert rule_for("auto", sx.Problem(with_part, sx.models.logistic())).name == "validation"
