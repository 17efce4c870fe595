"""A folder, a checkpoint or a cell of a grid is of one run only: whatever determines it is
compared before it is taken up again, and the difference named."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crashes import CONVEX, NETWORK, CrashError, run
from jax.tree_util import Partial

import scafflix as sx
from cases import ALPHA, case
from scafflix.core.checkpoint import Checkpoints, Often
from scafflix.core.errors import ScafflixError
from scafflix.data.federation import Federation
from scafflix.methods import Client
from scafflix.runs import assembly, workfolder
from scafflix.runs.config import CompareConfig, RunConfig, TuneConfig, build, plain
from scafflix.runs.tuning import tune

FREE = ("directory", "often")  # of what is asked: they change nothing in the result
# options of a sweep of which the same holds; every and store, with all clients, and budget and
# delta, without privacy, are refused
UNCHANGING = (
    *("strict", "progress", "checkpoints", "keep", "every", "store", "budget", "delta"),
    *("on_round", "on_evaluate"),
)

OTHER: dict[str, Any] = {
    "data": "wine", "clients": 4, "split": "contiguous", "features": 5, "label": "b",
    "scale": "maxabs", "intercept": True, "test": 0.3, "validation": 0.3, "min_examples": 2,
    "data_seed": 1, "model": "linear", "model_seed": 1, "l2": 5.0, "smoothness": "bound",
    "rounds": 51, "p": 0.25, "batch": 3, "noise": 0.5, "reduced": True, "epsilon": 0.5,
    "start": "zeros", "h0": "warm", "strict": True, "pace": "actual", "own": "a/*",
    "average": 0.2,
    "part": "validation", "cohort": 2, "individual": True, "every": 7,
    "optima": "warm", "optima_stepsize": 0.5, "optima_batch": 9,
    "optima_steps": 9, "warmup": 9, "warmup_stepsize": 0.5, "store": "disk", "keep": "none",
    "method": "gd", "alpha": 0.25, "stepsize": 0.5, "seed": 1, "methods": ("sgd",),
    "alphas": (0.7,), "seeds": 2, "target": 0.5, "stepsizes": (0.7,),
    "categorical": ("a",), "drop": ("b",), "missing": "refuse", "missing_as": ("9",),
    "unknown": "refuse", "privacy": "client", "clip": 1.0, "noise_multiplier": 2.0,
    "budget": 3.0, "delta": 0.5, "transport": "float32", "noise_at": "server",
}  # fmt: skip
KINDS = {"run": RunConfig, "compare": CompareConfig, "tune": TuneConfig}
KEYS = [(command, one.name) for command, kind in KINDS.items() for one in fields(kind)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))


# commands


def asked(command: str, **arguments: Any) -> workfolder.Asked:
    return workfolder.Asked(command, arguments, "/")


def crash(request: workfolder.Asked, folder: Path) -> None:
    with workfolder.begin(request, folder) as work:
        work.checkpoints.within("a").trail({}).save(1, {}, ())
        raise CrashError


def leave_unfinished(request: workfolder.Asked, folder: Path) -> None:
    with pytest.raises(CrashError):
        crash(request, folder)


def resume(request: workfolder.Asked, folder: Path) -> None:
    with workfolder.begin(request, folder):
        pass


@pytest.mark.parametrize(("command", "key"), KEYS)
def test_another_value_of_any_key_is_refused_by_name(
    command: str, key: str, tmp_path: Path
) -> None:
    kind = KINDS[command]
    first = asked(command, config=plain(build(kind, {"data": "iris"})))
    leave_unfinished(first, tmp_path)
    changed = plain(build(kind, {"data": "iris", key: OTHER[key]}))
    with pytest.raises(ScafflixError, match=f"is of something else: its {key} is "):
        resume(asked(command, config=changed), tmp_path)
    resume(first, tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "fig3a"}, "name is fig2, here it is fig3a"),
        ({"scale": "laptop"}, "scale is smoke, here it is laptop"),
        ({"changes": {"scale": "maxabs"}}, "scale is standard, here it is maxabs"),
        ({"changes": {"scale": "standard", "l2": "5"}}, "l2 is None, here it is 5"),
        ({"changes": {}}, "scale is standard, here it is None"),
    ],
)
def test_another_figure_scale_or_setting_is_refused_by_name(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    arguments = {"name": "fig2", "scale": "smoke", "changes": {"scale": "standard"}}
    leave_unfinished(asked("reproduce", **arguments), tmp_path)
    with pytest.raises(ScafflixError, match=words):
        resume(asked("reproduce", **{**arguments, **change}), tmp_path)


def test_all_that_is_asked_counts_but_for_the_directory_and_the_schedule(tmp_path: Path) -> None:
    first = asked("run", config={"data": "iris"})
    leave_unfinished(first, tmp_path)
    others = {"command": "tune", "arguments": {}, "directory": "/tmp", "often": Often(3)}
    assert set(others) == set(workfolder.Asked._fields)
    for name, value in others.items():
        if name in FREE:
            resume(first._replace(**{name: value}), tmp_path)
        else:
            with pytest.raises(ScafflixError, match="is of something else"):
                resume(first._replace(**{name: value}), tmp_path)


# data, which a configuration only names


def flipped(federation: Federation, part: str) -> Federation:
    """With another label in one row of a part."""
    examples = getattr(federation, part)
    labels = examples.labels.copy()
    labels[0] = labels[labels != labels[0]][0]
    return replace(federation, **{part: replace(examples, labels=labels)})


def renamed(federation: Federation, part: str) -> Federation:
    return replace(federation, clients=("Ann", *federation.clients[1:]))


@pytest.mark.parametrize("settings", [CONVEX, NETWORK], ids=["convex", "network"])
@pytest.mark.parametrize("part", ["train", "validation", "test", "name"])
def test_a_run_is_not_resumed_with_other_data_of_any_part(
    settings: dict[str, Any], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**settings, "validation": 0.2}
    with pytest.raises(CrashError):
        run(settings, tmp_path, crash=10)
    change = renamed if part == "name" else flipped
    load = assembly.load_data
    monkeypatch.setattr(assembly, "load_data", lambda *a, **k: change(load(*a, **k), part))
    with pytest.raises(ScafflixError, match=r"is of something else: its digest of .* is \w+, here"):
        run(settings, tmp_path)


@pytest.mark.parametrize("settings", [CONVEX, NETWORK], ids=["convex", "network"])
def test_a_run_is_not_resumed_with_other_values_in_the_file_of_alphas(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "alpha.txt"
    file.write_text("0.5 0.5 0.5")
    settings = {**settings, "alpha": str(file)}
    with pytest.raises(CrashError):
        run(settings, tmp_path / "checkpoints", crash=10)
    file.write_text("0.5 0.5 0.4")
    with pytest.raises(ScafflixError, match="its digest of alpha is"):
        run(settings, tmp_path / "checkpoints")


def test_a_cell_of_a_grid_is_not_taken_for_one_on_other_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = {key: CONVEX[key] for key in ("data", "clients", "split", "scale", "model")}
    grid = build(
        TuneConfig,
        {**shared, "test": 0.2, "validation": 0.2, "stepsizes": [0.1], "rounds": 2},
    )
    tune(grid, tmp_path)
    tune(grid, tmp_path)
    assert len(list((tmp_path / "cells").iterdir())) == 1
    load = assembly.load_data
    monkeypatch.setattr(assembly, "load_data", lambda *a, **k: flipped(load(*a, **k), "validation"))
    tune(grid, tmp_path)
    assert len(list((tmp_path / "cells").iterdir())) == 2


# objects


def sweep(folder: Path, crash: int | None = None, **changes: Any) -> None:
    def report(done: int, total: int, state: Any) -> None:
        if crash is not None and done >= crash:
            raise CrashError

    small = case("logistic")
    given = {
        "problem": small.problem,
        "runs": [sx.Run(small.person, sx.scafflix(small.plan, p=0.5), 3)],
        "rounds": 12,
        "progress": report,
        "checkpoints": Checkpoints(folder, Often(rounds=4)),
    }
    given |= changes
    sx.sweep(given.pop("problem"), given.pop("runs"), **given)


def bolder(client: Client, state: Any, sent: Any, x: Any, g: Any) -> Any:
    """Under the name of another function, with the same numbers."""
    return x - (client.gamma / client.alpha) * (g - 0.5 * state.h)


bolder.__qualname__ = bolder.__name__ = "local_step"


def objects() -> dict[str, dict[str, Any]]:
    """For each argument of a sweep, other objects in its place."""
    small = case("logistic")
    problem, person, plan = small.problem, small.person, small.plan
    federation, model = problem.federation, problem.model

    def with_person(other: sx.Personalization) -> list[sx.Run]:
        return [sx.Run(other, sx.scafflix(sx.plan(problem, other), p=0.5), 3)]

    first = sx.scafflix(plan, p=0.5)
    nudged = first.gamma.copy()
    nudged[0] *= 1 - 1e-12
    stars = np.asarray(person.x_star).copy()
    stars[0, 0] += 1e-12
    tested = replace(federation, test=federation.train)
    return {
        "problem": {
            "held out": sx.Problem(tested, model, problem.l2),
            "score": sx.Problem(
                federation, model._replace(score=lambda z, y: (z > 1) == (y > 0)), problem.l2
            ),
        },
        "runs": {
            "seed": [sx.Run(person, first, 4)],
            "p": [sx.Run(person, sx.scafflix(plan, p=0.6), 3)],
            "a function": [sx.Run(person, replace(first, local_step=Partial(bolder)), 3)],
            "pace": [sx.Run(person, sx.scafflix(plan, p=0.5, pace="actual"), 3)],
            "method": [sx.Run(person, sx.i_scaffnew(plan, p=0.5), 3)],
            "stepsize": [sx.Run(person, replace(first, gamma=nudged), 3)],
            "gradient": [sx.Run(person, replace(first, gradient=sx.gradients.Minibatch(2)), 3)],
            "alpha": with_person(person.at(np.where(ALPHA == 0.5, 0.51, ALPHA))),
            "optima": [sx.Run(replace(person, x_star=stars), first, 3)],
            "company": [sx.Run(person, first, 3), sx.Run(person, first, 4)],
        },
        "rounds": {"more": 13},
        "start": {"word": "zeros", "point": np.ones(6) + 1e-12},
        "h0": {"word": "warm", "array": sx.control.project(np.ones((5, 6)), ALPHA, plan.gamma)},
        "epsilon": {"given": 0.1},
        "scores": {"none": False},
        "part": {"other": "validation"},
        "cohort": {"some": 2},
    }


def test_a_sweep_is_not_resumed_with_any_other_object(tmp_path: Path) -> None:
    with pytest.raises(CrashError):
        sweep(tmp_path, crash=10)
    changes = objects()
    assert {*changes, *UNCHANGING} == set(inspect.signature(sx.sweep).parameters)
    taken = [
        (argument, which)
        for argument, others in changes.items()
        for which, other in others.items()
        if not refused(tmp_path, **{argument: other})
    ]
    assert taken == []
    sweep(tmp_path, strict=True)


def refused(folder: Path, **changes: Any) -> bool:
    try:
        sweep(folder, **changes)
    except ScafflixError as error:
        return "is of something else: its" in str(error)
    return False
