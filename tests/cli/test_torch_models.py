"""`--model FILE.py:NAME`: a PyTorch module on the command line, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "torch",
    reason="PyTorch (large) is not installed; pip install 'scafflix[torch]'",
)

import scafflix as sx
from scafflix.cli import main

MODEL = """
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.hidden, self.output = nn.Linear(64, width), nn.Linear(width, 10)

    def forward(self, pixels):
        return self.output(nn.functional.relu(self.hidden(pixels)))

class Wide(Net):
    def __init__(self, width):
        super().__init__(width)

class Both(Net):
    def forward(self, pixels):
        return pixels, super().forward(pixels)

class Broken(Net):
    def forward(self, pixels):
        return self.outputs(pixels)

number = 3
"""
DATA = "--data digits --clients 4 --scale maxabs"
QUICK = f"{DATA} --rounds 3 --cohort 3 --batch 10"


class Command:
    """The command in a folder with a file of modules."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.monkeypatch = file, monkeypatch

    def __call__(self, words: str) -> int:
        self.monkeypatch.setattr(sys, "argv", ["scafflix", *words.split()])
        try:
            main()
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mymodel.py").write_text(MODEL)
    return Command(tmp_path / "mymodel.py", monkeypatch)


def test_a_module_is_run_compared_and_reported(command: Command) -> None:
    assert not command(f"run {QUICK} --model mymodel.py:Net --alpha 0.5 --out run")
    record = sx.Record.load("run")
    assert record.config["model"] == "mymodel.py:Net"
    assert record.models["personal/hidden.weight"].shape == (4, 8, 64)
    words = "--methods scafflix,fedper,fedavg --alphas 1"
    assert not command(f"compare {QUICK} --model mymodel.py:Net {words} --out both")
    assert "mymodel.py:Net" in Path("both/report.html").read_text()


def test_a_loss_and_a_score_of_the_file_are_used(command: Command) -> None:
    own = (
        "\ndef loss(outputs, labels):\n    return nn.functional.multi_margin_loss(outputs, labels)"
    )
    own += (
        "\n\ndef score(outputs, labels):\n    return (outputs.topk(2).indices == labels[:, None])"
    )
    command.file.write_text(MODEL + own + ".any(1).float().mean()\n")
    assert not command(f"run {QUICK} --model mymodel.py:Net --alpha 1 --optima none --out run")
    assert sx.Record.load("run").summary["metric"] == "score"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mymodel.py:Nit", "model is 'mymodel.py:Nit', which cannot be imported: module 'mymodel'"),
        ("other.py:Net", "model is 'other.py:Net', which cannot be imported"),
        ("mymodel.py:Wide", "mymodel.py, line 13: mymodel.py:Wide needs the arguments width"),
        ("mymodel.py:number", "which is 3; name a class or a function that makes a"),
        ("mymodel.py:Both", "mymodel.py, line 17: forward returns a tuple for 4 examples"),
        ("mymodel.py:Broken", "mymodel.py, line 22: The module or its loss fails on inputs of"),
        ("cmn:units=3", "it must be one of logistic, softmax, linear, cnn, lstm, dense, or FILE"),
    ],
)
def test_what_is_no_module_is_refused_in_one_sentence(
    command: Command, capsys: pytest.CaptureFixture[str], name: str, sentence: str
) -> None:
    assert command(f"run {QUICK} --model {name} --out run") == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
    assert not Path("run").exists()


def test_a_syntax_error_is_named_with_its_line(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    command.file.write_text("from torch import nn\n\nclass Net(nn.Module:\n    pass\n")
    assert command(f"run {QUICK} --model mymodel.py:Net --out run") == 2
    assert "mymodel.py, line 3" in capsys.readouterr().err
