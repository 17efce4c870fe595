"""A PyTorch module from its record: answers, files for other programs, newcomers."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import scafflix as sx
from scafflix.export.made_up import made_up_rows
from scafflix.export.onnx_file import onnx_answers, onnx_content
from scafflix.export.torch_program import torch_answers, torch_content
from scafflix.problems.evaluation import evaluate
from scafflix.runs.adapting import adapt
from scafflix.runs.config import RunConfig, build
from scafflix.runs.runner import execute

torch = pytest.importorskip(
    "torch",
    reason="PyTorch (large) is not installed; pip install 'scafflix[torch]'",
)

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 4).requires_grad_(False)
        self.norm, self.out = nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(torch.relu(self.norm(self.base(x))))

class Odd(Net):
    def forward(self, x):
        return super().forward(x) if float(x.detach().sum()) > -1e9 else x
"""
RANDOM = np.random.default_rng(1)
N = 120
FRAME = pd.DataFrame({"age": RANDOM.normal(50, 9, N), "kind": RANDOM.choice(["u", "v"], N)})
FRAME["site"] = ["s", "t"] * (N // 2)
FRAME["y"] = np.where(FRAME.age + 4 * (FRAME.kind == "u") + RANDOM.normal(size=N) > 51, "up", "no")
FRAME.loc[::9, "age"] = np.nan
EAST = FRAME.drop(columns="site")[::3]


def run(place: Path, name: str = "Net") -> sx.Record:
    asked = {
        "data": "people.csv", "split": "column:site", "label": "y", "rounds": 2, "cohort": 2,
        "alpha": 0.5, "model": f"net.py:{name}", "optima_stepsize": 0.1, "optima_steps": 10,
        "test": 0.2,
    }  # fmt: skip
    execute(build(RunConfig, asked)).save(place / name)
    return sx.Record.load(place / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("torch")
    FRAME.to_csv(place / "people.csv", index=False)
    EAST.to_csv(place / "east.csv", index=False)
    (place / "net.py").write_text(MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("SCAFFLIX_CACHE", str(place / "cache"))
        run(place)
    return place


@pytest.fixture
def record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> sx.Record:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SCAFFLIX_CACHE", str(folder / "cache"))
    return sx.Record.load("Net")


@pytest.mark.parametrize("kind", ["personal", "local", "global"])
def test_answers_are_those_of_the_module_with_the_clients_statistics(
    record: sx.Record, kind: str
) -> None:
    arrays = record.model("t", kind)
    module = record.module("t", model=kind)
    state = module.state_dict()
    assert set(state) - set(arrays) == {"base.weight", "base.bias"}  # what is frozen
    assert all(np.array_equal(state[name].numpy(), array) for name, array in arrays.items())
    made = record.preprocessing
    assert made is not None
    inputs = torch.tensor(record.predictor("t", kind).inputs(FRAME), dtype=torch.float32)
    expected = module(inputs)[:, :2].softmax(1).detach().numpy()  # the third is no class
    np.testing.assert_allclose(record.predict_proba("t", FRAME, model=kind), expected, rtol=1e-5)
    assert set(record.predict("t", FRAME, model=kind)) <= {"up", "no"}


def test_the_global_model_of_a_module_with_batch_norms_needs_a_client(record: sx.Record) -> None:
    with pytest.raises(sx.ScafflixError, match=r"norm.running_mean is each client's own; name a"):
        record.predict(None, FRAME, model="global")


def test_a_changed_file_is_noticed_and_an_edited_comment_is_not(
    record: sx.Record, folder: Path
) -> None:
    before = record.predict_proba("s", FRAME)
    try:
        for text in (MODEL.replace("relu", "tanh"), MODEL.replace("(4, 4)", "(4, 4, bias=False)")):
            (folder / "net.py").write_text(text)
            with pytest.raises(sx.ScafflixError, match=r"net.py:Net is not what it was when the"):
                record.predict("s", FRAME)
            with pytest.raises(sx.ScafflixError, match="is not what it was"):
                adapt(record, "east.csv")
        (folder / "net.py").write_text(MODEL.replace("(4, 3)", "(4, 2)"))
        with pytest.raises(sx.ScafflixError, match=r"trains .* but the run trained .*give the mod"):
            record.predict("s", FRAME)
        (folder / "net.py").write_text("# other words\n" + MODEL + "\nnumber = 3\n")
        np.testing.assert_array_equal(record.predict_proba("s", FRAME), before)
    finally:
        (folder / "net.py").write_text(MODEL)


def test_programs_and_graphs_answer_as_the_module_does(record: sx.Record, tmp_path: Path) -> None:
    predictor = record.predictor("s")
    expected = predictor(FRAME).probabilities
    program = torch_content(predictor)
    np.testing.assert_allclose(torch_answers(program, predictor, FRAME), expected, rtol=1e-5)
    with zipfile.ZipFile(io.BytesIO(program)) as archive:
        starts = [archive.read(name)[:2] for name in archive.namelist()]
    assert not {b"PK", b"\x80\x02", b"\x80\x04"} & {*starts}
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    graph = onnx_content(predictor)  # with missing values and texts inside
    np.testing.assert_allclose(onnx_answers(graph, predictor, FRAME), expected, rtol=1e-5)
    assert record.export("s", tmp_path / "s.onnx", "onnx", check=made_up_rows(predictor)) < 1e-5
    with pytest.raises(sx.ScafflixError, match=r"choose onnx or safetensors or torch"):
        record.export("s", tmp_path / "s.json", "sklearn-json")


def test_a_module_that_torch_cannot_follow_is_one_sentence(
    record: sx.Record, tmp_path: Path
) -> None:
    odd = run(tmp_path, "Odd")
    with pytest.raises(sx.ScafflixError, match=r"Odd cannot be written as torch, because torch.ex"):
        odd.export("s", tmp_path / "odd.pt2", "torch")
    assert not (tmp_path / "odd.pt2").exists()


def test_a_newcomer_takes_home_a_mixture_and_answers(record: sx.Record, tmp_path: Path) -> None:
    with pytest.warns(sx.ScafflixWarning, match="their own examples alone"):
        found = adapt(record, "east.csv", test=0.3)
    kept = sx.Record.load(found.save(tmp_path / "east"))
    (alpha,) = kept.clients["alpha"]
    mine, theirs, own = (kept.model("east", kind) for kind in ("personal", "global", "local"))
    for name in record.model(None, "global"):
        np.testing.assert_array_equal(theirs[name], record.model("s", "global")[name])
        mixed = alpha * theirs[name] + (1 - alpha) * own[name]
        np.testing.assert_allclose(mine[name], mixed, rtol=1e-5, atol=1e-6)
    assert {"test_loss_local", "test_loss_global", "test_loss_personal"} <= set(kept.clients)
    assert kept.predict_proba("east", EAST).shape == (len(EAST), 2)


def test_a_newcomers_table_may_be_a_data_set_of_hugging_face(
    record: sx.Record, tmp_path: Path
) -> None:
    (tmp_path / "east").mkdir()
    EAST.to_parquet(tmp_path / "east" / "train.parquet")
    with pytest.warns(sx.ScafflixWarning, match="their own examples alone"):
        told, same = (adapt(record, one) for one in (f"hf:{tmp_path / 'east'}", "east.csv"))
    for name in ("personal/out.weight", "counted/personal/norm.running_mean"):
        np.testing.assert_array_equal(told.models[name], same.models[name])
    EAST.to_parquet(tmp_path / "east" / "test.parquet")
    with pytest.raises(sx.ScafflixError, match="has the parts test, train; give the folder of one"):
        adapt(record, f"hf:{tmp_path / 'east'}")


def test_a_newcomer_to_a_network_in_jax_has_one_too(folder: Path, record: sx.Record) -> None:
    asked = {"data": "people.csv", "split": "column:site", "label": "y", "rounds": 2,
             "alpha": 0.5, "model": "dense", "optima_stepsize": 0.1, "cohort": 2}  # fmt: skip
    dense = execute(build(RunConfig, asked))
    with pytest.warns(sx.ScafflixWarning, match="their own examples alone"):
        found = adapt(dense, "east.csv", test=0.3)
    right = np.mean(found.predict("east", EAST) == EAST.y)
    assert right > 0.5


def test_arrays_and_a_loss_of_ones_own_need_the_class_where_there_is_no_file() -> None:
    class Line(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(3, 1)

    def squared(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return ((outputs[:, 0] - labels) ** 2).mean()

    rows = np.random.default_rng(0).normal(size=(20, 3))
    clients = {name: (rows, rows.sum(axis=1)) for name in "ab"}
    fed = sx.data.from_clients(clients, held_out=clients)
    problem = sx.Problem(fed, sx.models.from_torch(Line, squared, squared))
    person = sx.personalize(problem, 1.0, optima=False)
    made = sx.run(problem, person, sx.fedavg(sx.plan(problem, person)), rounds=3, keep="global")
    arrays = made.model(None, "global")
    with pytest.raises(sx.ScafflixError, match=r"give the class of a PyTorch module as module="):
        made.predict(None, rows, model="global")
    network = sx.models.from_torch(Line, squared, squared)
    found = made.predict(None, rows, model="global", module=network)
    np.testing.assert_allclose(found, rows @ arrays["weight"][0] + arrays["bias"], rtol=1e-4)
    loss = np.mean((found - rows.sum(axis=1)) ** 2)
    assert evaluate(problem, "test", problem.torch.start(0) | arrays).loss[0] == pytest.approx(
        loss, rel=1e-4
    )
    with pytest.raises(sx.ScafflixError, match=r"shape \(20, 2\); those of the run had \(3,\)"):
        made.predict(None, rows[:, :2], model="global", module=Line)
