from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import miniature
from miniature import ALPHA, GAMMA, N
from scafflix.core.compilation import COMPILATIONS
from scafflix.core.errors import ScafflixError
from scafflix.core.store import Store
from scafflix.gradients import Minibatch, Noisy
from scafflix.methods import METHODS
from scafflix.problems.evaluation import evaluate, over_examples
from scafflix.record import Record
from scafflix.simulate import cohorts as training
from scafflix.simulate.cohorts import Trained, cohort_of

ONES = np.ones(N)
SMALL = miniature.problem((6,), 0.0)
BATCH = Minibatch(4)


def scafflix(
    alpha: NDArray[np.float64] = ONES, gamma: NDArray[np.float64] = GAMMA, p: float = 0.3
) -> Any:
    return miniature.method("scafflix", alpha, gamma, p, BATCH, pace="actual")


def short(**changes: Any) -> Trained:
    asked = {"rounds": 3, "cohort": 3, **changes}
    return miniature.run(SMALL, scafflix(), ONES, None, **asked)


def recorded(**changes: Any) -> Record:
    asked = {"rounds": 3, "cohort": 3, **changes}
    return miniature.record(SMALL, scafflix(), ONES, None, **asked)


# what a run depends on


def test_the_same_seed_makes_the_same_bits_twice() -> None:
    first, second = short(rounds=6), short(rounds=6)
    np.testing.assert_array_equal(miniature.flat(first.x), miniature.flat(second.x))
    for name, values in first.metrics.items():
        np.testing.assert_array_equal(values, second.metrics[name])


def test_another_seed_makes_another_run() -> None:
    assert (miniature.flat(short().x) != miniature.flat(short(seed=1).x)).any()


def test_looking_does_not_change_the_run() -> None:
    often, seldom = short(rounds=6, every=1), short(rounds=6, every=6)
    np.testing.assert_array_equal(miniature.flat(often.x), miniature.flat(seldom.x))


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    long, brief = short(rounds=6, every=1), short(rounds=4, every=1)
    np.testing.assert_array_equal(long.metrics["test_loss"][:5], brief.metrics["test_loss"])


def test_nothing_is_compiled_again_for_other_seeds_stepsizes_p_and_alpha() -> None:
    x_star = miniature.points(SMALL)
    miniature.run(SMALL, scafflix(ALPHA), ALPHA, x_star, rounds=2, cohort=3)
    before = COMPILATIONS.count
    other = np.roll(ALPHA, 1)
    miniature.run(
        SMALL, scafflix(other, 0.5 * GAMMA, 0.6), other, x_star, rounds=6, cohort=3, seed=9
    )
    assert COMPILATIONS.count == before


def test_nothing_is_compiled_again_when_some_clients_do_not_take_part() -> None:
    x_star = miniature.points(SMALL)
    miniature.run(SMALL, scafflix(ALPHA), ALPHA, x_star, rounds=2, cohort=3)
    before = COMPILATIONS.count
    some = np.where(np.arange(N) < 2, 0.0, ALPHA)
    miniature.run(SMALL, scafflix(some), some, x_star, rounds=4, cohort=3)
    assert COMPILATIONS.count == before


def test_the_batches_of_a_client_do_not_depend_on_who_else_is_there() -> None:
    # FedAvg of one client of a cohort: its step is 3 times the mean's share of it
    def state(cohort: list[int]) -> Any:
        made = _with_cohort(cohort)
        return miniature.flat(made.states.read(np.array([2])).h.tree), miniature.flat(made.x)

    (h_few, x_few), (h_many, x_many) = state([2, 4]), state([0, 1, 2, 5])
    # h_2 = (1/(K gamma_2)) (x_bar - x_hat_2), so that both tell where client 2 was: x_hat_2
    (K,) = _with_cohort([2, 4]).local_steps[1:]
    hats = [x - K * GAMMA[2] * h for x, h in ((x_few, h_few), (x_many, h_many))]
    np.testing.assert_allclose(*hats, atol=1e-6)
    assert np.abs(x_few - x_many).max() > 1e-3


