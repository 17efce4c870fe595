"""A client whose file is a table: it cannot train before all agree on what is done to columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from scafflix.core import durable
from scafflix.core.errors import ScafflixError
from scafflix.core.versions import versions
from scafflix.federate.agreement import Agreement, DividedTable, agreement_from
from scafflix.federate.client import ALONE, ClientCore
from scafflix.federate.configuration import DeployConfig
from scafflix.federate.messages import (
    Evaluation,
    Hello,
    Introduction,
    Reply,
    Request,
    TableSummary,
    checked_name,
    fault_of,
    refusal_of,
)
from scafflix.federate.naming import OfModule
from scafflix.record import Record
from scafflix.simulate.recording import label_kind

MakeCore = Callable[[Any, Agreement], ClientCore]  # from the examples and what is agreed
FILE = f"columns{durable.SUFFIX}"
HOME = "home"


class TableClient:
    """Tells of its columns until all have agreed, and then trains as any client does.

    What is agreed is on disk before the client introduces itself, so that a node that starts again
    goes on. At the end it keeps its models as a record, from which it can predict.
    """

    def __init__(
        self,
        name: str,
        table: DividedTable,
        folder: Path,
        config: DeployConfig,
        make: MakeCore,
        model: str | None = None,
    ) -> None:
        self.name = checked_name(name)
        self.model = model or config.model  # a module is that of the node's own file
        self.table, self.config, self._make = table, config, make
        self.folder = durable.new_folder(folder / self.name)
        self._core: ClientCore | None = None
        kept = durable.read(self.folder / FILE)
        self.agreed = None if kept is None else agreement_from(kept[0]["agreed"])

    def handle(self, message: Request) -> Reply:
        """Reply to any message."""
        try:
            if isinstance(message, Hello):
                wrong = fault_of(message)
                if wrong is not None:
                    return refusal_of(message, self.name, wrong.kind, wrong.reason)
                if not message.agreed:
                    return TableSummary(self.name, self.table.told(self.config))
                self._agree(message.agreed)
            reply = self.core.handle(message)
            if isinstance(reply, Evaluation):
                self._keep_record(reply.run, reply.alpha)
            elif isinstance(reply, Introduction) and self.core.alpha == 0:
                self._keep_record(ALONE, 0.0)
            return reply
        except ScafflixError as error:
            return refusal_of(message, self.name, "error", str(error))

    @property
    def core(self) -> ClientCore:
        """The client on the examples as all agreed to prepare them."""
        if self.agreed is None:
            raise ScafflixError("there is no agreement about columns yet.")
        if self._core is None:
            self._core = self._make(self.table.prepared(self.agreed), self.agreed)
        return self._core

    def _agree(self, text: str) -> None:
        agreed = agreement_from(text)
        if self.agreed is None or agreed.text() != self.agreed.text():
            self.table.prepared(agreed)  # refuses what does not fit before anything is kept
            durable.write(self.folder / FILE, {"agreed": text}, [])
            self.agreed, self._core = agreed, None

    def _keep_record(self, run: str, alpha: float) -> None:
        """What the client takes home, as a record of one client without rounds."""
        agreed, core = self.agreed, self.core
        assert agreed is not None
        models = core.models(run)
        federation = self.table.rows
        summary = {
            "method": self.config.method,
            "n_clients": 1,
            "rounds": 0,
            "run": run,
            "classes": list(map(str, agreed.classes)),
            "label_kind": label_kind(federation),
            "versions": versions(),
        }
        clients = {
            "client": np.array([self.name]),
            "train_examples": np.array([core.examples]),
            "alpha": np.array([alpha]),
        }
        metrics = {name: np.zeros(1, np.int64) for name in ("round", "iterations", "local_steps")}
        if isinstance(core.learner, OfModule):
            summary["module"] = core.learner.about()
        config = {"data": federation.name, "model": self.model}
        made = Record(config, summary, metrics, clients, models, {}, agreed.preprocessing)
        made.save(self.folder / HOME, force=True)
