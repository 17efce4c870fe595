"""Nodes whose files are tables: they agree on columns, and make the models of the joined table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from in_process_grid import InProcessGrid
from safetensors.numpy import load_file

import scafflix as sx
from scafflix.data.tabular import columns_for
from scafflix.federate.agreement import agree_on, agreement_from, own_table
from scafflix.federate.configuration import DeployConfig, text_of
from scafflix.federate.flower_client import client_app
from scafflix.federate.flower_server import run
from scafflix.federate.messages import Hello, Introduction, Refusal, TableSummary, Train
from scafflix.federate.node import client_of
from scafflix.federate.partition import write_nodes
from scafflix.federate.wire import unpack
from scafflix.runs.adapting import adapt
from scafflix.runs.config import RunConfig, build
from scafflix.runs.runner import execute

RANDOM = np.random.default_rng(5)


def site(number: int, rows: int, kinds: str) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "age": RANDOM.normal(50 + 4 * number, 9, rows).round(1),
            "kind": RANDOM.choice(list(kinds), rows),
            "dose": RANDOM.normal(size=rows),
            "constant": 7,
        }
    )
    frame["ill"] = np.where(frame.dose + (frame.kind == "u") > 0.3, "yes", "no")
    frame.loc[RANDOM.random(rows) < 0.1 * number, "age"] = np.nan
    return frame


SITES = {"north": site(0, 40, "uv"), "south": site(1, 30, "uvw"), "west": site(2, 25, "ux")}
KEYS: dict[str, Any] = {"label": "ill", "alpha": "auto", "rounds": 12, "l2": 0.1}


def config(**changes: Any) -> DeployConfig:
    keys = {"data": "sites", **KEYS, **changes}
    made: DeployConfig = build(DeployConfig, {k: v for k, v in keys.items() if v is not None})
    return made


@pytest.fixture
def nodes(tmp_path: Path) -> dict[int, dict[str, Any]]:
    (tmp_path / "sites").mkdir()
    for name, frame in SITES.items():
        frame.to_csv(tmp_path / "sites" / f"{name}.csv", index=False)
    return {
        10 + k: {
            "client": name,
            "data": str(tmp_path / "sites" / f"{name}.csv"),
            "folder": str(tmp_path / "nodes"),
        }
        for k, name in enumerate(SITES)
    }


def deployed(nodes: dict[int, dict[str, Any]], folder: Path, **changes: Any) -> InProcessGrid:
    made = config(**changes)
    grid = InProcessGrid(client_app(), nodes, {"settings": text_of(made)})
    run(grid, made, folder, nodes=len(nodes), poll=0.001)
    return grid


def test_sites_make_the_models_of_the_joined_table(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    deployed(nodes, tmp_path / "out")
    alone = execute(build(RunConfig, {**KEYS, "data": str(tmp_path / "sites")}))
    together = sx.Record.load(tmp_path / "out" / "record")
    assert together.preprocessing is not None
    assert alone.preprocessing is not None
    assert together.preprocessing.names == alone.preprocessing.names
    np.testing.assert_allclose(together.models["global"], alone.models["global"], atol=1e-9)
    for name, frame in SITES.items():
        home = sx.Record.load(tmp_path / "nodes" / name / "home")
        mine = home.predict_proba(name, frame)
        np.testing.assert_allclose(mine, alone.predict_proba(name, frame), atol=1e-9)


def test_a_network_trains_on_tables(nodes: dict[int, dict[str, Any]], tmp_path: Path) -> None:
    more = {"model": "dense", "alpha": 1.0, "test": 0.0, "validation": 0.0, "l2": 0.0, "batch": 10}
    deployed(nodes, tmp_path / "out", **more)
    home = sx.Record.load(tmp_path / "nodes" / "south" / "home")
    frame = SITES["south"]
    assert (home.predict("south", frame) == frame.ill).mean() > 0.6


NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 6).requires_grad_(False)
        self.norm, self.drop, self.out = nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Linear(6, 2)

    def forward(self, x):
        return self.out(self.drop(torch.relu(self.norm(self.base(x)))))
"""


