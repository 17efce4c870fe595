"""Every loader, the configuration and the messages against damaged inputs and bombs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bombs import BOMBS
from formats import FORMATS

from scafflix.data import load

SUBJECTS = (*FORMATS, "toml", "assignments", "synthetic", "messages")
SHARE, ALL = 150, 6_000  # inputs of each subject: 17 x 6,000 = 102,000

Outcomes = dict[str, dict[str, Any]]


def outcomes(*words: str) -> Outcomes:
    """What the fuzzer says, in a process whose memory is limited."""
    fuzzer = Path(__file__).with_name("fuzzer.py")
    done = subprocess.run(
        [sys.executable, str(fuzzer), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"after {done.stderr[-2000:]}"
    found: Outcomes = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def fuzzed(torture: bool) -> Outcomes:
    return outcomes("0", str(ALL if torture else SHARE))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_damaged_input_is_read_or_refused_in_one_sentence(fuzzed: Outcomes, subject: str) -> None:
    found = fuzzed[subject]
    assert found["failures"] == {}
    # the damage is neither always fatal nor never
    assert found["read"] > 0
    assert found["refused"] > 0


@pytest.fixture(scope="module")
def exploded() -> Outcomes:
    return outcomes("0", "1", *BOMBS)


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_file_that_claims_to_be_huge_is_refused_before_it_takes_memory(
    exploded: Outcomes, bomb: str
) -> None:
    assert exploded[bomb] == {"refused": 1, "failures": {}}


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_damaged_was_valid_before(tmp_path: Path, name: str) -> None:
    form = FORMATS[name]
    path = tmp_path / form.file
    path.write_bytes(form.valid())
    assert len(load(path, **form.options[0]).clients) >= 1
