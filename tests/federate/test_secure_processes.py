"""Secure aggregation between real processes, with TLS, node keys and certificates."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from typer.testing import CliRunner

import scafflix as sx
from scafflix.cli import app, main
from scafflix.core import durable
from scafflix.federate.configuration import DeployConfig
from scafflix.record import Record
from scafflix.runs.assembly import build_problem

TOML = """
data = "synthetic:rows=20,features=5"
clients = 3
alpha = 0.5
seed = 1
rounds = 3
secure_aggregation = true
threshold = 2
"""


def test_processes_make_the_models_of_the_simulator_and_log_no_secret(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(TOML)
    words = ["deploy", "local", "--nodes", "3", "--secure", "--config", str(tmp_path / "run.toml")]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    found = Record.load(tmp_path / "run" / "server" / "record")
    problem = build_problem(
        DeployConfig(data="synthetic:rows=20,features=5", clients=3, alpha=0.5, seed=1)
    )
    person = sx.personalize(problem, alpha=0.5)
    method = sx.scafflix(sx.plan(problem, person))
    expected = sx.run(problem, person, method, rounds=3, seed=1)
    np.testing.assert_allclose(found.models["global"], expected.models["global"], atol=1e-6)
    assert found.clients["rounds"].tolist() == [3] * 3
    assert found.summary["final_objective_clients"] == 3
    assert np.isfinite(found.summary["final_objective"])
    assert np.isnan(found.clients["loss_personal"]).all()
    name, controls, secrets = found.summary["run"], [], []
    for number in range(3):
        folder = tmp_path / "run" / "nodes" / f"{number:03d}" / f"client-{number}"
        kept = durable.read(folder / f"{name}.safetensors")
        hidden = durable.read(folder / f"{name}-secure.safetensors")
        assert kept is not None
        assert hidden is not None
        controls.append(kept[1][0])
        for attempt in hidden[0]["attempts"].values():
            secrets += [attempt[what] for what in ("key", "seed", "seal")]
        assert (folder / f"{name}-secure.safetensors").stat().st_mode & 0o077 == 0
    assert np.linalg.norm(sum(controls)) < 1e-12
    assert len(secrets) >= 9
    for place in ("logs", "server", "flower"):
        for file in (tmp_path / "run" / place).rglob("*"):
            content = file.read_bytes() if file.is_file() else b""
            assert not [one for one in secrets if one.encode() in content], file


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("threshold=4", "threshold is 4; it must be at least 2"),
        ("threshold=1", "threshold is 1; it must be at least 2"),
        ("mirror=true", "mirror needs single uploads"),
        ("cohort=1", "secure_aggregation needs at least 2 clients"),
        ("secure_aggregation=false", "threshold is for secure_aggregation"),
    ],
)
def test_bad_input_is_a_sentence_before_anything_starts(
    change: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "run.toml").write_text(TOML)
    words = ["deploy", "local", "--nodes", "3", "--config", str(tmp_path / "run.toml")]
    words += ["--out", str(tmp_path / "run"), "--set", change]
    monkeypatch.setattr(sys, "argv", ["scafflix", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert why in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run" / "logs").exists()
