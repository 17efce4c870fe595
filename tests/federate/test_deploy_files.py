"""The container files and systemd units: real commands with real options, and nothing secret."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from scafflix.cli import app
from scafflix.core.errors import EndedError, ScafflixError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "deploy"
CONTAINERS = sorted(FOLDER.glob("*.Containerfile"))
UNITS = sorted(FOLDER.glob("*.service"))
SERVER = {"config", "nodes", "certificates", "key", "out", "page", "host", "port"}
NODE = {"superlink", "client", "data", "folder", "ca", "key"}


def instructions(path: Path) -> list[tuple[str, str]]:
    """Each instruction of a container file and what stands behind it."""
    text = re.sub(r"(?m)^\s*#.*\n", "", path.read_text()).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def words_of(path: Path) -> list[str]:
    """The command line that a file starts, without the program's folder."""
    if path in UNITS:
        return [Path((words := shlex.split(unit(path)["ExecStart"]))[0]).name, *words[1:]]
    found = dict(instructions(path))
    return [*json.loads(found["ENTRYPOINT"]), *json.loads(found["CMD"])]


def unit(path: Path) -> Any:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text().replace("\\\n", " "))
    return parser["Service"]


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """What the command's own parser makes of a command line."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    deploy = group.get_command(context, words[1])
    command = deploy.get_command(context, words[2])
    assert words[:2] == ["scafflix", "deploy"]
    values = command.make_context(words[2], list(words[3:])).params
    return words[2], {name: value for name, value in values.items() if value not in (None, [])}


def test_there_is_a_container_and_a_unit_for_server_and_node() -> None:
    assert [path.name.split(".")[0] for path in CONTAINERS] == ["node", "server"]
    assert [path.stem for path in UNITS] == ["scafflix-node", "scafflix-server"]


@pytest.mark.parametrize("path", [*CONTAINERS, *UNITS], ids=lambda path: path.name)
def test_what_is_started_is_a_command_with_options_that_exist(path: Path) -> None:
    command, given = parsed(words_of(path))
    assert command == ("server" if "server" in path.name else "node")
    assert (SERVER if command == "server" else NODE) <= set(given)
    assert not given.get("insecure")
    if command == "server":
        assert len(given["key"]) == given["nodes"]
        assert given["page"].startswith("127.0.0.1:")


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.name)
def test_a_container_holds_wheels_and_runs_as_nobody_in_particular(path: Path) -> None:
    found = instructions(path)
    copied = [words.split()[0] for name, words in found if name in ("COPY", "ADD")]
    assert copied == ["wheels/"]  # no key, no configuration, no data
    assert not [words for name, words in found if name in ("ENV", "ARG")]
    names = [name for name, _ in found]
    assert ("USER", "scafflix") in found
    assert names.index("USER") > names.index("RUN")
    assert names.index("USER") < names.index("ENTRYPOINT")
    (installing,) = (words for name, words in found if name == "RUN")
    assert "--no-index" in installing
    extras = re.search(r'"scafflix\[(\w+)\]"', installing)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras is not None
    assert extras[1] in project["optional-dependencies"]
    mounted = json.loads(dict(found)["VOLUME"])
    kept = parsed(words_of(path))[1]
    state = str(kept.get("out") or kept.get("folder"))
    assert any(state.startswith(f"{folder}/") for folder in mounted)
    for option in ("config", "certificates", "ca", "data"):
        if option in kept:
            assert any(str(kept[option]).startswith(f"{folder}/") for folder in mounted), option


@pytest.mark.parametrize("path", CONTAINERS, ids=lambda path: path.name)
def test_a_health_check_is_a_program_that_python_takes(path: Path) -> None:
    checked = dict(instructions(path))["HEALTHCHECK"].partition("CMD ")[2]
    program, option, text = json.loads(checked)
    assert (program, option) == ("python", "-c")
    compile(text, str(path), "exec")
    if "server" in path.name:
        assert f"http://{parsed(words_of(path))[1]['page']}/healthz" in text


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_keeps_its_state_in_its_own_folder_and_changes_nothing_else(path: Path) -> None:
    found, kept = unit(path), parsed(words_of(path))[1]
    state = str(kept.get("out") or kept.get("folder"))
    assert state.startswith(f"/var/lib/{found['StateDirectory']}/")
    assert found["StateDirectoryMode"] == "0700"
    assert found["Restart"] == "on-failure"
    assert found["RestartPreventExitStatus"] == str(ScafflixError.exit_code)
    assert EndedError.exit_code != ScafflixError.exit_code
    assert found["ProtectSystem"] == "strict"
    assert found["NoNewPrivileges"] == found["ProtectHome"] == "yes"
    assert found["User"] not in ("root", "")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_takes_a_unit(path: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    here = tmp_path / path.name
    text = path.read_text().replace("/opt/scafflix/bin/scafflix", "/bin/true")
    here.write_text(re.sub("(?m)^User=.*$", "User=root", text))
    found = subprocess.run(
        ["systemd-analyze", "verify", str(here)], capture_output=True, text=True, timeout=60
    )
    assert path.name not in found.stderr, found.stderr
