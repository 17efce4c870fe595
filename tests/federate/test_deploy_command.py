"""`scafflix deploy`: errors are one sentence, and what it starts is what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from scafflix import ScafflixError
from scafflix.cli.deploy import app
from scafflix.federate import processes
from scafflix.federate.configuration import DeployConfig, config_from, text_of


def fails(*words: str) -> str:
    found = CliRunner().invoke(app, list(words))
    assert isinstance(found.exception, ScafflixError), found.output
    return str(found.exception)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "run.toml"
    path.write_text("data = 'synthetic:rows=9,features=3'\nclients = 3\nminimum = 2\n")
    return str(path)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("h0=warm", "h0 is 'warm'"),
        ("noise=0.1", "noise is for simulations"),
        ("epsilon=0.1", "epsilon needs the optimum"),
        ("minimun=2", "did you mean minimum"),
    ],
)
def test_what_a_federation_cannot_do_is_one_sentence(
    config: str, key: str, words: str, tmp_path: Path
) -> None:
    said = fails("local", "--config", config, "--set", key, "--out", str(tmp_path / "out"))
    assert words in said


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "scafflix"}, "With scafflix clients keep what must fit the mean"),
        ({"noise_at": "cloud"}, "noise_at is 'cloud'"),
        ({"privacy": "example"}, "the noise is in every gradient"),
        ({"privacy": "none"}, "is for privacy client or example"),
        ({"stepsize": "auto"}, "give stepsize and p as numbers"),
        ({"stepsize": "auto", "method": "gd", "p": "auto"}, "give stepsize as a number"),
    ],
)
def test_noise_at_the_server_that_cannot_work_is_one_sentence(
    config: str, changes: dict[str, str], words: str, tmp_path: Path
) -> None:
    keys = {"privacy": "client", "clip": "1", "noise_multiplier": "2", "delta": "1e-3"}
    keys |= {"noise_at": "server", "method": "fedavg", "stepsize": "0.1", "p": "0.5", **changes}
    set_to = [word for pair in keys.items() for word in ("--set", "=".join(pair))]
    said = fails("local", "--config", config, *set_to, "--out", str(tmp_path / "out"))
    assert words in said


def test_more_nodes_than_clients_is_one_sentence(config: str, tmp_path: Path) -> None:
    said = fails("local", "--config", config, "--nodes", "4", "--out", str(tmp_path / "out"))
    assert "3 clients in the data, but 4 nodes" in said


def test_a_server_is_told_to_use_tls_or_not(config: str) -> None:
    assert "--insecure" in fails("server", "--config", config, "--nodes", "2")


def test_a_node_becomes_a_supernode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data.csv"
    data.write_text("a,label\n1,0\n2,1\n")
    started: list[Any] = []
    monkeypatch.setattr(processes, "become", lambda *words: started.append(words))
    words = ["node", "--superlink", "h:1", "--client", "c", "--data", str(data)]
    words += ["--folder", str(tmp_path / "state"), "--insecure", "--alpha", "0.5"]
    words += ["--min-examples", "2"]
    found = CliRunner().invoke(app, words)
    assert found.exception is None, found.output
    (command, variables, *_) = started[0]
    assert command[1:4] == ["-P", "-m", "scafflix_flower.supernode"]
    assert "--root-certificates" not in command
    assert variables["FLWR_TELEMETRY_ENABLED"] == "0"
    settings = (tmp_path / "state" / "node.toml").read_text()
    assert 'client = "c"' in settings
    assert "alpha = 0.5" in settings
    assert "min-examples = 2" in settings
    assert "no such file" in fails(*words[:6], "absent.csv", *words[7:])


def test_keys_are_made(tmp_path: Path) -> None:
    words = ["keys", "--out", str(tmp_path / "k"), "--host", "localhost", "--client", "a"]
    assert CliRunner().invoke(app, words).exception is None
    made = sorted(path.name for path in (tmp_path / "k").iterdir())
    assert made == ["a", "a.crt", "a.pub", "authority.key", "ca.crt", "server.crt", "server.key"]


def test_a_configuration_is_checked_on_every_side() -> None:
    with pytest.raises(ScafflixError, match="not valid TOML"):
        config_from("data = ")
    with pytest.raises(ScafflixError, match="h0"):
        config_from(text_of(DeployConfig(data="x", h0="warm")))