def _with_cohort(cohort: list[int]) -> Trained:
    patch = pytest.MonkeyPatch()
    with patch.context() as context:
        context.setattr(training, "cohort_of", lambda *_: np.array(cohort))
        return miniature.run(SMALL, scafflix(), ONES, None, rounds=1, cohort=len(cohort))


# who takes part


def test_cohorts_have_no_client_twice_and_reach_everyone() -> None:
    active = np.arange(20)
    cohorts = [cohort_of(0, number, active, 5) for number in range(200)]
    assert all(len(set(cohort.tolist())) == 5 for cohort in cohorts)
    counts = np.bincount(np.concatenate(cohorts), minlength=20)
    assert (np.abs(counts - 50) < 5 * np.sqrt(50 * 0.75)).all()


def test_clients_with_alpha_zero_are_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def spy(*arguments: Any) -> NDArray[np.int64]:
        chosen = cohort_of(*arguments)
        seen.extend(chosen.tolist())
        return chosen

    monkeypatch.setattr(training, "cohort_of", spy)
    alpha = np.where(np.isin(np.arange(N), [1, 4]), 0.0, ALPHA)
    made = miniature.run(
        SMALL, scafflix(alpha), alpha, miniature.points(SMALL), rounds=10, cohort=3
    )
    assert set(seen) == {0, 2, 3, 5, 6}
    h = made.states.read(np.array([1, 4])).h.tree
    assert (miniature.flat(h) == 0).all()


def test_without_a_cohort_all_clients_with_alpha_above_zero_take_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(training, "cohort_of", lambda *a: sizes.append(a[3]) or cohort_of(*a))
    alpha = np.where(np.arange(N) == 0, 0.0, 1.0)
    miniature.run(SMALL, scafflix(alpha), alpha, Store(SMALL.template, N), rounds=2)
    assert set(sizes) == {N - 1}


# what is measured


def test_the_last_measurements_are_those_of_the_final_models() -> None:
    x_star = miniature.points(SMALL)
    made = miniature.run(SMALL, scafflix(ALPHA), ALPHA, x_star, rounds=3, cohort=3)
    personal = evaluate(SMALL, "test", made.x, miniature.mixtures(ALPHA), x_star)
    shared = evaluate(SMALL, "test", made.x)
    last = {name: values[-1] for name, values in made.metrics.items()}
    assert last["test_personal"] == over_examples(personal.score, personal)
    assert last["test_loss"] == over_examples(personal.loss, personal)
    assert last["test_global"] == over_examples(shared.score, shared)
    assert last["test_personal_clients"] == np.nanmean(personal.score)


def test_clients_that_stay_at_home_are_measured_with_their_own_models() -> None:
    # the others have alpha = 1, so that nobody mixes, but x_i* is still the model of some
    x_star = miniature.points(SMALL, scale=2.0)
    alpha = np.where(np.arange(N) < 3, 0.0, 1.0)
    made = miniature.run(SMALL, scafflix(alpha), alpha, x_star, rounds=2, cohort=3)
    personal = evaluate(SMALL, "test", made.x, miniature.mixtures(alpha), x_star)
    assert made.metrics["test_loss"][-1] == pytest.approx(over_examples(personal.loss, personal))


def test_rounds_between_evaluations_have_no_scores() -> None:
    made = short(rounds=5, every=2)
    known = np.isfinite(made.metrics["test_loss"])
    assert known.tolist() == [True, False, True, False, True, True]
    assert np.isfinite(made.metrics["train_loss"][1:]).all()


def test_messages_are_counted_for_the_clients_of_the_cohort() -> None:
    made = recorded(rounds=4)
    np.testing.assert_array_equal(made.metrics["bits_up"], np.arange(5) * 3 * 32 * SMALL.size)
    np.testing.assert_array_equal(made.metrics["bits_down"], np.arange(5) * 3 * 32 * SMALL.size)


def test_iterations_are_the_sum_of_the_local_steps() -> None:
    metrics = recorded(rounds=6).metrics
    np.testing.assert_array_equal(metrics["iterations"], np.cumsum(metrics["local_steps"]))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "nesterov"])
def test_every_method_lowers_the_training_loss(name: str) -> None:
    small = miniature.problem((), 0.0)
    chosen = miniature.method(name, ONES, np.full(N, 0.2), 0.4)
    made = miniature.run(small, chosen, ONES, None, rounds=15)
    assert made.divergence is None
    assert made.metrics["train_loss"][-1] < 0.8 * made.metrics["train_loss"][1]


