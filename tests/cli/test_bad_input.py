"""What users get wrong: one sentence, exit code 2, and nothing half-written."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from scafflix.cli import main

SMALL = "synthetic:rows=20,features=4"
PRIVATE = ["--privacy", "client", "--clip", "1", "--budget", "3"]
GOOD = "+1 1:1 2:0.5\n-1 1:0.2\n+1 2:1\n-1 1:3 2:1\n"


def refuse(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """Run the command, check that it refuses as it should, and return its sentence."""
    monkeypatch.setattr(sys, "argv", ["scafflix", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    return said.err


@pytest.fixture
def svmlight(tmp_path: Path) -> Path:
    path = tmp_path / "data.txt"
    path.write_text(GOOD)
    return path


CASES = {
    "alpha above one": (["--alpha", "1.5"], "alpha is 1.5"),
    "alpha below zero": (["--alpha", "-0.1"], "alpha is -0.1"),
    "alpha that is no number": (["--alpha", "most"], "alpha is 'most'"),
    "a rule and no alpha to train at": (["--alpha", "loo:0"], "alpha is 'loo:0'"),
    "validation without a part for it": (["--alpha", "validation"], "no examples are held out"),
    "leave-one-out of a network": (
        ["--model", "dense", "--alpha", "loo"],
        "needs the Hessian of a linear model",
    ),
    "a rule for models that are no mixtures": (
        ["--alpha", "auto", "--method", "ditto"],
        "take home models that it made",
    ),
    "p of zero": (["--p", "0"], "p is 0"),
    "p above one": (["--p", "1.2"], "p is 1.2"),
    "p too small to ever communicate": (["--p", "1e-20"], "p is 1e-20"),
    "more rounds than anyone can wait for": (["--rounds", "9" * 20], "rounds is 999"),
    "what looks like markup": (["--alpha", "[/b]"], "alpha is '[/b]'"),
    "an infinite epsilon": (["--epsilon", "inf"], "epsilon is inf"),
    "p that is no number": (["--p", "often"], "p is 'often'"),
    "no rounds": (["--rounds", "0"], "rounds is 0"),
    "rounds that are no number": (["--rounds", "ten"], "rounds is 'ten'"),
    "an unknown method": (["--method", "adam"], "method is 'adam'"),
    "an unknown model": (["--model", "resnet"], "model is 'resnet'"),
    "an unknown smoothness": (["--smoothness", "loose"], "smoothness is 'loose'"),
    "an unknown start": (["--start", "random"], "start is 'random'"),
    "an unknown h0": (["--h0", "hot"], "h0 is 'hot'"),
    "a stepsize of zero": (["--stepsize", "0"], "stepsize is 0"),
    "a stepsize that is no number": (["--stepsize", "big"], "stepsize is 'big'"),
    "a common stepsize for gd": (["--stepsize", "common", "--method", "gd"], "goes with scafflix"),
    "a batch of zero": (["--batch", "0"], "batch is 0"),
    "a batch larger than a client": (["--batch", "21"], "has only 20 examples"),
    "gd with batches": (["--batch", "2", "--method", "gd"], "use the method sgd"),
    "negative l2": (["--l2", "-1"], "l2 is -1"),
    "no l2 for logistic": (["--l2", "0"], "give l2 > 0"),
    "negative noise": (["--noise", "-1"], "noise is -1"),
    "a place of noise without privacy": (["--noise-at", "server"], "noise_at is for privacy"),
    "an unknown place of noise": ([*PRIVATE, "--noise-at", "cloud"], "noise_at is 'cloud'"),
    "noise at the server without a clip": (
        ["--privacy", "client", "--budget", "3", "--noise-at", "server"],
        "clip is missing",
    ),
    "noise at the server in gradients of examples": (
        ["--privacy", "example", *PRIVATE[2:], "--noise-at", "server"],
        "the noise is in every gradient",
    ),
    "noise at the server in control variates": (
        [*PRIVATE, "--noise-at", "server", "--alpha", "0.5"],
        "With scafflix clients keep what must fit the mean",
    ),
    "noise at the server in models that clients go on from": (
        [*PRIVATE, "--noise-at", "server", "--method", "mr_mtl"],
        "With mr_mtl messages depend on what clients keep",
    ),
    "an epsilon of zero": (["--epsilon", "0"], "epsilon is 0"),
    "a key that does not exist": (["--set", "aplha=0.1"], "did you mean alpha"),
    "a word that sets nothing": (["--set", "alpha"], "key=value"),
    "a stepsize beyond theory under strict": (
        ["--stepsize", "100", "--strict"],
        "the largest that its theory covers",
    ),
    "a negative seed": (["--seed", "-1"], "seed is -1"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_option_is_refused(
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words, expected = CASES[name]
    out = tmp_path / "out"
    said = refuse(
        ["run", "--data", SMALL, "--clients", "3", "--out", str(out), *words], capsys, monkeypatch
    )
    assert expected in said
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_diverges_says_after_which_round_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["run", "--data", SMALL, "--clients", "3", "--stepsize", "1e200"]
    monkeypatch.setattr(sys, "argv", ["scafflix", *words, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    warning, error = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: ")
    said = (
        r"error: scafflix diverged: the objective of client client-\d is not finite after round \d"
    )
    assert re.match(said, error)
    assert list(tmp_path.iterdir()) == []


def test_more_clients_than_rows_are_refused(
    svmlight: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refuse(["run", "--data", str(svmlight), "--clients", "5"], capsys, monkeypatch)
    assert "5" in said
    assert "4" in said


def test_a_garbled_line_is_named(
    svmlight: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    svmlight.write_text(GOOD + "+1 1:one\n")
    said = refuse(["run", "--data", str(svmlight), "--clients", "2"], capsys, monkeypatch)
    assert "line 5" in said


def test_a_missing_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nowhere.txt"
    said = refuse(["run", "--data", str(path), "--clients", "2"], capsys, monkeypatch)
    assert "nowhere.txt" in said


def test_three_labels_are_refused_by_the_logistic_model(
    svmlight: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    svmlight.write_text(GOOD + "3 1:1\n")
    said = refuse(["run", "--data", str(svmlight), "--clients", "2"], capsys, monkeypatch)
    assert "exactly two labels" in said


def test_an_alpha_file_of_the_wrong_length_is_refused(
    svmlight: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alphas = svmlight.with_name("alpha.txt")
    alphas.write_text("0.1 0.2 0.3")
    words = ["run", "--data", str(svmlight), "--clients", "2", "--alpha", str(alphas)]
    said = refuse(words, capsys, monkeypatch)
    assert "3 values" in said
    assert "2 clients" in said


def test_columns_that_repeat_each_other_are_not_strongly_convex(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    column = np.random.default_rng(0).normal(size=(60, 1))
    np.savez(tmp_path / "twice.npz", features=np.hstack([column, column]), labels=column[:, 0])
    words = ["run", "--data", str(tmp_path / "twice.npz"), "--clients", "3"]
    said = refuse([*words, "--model", "linear", "--l2", "0"], capsys, monkeypatch)
    assert "not strongly convex" in said


def test_a_method_named_twice_is_refused_before_it_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["compare", "--data", SMALL, "--clients", "3", "--methods", "gd,scafflix,gd"]
    assert "has an entry twice" in refuse(words, capsys, monkeypatch)


def test_a_folder_below_a_file_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    words = ["run", "--data", "no such data", "--out", str(tmp_path / "file" / "out")]
    assert "is a file" in refuse(words, capsys, monkeypatch)


def test_a_folder_that_holds_something_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    said = refuse(
        ["run", "--data", SMALL, "--clients", "3", "--out", str(tmp_path)], capsys, monkeypatch
    )
    assert "not empty" in said
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_config_file_that_is_no_toml_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.toml"
    path.write_text("rounds = = 3")
    said = refuse(["run", str(path)], capsys, monkeypatch)
    assert "not valid TOML" in said


def test_a_config_value_of_the_wrong_kind_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.toml"
    path.write_text('data = "digits"\nrounds = 2.5\n')
    said = refuse(["run", str(path)], capsys, monkeypatch)
    assert "rounds is 2.5; it must be a whole number" in said


def test_without_data_the_command_says_what_to_give(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "data is missing" in refuse(["run"], capsys, monkeypatch)


def test_a_figure_without_its_data_and_offline_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SCAFFLIX_DATA", raising=False)
    monkeypatch.setattr("scafflix.data.download.ADDRESS", "http://127.0.0.1:9/")
    said = refuse(["reproduce", "fig1", "--out", str(tmp_path / "out")], capsys, monkeypatch)
    assert "SCAFFLIX_DATA" in said
    assert not (tmp_path / "out").exists()
