"""Runs by configuration: what the runner makes once, keeps, and refuses."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import miniature
import scafflix as sx
from cases import SOME_METHODS
from miniature import ALPHA, CLASSES, FEATURES, N
from scafflix.core import durable
from scafflix.core.checkpoint import Checkpoints, Often
from scafflix.core.errors import ScafflixError
from scafflix.core.progress import Standing
from scafflix.data.federation import Examples, Federation
from scafflix.models.dense import dense
from scafflix.problems.curvature import curvatures
from scafflix.record import Record
from scafflix.runs.assembly import build_model
from scafflix.runs.config import RunConfig, build, key
from scafflix.runs.runner import RECIPE, Runner
from scafflix.simulate import cohorts as training
from scafflix.simulate import recording
from scafflix.simulate import run as running

SMALL = miniature.problem((6,), 0.0)
SETTINGS: dict[str, Any] = {
    "alpha": 0.4,
    "rounds": 3,
    "cohort": 3,
    "batch": 4,
    "every": 3,
    "optima_stepsize": 0.2,
    "optima_batch": 4,
    "optima_steps": 20,
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of its own for every test, so that nothing outside is touched."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SCAFFLIX_CACHE", str(folder))
    return folder


def run(problem: sx.Problem = SMALL, **changes: Any) -> Record:
    return Runner(problem).run(config(**changes))


def config(**changes: Any) -> RunConfig:
    asked = {"data": "miniature", "model": "dense", **SETTINGS, **changes}
    if asked.get("optima") == "none":  # which reads nothing of how they are looked for
        asked = {key: value for key, value in asked.items() if not key.startswith("optima_")}
    return build(RunConfig, asked)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("there was no need to compute this")


# records


def test_a_record_can_be_saved_and_loaded(tmp_path: Path) -> None:
    made = run()
    found = Record.load(made.save(tmp_path / "run"))
    for kind in ("metrics", "clients", "models"):
        before, after = getattr(made, kind), getattr(found, kind)
        assert set(before) == set(after)
        for name, values in before.items():
            np.testing.assert_array_equal(after[name], values)
    assert found.summary["scores"] == made.summary["scores"]


def test_the_record_of_a_run_that_diverged_can_be_saved_and_loaded(tmp_path: Path) -> None:
    made = run(stepsize=1e20, alpha=1.0, optima="none")
    found = Record.load(made.save(tmp_path / "run"))
    assert found.summary["diverged"]["client"] in SMALL.federation.clients
    assert len(found.metrics["round"]) == found.summary["diverged"]["round"]


def test_the_personal_model_is_the_mixture() -> None:
    made = run(alpha=ALPHA.tolist())
    for i, client in enumerate(SMALL.federation.clients):
        for name, values in made.personal_model(client).items():
            shared, own = made.models[f"global/{name}"], made.models[f"local/{name}"][i]
            np.testing.assert_allclose(
                values, ALPHA[i] * shared + (1 - ALPHA[i]) * own, rtol=1e-5, atol=1e-6
            )


def test_a_client_with_alpha_zero_takes_its_own_optimum_home() -> None:
    made = run(alpha=[0.0, *ALPHA[1:]])
    for name, values in made.personal_model("client-0").items():
        np.testing.assert_array_equal(values, made.models[f"local/{name}"][0])
    assert np.isnan(made.clients["gamma"][0])
    assert made.summary["n_active"] == N - 1


def test_alpha_may_be_an_array() -> None:
    given = run(alpha=np.array(ALPHA))
    np.testing.assert_array_equal(given.clients["alpha"], ALPHA)


@pytest.mark.parametrize("alpha", [ALPHA.tolist(), [0, 0, 0, 1, 1, 1, 1]], ids=["mix", "0or1"])
def test_the_scores_of_the_record_are_those_of_its_models(alpha: list[float]) -> None:
    made = run(alpha=alpha)
    for i, client in enumerate(SMALL.federation.clients):
        test = SMALL.federation.test
        assert test is not None
        rows = slice(test.offsets[i], test.offsets[i + 1])
        tree: dict[str, Any] = {}
        for name, values in made.personal_model(client).items():
            layer, leaf = name.split("/")
            tree.setdefault(layer, {})[leaf] = values
        if test.counts[i] == 0:
            assert np.isnan(made.clients["test_personal"][i])
            continue
        logits = np.asarray(SMALL.network.apply(tree, test.features[rows]))
        right = np.mean(logits.argmax(axis=1) == test.labels[rows])
        np.testing.assert_allclose(made.clients["test_personal"][i], right)
        chosen = logits[np.arange(len(logits)), test.labels[rows]]
        loss = np.mean(np.log(np.exp(logits).sum(axis=1)) - chosen)
        np.testing.assert_allclose(made.clients["test_loss_personal"][i], loss, rtol=1e-5)


@pytest.mark.parametrize("alpha", [0.4, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]], ids=["mix", "0or1"])
def test_the_last_round_and_the_summary_say_the_same(alpha: Any) -> None:
    made = run(alpha=alpha)
    scores = made.summary["scores"]["test"]
    assert made.metrics["test_personal"][-1] == pytest.approx(scores["personal"]["examples"])
    assert made.metrics["test_global"][-1] == pytest.approx(scores["global"]["examples"])
    assert made.metrics["test_loss"][-1] == pytest.approx(scores["personal"]["loss"])


def test_without_local_optima_everyone_has_the_global_model() -> None:
    made = run(alpha=1.0, optima="none")
    assert set(made.models) == {
        f"global/layer{i}/{leaf}" for i in (0, 1) for leaf in ("weight", "bias")
    }
    np.testing.assert_array_equal(made.clients["test_personal"], made.clients["test_global"])
    assert made.summary["local_optima"] is None


@pytest.mark.parametrize(("keep", "kinds"), [("global", {"global"}), ("none", set())])
def test_keep_says_which_models_stay(keep: str, kinds: set[str], tmp_path: Path) -> None:
    made = run(keep=keep)
    assert {name.split("/")[0] for name in made.models} == kinds
    assert Record.load(made.save(tmp_path / "run")).models.keys() == made.models.keys()


def test_a_validation_run_leaves_no_trace_of_test_data() -> None:
    made = run(part="validation")
    named = [*made.metrics, *made.clients, *made.summary["scores"], *made.summary["local_optima"]]
    assert [name for name in named if name.startswith("test") and name != "test_examples"] == []
    assert np.isfinite(made.metrics["validation_personal"][-1])


def test_a_validation_run_does_not_evaluate_test_data(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = miniature.spied_parts(monkeypatch)
    run(part="validation")
    assert "test" not in seen


def test_clients_that_were_left_out_are_counted() -> None:
    fed = replace(miniature.federation(), left_out={"tiny": "too few", "empty": "none"})
    made = run(sx.Problem(fed, dense(FEATURES, CLASSES, (6,))))
    assert made.summary["n_left_out"] == 2


@pytest.mark.parametrize("name", SOME_METHODS)
def test_methods_of_every_kind_train_a_network(name: str) -> None:
    made = run(miniature.problem((), 0.0), method=name, batch="full")
    assert made.summary["method"] == name
    assert made.summary["diverged"] is None


def test_a_method_that_needs_theory_is_one_sentence() -> None:
    with pytest.raises(ScafflixError, match="nesterov needs"):
        run(method="nesterov", batch="full")


def test_individual_stepsizes_are_those_of_the_curvature() -> None:
    runner, asked = Runner(SMALL), config(individual=True, stepsize=0.05)
    made, own = runner.run(asked), runner.person(asked).x_star
    curvature = curvatures(SMALL, own)
    np.testing.assert_allclose(
        made.clients["gamma"], 0.05 * np.median(curvature) / curvature, rtol=1e-6
    )


@pytest.mark.parametrize("name", ["fedavg", "sgd", "scaffnew"])
def test_clients_that_stay_at_home_do_not_change_the_stepsize_of_the_others(name: str) -> None:
    alone = run(method=name, alpha=0.4)
    with_others = run(method=name, alpha=[0.0, *[0.4] * (N - 1)])
    np.testing.assert_allclose(with_others.clients["gamma"][1:], alone.clients["gamma"][1:])


# the warm start


def test_a_warm_start_counts_its_rounds_and_bits() -> None:
    cold, warm = run(), run(optima="warm", warmup=2)
    assert (cold.summary["warmup_rounds"], warm.summary["warmup_rounds"]) == (0, 2)
    for name in ("bits_up", "bits_down"):
        extra = warm.metrics[name] - cold.metrics[name]
        np.testing.assert_array_equal(extra, 2 * 3 * 32 * SMALL.size)


def test_a_warm_start_is_fedavg_at_alpha_one() -> None:
    # the run begins where FedAvg of so many rounds with the seed of the model ends
    before = run(
        method="fedavg", alpha=1.0, optima="none", rounds=2, stepsize=0.1, seed=0, part="validation"
    )
    warm = run(optima="warm", warmup=2, part="validation", alpha=1.0)
    assert warm.metrics["validation_loss"][0] == pytest.approx(
        before.metrics["validation_loss"][-1], rel=1e-6
    )


def test_a_warm_start_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(optima="warm", warmup=2)
    trained = []
    train = running.train
    monkeypatch.setattr(
        running, "train", lambda *a, **k: trained.append(a[2].name) or train(*a, **k)
    )
    again = run(optima="warm", warmup=2)
    assert trained == ["scafflix"]
    np.testing.assert_array_equal(again.metrics["bits_up"], first.metrics["bits_up"])


def test_a_warm_up_is_one_process_s_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path))
    held = []

    def look(*_: object) -> None:
        if not (tmp_path / "warm").exists():
            (lock,) = (tmp_path / "locks").iterdir()
            with pytest.raises(ScafflixError, match="in use by another process"):
                durable.locked(lock, patience=0.0).__enter__()
            held.append(lock.name)

    Runner(SMALL).run(config(optima="warm", warmup=2), look)
    (kept,) = (tmp_path / "warm").iterdir()
    assert set(held) == {kept.name}


def test_a_warm_up_that_diverges_is_one_sentence() -> None:
    with pytest.raises(ScafflixError, match=r"warm-up diverged in round \d+ .* warmup_stepsize"):
        run(optima="warm", warmup=5, warmup_stepsize=1e20)


def test_a_warm_start_has_its_own_checkpoints(tmp_path: Path) -> None:
    asked = config(optima="warm", warmup=2)
    kept = Checkpoints(tmp_path / "checkpoint", Often(rounds=1))
    made = Runner(SMALL, kept).run(asked)
    np.testing.assert_array_equal(
        made.metrics["train_loss"], Runner(SMALL).run(asked).metrics["train_loss"]
    )


def test_a_warm_start_is_that_of_all_clients_whoever_takes_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # one is kept for any alpha; without a cohort, ten clients a round or as many as there are
    sizes: list[int] = []
    cohort_of = training.cohort_of
    monkeypatch.setattr(training, "cohort_of", lambda *a: sizes.append(a[3]) or cohort_of(*a))
    asked = config(optima="warm", warmup=1, alpha=[0.0, 0.0, *ALPHA[2:]])
    Runner(SMALL).run(replace(asked, cohort=None))
    assert sizes[0] == N
    assert sizes[-1] == N - 2


# what runs share


def test_runs_of_one_runner_find_local_optima_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(SMALL)
    runner.run(config())
    monkeypatch.setattr("scafflix.runs.runner.personalize", refuse)
    runner.run(config(alpha=0.7, method="fedavg", p=0.5, seed=3))


def test_a_cached_run_is_the_same_record_without_running(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(SMALL)
    first = runner.cached_run(config())
    monkeypatch.setattr(running, "train", refuse)
    monkeypatch.setattr("scafflix.runs.runner.personalize", refuse)
    again = Runner(SMALL).cached_run(config())
    assert again.config == first.config
    assert again.summary == first.summary
    for name, values in first.metrics.items():
        np.testing.assert_array_equal(again.metrics[name], values)


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"stepsize": 0.05}, {"alpha": 0.5}, {"rounds": 2}, {"pace": "expected"}]
)
def test_a_cached_run_is_not_taken_for_another(change: dict[str, Any]) -> None:
    runner = Runner(SMALL)
    first, other = runner.cached_run(config()), runner.cached_run(config(**change))
    assert not np.array_equal(first.metrics["train_loss"], other.metrics["train_loss"])


@dataclass(frozen=True, kw_only=True)
class Tomorrow(RunConfig):
    """A run when there is one more key."""

    novelty: str = key("Something new.", "usual")


def test_a_new_key_leaves_the_names_of_cached_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Runner(SMALL).cached_run(config())
    monkeypatch.setattr(running, "train", refuse)
    again = Runner(SMALL).cached_run(Tomorrow(**vars(config())))
    assert again.config == {**first.config, "novelty": "usual"}
    np.testing.assert_array_equal(again.metrics["train_loss"], first.metrics["train_loss"])
    with pytest.raises(AssertionError):
        Runner(SMALL).cached_run(Tomorrow(**vars(config()), novelty="other"))


def test_no_key_has_another_default_than_when_the_recipe_of_runs_was_raised() -> None:
    defaults = {entry.name: entry.default for entry in fields(RunConfig)}
    assert RECIPE == 8, "copy the defaults of today into this test"
    for name, value in DEFAULTS.items():
        assert defaults[name] == value, f"{name} has another default; raise RECIPE in runner.py"


def test_clients_with_models_of_their_own_do_without_local_optima(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scafflix.personalization.personalize.local_optima", refuse)
    few = {"alpha": None, "optima_stepsize": "auto", "optima_batch": None, "optima_steps": None}
    asked = replace(config(method="ditto"), **few)  # type: ignore[arg-type]
    made = Runner(SMALL).run(asked)
    assert made.config["optima"] == "none"
    assert made.summary["local_optima"] is None
    assert "test_loss_local" not in made.clients
    assert (made.clients["test_loss_personal"] != made.clients["test_loss_global"]).any()


# of every key that runs were named without
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("clients", "split", "features", "label", "intercept", "test"), None),
    **dict.fromkeys(("validation", "min_examples", "l2", "epsilon", "cohort", "every"), None),
    **dict.fromkeys(("optima_batch", "optima_steps", "clip", "noise_multiplier", "budget"), None),
    **dict.fromkeys(("delta", "alpha"), None),
    **dict.fromkeys(("categorical", "drop", "missing_as"), ()),
    **dict.fromkeys(("scale", "p", "batch", "pace", "own", "optima", "optima_stepsize"), "auto"),
    **dict.fromkeys(("store", "stepsize"), "auto"),
    **dict.fromkeys(("data_seed", "model_seed", "seed", "noise"), 0),
    **dict.fromkeys(("reduced", "strict", "individual"), False),
    "missing": "fill",
    "unknown": "other",
    "model": "logistic",
    "smoothness": "tight",
    "rounds": None,
    "start": "ones",
    "h0": "zero",
    "part": "test",
    "keep": "auto",  # of cached runs always none, so that this one may change
    "warmup": 100,
    "warmup_stepsize": 0.1,
    "privacy": "none",
    "method": "scafflix",
    "transport": "full",
}


def test_a_cached_run_is_not_taken_for_one_with_other_alphas_in_the_same_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "alpha.txt"
    for value in ("0.3", "0.8"):
        file.write_text("\n".join([value] * N))
        made = Runner(SMALL).cached_run(config(alpha=str(file)))
        assert made.clients["alpha"].tolist() == [float(value)] * N


def test_a_run_on_disk_leaves_no_states_behind(cache: Path) -> None:
    in_memory, on_disk = run(store="memory"), run(store="disk")
    np.testing.assert_array_equal(in_memory.metrics["train_loss"], on_disk.metrics["train_loss"])
    assert not any((cache / "states").iterdir())


def test_a_run_on_disk_that_was_stopped_begins_anew() -> None:
    def stop(done: int, total: int, state: Any) -> None:
        if (done, total) == (2, 3) and isinstance(state, Standing):
            raise KeyboardInterrupt

    whole = run(store="memory")
    with pytest.raises(KeyboardInterrupt):
        Runner(SMALL).run(config(store="disk"), stop)
    again = run(store="disk")
    np.testing.assert_array_equal(again.metrics["train_loss"], whole.metrics["train_loss"])


# what is refused, and when


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"keep": "some"}, "keep is 'some'"),
        ({"store": "tape"}, "store is 'tape'"),
        ({"optima": "cold"}, "optima is 'cold'"),
        ({"method": "adam"}, "method is 'adam'"),
        ({"stepsize": "common"}, "stepsize is 'common'"),
        ({"stepsize": 0}, "stepsize is 0"),
        ({"p": "often"}, "p is 'often'"),
        ({"optima_stepsize": "big"}, "optima_stepsize is 'big'"),
        ({"pace": "slow"}, "pace is 'slow'"),
        ({"part": "dev"}, "part is 'dev'"),
        ({"cohort": 99}, "cohort is 99"),
        ({"alpha": 1.5}, "alpha is 1.5"),
    ],
)
def test_a_word_that_means_nothing_is_refused_before_the_first_round(
    change: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training.Compiled, "play", refuse)
    with pytest.raises(ScafflixError, match=words):
        run(**change)


def test_models_too_large_to_keep_are_refused_before_the_first_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recording, "LARGEST_MODELS", 100)
    monkeypatch.setattr(training.Compiled, "play", refuse)
    with pytest.raises(ScafflixError, match="run with keep global"):
        run(keep="personal")


def test_of_models_too_large_to_keep_the_global_one_is_kept_if_nobody_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run().summary["kept"] == "personal"
    monkeypatch.setattr(recording, "LARGEST_MODELS", 100)
    made = run()
    assert made.summary["kept"] == "global"
    assert {name.partition("/")[0] for name in made.models} == {"global"}
    with pytest.raises(ScafflixError, match="keeps no personal models; run with keep personal"):
        made.personal_model(made.clients["client"][0])


def test_a_cache_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "file"))
    with pytest.raises(ScafflixError, match="file"):
        run(optima="warm", warmup=1)


# networks by name


def labels_of(labels: list[int]) -> Federation:
    rows = np.zeros((len(labels), 2), np.float32)
    return Federation("few", ("a",), Examples(rows, np.array(labels), np.array([0, len(labels)])))


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 5, 61], [1, 2, 3]])
def test_a_dense_network_has_a_class_for_every_label(labels: list[int]) -> None:
    fed = labels_of(labels)
    sx.Problem(fed, build_model("dense", fed))


def test_a_network_on_tables_gets_a_test_and_a_validation_part() -> None:
    asked = build(RunConfig, {"data": "iris", "clients": 3, "split": "shuffled", "model": "dense"})
    parts = Runner.of(asked).problem.parts
    assert set(parts) == {"train", "test", "validation"}
    assert all((part.counts > 0).all() for part in parts.values())
    assert sum(part.counts.sum() for part in parts.values()) == 150


def test_a_network_on_tables_takes_the_intercept_that_is_asked_for() -> None:
    asked = build(
        RunConfig,
        {"data": "iris", "clients": 3, "split": "shuffled", "model": "dense", "intercept": True},
    )
    assert Runner.of(asked).problem.federation.dim == 5