def test_a_method_without_memory_keeps_no_states() -> None:
    chosen = miniature.method("fedavg", ONES, GAMMA, 0.3, BATCH)
    assert miniature.run(SMALL, chosen, ONES, None, rounds=1, cohort=2).states is None


def test_with_every_alpha_zero_there_is_no_round_and_everyone_keeps_its_own_model() -> None:
    x_star = miniature.points(SMALL)
    made = miniature.record(SMALL, scafflix(), np.zeros(N), x_star, rounds=5, cohort=3)
    assert made.metrics["round"].tolist() == [0]
    assert made.metrics["bits_up"].tolist() == [0]
    for client, own in enumerate(x_star.read(np.arange(N))["layer0"]["weight"]):
        found = made.personal_model(f"client-{client}")["layer0/weight"]
        np.testing.assert_array_equal(found, own)


# what is refused


@pytest.mark.parametrize("cohort", [0, -1, N + 1])
def test_a_cohort_that_cannot_be_is_refused(cohort: int) -> None:
    with pytest.raises(ScafflixError, match=f"cohort is {cohort}; .* at most {N}"):
        short(cohort=cohort)


def test_a_cohort_above_the_number_of_clients_that_take_part_is_refused() -> None:
    alpha = np.where(np.arange(N) < 3, 0.0, 1.0)
    with pytest.raises(ScafflixError, match=f"cohort is 5; .* at most {N - 3}"):
        miniature.run(SMALL, scafflix(alpha), alpha, miniature.points(SMALL), rounds=1, cohort=5)


def test_a_batch_larger_than_a_clients_data_is_refused_by_name() -> None:
    chosen = miniature.method("scafflix", ONES, GAMMA, 0.3, Minibatch(10))
    with pytest.raises(ScafflixError, match="client-2 has only 9 examples"):
        miniature.run(SMALL, chosen, ONES, None, rounds=1)


@pytest.mark.parametrize("rounds", [0, -3])
def test_no_rounds_are_refused(rounds: int) -> None:
    with pytest.raises(ScafflixError, match=f"rounds is {rounds}"):
        short(rounds=rounds, every=1)


def test_looking_every_zero_rounds_is_refused() -> None:
    with pytest.raises(ScafflixError, match="every is 0"):
        short(every=0)


def test_a_part_that_is_not_there_is_refused() -> None:
    with pytest.raises(ScafflixError, match="no holiday data"):
        short(part="holiday")


def test_mixing_without_local_optima_is_refused() -> None:
    with pytest.raises(ScafflixError, match="no local optima"):
        miniature.run(SMALL, scafflix(ALPHA), ALPHA, None, rounds=1)


def test_noisy_gradients_are_refused() -> None:
    chosen = miniature.method("scafflix", ONES, GAMMA, 0.3, Noisy(1.0))
    with pytest.raises(ScafflixError, match="without added noise"):
        miniature.run(SMALL, chosen, ONES, None, rounds=1)


# divergence


@pytest.fixture(scope="module", params=[30.0, 1e20])
def diverged(request: pytest.FixtureRequest) -> Trained:
    """A network with a stepsize far too large: it explodes, slowly or at once."""
    chosen = scafflix(ONES, np.full(N, request.param))
    return miniature.run(SMALL, chosen, ONES, None, rounds=50, cohort=3, every=1)


def test_a_run_that_diverges_says_in_which_round_and_at_which_client(diverged: Trained) -> None:
    assert diverged.divergence is not None
    assert diverged.divergence.client in SMALL.federation.clients
    assert 1 <= diverged.divergence.round <= 50


def test_a_run_that_diverges_is_measured_up_to_the_last_good_round(diverged: Trained) -> None:
    assert diverged.divergence is not None
    assert len(diverged.local_steps) == diverged.divergence.round
    assert len(diverged.metrics["test_loss"]) == diverged.divergence.round
    assert np.isfinite(diverged.metrics["test_loss"]).all()
    assert np.isfinite(diverged.metrics["train_loss"][1:]).all()


