"""A method of a user's own on the command line, by FILE.py:FUNCTION, like any other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import scafflix as sx
from cases import ON_LINEAR
from scafflix.cli import main

OWN = '''
from jax.tree_util import Partial

from scafflix.methods.method import Method, geometric
from scafflix.theory import NO_RATE


def local_step(caution, client, state, sent, x, g):
    return x - caution * (client.step * client.alpha) * g


def timid(plan, p=None, caution=0.5):
    """FedAvg with a part of its step."""
    p = p or 1.0
    return Method(
        name="timid",
        settings={"p": p, "caution": caution},
        gamma=plan.gamma,
        limit=plan.gamma,
        p=p,
        rate=NO_RATE,
        gradient=plan.gradient,
        made_for=plan.made_for,
        local_step=Partial(local_step, caution),
        local_steps=Partial(geometric, p),
    )


def lost(plan, needed):
    pass


def silent(plan):
    pass


number = 3
'''
DATA = "--data iris --clients 4 --split shuffled --scale standard --test 0.2 --validation 0.2"
SMALL = f"{DATA} --model softmax --rounds 6 --alpha 0.5"


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text(OWN)


def call(words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["scafflix", *words.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


@pytest.mark.parametrize(
    "model",
    ["", "--cohort 2", "--model dense --batch 4 --optima-steps 10 --optima-stepsize 0.1"],
    ids=["all clients", "a cohort", "a network"],
)
def test_a_run_takes_a_method_from_a_file(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(f"run {SMALL} {model} --method my.py:timid --p 0.5 --out out", monkeypatch) == 0
    record = sx.Record.load("out")
    assert record.config["method"] == "my.py:timid"
    assert record.summary["method"] == "timid"
    assert record.summary["settings"] == {"p": 0.5, "caution": 0.5}
    assert record.metrics["local_steps"].max() > 1
    assert record.summary["certificate"] is None
    theorem = "No theorem covers a network" if "dense" in model else "heorem"
    assert theorem in record.summary["no_certificate"]
    assert all(np.isfinite(array).all() for array in record.models.values())


def test_a_comparison_takes_it_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"compare {DATA} --model softmax --rounds 30 --alphas 0.5,1"
    assert call(f"{words} --methods gd,my.py:timid --seeds 2 --out out", monkeypatch) == 0
    records = [sx.Record.load(folder) for folder in sorted(Path("out/runs").iterdir())]
    found = [record.summary["method"] for record in records]
    assert found == ["gd", "gd", "timid", "timid"] * 2
    # both seeds, at both alphas, in one program
    assert {record.summary["runs_side_by_side"] for record in records} == {4}
    gaps = [record.metrics["objective_gap"] for record in records]
    assert all(gap[-1] < 0.5 * gap[0] for gap in gaps)
    assert Path("out/figure.png").exists()


def test_a_search_takes_it_and_another_text_is_another_cell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("own").mkdir()
    file = Path("own/cautious.py").resolve()
    file.write_text(OWN.replace("p=None, caution", "stepsize=None, p=None, caution"))
    words = f"tune {SMALL} --methods {file}:timid --stepsizes 0.1,0.2 --out out"
    assert call(words, monkeypatch) == 0
    assert len(list(Path("out/cells").iterdir())) == 2
    assert len(list(Path("out/winners").iterdir())) == 1
    file.write_text(file.read_text().replace("caution=0.5", "caution=0.25"))
    assert call(f"{words} --force", monkeypatch) == 0
    assert len(list(Path("out/cells").iterdir())) == 4


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--method my.py:bold", "method is 'my.py:bold', which cannot be imported"),
        ("--method absent.py:timid", "method is 'absent.py:timid', which cannot be imported"),
        ("--method my.py:number", "method is 3; give a function that makes a method"),
        ("--method my.py:silent", "my.py:silent made a NoneType; it must make a Method"),
        ("--method my.py:lost", "my.py:lost cannot be called with a plan"),
        ("--method my.py:timid --pace actual", "The method my.py:timid has no pace"),
        ("--method my.py:timid --stepsize 0.1", "my.py:timid takes no stepsize"),
        ("--method my.py:timid --h0 warm", "the method my.py:timid has none"),
    ],
)
def test_what_it_does_not_take_is_one_sentence(
    words: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(f"run {SMALL} {words} --out out", monkeypatch) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not Path("out").exists()


# a linear model of which some clients take part in a round


@pytest.fixture
def a6a(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the place and form of the real one, with fewer features."""
    random, folder = np.random.default_rng(0), tmp_path / "data" / "libsvm"
    folder.mkdir(parents=True)
    lines = []
    for _ in range(400):
        places = np.sort(random.choice(20, 5, replace=False)) + 1
        label = 1 if random.random() < 1 / (1 + np.exp(5 - places.mean())) else -1
        lines.append(f"{label:+d} {' '.join(f'{place}:1' for place in places)}")
    (folder / "a6a").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("SCAFFLIX_DATA", str(folder.parent))


