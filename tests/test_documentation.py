"""What the README and the docs show is run: their Python, and their commands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(kind: str) -> list[str]:
    found = []
    for page in PAGES:
        for body in re.findall(rf"^```{kind}\n(.*?)^```", page.read_text(), re.S | re.M):
            found.append(pytest.param(body, id=f"{page.stem}-{len(found)}"))
    return found


def commands() -> list[str]:
    lines = [line for block in blocks("console") for line in block.values[0].splitlines()]
    return [line for line in lines if line.startswith("scafflix ")]


@pytest.mark.parametrize("body", blocks("python"))
def test_python_in_the_documentation_runs(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(body, "documentation", "exec"), {})


def test_commands_in_the_documentation_run_in_order(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCAFFLIX_DATA", str(shared_data))
    shown = commands()
    assert len(shown) > 8
    for line in shown:
        if "reproduce" in line:  # run by the tests of the command line
            continue
        words = shlex.split(line)
        command = [str(Path(sys.executable).with_name(words[0])), *words[1:]]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_the_two_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command in re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.M):
        assert re.search(rf"^{command}:", makefile, re.M)


def test_the_demonstration_of_the_readme_writes_its_report(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("scafflix")), "demo", "--out", "demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "report: demo/report.html" in done.stdout
    assert (tmp_path / "demo" / "report.html").read_text().startswith("<!doctype html>")
    table = re.findall(r"^ *(\w+) +([\d.]+) +(not reached|\d+) ", done.stdout, re.M)
    rounds = {(method, alpha): words for method, alpha, words in table}
    # Scafflix reaches the target where FedAvg does not, and the sooner the smaller alpha
    assert rounds["fedavg", "1"] == "not reached"
    assert int(rounds["scafflix", "0.1"]) < int(rounds["scafflix", "1"])
    assert int(rounds["scafflix", "1"]) < int(rounds["nesterov", "1"])


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
