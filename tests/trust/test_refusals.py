"""What can be known before any work is refused before any work.

What is expensive fails the test here: reading data where the keys alone decide, and in any case
local optima, constants, compilation, rounds, processes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import scafflix as sx
from scafflix.cli import main
from scafflix.core.errors import ScafflixError
from scafflix.personalization import newton
from scafflix.problems.problem import Problem
from scafflix.runs import assembly
from scafflix.runs.config import RunConfig
from scafflix.runs.runner import Runner
from scafflix.simulate import cohorts as training
from scafflix.simulate import loop, planning

CONVEX = "--data iris --clients 3 --split shuffled --model softmax"
NETWORK = "--data iris --clients 3 --split shuffled --model dense --min-examples 1"
MANY = f"{NETWORK} --methods scafflix,fedavg"

ANY_MODEL = {
    "--rounds 0": "rounds is 0",
    "--part dev": "part is 'dev'",
    "--l2 -1": "l2 is -1",
    "--batch 0": "batch is 0",
    "--p 0": "p is 0",
    "--p often": "p is 'often'",
    "--pace slow": "pace is 'slow'",
    "--cohort 0": "cohort is 0",
    "--cohort 2 --every 0": "every is 0",
    "--cohort 2 --store tape": "store is 'tape'",
}
LINEAR = {
    "--l2 0": "give l2 > 0",
    "--model resnet": "model is 'resnet'",
    "--smoothness loose": "smoothness is 'loose'",
    "--epsilon 0": "epsilon is 0",
    "--start far": "start is 'far'",
    "--h0 hot": "h0 is 'hot'",
    "--batch 4 --noise 1": "noise is added to full gradients",
    "--noise -1": "noise is -1",
}
KEPT = {"--keep some": "keep is 'some'"}
NETWORKS = {
    "--model-seed -1": "model_seed is -1",
    "--optima cold": "optima is 'cold'",
    "--optima-stepsize big": "optima_stepsize is 'big'",
    "--optima-stepsize -1": "stepsize of the local optima is -1",
    "--optima-batch 0": "batch of the local optima is 0",
    "--optima-steps 0": "steps of the local optima is 0",
    "--optima warm --warmup 0": "warmup is 0",
    "--optima warm --warmup-stepsize 0": "warmup_stepsize is 0",
    "--model dense:width=3": "dense has the options",
    "--model dense:hidden": "give its options as KEY=NUMBER",
    "--batch full --noise 1": "noise is for linear models",
}
ONE_RUN = {
    "--seed -1": "seed is -1",
    "--method adam": "method is 'adam'",
    "--stepsize 0": "stepsize is 0",
    "--stepsize big": "stepsize is 'big'",
    "--alpha 1.5": "alpha is 1.5",
    "--alpha absent.txt": "alpha is 'absent.txt'",
}
ONE_LINEAR_RUN = {
    "--method gd --batch 4": "gd takes exact gradients",
    "--method gd --stepsize common": "goes with scafflix",
}
SEVERAL = {
    "--seeds 0": "seeds is 0",
    "--target 0": "target is 0",
    "--methods scafflix,adam": "method is 'adam'",
    "--methods scafflix,fedavg:0": "stepsize is 0",
    "--methods gd,gd": "methods has an entry twice",
    "--alphas 0.5,2": "alpha is 2",
}
GRID = {
    "--stepsizes 0.1,0": "stepsizes has 0",
    "--methods scafflix,adam": "method is 'adam'",
    "--alpha 2": "alpha is 2",
    "--seed -1": "seed is -1",
}
OF_RUNS = {
    f"--{name} 1": f"{name} is for runs; plan does not read it"
    for name in ("seed", "part", "every", "store", "keep")
} | {
    "--strict": "strict is for runs",
    "--set seed=1": "seed is for runs",
    "--rounds 1": "rounds is for runs; plan reads it only with privacy",
}
PLANNED = {
    words: sentence
    for words, sentence in (ANY_MODEL | LINEAR | ONE_RUN).items()
    if words.split()[0] not in ("--rounds", "--seed", "--part", "--cohort")
}
BY_KEYS = [
    *(
        ("run", CONVEX, *one)
        for one in (ANY_MODEL | LINEAR | KEPT | ONE_RUN | ONE_LINEAR_RUN).items()
    ),
    *(("run", NETWORK, *one) for one in (ANY_MODEL | NETWORKS | KEPT | ONE_RUN).items()),
    *(("plan", CONVEX, *one) for one in (PLANNED | OF_RUNS).items()),
    *(("compare", CONVEX, *one) for one in (ANY_MODEL | LINEAR | KEPT | SEVERAL).items()),
    *(("compare", MANY, *one) for one in (ANY_MODEL | NETWORKS | SEVERAL).items()),
    ("compare", MANY, "--keep some", "keep is for comparisons of linear models"),
    *(
        ("tune", CONVEX, *one)
        for one in (ANY_MODEL | KEPT | GRID).items()
        if "--part" not in one[0]
    ),
    *(("tune", NETWORK, *one) for one in (NETWORKS | KEPT | GRID).items()),
    ("tune", NETWORK, "--part dev", "part is for single runs and comparisons"),
]

FEW_ALPHAS = "alpha from alphas.txt has 2 values, but there are 3 clients"
BATCH = "has only 50 examples"
NO_VALIDATION = "There are no validation data to look at"
COHORT = "cohort is 50; it must be at least 1 and at most 3"
UNSTOPPABLE = "stopped early by validation data, and there are none"
BY_DATA = [
    ("run", CONVEX, "--alpha alphas.txt", FEW_ALPHAS),
    ("run", CONVEX, "--batch 51", BATCH),
    ("run", CONVEX, "--part validation", NO_VALIDATION),
    ("plan", CONVEX, "--batch 51", BATCH),
    ("plan", CONVEX, "--alpha alphas.txt", FEW_ALPHAS),
    ("compare", CONVEX, "--methods scafflix --batch 51", BATCH),
    ("compare", CONVEX, "--alphas 0.5,alphas.txt", FEW_ALPHAS),
    ("compare", CONVEX, "--part validation", NO_VALIDATION),
    ("tune", CONVEX, "--validation 0", NO_VALIDATION),
    ("tune", CONVEX, "--alpha alphas.txt", FEW_ALPHAS),
    ("run", CONVEX, "--cohort 50", COHORT),
    ("run", CONVEX, "--cohort 2 --noise 1", "without added noise"),
    ("run", CONVEX, "--cohort 2 --h0 warm", "h0 is for rounds of all clients"),
    ("run", CONVEX, "--cohort 3 --every 2", "every is for networks and rounds of some"),
    ("run", CONVEX, "--cohort 3 --store disk", "store is for networks and rounds of some"),
    ("run", NETWORK, "--cohort 50", COHORT),
    ("run", NETWORK, "--batch 51", "has only"),
    ("run", NETWORK, "--alpha alphas.txt", FEW_ALPHAS),
    ("run", NETWORK, "--validation 0", UNSTOPPABLE),
    ("run", NETWORK, "--test 0", "There are no test data to look at"),
    ("run", NETWORK, "--optima none --alpha 0.5", "there are no local optima to mix with"),
    ("compare", NETWORK, "--methods scafflix --cohort 50", COHORT),
    ("tune", NETWORK, "--cohort 50", COHORT),
    ("tune", NETWORK, "--validation 0", "There are no validation data to look at"),
]


def work(*_: object, **__: object) -> None:
    raise AssertionError("this is work")


@pytest.fixture(autouse=True)
def no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("alphas.txt").write_text("0.5 0.5")
    for module, name in (
        (newton, "minimize"),
        (sys.modules["scafflix.personalization.exact"], "_local_optima"),
        (sys.modules["scafflix.personalization.personalize"], "local_optima"),
        (planning, "curvatures"),
        (sys.modules["scafflix.simulate.run"], "train"),
        (training.Compiled, "play"),
        (loop, "advance"),
        (os, "execve"),
    ):
        monkeypatch.setattr(module, name, work)
    monkeypatch.setattr(Problem, "constants", property(work))


def refused(
    words: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["scafflix", *words.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert stop.value.code == 2


@pytest.mark.parametrize(("command", "base", "words", "sentence"), BY_KEYS)
def test_what_the_keys_decide_is_refused_before_data_are_read(
    command: str,
    base: str,
    words: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(assembly, "load_data", work)
    refused(f"{command} {base} {words}", sentence, monkeypatch, capsys)


@pytest.mark.parametrize(("command", "base", "words", "sentence"), BY_DATA)
def test_what_the_data_decide_is_refused_before_anything_is_worked_out(
    command: str,
    base: str,
    words: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused(f"{command} {base} {words}", sentence, monkeypatch, capsys)


@pytest.mark.parametrize("command", ["run", "compare", "tune", "demo", "reproduce fig2"])
def test_a_folder_that_cannot_be_written_is_refused_first(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(assembly, "load_data", work)
    Path("file").write_text("")
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("years of work")
    base = CONVEX if command in ("run", "compare", "tune") else ""
    refused(f"{command} {base} --out file/out", "file is a file", monkeypatch, capsys)
    refused(f"{command} {base} --out full", "exists and is not empty", monkeypatch, capsys)


def test_a_cache_that_cannot_be_written_is_refused_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(assembly, "load_data", work)
    Path("file").write_text("")
    monkeypatch.setenv("SCAFFLIX_CACHE", "file/cache")
    refused(f"run {NETWORK} --store disk", "file/cache cannot be written", monkeypatch, capsys)


@pytest.mark.parametrize(
    ("words", "sentence", "needed"),
    [
        ("--set rounds=0", "rounds is 0", ()),
        ("--set grid=0.1,0", "stepsize is 0.0", ()),
        ("--set optima=cold", "optima is 'cold'", ()),
        ("--set every=0", "every is 0", ()),
        ("--set cohort=50", "cohort is 50", ("load_data",)),
        ("--set validation=0", "validation data", ("load_data",)),
    ],
)
def test_a_figure_is_checked_to_its_last_line_first(
    words: str,
    sentence: str,
    needed: tuple[str, ...],
    miniatures: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(miniatures))
    monkeypatch.setattr(Runner, "of", work)
    if not needed:
        monkeypatch.setattr(assembly, "load_data", work)
    refused(f"reproduce fig2 --scale smoke {words}", sentence, monkeypatch, capsys)


# from Python


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"cohort": 50}, "cohort is 50"),
        ({"batch": 51}, "has only"),
        ({"rounds": 0}, "rounds is 0"),
        ({"alpha": [0.5, 0.5]}, "has 2 values"),
        ({"alpha": 0.5}, "there are no local optima to mix with"),
        ({"store": "tape"}, "store is 'tape'"),
        ({"start": "ones"}, "start is for linear models"),
        ({"h0": "warm"}, "h0 is for rounds of all clients of a linear model"),
        ({"epsilon": 0.1}, "epsilon and strict are for linear models"),
        ({"strict": True}, "epsilon and strict are for linear models"),
    ],
)
def test_a_network_from_python_is_refused_before_any_work(
    settings: dict[str, Any], sentence: str
) -> None:
    fed = sx.data.load("iris", clients=3, split="shuffled", validation=0.2, test=0.2)
    problem = sx.Problem(fed, sx.models.dense(features=4, classes=3)._replace(name="own"))

    def run(alpha: Any = 1.0, batch: int = 4, rounds: int = 2, **options: Any) -> None:
        person = sx.personalize(problem, alpha, optima=False)
        plan = sx.plan(problem, person, gradient=sx.gradients.gradient(batch))
        sx.run(problem, person, sx.scafflix(plan), rounds=rounds, **options)

    with pytest.raises(ScafflixError, match=sentence):
        run(**settings)


# federations

DEPLOYED = 'data = "iris"\nclients = 3\nsplit = "shuffled"\nmodel = "softmax"\n'


@pytest.mark.parametrize(
    "command",
    [
        "local",
        "server --nodes 3 --insecure",
        "local --learner own.py:learner --set model=mine",
        "server --nodes 3 --insecure --set model=mine",
    ],
)
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("rounds=0", "rounds is 0"),
        ("method=adam", "method is 'adam'"),
        ("stepsize=0", "stepsize is 0"),
        ("p=2", "p is 2"),
        ("alpha=2", "alpha is 2"),
        ("cohort=50", "cohort is 50"),
        ("minimum=4", "minimum is 4"),
        ("attempts=0", "attempts"),
    ],
)
def test_a_federation_is_refused_before_a_process_starts(
    command: str,
    words: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("flwr")
    from scafflix.federate import connection, partition, processes

    monkeypatch.setattr(processes.Processes, "start", work)
    monkeypatch.setattr(connection.Link, "start", work)
    monkeypatch.setattr(partition, "save_examples", work)
    Path("run.toml").write_text(DEPLOYED)
    Path("own.py").write_text("")
    name, *options = command.split()
    asked = " ".join([name, "--config run.toml", *options, "--set", words])
    refused(f"deploy {asked}", sentence, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--alpha 2 --insecure", "alpha is 2"),
        ("--ca absent.crt", "absent.crt: there is no such file"),
        ("--insecure --key absent", "absent: there is no such file"),
    ],
)
def test_a_node_is_refused_before_it_connects(
    words: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr")
    Path("data.csv").write_text("a,label\n1,0\n2,1\n")
    node = "deploy node --superlink 127.0.0.1:9 --client Ann --data data.csv --folder own"
    refused(f"{node} {words}", sentence, monkeypatch, capsys)
    assert not Path("own").exists()


def test_a_run_that_is_asked_for_in_order_gets_to_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for base in (CONVEX, NETWORK):
        words = f"run {base} --part test --cohort 2 --batch 4".split()
        monkeypatch.setattr(sys, "argv", ["scafflix", *words, "--out", f"out-{len(base)}"])
        with pytest.raises(AssertionError, match="this is work"):
            main()
    assert RunConfig(data="iris").part == "test"
