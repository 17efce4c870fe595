"""Kill the command with signal 9 at random moments, go on each time, and compare the bytes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crashes import TIMES

KILLED = -9
COMMANDS = {
    "convex": "run --data synthetic:rows=40,features=10 --clients 10 --alpha 0.5 --batch 8"
    " --rounds 3000 --checkpoint-rounds 100",
    "network": "run --data digits --clients 10 --scale maxabs --model dense --alpha 0.5 --cohort 5"
    " --store disk --optima-stepsize 0.1 --optima-steps 20 --rounds 200 --every 50"
    " --checkpoint-rounds 10",
    "tune": "tune --data digits --clients 4 --scale maxabs --model dense --methods scafflix,fedavg"
    " --alpha 1.0 --stepsizes 0.01,0.1 --rounds 20 --every 10 --checkpoint-rounds 5",
    "reproduce": "reproduce fig3c --scale smoke --set model=dense --set batch=5"
    " --set min_examples=5 --set optima_batch=10 --set optima_stepsize=1e-5 --set grid=1e-6,1e-5"
    " --checkpoint-rounds 1",
}
KILLS = {"convex": (5, 50), "network": (5, 50), "tune": (2, 25), "reproduce": (2, 25)}  # or all

Start = Callable[[str], int]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, miniatures: Path) -> Iterator[Start]:
    cache = tmp_path_factory.mktemp("cache")
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("launcher.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path_factory.mktemp("work"),
        env={
            **os.environ,
            "SCAFFLIX_DATA": str(miniatures),
            "JAX_COMPILATION_CACHE_DIR": str(cache / "programs"),  # all of them: quick starts
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        },
    )
    assert process.stdin is not None
    assert process.stdout is not None
    questions, answers = process.stdin, process.stdout

    def go(words: str) -> int:
        print(words, file=questions, flush=True)
        return int(answers.readline())

    yield go
    questions.close()
    answers.close()
    process.wait()


def all_in(folder: Path) -> dict[str, Any]:
    """All files below a folder, without the times in those of JSON."""
    found: dict[str, Any] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            name, made = str(path.relative_to(folder)), path.read_bytes()
            found[name] = timeless(json.loads(made)) if path.suffix == ".json" else made
    return found


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: timeless(one) for name, one in value.items() if name not in TIMES}
    return [timeless(one) for one in value] if isinstance(value, list) else value


@pytest.mark.skipif(sys.platform == "win32", reason="no signal 9")
@pytest.mark.parametrize("kind", COMMANDS)
def test_a_run_killed_at_random_moments_ends_with_the_bytes_of_one_that_was_not(
    kind: str, start: Start, torture: bool, tmp_path: Path
) -> None:
    asked = COMMANDS[kind]

    def cache(out: str) -> Path:
        """Of one command; of `reproduce`, which keeps runs there, each begins anew."""
        return tmp_path / (f"{out}-cache" if kind == "reproduce" else "cache")

    assert start(f"^{cache('whole')} {asked} --out {tmp_path / 'whole'}") == 0
    whole = all_in(tmp_path / "whole")
    began = time.monotonic()  # now that all is compiled
    assert start(f"^{cache('again')} {asked} --out {tmp_path / 'again'}") == 0
    span = time.monotonic() - began  # within which a process is killed, if it has not ended
    wanted, survived, runs = KILLS[kind][torture], 0, 0
    moments = random.Random(int(os.environ.get("SCAFFLIX_KILL_SEED", "0")))
    while survived < wanted:
        out, code = tmp_path / f"out-{runs}", KILLED
        while code == KILLED:
            unfinished = (out / "checkpoint" / "job.safetensors").exists()
            words = f"resume {out}" if unfinished else f"{asked} --out {out} --force"
            die = f"@{moments.uniform(0, span):.3f} " if survived < wanted else ""
            code = start(f"^{cache(out.name)} {die}{words}")
            survived += code == KILLED
        assert code == 0
        assert all_in(out) == whole
        runs += 1
    assert survived >= wanted
