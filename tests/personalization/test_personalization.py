from __future__ import annotations

from importlib import import_module
from pathlib import Path

import jax
import numpy as np
import pytest

import reference
import scafflix as sx
from cases import ALPHA, SIZES, Case, problem
from scafflix.personalization.alphas import read_alpha
from scafflix.personalization.mixing import mixture
from scafflix.problems.losses import Losses

N = len(SIZES)


def test_local_optima_are_those_of_scipy(case: Case) -> None:
    expected = [reference.minimizer(f, case.problem.shape) for f in case.functions]
    np.testing.assert_allclose(case.person.x_star, expected, atol=1e-7)


def test_local_gradients_vanish_by_the_reference(case: Case) -> None:
    for f, x in zip(case.functions, np.asarray(case.person.x_star), strict=True):
        assert np.linalg.norm(f.gradient(x)) <= 1e-10


def test_the_reported_gradient_norms_are_those_at_the_local_optima(case: Case) -> None:
    with jax.enable_x64(True):
        found = jax.jit(Losses.gradients)(case.problem.losses, case.person.x_star[None])
    gradients = np.asarray(found)
    norms = np.linalg.norm(gradients.reshape(N, -1), axis=1)
    np.testing.assert_allclose(case.person.quality["local_grad_norm"], norms, atol=1e-13)


def badly_scaled() -> sx.data.Federation:
    """Features between 1e-3 and 1e3, beside a client of ordinary ones."""
    random = np.random.default_rng(0)
    A = random.normal(size=(40, 6))
    b = np.where(random.random(40) < 0.5, 1, -1)
    return sx.data.from_clients({"ordinary": (A, b), "wild": (A * np.geomspace(1e-3, 1e3, 6), b)})


def test_local_optima_of_badly_scaled_data_are_found() -> None:
    person = sx.personalize(sx.Problem(badly_scaled(), sx.models.logistic(), 1e-2), 0.5)
    train = badly_scaled().train
    for i, (start, stop) in enumerate(((0, 40), (40, 80))):
        f = reference.logistic(train.features[start:stop], train.labels[start:stop], 1e-2)
        assert np.linalg.norm(f.gradient(np.asarray(person.x_star[i]))) <= 1e-10


def test_local_optima_of_separable_data_with_little_regularization_are_found() -> None:
    A = np.array([[1.0, 0.2], [2.0, -0.1], [-1.0, 0.1], [-3.0, 0.3]])
    federation = sx.data.from_clients({"a": (A, [1, 1, -1, -1])})
    person = sx.personalize(sx.Problem(federation, sx.models.logistic(), 1e-6), 1.0)
    f = reference.logistic(A, np.array([1.0, 1, -1, -1]), 1e-6)
    assert np.linalg.norm(f.gradient(np.asarray(person.x_star[0]))) <= 1e-10


def test_alpha_0_gives_exactly_the_local_optimum(case: Case) -> None:
    x = 1e6 * np.ones(case.problem.shape)
    np.testing.assert_array_equal(case.person.at(0.0).mix(x), case.person.x_star)


def test_alpha_1_gives_exactly_the_global_model(case: Case) -> None:
    x = np.full(case.problem.shape, 0.3)
    expected = np.broadcast_to(x, case.person.x_star.shape)
    np.testing.assert_array_equal(case.person.at(1.0).mix(x), expected)


def test_the_mixture_weighs_by_the_alpha_of_each_client(case: Case) -> None:
    x, stars = np.full(case.problem.shape, 0.3), np.asarray(case.person.x_star)
    expected = [a * x + (1 - a) * star for a, star in zip(ALPHA, stars, strict=True)]
    np.testing.assert_allclose(mixture(ALPHA, x, stars), expected, rtol=1e-14)


def test_another_alpha_keeps_the_local_optima(logistic_case: Case) -> None:
    other = logistic_case.person.at(0.25)
    assert other.x_star is logistic_case.person.x_star
    np.testing.assert_array_equal(other.alpha, np.full(N, 0.25))


def test_clients_with_alpha_0_do_not_take_part(logistic_case: Case) -> None:
    assert logistic_case.person.at([0.0, 0.5, 0.0, 1e-9, 1.0]).active.tolist() == [1, 3, 4]


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan"), float("inf"), "1.5", "nan"])
def test_alpha_outside_0_and_1_is_refused(alpha: object) -> None:
    with pytest.raises(sx.ScafflixError, match=r"alpha is .* must lie between 0 .* and 1"):
        read_alpha(alpha, N)  # type: ignore[arg-type]


def test_the_first_client_whose_alpha_is_wrong_is_named() -> None:
    with pytest.raises(sx.ScafflixError, match="alpha is 2 for client number 3"):
        read_alpha([0.1, 0.2, 2.0, 0.3, -1.0], N)


@pytest.mark.parametrize("alpha", [[0.5, 0.5], [0.5] * 6, []])
def test_an_alpha_of_the_wrong_length_is_refused(alpha: list[float]) -> None:
    with pytest.raises(sx.ScafflixError, match=f"has {np.size(alpha)} values.* 5 clients"):
        read_alpha(alpha, N)


@pytest.mark.parametrize("alpha", [None, "much", ["a", "b", "c", "d", "e"]])
def test_an_alpha_that_is_no_number_is_refused(alpha: object) -> None:
    with pytest.raises(sx.ScafflixError, match=r"alpha is .*number"):
        read_alpha(alpha, N)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0.1 0.2 0.3 0.4 0.5", "0.1,0.2,0.3\n0.4,\n0.5\n"])
def test_alpha_is_read_from_a_file_of_numbers(text: str, tmp_path: Path) -> None:
    file = tmp_path / "alpha.txt"
    file.write_text(text)
    np.testing.assert_array_equal(read_alpha(file, N), [0.1, 0.2, 0.3, 0.4, 0.5])
    np.testing.assert_array_equal(read_alpha(str(file), N), [0.1, 0.2, 0.3, 0.4, 0.5])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"0.1 much 0.3 0.4 0.5", "not a number"),
        (b"\xff\xfe\x00\x01", "must be a number"),
        (b"", "has 0 values"),
        (b"0.1 0.2 0.3 0.4 1.5", "is 1.5 for client number 5"),
    ],
)
def test_a_file_of_anything_but_alphas_is_refused(
    content: bytes, complaint: str, tmp_path: Path
) -> None:
    file = tmp_path / "alpha.txt"
    file.write_bytes(content)
    with pytest.raises(sx.ScafflixError, match=complaint):
        read_alpha(file, N)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(sx.ScafflixError, match="must be a number between 0 and 1, a rule"):
            read_alpha(path, N)


def test_a_local_optimum_that_is_not_found_names_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # nothing short of a gradient that is exactly 0 will do
    monkeypatch.setattr(import_module("scafflix.personalization.exact"), "TOLERANCE", 0.0)
    with pytest.raises(sx.ScafflixError, match=r"local optimum of client client-\d was not found"):
        sx.personalize(problem("logistic"), 0.5)
