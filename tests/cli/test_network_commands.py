"""Networks on the command line, with the real models on miniature files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import scafflix as sx
from scafflix.cli import main

ROOT = Path(__file__).parents[2]
ALONE = "--data digits --clients 8 --scale maxabs --model dense --rounds 6"
DIGITS = f"{ALONE} --optima-steps 20"


@pytest.fixture(autouse=True)
def _own_places(miniatures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(miniatures))
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def call(words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["scafflix", *words.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_a_network_leaves_the_same_files_as_any_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(f"run {DIGITS} --alpha 0.5 --every 3 --out out", monkeypatch) == 0
    record = sx.Record.load("out")
    assert len(record.metrics["round"]) == 7
    assert {"test_local", "test_global", "test_personal", "gamma"} <= record.clients.keys()
    assert record.personal_model("client-2")["layer0/weight"].shape == (64, 64)
    assert set(record.summary["scores"]["test"]["personal"]) == {
        *("examples", "clients", "std", "p10", "worst", "loss")
    }
    assert "Test accuracy" in capsys.readouterr().out


def test_a_diverging_network_says_where_and_keeps_the_last_good_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"run {ALONE} --alpha 1 --optima none --stepsize 500 --out out"
    assert call(words, monkeypatch) == 2
    sentence = capsys.readouterr().err
    assert "diverged in round" in sentence
    assert "at client client-" in sentence
    record = sx.Record.load("out")
    assert record.summary["rounds"] == record.summary["diverged"]["round"] - 1
    assert abs(record.models["global/layer0/weight"]).max() < 1e6


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--cohort 0", "cohort is 0"),
        ("--cohort 9", "at most 8"),
        ("--batch 5000", "batch is 5000"),
        ("--optima cold", "common, warm, after or none"),
        ("--store tape", "auto, memory or disk"),
        ("--keep all", "personal, global or none"),
        ("--method nesterov", "strongly convex"),
        ("--stepsize common", "number above 0"),
        ("--every 0", "every is 0"),
        ("--part future", "test or validation"),
    ],
)
def test_bad_input_is_one_sentence(
    words: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    added = "--min-examples 20 --optima-stepsize 0.1 --alpha 0.5 --out out"
    assert call(f"run {DIGITS} {added} {words}", monkeypatch) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said
    assert not Path("out").exists()


def test_a_linear_model_on_images_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("run --data femnist --model softmax --out out", monkeypatch) == 2
    assert "Use a network" in capsys.readouterr().err


def test_there_is_no_plan_for_a_network(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("plan --data femnist --model cnn", monkeypatch) == 2
    assert "no theory" in capsys.readouterr().err


def test_a_comparison_of_networks_has_a_figure_a_table_and_a_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"compare {DIGITS} --methods scafflix,fedavg --alphas 1,0.5 --out out"
    assert call(words, monkeypatch) == 0
    assert Path("out/figure.png").stat().st_size > 5000
    assert 'id="numbers"' in Path("out/report.html").read_text()
    assert len(list(Path("out/runs").iterdir())) == 4
    assert "personal" in capsys.readouterr().out


def test_tune_writes_the_grid_and_the_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"tune {DIGITS} --alpha 0.5 --methods scafflix --stepsizes 0.01,0.1 --out out"
    assert call(words, monkeypatch) == 0
    lines = Path("out/tune.csv").read_text().splitlines()
    assert lines[0] == "method,stepsize,validation_accuracy,diverged_at"
    assert len(lines) == 3
    assert sx.Record.load("out/winners/scafflix").config["part"] == "test"


def test_figure_3c_at_the_smallest_scale_trains_the_papers_network(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "reproduce fig3c --scale smoke --out out --set grid=0.1 --set min_examples=15"
    assert call(words, monkeypatch) == 0
    runs = json.loads(Path("out/fig3c_runs.json").read_text())
    assert [run["config"]["model"] for run in runs] == ["cnn"] * 3
    assert [run["config"]["p"] for run in runs] == [0.1, 0.2, 0.5]
    assert Path("out/fig3c.png").stat().st_size > 5000
    assert "p = 0.5" in Path("out/fig3c.md").read_text()
    assert "the probability of communication" in capsys.readouterr().out


def test_the_example_with_ones_own_model_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "own_model.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "FlaxModel" in done.stdout
    assert "EquinoxModel" in done.stdout