@pytest.mark.usefixtures("a6a")
def test_a_linear_model_with_a_cohort_is_measured_by_gap_and_psi(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "run --data a6a --clients 100 --cohort 10 --model logistic --rounds 40 --out out"
    assert call(words, monkeypatch) == 0
    record = sx.Record.load("out")
    metrics, summary = record.metrics, record.summary
    assert (summary["n_clients"], summary["cohort"]) == (100, 10)
    assert record.config["cohort"] == 10
    for name in ("objective_gap", "grad_norm_sq", "lyapunov"):
        assert np.isfinite(metrics[name]).all()
    assert metrics["objective_gap"][-1] < 0.5 * metrics["objective_gap"][0]
    assert metrics["lyapunov"][-1] < metrics["lyapunov"][0]
    assert "lyapunov_bound" not in metrics
    dim, rounds = summary["dim"], np.arange(41)
    np.testing.assert_array_equal(metrics["bits_up"], rounds * 10 * dim * 64)
    assert summary["final_gap"] == metrics["objective_gap"][-1]
    assert summary["certificate"] is None
    sentence = "The theorem is for rounds of all 100 clients; here 10 take part in a round."
    assert summary["no_certificate"] == sentence
    assert "none: The theorem is for rounds" in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("a6a")
def test_the_same_with_all_clients_has_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("run --data a6a --clients 10 --rounds 40 --out out", monkeypatch) == 0
    summary = sx.Record.load("out").summary
    assert summary["certificate"]["holds"]
    assert summary["no_certificate"] is None


@pytest.mark.usefixtures("a6a")
def test_the_page_of_a_comparison_with_a_cohort_shows_gap_and_psi(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "compare --data a6a --clients 20 --cohort 5 --methods fedavg,scafflix --alphas 0.5"
    assert call(f"{words} --rounds 20 --every 4 --out out", monkeypatch) == 0
    records = [sx.Record.load(folder) for folder in sorted(Path("out/runs").iterdir())]
    looked = [np.isfinite(record.metrics["lyapunov"]).sum() for record in records]
    assert looked == [6, 6]  # the start and every fourth round
    page = Path("out/report.html").read_text()
    assert "here 5 take part in a round" in page
    assert "Rounds and megabytes until the objective gap" in page


# options of a method, behind its name


def test_options_behind_the_name_are_those_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    method = "my.py:timid:caution=0.25,p=0.5"
    assert call(f"run {SMALL} --method {method} --out out", monkeypatch) == 0
    record = sx.Record.load("out")
    assert record.config["method"] == method
    assert record.summary["settings"] == {"p": 0.5, "caution": 0.25}


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("my.py:timid:courage=1", "has no courage; it has p, caution"),
        ("gd:p=0.5", "The method gd has no p; it has none"),
        ("fedavg:p=0.5 --p 0.5", "p is given twice"),
        ("fedavg:p=", "give its options as KEY=VALUE"),
        ("fedavg:0.1", "give the stepsize 0.1 as stepsize"),
    ],
)
def test_an_option_that_does_not_fit_is_one_sentence(
    method: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(f"run {SMALL} --method {method} --out out", monkeypatch) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_comparison_takes_options_stepsizes_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "scafflix,fedavg:p=0.5,fedavg:0.1"
    shared = f"{DATA} --model softmax --rounds 2 --alphas 0.5 --out"
    assert call(f"compare {shared} several --methods {words}", monkeypatch) == 0
    records = [sx.Record.load(folder) for folder in sorted(Path("several/runs").iterdir())]
    assert {one.config["method"] for one in records} == {"scafflix", "fedavg", "fedavg:p=0.5"}
    assert call(f"compare {shared} every --methods all", monkeypatch) == 0
    found = {sx.Record.load(one).summary["method"] for one in Path("every/runs").iterdir()}
    assert found == {*ON_LINEAR}


# what there is


def test_methods_lists_every_method_with_its_paper_and_what_travels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("methods --json", monkeypatch) == 0
    said = json.loads(capsys.readouterr().out)
    assert set(said) == {*sx.METHODS}
    assert said["scafflix"]["guarantee"] == "linear"
    assert (said["fedavg"]["guarantee"], said["fedavg"]["stored"]) == ("none", 0)
    assert (said["scafflix"]["up"], said["scafflix"]["stored"]) == (1, 1)
    assert call("methods", monkeypatch) == 0
    assert "McMahan" in capsys.readouterr().out


def test_methods_shows_the_parameters_of_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("methods my.py:timid", monkeypatch) == 0
    assert "caution" in capsys.readouterr().out
    assert call("methods my.py:lost", monkeypatch) == 2
    assert "cannot be called with a plan alone" in " ".join(capsys.readouterr().err.split())