def test_a_nodes_own_record_answers_with_its_module(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    spec = f"{tmp_path / 'net.py'}:Net"
    (tmp_path / "net.py").write_text(NET)
    settings = {number: {**own, "model": spec} for number, own in nodes.items()}
    more = {"model": "elsewhere.py:Net", "alpha": 0.5, "l2": 0.0, "batch": 10, "rounds": 2}
    parts = {"test": 0.2, "validation": 0.2, "optima_steps": 10, "optima_stepsize": 0.1}
    deployed(settings, tmp_path / "out", **more, **parts)
    frame = SITES["south"]
    home = sx.Record.load(tmp_path / "nodes" / "south" / "home")
    assert home.config["model"] == spec
    features = home.preprocessing.features(columns_for(home.preprocessing, frame))  # type: ignore[union-attr]
    inputs = torch.tensor(features, dtype=torch.float32)
    for kind in ("personal", "local"):
        net = home.module("south", model=kind)
        said = net(inputs).softmax(1).detach()
        assert said.std() > 0
        np.testing.assert_allclose(home.predict_proba("south", frame, model=kind), said, atol=1e-6)
    (file,) = (tmp_path / "nodes" / "south").glob("*-model.safetensors")
    saved = load_file(file)
    for name, array in home.module("south").state_dict().items():
        np.testing.assert_array_equal(array, saved[name])  # frozen and counted ones, too
    server = sx.Record.load(tmp_path / "out" / "record")
    with pytest.raises(sx.ScafflixError, match="a server, which never loads a module"):
        server.predict(None, frame, model="global")


def test_the_servers_record_answers_with_the_global_model(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    deployed(nodes, tmp_path / "out")
    record = sx.Record.load(tmp_path / "out" / "record")
    found = record.predict(None, SITES["north"], model="global")
    assert set(found.tolist()) <= {"yes", "no"}
    assert (found == SITES["north"].ill).mean() > 0.6


def test_a_site_that_comes_later_adapts_to_the_servers_record(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    deployed(nodes, tmp_path / "out")
    site(1, 30, "uv").to_csv(tmp_path / "east.csv", index=False)
    record = sx.Record.load(tmp_path / "out" / "record")
    made = adapt(record, tmp_path / "east.csv", test=0.3)
    assert made.clients["client"].tolist() == ["east"]
    assert np.isfinite(made.clients["test_loss_personal"]).all()


def test_a_local_federation_of_a_table_is_the_simulation_of_it(tmp_path: Path) -> None:
    """Its nodes have rows, in the parts of the simulation, and agree by messages."""
    sites = [frame.assign(site=name, part=k) for k, (name, frame) in enumerate(SITES.items())]
    pd.concat(sites).sample(frac=1, random_state=0).to_csv(tmp_path / "all.csv", index=False)
    keys = {**KEYS, "data": str(tmp_path / "all.csv"), "split": "column:site", "test": 0.25}
    made, settings = write_nodes(build(DeployConfig, keys), 3, tmp_path / "nodes")
    grid = InProcessGrid(client_app(), dict(enumerate(settings, 10)), {"settings": text_of(made)})
    run(grid, made, tmp_path / "out", nodes=3, poll=0.001)
    together = sx.Record.load(tmp_path / "out" / "record")
    alone = execute(build(RunConfig, keys))
    np.testing.assert_allclose(together.models["global"], alone.models["global"], atol=1e-9)
    frame = SITES["west"].assign(part=0)
    for own in settings:
        home = sx.Record.load(Path(own["folder"]) / own["client"] / "home")
        mine = home.predict_proba(own["client"], frame)
        np.testing.assert_allclose(mine, alone.predict_proba(own["client"], frame), atol=1e-9)
    order = np.argsort(alone.clients["client"])
    tested = alone.clients["test_loss_personal"][order]
    np.testing.assert_allclose(together.clients["test_loss_personal"], tested, atol=1e-9)
    site(1, 30, "uv").assign(part=1).to_csv(tmp_path / "east.csv", index=False)
    joined = adapt(together, tmp_path / "east.csv", test=0.3)
    assert joined.clients["client"].tolist() == ["east"]


def test_a_column_that_is_no_part_is_refused(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    (own, *_) = nodes.values()
    with pytest.raises(sx.ScafflixError, match=r"north.csv: part must be one of train, test"):
        client_of(config(), {**own, "part": "kind"})
    with pytest.raises(sx.ScafflixError, match="there is no column 'fold'; the columns are"):
        client_of(config(), {**own, "part": "fold"})


def test_a_label_that_is_found_by_its_name_is_kept_for_predictions_and_newcomers(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    for name, frame in SITES.items():
        path = tmp_path / "sites" / f"{name}.csv"
        frame.rename(columns={"ill": "target"}).to_csv(path, index=False)
    deployed(nodes, tmp_path / "out", label=None, rounds=2)
    record = sx.Record.load(tmp_path / "out" / "record")
    assert record.preprocessing is not None
    assert record.preprocessing.label == "target"
    made = adapt(record, tmp_path / "sites" / "south.csv")
    assert made.clients["client"].tolist() == ["south"]
    with pytest.raises(sx.ScafflixError, match="has the global model alone; the personal model of"):
        record.predict("north", SITES["north"])
    SITES["west"].rename(columns={"ill": "y"}).to_csv(tmp_path / "sites" / "west.csv", index=False)
    with pytest.raises(sx.ScafflixError, match="The label is column 'target' at client"):
        deployed(nodes, tmp_path / "again", label=None, rounds=2)


def test_no_value_of_a_row_travels_but_quantiles(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    grid = deployed(nodes, tmp_path / "out")
    told = [one for one in map(unpack, grid.records) if isinstance(one, TableSummary)]
    assert {one.client for one in told} == set(SITES)
    for one in told:
        columns = json.loads(one.told)["columns"]["columns"]
        assert {key for column in columns for key in column} == {
            "name", "kind", "present", "total", "squares", "largest", "quantiles", "weights",
            "counts",
        }  # fmt: skip
        assert all(len(column["quantiles"]) in (0, 33) for column in columns)


def test_a_node_that_starts_again_goes_on_as_agreed(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    made = config()
    clients = {str(own["client"]): client_of(made, own) for own in nodes.values()}
    told = {name: client.handle(Hello(False)) for name, client in clients.items()}
    assert all(isinstance(one, TableSummary) for one in told.values())
    agreed = agree_on({name: one.told for name, one in told.items()}, made)  # type: ignore[union-attr]
    (own, *_) = nodes.values()
    before = client_of(made, own).handle(Hello(True, agreed.text()))
    assert isinstance(before, Introduction)
    again = client_of(made, own)
    assert again.agreed is not None  # type: ignore[union-attr]
    after = again.core.handle(Hello(True))  # type: ignore[union-attr]
    assert isinstance(after, Introduction)
    assert (after.layout, after.gamma) == (before.layout, before.gamma)


def test_a_node_that_has_not_agreed_refuses_to_train(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    (own, *_) = nodes.values()
    asked = {name: kind() for name, kind in Train.__annotations__.items() if callable(kind)}
    message = Train(**{name: asked.get(name, "") for name in Train._fields})
    said = client_of(config(), own).handle(message)
    assert isinstance(said, Refusal)
    assert "no agreement about columns" in said.reason


def test_sites_whose_columns_differ_are_named(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    SITES["west"].drop(columns="dose").to_csv(tmp_path / "sites" / "west.csv", index=False)
    with pytest.raises(sx.ScafflixError, match="Client 'west' has no column 'dose'"):
        deployed(nodes, tmp_path / "out")


def test_labels_of_two_kinds_are_refused(nodes: dict[int, dict[str, Any]], tmp_path: Path) -> None:
    SITES["west"].assign(ill=1).to_csv(tmp_path / "sites" / "west.csv", index=False)
    with pytest.raises(sx.ScafflixError, match=r"labels of client .* are text, but those of"):
        deployed(nodes, tmp_path / "out")


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"preprocessing": {}, "classes": 3}', "[" * 2000]
)
def test_an_agreement_that_cannot_be_read_is_one_sentence(text: str) -> None:
    with pytest.raises(sx.ScafflixError, match="cannot be read"):
        agreement_from(text)


def test_a_node_tells_of_training_rows_alone(
    nodes: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    (own, *_) = nodes.values()
    made = config(test=0.25)
    told = json.loads(own_table(Path(own["data"]), made).told(made))
    assert told["columns"]["rows"] == 30
