"""A folder holds one run: what determines it may not change, and who replied is said."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from hospitals import ALPHA, Quadratic, flix_optimum, quick_folder
from in_process_grid import InProcessGrid
from typer.testing import CliRunner

import scafflix as sx
from scafflix.cli.deploy import app
from scafflix.federate import flower_server
from scafflix.federate.client import ClientCore
from scafflix.federate.configuration import DeployConfig, text_of
from scafflix.federate.flower_client import client_app
from scafflix.federate.partition import write_nodes
from scafflix.federate.settings import Restart
from scafflix.federate.terms import FREE, agree, check_terms
from scafflix.record import Record


def settings(**keys: Any) -> DeployConfig:
    return DeployConfig(**{"data": "nodes", "rounds": 3, "l2": 0.01, "patience": 5.0, **keys})


def clinics(config: DeployConfig, folder: Path) -> InProcessGrid:
    """The quadratics behind Flower's messages."""
    cores = {
        k: ClientCore(f"clinic-{k}", ALPHA[k], Quadratic(k), folder / "nodes")
        for k in range(len(ALPHA))
    }
    nodes: dict[int, dict[str, Any]] = {k: {} for k in cores}
    app = client_app(lambda context: cores[context.node_id])
    return InProcessGrid(app, nodes, {"settings": text_of(config)})


def deploy(grid: InProcessGrid, config: DeployConfig, folder: Path, **options: Any) -> Record:
    return flower_server.run(grid, config, folder / "server", nodes=5, poll=0.0, **options)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"l2": 5.0}, "whose l2 is 0.01, not 5.0"),
        ({"smoothness": "bound"}, "whose smoothness is tight, not bound"),
        ({"data_seed": 1}, "whose data_seed is 0, not 1"),
        ({"cohort": 3}, "whose cohort is not set, not 3"),
        ({"classes": (0, 1)}, "whose classes is"),
    ],
)
def test_a_finished_run_is_not_given_another_label(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    agree(tmp_path, settings())
    with pytest.raises(sx.ScafflixError, match=said):
        check_terms(tmp_path, settings(**change))


def test_every_key_is_fixed_but_those_that_are_listed(tmp_path: Path) -> None:
    agree(tmp_path, settings())
    for name in DeployConfig.__dataclass_fields__:
        now = getattr(settings(), name)
        other = now + 1 if isinstance(now, int | float) else "another"
        changed = settings(**{name: other})
        if name in FREE:
            check_terms(tmp_path, changed)
        else:
            with pytest.raises(sx.ScafflixError, match=f"whose {name} is"):
                check_terms(tmp_path, changed)


def test_a_run_that_began_before_a_key_was_known_goes_on_with_its_default(tmp_path: Path) -> None:
    agree(tmp_path, settings())
    path = tmp_path / "terms.json"
    known = json.loads(path.read_text())
    assert known.pop("noise_at") == "client"
    path.write_text(json.dumps(known))
    check_terms(tmp_path, settings())
    with pytest.raises(sx.ScafflixError, match="whose noise_at is client, not server"):
        check_terms(tmp_path, settings(noise_at="server"))


def test_a_server_goes_on_only_with_the_run_of_its_folder(tmp_path: Path) -> None:
    grid = clinics(settings(), tmp_path)
    deploy(grid, settings(), tmp_path)
    with pytest.raises(sx.ScafflixError, match=r"l2 is 0.01, not 5.0; choose another --out"):
        deploy(grid, settings(l2=5.0), tmp_path)
    with pytest.raises(sx.ScafflixError, match="rounds is 2, but 3 rounds are closed"):
        deploy(grid, settings(rounds=2), tmp_path)
    with pytest.raises(sx.ScafflixError, match="clients of this run are clinic-0"):
        deploy(grid, settings(), tmp_path, order=["clinic-4", "clinic-3"])
    kept = Record.load(tmp_path / "server" / "record")
    assert (kept.config["l2"], kept.summary["rounds"]) == (0.01, 3)
    made = deploy(grid, settings(rounds=5, patience=4.0, minimum=1), tmp_path)
    assert made.summary["rounds"] == 5
    back = deploy(grid, settings(rounds=3), tmp_path, restart=Restart(back_to=3))
    assert (back.summary["rounds"], back.summary["epoch"]) == (3, 1)
    for name, array in kept.models.items():
        np.testing.assert_array_equal(back.models[name], array)


def test_a_client_that_is_taken_out_is_a_stranger_from_then_on() -> None:
    config, longer = settings(rounds=10), settings(rounds=160)
    with quick_folder() as folder:
        grid = clinics(config, folder)
        deploy(grid, config, folder)
        made = deploy(grid, longer, folder, restart=Restart(without=("clinic-1",)))
    found = np.concatenate([made.models[name].ravel() for name in sorted(made.models)])
    assert np.linalg.norm(found - flix_optimum(1)[0]) < 1e-8
    assert made.summary["troubles"]["unknown_client"] >= 1
    assert "clinic-1" not in made.clients["client"]


def test_who_did_not_reply_is_named_and_the_objective_is_of_those_who_did(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(rounds=4, minimum=1, patience=0.2)
    grid = clinics(config, tmp_path)
    lines: list[str] = []

    def watch(done: int, total: int, state: str) -> None:
        lines.append(state)
        if done == 2:
            grid.dead.add(3)

    with caplog.at_level(logging.WARNING):
        made = deploy(grid, config, tmp_path, progress=watch)
    assert lines == ["5 clients"] * 2 + ["4 of 5 clients, without clinic-3"] * 2
    assert "round 3: closed without clinic-3" in caplog.text
    told = made.clients["loss_personal"]
    assert np.isnan(told).tolist() == [False, False, False, True, False]
    assert made.summary["final_objective"] == pytest.approx(np.nanmean(told))
    assert made.summary["final_objective_clients"] == 4
    assert made.metrics["replies"].tolist() == [0, 5, 5, 4, 4]


def test_nodes_files_of_another_run_are_not_replaced(tmp_path: Path) -> None:
    table = tmp_path / "sites.csv"
    rows = [f"{site},{x},{x % 2}" for site in "ab" for x in range(6)]
    table.write_text("\n".join(["site,x,label", *rows]) + "\n")
    config = DeployConfig(data=str(table), split="column:site", label="label")
    write_nodes(config, None, tmp_path / "nodes")
    before = (tmp_path / "nodes" / "000" / "data.parquet").read_bytes()
    write_nodes(config, None, tmp_path / "nodes")
    with pytest.raises(sx.ScafflixError, match="whose scale is auto, not maxabs"):
        write_nodes(DeployConfig(**{**vars(config), "scale": "maxabs"}), None, tmp_path / "nodes")
    table.write_text(table.read_text().replace("a,5,1", "a,5,0"))
    with pytest.raises(sx.ScafflixError, match="whose digest_of_data is"):
        write_nodes(config, None, tmp_path / "nodes")
    assert (tmp_path / "nodes" / "000" / "data.parquet").read_bytes() == before


def test_the_command_refuses_another_run_before_it_starts_anything(tmp_path: Path) -> None:
    agree(tmp_path / "out" / "server", settings())
    file = tmp_path / "run.toml"
    file.write_text("data = 'nodes'\nl2 = 5.0\n")
    words = ["server", "--config", str(file), "--nodes", "2", "--insecure"]
    found = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "out")])
    assert isinstance(found.exception, sx.ScafflixError)
    assert "whose l2 is 0.01, not 5.0" in str(found.exception)
    assert not (tmp_path / "out" / "logs").exists()
