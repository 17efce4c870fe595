"""`deploy server` and `deploy node` on CSV files, as real processes: the models of the joined
table."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from scafflix.federate.processes import Processes, environment, free_port
from scafflix.record import Record
from scafflix.runs.config import RunConfig, build
from scafflix.runs.runner import execute

RANDOM = np.random.default_rng(8)
KEYS = {"label": "ill", "alpha": "auto", "rounds": 6}


def site(rows: int, kinds: str) -> pd.DataFrame:
    frame = pd.DataFrame(
        {"age": RANDOM.normal(50, 9, rows).round(), "kind": RANDOM.choice(list(kinds), rows)}
    )
    frame["ill"] = np.where(frame.age + RANDOM.normal(0, 9, rows) > 50, "yes", "no")
    frame.loc[RANDOM.random(rows) < 0.1, "age"] = np.nan
    return frame


def test_commands_on_csv_files_make_the_models_of_the_joined_table(tmp_path: Path) -> None:
    """At first a site's columns do not fit; it is told which, and mends its file."""
    sites = {"north": site(40, "uv"), "south": site(30, "uw")}  # unlike categories
    (tmp_path / "sites").mkdir()
    for name, frame in sites.items():
        frame.to_csv(tmp_path / "sites" / f"{name}.csv", index=False)
    config, port = tmp_path / "run.toml", free_port()
    lines = [f"{name} = {value!r}" for name, value in {"data": "sites", **KEYS}.items()]
    config.write_text("\n".join(lines))
    processes = Processes(tmp_path, environment(tmp_path, tmp_path))

    def scafflix(name: str, *words: object) -> subprocess.Popen[str]:
        return processes.start(name, "scafflix", "deploy", *map(str, words))

    def serve(name: str) -> subprocess.Popen[str]:
        words = ["--config", config, "--nodes", 2, "--port", port, "--out", tmp_path / "out"]
        serving = scafflix(name, "server", *words, "--insecure")
        while "waiting for 2 nodes" not in (tmp_path / f"{name}.log").read_text():
            assert serving.poll() is None, processes.last_words(name)
            time.sleep(0.2)
        return serving

    def node(name: str, file: Path) -> None:
        words = ["node", "--superlink", f"127.0.0.1:{port}", "--client", name, "--data", file]
        scafflix(f"node-{name}", *words, "--folder", tmp_path / name, "--insecure")

    with processes:
        misfit = tmp_path / "misfit.csv"
        sites["south"].rename(columns={"age": "years"}).to_csv(misfit, index=False)
        serving = serve("refusing")
        node("north", tmp_path / "sites" / "north.csv")
        node("south", misfit)
        assert serving.wait(600) == 2
        said = " ".join((tmp_path / "refusing.log").read_text().split())
        assert "Client 'south' has no column 'age'" in said
        assert "Traceback" not in said
        processes.kill("node-south")
        serving = serve("server")
        node("south", tmp_path / "sites" / "south.csv")
        assert serving.wait(600) == 0, processes.last_words("server")
    alone = execute(build(RunConfig, {**KEYS, "data": str(tmp_path / "sites")}))
    together = Record.load(tmp_path / "out" / "server" / "record")
    np.testing.assert_allclose(together.models["global"], alone.models["global"], atol=1e-6)
    for name, frame in sites.items():
        home = Record.load(tmp_path / name / name / "home")
        mine, theirs = home.predict_proba(name, frame), alone.predict_proba(name, frame)
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
