"""Local optima that are looked for when the rounds are over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import miniature
import scafflix as sx
from scafflix.core.cache import cache_folder
from scafflix.core.checkpoint import Checkpoints, Often
from scafflix.core.errors import ScafflixError
from scafflix.methods.method import Method
from scafflix.personalization import optima
from scafflix.personalization.alphas import Alpha
from scafflix.personalization.optima import local_optima
from scafflix.personalization.personalize import Personalization
from scafflix.personalization.rules.choosing import choose
from scafflix.record import Record
from scafflix.report.recommendation import recommendation
from scafflix.runs.assembly import resolve
from scafflix.runs.config import RunConfig, build
from scafflix.runs.runner import execute

PROBLEM = miniature.problem((6,), 0.0)
RECIPE = sx.Recipe(stepsize=0.1, batch=4, steps=20)
ROUNDS = {"rounds": 4, "cohort": 3, "seed": 5}


def person(alpha: Alpha) -> Personalization:
    return sx.personalize(PROBLEM, alpha, after=True, recipe=RECIPE)


def planned(one: Personalization) -> Method:
    gradient = sx.gradients.gradient(4)
    return sx.scafflix(sx.plan(PROBLEM, one, gradient=gradient, stepsize=0.05))


def trained(alpha: Alpha, checkpoints: Checkpoints | None = None) -> Record:
    one = person(alpha)
    method = planned(one)
    more = {} if checkpoints is None else {"checkpoints": checkpoints}
    return sx.run(PROBLEM, one, method, **ROUNDS, **more)


@pytest.fixture(scope="module")
def chosen() -> Record:
    return trained("validation")


def model(record: Record, kind: str) -> dict[str, np.ndarray]:
    names = [name for name in record.models if name.startswith(f"{kind}/")]
    return {name.partition("/")[2]: record.models[name] for name in names}


def test_the_rounds_are_those_without_local_optima(chosen: Record) -> None:
    alone = sx.personalize(PROBLEM, 1, optima=False, recipe=RECIPE)
    plain = sx.run(PROBLEM, alone, planned(alone), **ROUNDS)
    for name, array in model(plain, "global").items():
        np.testing.assert_array_equal(model(chosen, "global")[name], array)
    np.testing.assert_array_equal(chosen.metrics["train_loss"], plain.metrics["train_loss"])


def test_every_client_starts_from_the_model_that_the_rounds_gave(chosen: Record) -> None:
    leaves, form = jax.tree.flatten(PROBLEM.template)
    x = jax.tree.unflatten(form, list(model(chosen, "global").values()))
    found = local_optima(PROBLEM, x, RECIPE)
    stars = found.x_star.read(np.arange(PROBLEM.n))
    for mine, star in zip(model(chosen, "local").values(), jax.tree.leaves(stars), strict=True):
        np.testing.assert_array_equal(mine, star)
    choice = choose(PROBLEM, "validation", found.x_star, x)
    np.testing.assert_array_equal(chosen.clients["alpha"], choice.alpha)
    assert len(leaves) == len(model(chosen, "local"))


def test_clients_take_home_the_mixture(chosen: Record) -> None:
    alpha = chosen.clients["alpha"]
    for name, mixed in model(chosen, "personal").items():
        share = alpha.reshape(-1, *[1] * (mixed.ndim - 1)).astype(np.float32)
        x, star = model(chosen, "global")[name], model(chosen, "local")[name]
        np.testing.assert_allclose(mixed, share * x + (1 - share) * star, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("alpha", "kind"), [(0.0, "local"), (1.0, "global")])
def test_an_alpha_that_is_given_is_of_the_mixture_alone(
    alpha: float, kind: str, chosen: Record
) -> None:
    record = trained(alpha)
    for name, mixed in model(record, "personal").items():
        wanted = np.broadcast_to(model(record, kind)[name], mixed.shape)
        np.testing.assert_array_equal(mixed, wanted)
        np.testing.assert_array_equal(model(record, "global")[name], model(chosen, "global")[name])
    assert (record.clients["alpha"] == alpha).all()
    assert record.summary["alpha"] is None
    np.testing.assert_array_equal(record.clients["test_personal"], record.clients[f"test_{kind}"])


def test_the_sentences_speak_of_fine_tuning(chosen: Record) -> None:
    assert chosen.summary["tuned"]
    words = " ".join(recommendation(chosen))
    assert "fine-tuning" in words
    assert "mixing" in words
    assert "alone" not in words


def test_the_second_sentence_says_for_whom_the_shared_model_is_better(chosen: Record) -> None:
    clients = chosen.clients
    saved = clients["test_loss_global"] - clients["test_loss_personal"]
    known = np.isfinite(saved)
    worse = int((saved < 0).sum()) + int((saved == 0).sum())
    _, words = recommendation(chosen)
    sign = "below" if np.nanmean(saved) > 0 else "above"
    assert f"{abs(np.nanmean(saved)):.3g} {sign} one model for all" in words
    if worse:
        assert f"does not pay for {worse} of {known.sum()} clients" in words
    else:
        assert f"pays for all {known.sum()} clients" in words
    assert (clients["test_shared_gain_error"][known] > 0).any()
    # what was expected of alpha counts from the tuned model, and so does what came of it
    came = (clients["test_loss_local"] - clients["test_loss_personal"])[known]
    assert chosen.summary["taking_part"]["personal"]["gain"] == pytest.approx(came.mean())


def test_nothing_is_left_in_the_cache(chosen: Record) -> None:
    assert chosen.summary["rounds"] == ROUNDS["rounds"]
    trained(0.5)
    assert [file.name for file in cache_folder().rglob("*") if file.is_file()] == []


class KilledError(Exception):
    pass


def test_a_run_that_is_stopped_among_the_clients_goes_on_with_those_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Record
) -> None:
    find, calls = optima.find, list[int]()
    monkeypatch.setattr(optima, "AT_ONCE", 1)

    def killed(*arguments: object) -> object:
        calls.append(len(calls))
        if len(calls) == 2:
            raise KilledError
        return find(*arguments)  # type: ignore[arg-type]

    place = Checkpoints(tmp_path, Often(rounds=1))
    with monkeypatch.context() as patch:
        patch.setattr(optima, "find", killed)
        with pytest.raises(KilledError):
            trained("validation", place)
    record = trained("validation", place)
    for name, array in chosen.models.items():
        np.testing.assert_array_equal(record.models[name], array)


def test_the_record_says_for_how_many_steps_clients_tuned(tmp_path: Path) -> None:
    recipe = replace(RECIPE, steps=None, patience=0, stepsize=0.02)
    one = sx.personalize(PROBLEM, "auto", recipe=recipe)
    record = sx.run(PROBLEM, one, planned(one), **ROUNDS)
    record = Record.load(record.save(tmp_path / "run"))
    found = record.summary["local_optima"]
    assert found["steps"] == found["local_steps"]
    assert (record.clients["local_steps"] == found["steps"]).all()
    assert {"20", "40", str(found["steps"])} <= found["tried"].keys()


def test_steps_that_are_given_are_not_chosen(chosen: Record) -> None:
    assert not {"steps", "tried"} & chosen.summary["local_optima"].keys()


def test_by_default_a_network_mixes_afterwards_where_alpha_is_not_given() -> None:
    asked = {"data": "iris", "model": "dense"}
    assert resolve(build(RunConfig, asked)).optima == "after"
    assert resolve(build(RunConfig, {**asked, "alpha": "auto"})).optima == "after"
    assert resolve(build(RunConfig, {**asked, "alpha": 0.3})).optima == "common"
    assert resolve(build(RunConfig, {**asked, "alpha": 0.3})).optima_steps == 200
    assert resolve(build(RunConfig, asked)).optima_steps is None
    assert resolve(build(RunConfig, {**asked, "optima_steps": 20})).optima_steps == 20
    assert resolve(build(RunConfig, {**asked, "method": "ditto"})).optima == "none"
    assert sx.personalize(PROBLEM, "auto", recipe=RECIPE).after is not None


def test_the_command_without_an_alpha_says_what_mixing_gained() -> None:
    asked = {"data": "iris", "clients": 3, "split": "shuffled", "model": "dense", "rounds": 2}
    config = build(RunConfig, {**asked, "batch": 5, "optima_steps": 10, "optima_batch": 5})
    record = execute(replace(config, min_examples=5))
    assert record.config["optima"] == "after"
    assert record.summary["alpha"]["rule"] == "validation"
    assert np.isfinite(record.summary["taken_home"]["local"]["difference"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sx.personalize(PROBLEM, "auto:0.5", after=True), "these are at alpha = 1"),
        (
            lambda: execute(
                build(
                    RunConfig,
                    {"data": "iris", "model": "dense", "method": "ditto", "optima": "after"},
                )
            ),
            "optima is 'after'",
        ),
        (
            lambda: sx.personalize(
                sx.Problem(sx.data.synthetic(clients=3, seed=0), sx.models.logistic()),
                0.5,
                after=True,
            ),
            "are for networks",
        ),
    ],
    ids=["trained lower", "own models", "linear"],
)
def test_what_cannot_be_mixed_afterwards_is_one_sentence(make: object, words: str) -> None:
    with pytest.raises(ScafflixError, match=words):
        make()  # type: ignore[operator]
