"""How a run stands is said by the server alone, and clients' words are only words."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from scafflix.federate.counts import LOG, Tally
from scafflix.federate.messages import Fault
from scafflix.federate.status import Status, read_status

ORDERS = "\x1b]0;mine\x07\x1b[2J\nround 9/9\r\u202eback"


def test_the_status_of_another_job_is_not_believed(tmp_path: Path) -> None:
    Status("old", done=9, total=9, finished=True).write(tmp_path)
    assert read_status(tmp_path, "new") == Status("new")
    Status("new", done=1, total=9, state="3 clients").write(tmp_path)
    assert read_status(tmp_path, "new") == Status("new", 1, 9, "3 clients")


def test_a_status_is_printable_whatever_is_in_it(tmp_path: Path) -> None:
    Status("job", state=ORDERS, error=ORDERS).write(tmp_path)
    found = read_status(tmp_path, "job")
    assert found.state.isprintable()
    assert found.error.isprintable()


@pytest.mark.parametrize("sender", ["clinic", ORDERS])
def test_whatever_is_logged_of_a_client_is_one_printable_line(
    sender: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, LOG.name):
        Tally().refuse(3, sender, Fault("type", ORDERS * 100))
        LOG.warning("%s: %s", sender, ORDERS)
    assert len(caplog.messages) == 2
    assert all(line.isprintable() and len(line) < 8000 for line in caplog.messages)
