"""Whether control variates pay: how the clients fare with the model that all share."""

from __future__ import annotations

import numpy as np

from scafflix.report.accuracy import gamma, with_fate
from scafflix.report.rivals import known, with_error, worst_tenth
from scafflix.report.table import Table
from scafflix.runs.reproduction import Line, Panel


def table(panel: Panel) -> Table:
    """The global model on test data at the end of every line: means over clients, ± the standard
    error over seeds where there are several."""
    header = ("", "gamma", "loss", "accuracy", "p10", "worst tenth", "rounds")
    title = f"{panel.title}: test loss and accuracy in % of the global model over clients"
    return Table(title, header, [_row(line) for line in panel.lines])


def _row(line: Line) -> tuple[str, ...]:
    records = line.records
    scores = [100 * known(record, "test_global") for record in records]
    losses = np.array([known(record, "test_loss_global").mean() for record in records])
    return (
        with_fate(line),
        gamma(line),
        with_error(losses, 4),
        with_error(np.array([one.mean() for one in scores]), 1),
        with_error(np.array([np.percentile(one, 10) for one in scores]), 1),
        with_error(np.array([worst_tenth(one) for one in scores]), 1),
        f"{np.mean([record.summary['rounds'] for record in records]):g}",
    )
