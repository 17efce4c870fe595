"""The wheel, in an environment that has nothing else: what `pip install` gives a newcomer."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "constraints.txt", "src")
CONTAINERS = sorted((ROOT / "examples" / "deploy").glob("*.Containerfile"))
LEFT_OUT = ("torch", "flwr", "mlflow", "wandb", "tensorboard", "pandas", "mkdocs", "pytest")


def run(*words: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    # neither this clone nor the environment of the tests
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SCAFFLIX_DATA", "SCAFFLIX_CACHE")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env={**kept, "SCAFFLIX_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=900,
    )


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder elsewhere, and the commands of an environment with only the wheel in it."""
    folder = tmp_path_factory.mktemp("elsewhere")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    reached = run(*pip, "download", "--no-deps", "--dest", folder, "tomli-w", folder=folder)
    if reached.returncode:
        pytest.skip("no package index is reachable")
    clone = folder / "clone"
    clone.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, clone / name)
    # as the container files say: our wheel, with all that it needs
    (words,) = {line for path in CONTAINERS for line in read(path, r"#   (pip wheel .*)")}
    built = run(*pip, *shlex.split(words)[1:], folder=clone)
    assert built.returncode == 0, built.stderr
    shutil.move(clone / "wheels", folder)
    shutil.rmtree(clone)
    made = run(sys.executable, "-m", "venv", "--without-pip", folder / "env", folder=folder)
    assert made.returncode == 0, made.stderr
    commands = folder / "env" / "bin"
    installed = install(commands, *installing(CONTAINERS[0])[:-1], "--no-compile", "scafflix")
    assert installed.returncode == 0, installed.stderr
    return folder, commands


def read(path: Path, pattern: str) -> list[str]:
    """What a file says in lines of this form."""
    return re.findall(pattern, path.read_text())


def installing(container: Path) -> list[str]:
    """What a container asks of pip, with the wheels that are here in place of its own copy."""
    (words,) = read(container, r"RUN pip (install [^&]*)")
    (place,) = read(container, r"COPY wheels/ (\S+)/\n")
    return ["wheels" if word == place else word for word in shlex.split(words)]


def install(commands: Path, *words: str) -> subprocess.CompletedProcess[str]:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    return run(*pip, "--python", commands / "python", *words, folder=commands.parents[1])


def test_a_container_installs_from_these_wheels_without_a_network(
    empty: tuple[Path, Path],
) -> None:
    _, commands = empty
    for path in CONTAINERS:
        asked = installing(path)
        assert asked[:2] == ["install", "--no-index"]
        assert asked.count("wheels") == 1
        done = install(commands, *asked, "--dry-run")
        assert done.returncode == 0, done.stderr
        assert re.search("Would install .*flwr", done.stdout)


def test_the_wheel_alone_runs_compares_and_reports(empty: tuple[Path, Path]) -> None:
    folder, commands = empty
    iris = ("--data", "iris", "--model", "softmax", "--clients", "3", "--split", "shuffled")
    for words in (
        ("demo", "--quiet"),
        ("run", *iris, "--rounds", "5", "--out", "one"),
        ("run", "--data", "digits", "--model", "dense", "--clients", "5", "--optima", "none",
         "--alpha", "1", "--rounds", "2", "--out", "network"),
        ("compare", *iris, "--method", "gd,scafflix", "--rounds", "5", "--out", "several"),
        ("report", "one", "several", "demo"),
    ):  # fmt: skip
        done = run(commands / "scafflix", *words, folder=folder)
        assert done.returncode == 0, done.stderr
    for made in ("demo/report.html", "demo/figure.png", "several/figure.png", "report.html"):
        assert (folder / made).stat().st_size > 1000


def test_a_csv_file_is_read_out_of_the_box(empty: tuple[Path, Path]) -> None:
    folder, commands = empty
    rows = [f"{i % 3},{i % 5},{i % 2},{'ab'[i % 2]}" for i in range(40)]
    (folder / "table.csv").write_text("\n".join(["x,y,label,who", *rows]))
    words = ("data", "describe", "--data", "table.csv", "--label", "label", "--split", "column:who")
    done = run(commands / "scafflix", *words, folder=folder)
    assert done.returncode == 0, done.stderr


def test_nothing_comes_along_that_the_simulator_does_not_need(empty: tuple[Path, Path]) -> None:
    folder, commands = empty
    script = "import sys\nfrom importlib.util import find_spec\n" + (
        f"print([name for name in {LEFT_OUT} if find_spec(name)])"
    )
    assert run(commands / "python", "-c", script, folder=folder).stdout == "[]\n"
    wanted = run(commands / "scafflix", "deploy", "keys", "--out", "keys", folder=folder)
    assert wanted.returncode == 2
    assert "pip install 'scafflix[flower]'" in wanted.stderr
