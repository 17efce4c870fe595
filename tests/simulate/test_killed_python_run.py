"""A run of a PyTorch module, started from Python and killed with signal 9."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "torch",
    reason="PyTorch (large) is not installed; pip install 'scafflix[torch]'",
)

import scafflix as sx

SCRIPT = """
import os, signal, sys

import numpy as np
import torch

import scafflix as sx

torch.set_num_threads(1)


def net():
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 2))


def kill(moment):
    print("round", moment.round, flush=True)
    if moment.round == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)


random = np.random.default_rng(0)
fed = sx.data.from_arrays(random.normal(size=(48, 3)), np.arange(48) % 2, 4, test=0.25)
problem = sx.Problem(fed, sx.models.from_torch(net))
person = sx.personalize(problem, 1.0, optima=False)
gradient = sx.gradients.gradient(3)
method = sx.scafflix(sx.plan(problem, person, gradient=gradient, stepsize=0.1), p=0.5)
folder = sys.argv[1] + "/checkpoints" if len(sys.argv) > 3 else None
kept = sx.Checkpoints(folder, sx.Often(rounds=2))
asked = dict(rounds=8, cohort=2, every=8, checkpoints=kept, on_round=kill)
record = sx.run(problem, person, method, **asked)
np.savez(sys.argv[1] + "/model.npz", **record.model(None, "global"))
"""


def started(folder: Path, dies: int, *more: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    words = [sys.executable, "-c", SCRIPT, str(folder), str(dies), *more]
    return subprocess.run(words, capture_output=True, text=True, timeout=600)


def test_a_killed_python_run_of_a_module_goes_on_to_the_bit(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert started(whole, 0).returncode == 0
    assert started(cut, 5, "keeps").returncode == -signal.SIGKILL
    again = started(cut, 0, "keeps")
    assert again.returncode == 0, again.stderr
    assert again.stdout.split("\n")[0] == "round 5"  # after the checkpoint of the fourth
    with np.load(whole / "model.npz") as one, np.load(cut / "model.npz") as other:
        assert one.files == other.files
        for name in one.files:
            np.testing.assert_array_equal(one[name], other[name])


def test_a_schedule_of_checkpoints_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(sx.ScafflixError, match="checkpoint-rounds is 0"):
        sx.Checkpoints("somewhere", sx.Often(rounds=0))  # type: ignore[arg-type]
