"""`scafflix demo`, the job of `make demo`, does what the README says of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_the_demonstration_of_the_readme_writes_its_report(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("scafflix")), "demo", "--out", "demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "report: demo/report.html" in done.stdout
    assert (tmp_path / "demo" / "report.html").read_text().startswith("<!doctype html>")
    table = re.findall(r"^ *(\w+) +(auto|[\d.]+) +(not reached|\d+) ", done.stdout, re.M)
    rounds = {(method, alpha): words for method, alpha, words in table}
    # Scafflix reaches the target where FedAvg does not, and the sooner the smaller alpha
    assert rounds["fedavg", "auto"] == "not reached"
    assert int(rounds["scafflix", "0.1"]) < int(rounds["scafflix", "auto"])
    assert int(rounds["scafflix", "auto"]) < int(rounds["nesterov", "auto"])
