"""Every public function against arguments of wrong types, shapes, sizes and places."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import interface
import pytest

SHARE, ALL = 8, 200  # calls of each subject
PAGES = Path(__file__).parents[2] / "docs" / "api"
# plain containers, checked by what takes them; protocols; exceptions; what takes no argument
ELSEWHERE = {
    *("ScafflixError", "ScafflixWarning", "Tracker", "Method", "Client", "Plan", "Rate"),
    *("Certificate", "Record", "Exact", "known", "logistic", "softmax", "linear"),
    *("Compressor", "Turn", "Round", "use_all_cores"),
    *("from_table", "sklearn_pipeline", "to_latex"),  # in tests/data, tests/export, tests/report
    "from_huggingface",  # in tests/data
    *("Moment", "Stop", "CallbackError"),  # in tests/simulate/test_watching.py
}

Outcomes = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def fuzzed(torture: bool) -> Outcomes:
    command = [sys.executable, interface.__file__, "0", str(ALL if torture else SHARE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"after {done.stderr[-2000:]}"
    found: Outcomes = json.loads(done.stdout)
    return found


def test_a_wrong_argument_is_refused_in_one_sentence_or_means_what_it_says(
    fuzzed: Outcomes,
) -> None:
    assert {name: found["failures"] for name, found in fuzzed.items() if found["failures"]} == {}
    # the arguments are neither always refused nor never
    assert sum(found.get("done", 0) for found in fuzzed.values()) > len(fuzzed)
    assert sum(found.get("refused", 0) for found in fuzzed.values()) > len(fuzzed)


def test_every_public_function_is_called_with_wrong_arguments(fuzzed: Outcomes) -> None:
    pages = "".join(page.read_text() for page in PAGES.glob("*.md"))
    names = {name.split(".")[-1] for name in re.findall(r"^::: (\S+)", pages, re.MULTILINE)}
    assert names
    assert names - ELSEWHERE <= set(fuzzed)
