"""`--model FILE.py:NAME`: a PyTorch module on the command line, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "torch",
    reason="PyTorch (large) is not installed; pip install 'scafflix[torch]'",
)

import pyarrow as pa
from pyarrow import parquet

import scafflix as sx
from scafflix.cli import main

MODEL = """
import torch
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

class Mean(Net):
    def forward(self, pixels):
        return super().forward(pixels).mean()

class OwnNorm(Net):
    def forward(self, pixels):
        self.middle = 0.9 * self.middle + 0.1 * pixels.mean(0)
        return super().forward(pixels - self.middle)

class Norm(Net):
    def forward(self, pixels):
        return self.output(self.norm(self.hidden(pixels)))

def own_norm():
    made = OwnNorm()
    made.register_buffer("middle", torch.zeros(64))
    return made

def norm():
    made = Norm()
    made.norm = nn.BatchNorm1d(8)
    return made

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
        ("mymodel.py:Wide", "mymodel.py, line 14: mymodel.py:Wide needs the arguments width"),
        ("mymodel.py:number", "which is 3; name a class or a function that makes a"),
        ("mymodel.py:Both", "mymodel.py, line 18: forward returns a tuple for 4 examples"),
        ("mymodel.py:Mean", "mymodel.py, line 26: forward returns the shape () for 4 examples"),
        ("mymodel.py:own_norm", "mymodel.py, line 30: The buffer middle changes while the module"),
        ("mymodel.py:norm --batch 1", "A batch norm takes no single example; give a batch of 2"),
        ("mymodel.py:Broken", "mymodel.py, line 23: The module or its loss fails on inputs of"),
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


def test_a_data_set_that_does_not_fit_is_refused_in_one_sentence(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {
        "x": [[float(k)] * 64 for k in range(40)],
        "label": [0, 1] * 20,
        "who": list("ab") * 20,
    }
    for name, kept in (("good", ("x", "label", "who")), ("bare", ("label", "who"))):
        Path(name).mkdir()
        parquet.write_table(pa.table({c: columns[c] for c in kept}), f"{name}/train.parquet")
    Path("cut").mkdir()
    Path("cut/train.parquet").write_bytes(Path("good/train.parquet").read_bytes()[:90])
    Path("empty").mkdir()
    for words, sentence in (
        ("hf:good --split column:whom", "good: there is no column 'whom'; the columns are 'x'"),
        ("hf:good --split column:who --label y", "good: there is no column 'y'"),
        ("hf:bare --split column:who", "bare: no column is left as a feature"),
        ("hf:cut --split column:who", "cut/train.parquet: cannot be read"),
        ("hf:empty --split column:who", "empty: holds no data set"),
    ):
        asked = (
            f"--model mymodel.py:Net --alpha 1 --optima none --rounds 2 --out run --data {words}"
        )
        assert command(f"run {asked}") == 2, words
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1
        assert not Path("run").exists()


def test_words_of_texts_are_rows_for_a_module(command: Command) -> None:
    good, bad = "a good and lovely play", "a dull and weak play"
    texts = [f"{good if k % 2 else bad} {k}" for k in range(120)]
    rows = {"text": texts, "label": [k % 2 for k in range(120)], "who": list("abc") * 40}
    Path("reviews").mkdir()
    parquet.write_table(pa.table(rows), "reviews/train.parquet")
    command.file.write_text(MODEL.replace("nn.Linear(64, width)", "nn.Linear(4096, width)"))
    asked = "--data hf:reviews --split column:who --test 0.2 --alpha 1 --optima none --stepsize 1"
    assert not command(f"run {asked} --model mymodel.py:Net --rounds 15 --out run")
    assert sx.Record.load("run").clients["test_personal"].mean() > 0.8
    asked = "--data hf:reviews --split column:who --test 0.2 --validation 0.2"
    assert not command(f"adapt run {asked} --out adapted")
    assert sx.Record.load("adapted").models["personal/hidden.weight"].shape == (3, 8, 4096)


def test_a_syntax_error_is_named_with_its_line(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    command.file.write_text("from torch import nn\n\nclass Net(nn.Module:\n    pass\n")
    assert command(f"run {QUICK} --model mymodel.py:Net --out run") == 2
    assert "mymodel.py, line 3" in capsys.readouterr().err
