"""The commands, as a user calls them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from scafflix.cli import main

SMALL = "synthetic:rows=20,features=4"


def call(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the command in this process; success leaves with code 0."""
    monkeypatch.setattr(sys, "argv", ["scafflix", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0


def read_run(folder: Path) -> tuple[dict, list[dict]]:
    summary = json.loads((folder / "summary.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return summary, lines


def test_run_writes_the_files_and_keys_that_scripts_rely_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = (
        f"run --data {SMALL} --clients 3 --model logistic --l2 0.1 --method scafflix --alpha 0.3"
        " --stepsize auto --smoothness tight --p auto --batch full --rounds 12 --seed 3"
    )
    call([*words.split(), "--out", str(out)], monkeypatch)
    summary, lines = read_run(out)
    assert {
        *("method", "n_clients", "dim", "p", "zeta", "kappa_max", "gamma_min", "gamma_max"),
        *("rounds", "iterations", "final_gap", "predicted_rounds", "certificate", "seconds"),
        "compile_seconds",
    } <= summary.keys()
    assert [line["round"] for line in lines] == list(range(1, 13))
    assert {
        *("round", "iterations", "local_steps", "objective_gap", "grad_norm_sq", "lyapunov"),
        *("lyapunov_bound", "bits_up", "bits_down"),
    } == lines[0].keys()
    assert lines[-1]["iterations"] == sum(line["local_steps"] for line in lines)
    assert lines[-1]["bits_up"] == 12 * 3 * 4 * 64
    assert summary["final_gap"] == lines[-1]["objective_gap"]
    assert tomllib.loads((out / "config.toml").read_text())["alpha"] == 0.3
    models = load_file(out / "models.safetensors")
    mixture = 0.3 * models["global"] + 0.7 * models["local"]
    np.testing.assert_allclose(models["personal"], mixture, rtol=1e-14)


def test_a_run_from_its_own_config_is_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    words = ["run", "--data", SMALL, "--clients", "3", "--rounds", "12", "--alpha", "0.3"]
    call([*words, "--out", str(first)], monkeypatch)
    call(["run", str(first / "config.toml"), "--out", str(second)], monkeypatch)
    assert (first / "metrics.jsonl").read_bytes() == (second / "metrics.jsonl").read_bytes()


def test_set_wins_over_options_and_options_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f'data = "{SMALL}"\nclients = 3\nrounds = 12\nalpha = 0.3\nseed = 1\n')
    out = tmp_path / "out"
    words = ["run", str(file), "--seed", "2", "--alpha", "0.5", "--set", "alpha=0.7"]
    call([*words, "--out", str(out)], monkeypatch)
    config = tomllib.loads((out / "config.toml").read_text())
    assert (config["rounds"], config["seed"], config["alpha"]) == (12, 2, 0.7)


def test_a_stepsize_beyond_theory_warns_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "--data", SMALL, "--clients", "3", "--rounds", "12", "--stepsize", "1.5"]
    call([*words, "--out", str(tmp_path / "out")], monkeypatch)
    said = capsys.readouterr().err
    assert re.fullmatch(r"warning: .* gamma_i = 1\.5 of client \S+ is above 0\.\d+, .*\n", said)
    summary, _ = read_run(tmp_path / "out")
    assert summary["certificate"] is None
    assert summary["zeta"] is None


def test_force_replaces_a_run_and_keeps_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    words = ["run", "--data", SMALL, "--clients", "3", "--rounds", "12"]
    call([*words, "--out", str(tmp_path), "--force"], monkeypatch)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    assert (tmp_path / "summary.json").exists()


def test_compare_writes_runs_curves_figure_and_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = f"compare --data {SMALL} --clients 3 --methods gd,scafflix,scafflix:common"
    words += " --alphas 1,0.3,0 --seeds 2 --rounds 12 --target 0.1"
    call([*words.split(), "--out", str(out)], monkeypatch)
    assert len(list((out / "runs").iterdir())) == 3 * 3 * 2
    curves = (out / "curves.csv").read_text().splitlines()
    assert len(curves) == 1 + 3 * 2 * (13 + 13 + 1)  # with alpha = 0 there is only the start
    page = (out / "report.html").read_text()
    assert 'id="numbers"' in page
    assert "scafflix:common" in page
    assert not re.search(r"(src|href)=.https?:", page)
    assert (out / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "Rounds and megabytes" in capsys.readouterr().out


def test_compare_takes_an_alpha_for_each_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "compare.toml"
    file.write_text(
        f'data = "{SMALL}"\nclients = 3\nrounds = 12\nalphas = [[0, 0.5, 1], [0, 1, 1], 0.5]\n'
    )
    call(
        ["compare", str(file), "--methods", "scafflix", "--out", str(tmp_path / "out")], monkeypatch
    )
    assert "0..1" in capsys.readouterr().out
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 3


def test_an_interrupted_command_says_so_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scafflix.simulate.batch.Batch._measure", interrupt)
    words = ["run", "--data", SMALL, "--clients", "3", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["scafflix", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert capsys.readouterr().err == "stopped: nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_plan_predicts_rounds_for_every_method_and_runs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    call(["plan", "--data", SMALL, "--clients", "3", "--alpha", "0.3"], monkeypatch)
    said = capsys.readouterr().out
    for word in ("kappa_max", "gamma_i", "zeta", "scafflix", "nesterov", "megabytes"):
        assert word in said
    assert list(tmp_path.iterdir()) == []


def test_data_list_names_what_there_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(["data", "list"], monkeypatch)
    said = capsys.readouterr().out
    for name in ("mushrooms", "a6a", "w6a", "digits"):
        assert name in said


def test_data_describe_counts_rows_and_labels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(["data", "describe", "--data", "iris", "--clients", "3"], monkeypatch)
    said = capsys.readouterr().out
    assert "150" in said
    assert "50" in said


def test_reproduce_fig1_draws_the_panels_and_the_stepsizes(
    shared_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(shared_data))
    out = tmp_path / "fig1"
    call(["reproduce", "fig1", "--out", str(out)], monkeypatch)
    runs = json.loads((out / "fig1_runs.json").read_text())
    assert len(runs) == 3 * 3 * 5 * 3
    assert all(run["certificate"]["holds"] for run in runs)
    rows = (out / "fig1.csv").read_text().splitlines()
    assert len(rows) == 1 + len(runs) * 46
    for name in ("fig1", "fig1_stepsizes"):
        assert (out / f"{name}.png").stat().st_size > 100_000
        assert (out / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    final = {(run["data"], run["method"], run["alpha"]): run["final_gap"] for run in runs}
    for data in ("mushrooms", "a6a", "w6a"):
        # double acceleration: by local training, and by personalization
        assert final[data, "scafflix", 1] < 1e-3 * final[data, "gd", 1]
        assert final[data, "gd", 0.01] < 1e-2 * final[data, "gd", 1]


def test_the_installed_command_refuses_with_a_sentence_and_code_2() -> None:
    command = Path(sys.executable).with_name("scafflix")
    done = subprocess.run(
        [command, "run", "--data", "nothing"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_help_is_for_newcomers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(["--help"], monkeypatch)
    said = capsys.readouterr().out
    for name in ("demo", "run", "compare", "plan", "reproduce", "data"):
        assert name in said
