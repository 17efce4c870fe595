"""Every key is read or refused: none is silently ignored.

A key that the chosen model, method or command does not read is refused in one sentence that says
for what it is, whatever its value; every other key changes the data or the record of the run.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scafflix.core.errors import ScafflixError
from scafflix.methods import METHODS, find, parameters
from scafflix.record import Record
from scafflix.runs import refusals
from scafflix.runs.assembly import OF_TABLES, build_problem, served
from scafflix.runs.config import (
    PARAMETERS,
    PRIVATE,
    WARM,
    CompareConfig,
    ProblemConfig,
    RunConfig,
    TuneConfig,
    build,
)
from scafflix.runs.forecast import forecast
from scafflix.runs.runner import Runner, compare
from scafflix.runs.tuning import tune

IRIS: dict[str, Any] = {
    "data": "iris",
    "clients": 4,
    "split": "dirichlet:0.5",
    "scale": "standard",
    "test": 0.2,
    "validation": 0.2,
    "model": "softmax",
}
RUN = {**IRIS, "alpha": 0.5, "rounds": 3, "p": 0.5}
OPTIMA = {"optima_stepsize": 0.1, "optima_batch": 4, "optima_steps": 10}
NETWORK = {**RUN, "model": "dense", "cohort": 2, "batch": 4, "min_examples": 4, **OPTIMA}
KINDS: dict[str, dict[str, Any]] = {
    "linear": RUN,
    "sampled": {**RUN, "cohort": 2},
    "network": NETWORK,
    "warm": {**NETWORK, "optima": "warm", "warmup": 2},
    "private": {**RUN, "privacy": "client", "clip": 1.0, "noise_multiplier": 9.0, "delta": 1e-3},
    "without optima": {key: NETWORK[key] for key in NETWORK if key not in OPTIMA}
    | {"optima": "none", "alpha": 1.0},
}
KEYS = {entry.name: entry for entry in fields(RunConfig)}
OF_DATA = [entry.name for entry in fields(ProblemConfig) if entry.name != "model_seed"]
OF_RUNS = [name for name in KEYS if name not in OF_DATA]

# another value of each key, and values that nothing takes
OTHER: dict[str, Any] = {
    "data": "wine", "clients": 5, "split": "shuffled", "features": 7, "label": "b",
    "scale": "maxabs", "intercept": True, "test": 0.3, "validation": 0.3, "min_examples": 20,
    "data_seed": 1, "model": "linear", "l2": 0.5, "smoothness": "bound", "model_seed": 1,
    "rounds": 4, "p": 0.25, "batch": 3, "noise": 0.5, "reduced": True, "epsilon": 0.5,
    "start": "zeros", "h0": "warm", "strict": True, "pace": "actual", "own": "*/bias",
    "average": 0.2,
    "part": "validation", "cohort": 3, "individual": True, "every": 2, "optima": "warm",
    "optima_stepsize": 0.2,
    "optima_batch": 5, "optima_steps": 20, "warmup": 3, "warmup_stepsize": 0.2, "store": "disk",
    "keep": "global", "method": "fedavg", "alpha": 0.25, "stepsize": 0.01, "seed": 1,
    "categorical": ("a",), "drop": ("b",), "missing": "refuse", "missing_as": ("9",),
    "unknown": "refuse", "privacy": "client", "clip": 0.5, "noise_multiplier": 20.0,
    "transport": "bfloat16", "budget": 5.0, "delta": 1e-2, "noise_at": "server",
}  # fmt: skip
NONSENSE: dict[type, Any] = {str: "banana", int: -3, float: -3.0, bool: True}
HARMLESS = {
    "strict": "refuses stepsizes that theory does not cover, and these are theory's",
    "store": "says where states lie, not what they are",
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))


def config(kind: str, **changes: Any) -> RunConfig:
    made: RunConfig = build(RunConfig, {**KINDS[kind], **changes})
    return made


def test_another_value_of_every_key_is_tried() -> None:
    assert set(OTHER) == set(KEYS)
    assert {*OF_DATA, *OF_RUNS} == set(KEYS)


# refused


UNREAD = [
    (kind, name)
    for kind in KINDS
    for name, entry in KEYS.items()
    if entry.metadata["only"] not in (None, *served(config(kind)))
]


@pytest.mark.parametrize(("kind", "name"), UNREAD)
def test_a_key_of_other_models_is_refused_whatever_its_value(kind: str, name: str) -> None:
    entry = KEYS[name]
    nonsense = NONSENSE[type(OTHER[name])]
    for value in (OTHER[name], nonsense):
        with pytest.raises(ScafflixError, match=f"^{name} is for {entry.metadata['only']}; with "):
            refusals.check_keys(replace(config(kind), **{name: value}))


def test_the_keys_of_the_issue_are_among_them() -> None:
    unread = {kind: {name for other, name in UNREAD if other == kind} for kind in KINDS}
    of_networks = {"individual", "optima", "optima_stepsize", "optima_batch", "optima_steps"}
    of_networks |= {"warmup", "warmup_stepsize", "model_seed", "own"}
    of_private = {"clip", "noise_multiplier", "noise_at", "budget", "delta"}
    assert unread["linear"] == {*of_networks, *of_private, "every", "store"}
    assert unread["private"] == {*of_networks, "every", "store"}
    assert unread["sampled"] == of_networks | of_private
    of_linear = {"noise", "epsilon", "start", "h0", "strict", "smoothness"}
    of_linear |= of_private
    assert unread["network"] == {*of_linear, "warmup", "warmup_stepsize"}
    assert unread["warm"] == of_linear


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("method", METHODS)
def test_a_hyperparameter_that_a_method_lacks_is_refused(method: str, name: str) -> None:
    own = {"own": OTHER["own"]} if "own" in parameters(find(method)) else {}
    kind = "network" if own or name == "own" else "linear"
    asked = replace(config(kind, p="auto"), method=method, **{**own, name: OTHER[name]})
    if name in parameters(find(method)):
        refusals.check_keys(asked)
        return
    for value in (OTHER[name], "banana"):
        with pytest.raises(ScafflixError, match=f"The method {method} has no {name}; leave it out"):
            refusals.check_keys(replace(asked, **{name: value}))


def test_the_methods_without_p_and_pace_are_these() -> None:
    both = {"p", "pace"}
    without = {name: both - set(parameters(METHODS[name])) for name in METHODS}
    assert without["gd"] == without["sgd"] == without["nesterov"] == {"p", "pace"}
    for name in ("fedavg", "fedprox", "gradskip", "scaffold", "feddyn", "locodl"):
        assert without[name] == {"pace"}
    assert without["scafflix"] == without["i_scaffnew"] == without["scaffnew"] == set()


@pytest.mark.parametrize("method", ["gd", "sgd", "fedavg", "fedprox", "nesterov"])
def test_warm_control_variates_are_refused_where_there_are_none(method: str) -> None:
    with pytest.raises(ScafflixError, match=f"the method {method} has none; leave it out"):
        refusals.check_keys(config("linear", p="auto", method=method, h0="warm"))


def test_a_comparison_refuses_what_none_of_its_methods_reads() -> None:
    asked = {**IRIS, "rounds": 2}
    for name in ("p", "pace"):
        with pytest.raises(ScafflixError, match=f"None of the methods has a {name}"):
            compare(build(CompareConfig, {**asked, "methods": "gd", name: OTHER[name]}))
    with pytest.raises(ScafflixError, match="None of the methods has control variates"):
        compare(build(CompareConfig, {**asked, "methods": "gd,fedavg", "h0": "warm"}))


def test_a_comparison_gives_a_key_to_the_methods_that_read_it() -> None:
    asked = {**IRIS, "rounds": 2, "methods": "gd,scafflix", "alphas": "0.5", "h0": "warm", "p": 0.5}
    gd, scafflix = compare(build(CompareConfig, asked))
    assert (gd.config["h0"], gd.config["p"]) == ("zero", "auto")
    assert (scafflix.config["h0"], scafflix.config["p"]) == ("warm", 0.5)
    assert gd.metrics["bits_up"][0] == 0 < scafflix.metrics["bits_up"][0]


@pytest.mark.parametrize("key", ["keep", "target"])
def test_a_comparison_of_networks_refuses_what_it_does_not_read(key: str) -> None:
    value = {"keep": "global", "target": 0.5}[key]
    asked = build(CompareConfig, {**IRIS, "model": "dense", "methods": "fedavg", key: value})
    with pytest.raises(ScafflixError, match=f"{key} is for comparisons of linear models"):
        compare(asked)


def test_a_search_refuses_the_part_that_it_chooses_itself(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="part is for single runs and comparisons"):
        tune(build(TuneConfig, {**IRIS, "part": "validation"}), tmp_path)


def test_a_plan_for_a_cohort_speaks_of_the_methods_that_have_a_guarantee_for_it() -> None:
    found = {one.method: one.rounds for one in forecast(config("sampled")).methods}
    assert {name for name, rounds in found.items() if rounds} == {
        *("compressed_scaffnew", "tamuna", "five_gcs")
    }


# read


@cache
def problem_identity(name: str | None) -> dict[str, Any]:
    values = {**IRIS, **({} if name is None else {name: OTHER[name]})}
    if name == "model":
        values["split"] = "shuffled"
    return build_problem(build(RunConfig, values)).identity


@pytest.mark.parametrize("name", [name for name in OF_DATA if name not in ("features", *OF_TABLES)])
def test_a_key_of_the_data_or_the_model_changes_the_problem(name: str) -> None:
    assert problem_identity(name) != problem_identity(None)


@pytest.mark.parametrize("name", ["features", "label", "categorical", "drop", "missing_as"])
def test_a_key_of_some_files_changes_their_problem_and_is_refused_elsewhere(
    name: str, tmp_path: Path
) -> None:
    table, text = tmp_path / "table.csv", tmp_path / "text.svm"
    table.write_text("a,b,y\n" + "".join(f"{i},{i % 3},{i % 2}\n" for i in range(20)))
    text.write_text("".join(f"{i % 2} 1:{i} 3:{i % 5}\n" for i in range(20)))
    mine, other = (text, table) if name == "features" else (table, text)

    def dimensions(file: Path, **changes: Any) -> tuple[Any, ...]:
        asked = {"data": str(file), "clients": 2, "model": "softmax", **changes}
        problem = build_problem(build(RunConfig, asked))
        return problem.shape, problem.federation.train.labels.tolist()

    assert dimensions(mine) != dimensions(mine, **{name: OTHER[name]})
    with pytest.raises(ScafflixError, match=f"{name} is .*, but .* leave (it|{name}) out"):
        dimensions(other, **{name: OTHER[name]})


RUNNERS: dict[str, Runner] = {}
RECORDS: dict[str, dict[str, Any]] = {}


def runner(kind: str) -> Runner:
    """For the problem of a kind of runs, with its local optima, once for all tests."""
    if kind not in RUNNERS:
        RUNNERS[kind] = Runner.of(config(kind))
    return RUNNERS[kind]


def measured(record: Record) -> dict[str, Any]:
    """All of a record but what was asked for and how long it took."""
    times = ("seconds", "compile_seconds", "runs_side_by_side", "versions")
    summary = {name: value for name, value in record.summary.items() if name not in times}
    tables = {**record.metrics, **record.clients, **record.models}
    return {
        "summary": repr(sorted(summary.items())),
        **{name: np.asarray(column).tobytes() for name, column in tables.items()},
    }


# by the data, which tell whether a cohort is all clients
REFUSED_LATER = {
    ("sampled", "noise"): "without added noise",
    ("sampled", "h0"): "h0 is for rounds",
    ("sampled", "reduced"): "reduced is for minibatches",
    ("linear", "reduced"): "reduced is for minibatches",
    **{(kind, "privacy"): "clip is missing" for kind in ("linear", "sampled", "network")},
}
READ = [
    (kind, name)
    for kind in ("linear", "sampled", "network", "warm", "private")
    for name in OF_RUNS
    if (kind, name) not in [*UNREAD, *REFUSED_LATER]
    and (kind != "warm" or KEYS[name].metadata["only"] == WARM)
    and (kind != "private" or KEYS[name].metadata["only"] == PRIVATE)
]


@pytest.mark.parametrize(("kind", "name"), REFUSED_LATER)
def test_a_key_that_does_not_go_with_others_is_refused(kind: str, name: str) -> None:
    with pytest.raises(ScafflixError, match=REFUSED_LATER[kind, name]):
        runner(kind).check(config(kind, **{name: OTHER[name]}))


@pytest.mark.parametrize("kind", ["linear", "sampled"])
def test_reduced_changes_a_run_with_minibatches(kind: str) -> None:
    plain, reduced = (
        measured(runner(kind).run(config(kind, batch=3, reduced=chosen)))
        for chosen in (False, True)
    )
    assert plain["global"] != reduced["global"]


@pytest.mark.parametrize(("kind", "name"), READ)
def test_a_key_that_is_not_refused_changes_the_record(kind: str, name: str) -> None:
    method = {"own": {"method": "fedper"}, "noise_at": {"method": "fedavg"}}.get(name, {})
    case = f"{kind} {method}"
    if case not in RECORDS:
        RECORDS[case] = measured(runner(kind).run(config(kind, **method)))
    changed = measured(runner(kind).run(config(kind, **method, **{name: OTHER[name]})))
    if name in HARMLESS:
        assert changed == RECORDS[case]
    else:
        assert changed != RECORDS[case]