def test_what_a_run_that_diverges_leaves_is_finite(diverged: Trained) -> None:
    assert np.isfinite(miniature.flat(diverged.x)).all()
    assert np.isfinite(miniature.flat(diverged.states.read(np.arange(N)))).all()


def test_a_large_l2_is_not_taken_for_divergence() -> None:
    # (l2/2) ||x||^2 is part of f_i, and large at a random start; the stepsize is small
    small = miniature.problem((64,), 1.0)
    chosen = miniature.method("scafflix", ONES, np.full(N, 1e-2), 0.5)
    made = miniature.run(small, chosen, ONES, None, rounds=5)
    assert made.divergence is None


# devices

SCRIPT = """
import sys
sys.path[:0] = [{tests!r}]
import jax, numpy as np
import miniature
from scafflix.problems.curvature import curvatures
from scafflix.problems.evaluation import evaluate, over_examples
from scafflix.personalization.optima import local_optima
from scafflix.personalization.recipe import Recipe
from scafflix.gradients import Minibatch
assert jax.device_count() == {devices}
small = miniature.problem((6,), 0.0)
alpha, x_star = miniature.ALPHA, miniature.points(small)
if {what!r} == "rounds":
    chosen = miniature.method("scafflix", alpha, miniature.GAMMA, 0.3, Minibatch(4), pace="actual")
    made = miniature.run(small, chosen, alpha, x_star, rounds=6, cohort=3)
    scores = evaluate(small, "test", made.x, miniature.mixtures(alpha), x_star)
    found = dict(
        x=miniature.flat(made.x),
        h=miniature.controls(made, chosen, alpha),
        loss=scores.loss,
        shared=evaluate(small, "test", made.x).loss,
        curvature=curvatures(small, x_star),
    )
else:
    made = local_optima(small, small.start(0), Recipe(steps=20, batch=4))
    found = dict(
        x=miniature.flat(made.x_star.read(np.arange(small.n))), stepsize=made.stepsize
    )
np.savez({out!r}, **found)
"""


class Devices:
    """The same work in processes with other numbers of devices, each done once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, what: str, devices: int) -> dict[str, NDArray[np.float64]]:
        out = self.folder / f"{what}-{devices}.npz"
        tests = str(Path(__file__).parents[1])
        if not out.exists():
            environment = os.environ | {
                "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
                "SCAFFLIX_CACHE": str(self.folder / f"cache-{devices}"),
            }
            script = SCRIPT.format(tests=tests, devices=devices, what=what, out=str(out))
            done = subprocess.run(
                [sys.executable, "-c", script], env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr[-2000:]
        return dict(np.load(out))


@pytest.fixture(scope="module")
def on_devices(tmp_path_factory: pytest.TempPathFactory) -> Devices:
    return Devices(tmp_path_factory.mktemp("devices"))


def test_two_devices_make_the_numbers_of_one_for_a_cohort_of_three(on_devices: Devices) -> None:
    one, two = on_devices("rounds", 1), on_devices("rounds", 2)
    for name in ("x", "h", "loss", "shared"):
        np.testing.assert_allclose(one[name], two[name], rtol=1e-4, atol=1e-5)


def test_two_devices_find_the_curvature_of_one(on_devices: Devices) -> None:
    one, two = on_devices("rounds", 1), on_devices("rounds", 2)
    np.testing.assert_allclose(one["curvature"], two["curvature"], rtol=1e-4)


@pytest.mark.parametrize("devices", [2, 5])
def test_more_devices_find_the_local_optima_of_one(on_devices: Devices, devices: int) -> None:
    one, more = on_devices("optima", 1), on_devices("optima", devices)
    assert one["stepsize"] == more["stepsize"]
    np.testing.assert_allclose(one["x"], more["x"], rtol=1e-4, atol=1e-5)


def test_a_network_that_is_a_linear_model_says_which_has_a_certificate() -> None:
    for hidden, words in (((), "the linear model softmax"), ((4,), "No theorem covers")):
        small = miniature.problem(hidden)
        chosen = miniature.method("fedavg", np.ones(N), np.full(N, 0.1))
        made = miniature.record(small, chosen, np.ones(N), None, rounds=1)
        assert words in made.summary["no_certificate"]
