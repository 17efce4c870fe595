"""The clients of a simulation as nodes, each with its own file."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from scafflix.core import durable
from scafflix.core.digest import digest_of
from scafflix.core.errors import ScafflixError
from scafflix.data.federation import Federation
from scafflix.data.origin import resolve
from scafflix.data.table import write_table
from scafflix.federate.agreement import DividedTable, agree_on, joined_table
from scafflix.federate.configuration import DeployConfig, check_sizes
from scafflix.federate.examples import save_examples
from scafflix.federate.terms import agree
from scafflix.models import is_network, is_own
from scafflix.personalization.alphas import read_alpha, rule_in
from scafflix.runs import refusals
from scafflix.runs.assembly import load_federation, network_defaults

Node = dict[str, Any]  # a node's own settings


def write_nodes(
    config: DeployConfig, asked_for: int | None, folder: Path, learner: str | None = None
) -> tuple[DeployConfig, list[Node]]:
    """Split the data as a simulation does; return the nodes' configuration and settings.

    Every node has the training and test examples of the client in a simulation; with a user's own
    learner, those of a network's client. Of a table it has its own rows, as they are: what is done
    to columns the nodes agree on by messages. Files made for another run are not replaced.
    """
    network = learner is not None or is_network(config.model)
    asked = network_defaults(config) if network else config
    origin = resolve(config.data)
    # a learner of the user's own gets features
    path = origin.path if origin.kind == "table" and learner is None else None
    table = None if path is None else joined_table(path, asked)
    federation = load_federation(asked, network) if table is None else _prepared(table, asked)
    if asked_for is not None and asked_for != len(federation.clients):
        raise ScafflixError(
            f"There are {len(federation.clients)} clients in the data, but {asked_for} nodes; use "
            f"--nodes {len(federation.clients)}, or set clients = {asked_for}."
        )
    alpha = read_alpha(config.alpha, len(federation.clients))
    check_sizes(config, int((alpha > 0).sum()))
    if learner is None:
        refusals.check_data(config, federation)
    rule = rule_in(config.alpha)
    if rule == "validation" or (network and rule is not None):
        _check_validation(rule, federation)
    names = [_file_name(name) for name in federation.clients]
    if len(set(names)) < len(names):
        names = [f"{name}-{number}" for number, name in enumerate(names)]
    agree(folder, config, learner=learner, digest_of_data=_digest(federation))
    nodes = []
    for number, name in enumerate(names):
        path = durable.new_folder(folder / f"{number:03d}")
        if table is None:
            save_examples(path / "data.npz", federation.take([number]).parts)
            file = {"data": str(path / "data.npz")}
        else:
            file = _save_rows(path / "data.parquet", table, number)
        own: Node = {"client": name, **file, "folder": str(path)}
        own |= {} if learner is None else {"learner": learner}
        own |= {"model": config.model} if learner is None and is_own(config.model) else {}
        own |= {"method": config.method} if ".py:" in config.method else {}
        # all data belong to one user, so there is nothing to hide from the server
        own |= {} if rule is not None else {"alpha": float(alpha[number])}
        nodes.append({**own, "min-examples": 1})
    made = replace(config, clients=None, split=None, features=None)
    if table is None:
        made = replace(made, label=None, scale="none", intercept=False)
        made = replace(made, classes=_classes(config, federation))
    return made, nodes


def _prepared(table: DividedTable, config: DeployConfig) -> Federation:
    """The examples as the nodes will prepare them, to be checked before a process starts."""
    return table.prepared(agree_on({"": table.told(config)}, config))


def _save_rows(path: Path, table: DividedTable, number: int) -> dict[str, str]:
    """Write the rows of one client, with the part that each belongs to; the node's settings."""
    parts = table.rows.take([number]).parts
    rows = np.concatenate([part.features[:, 0] for part in parts.values()]).astype(np.int64)
    arrow = table.columns.table.arrow
    names = [name for name in arrow.column_names if name != table.columns.client]
    column = next(name for k in count() if (name := f"part{k or ''}") not in names)
    which = np.repeat(list(parts), [len(part.labels) for part in parts.values()])
    mine = arrow.select(names).take(rows).append_column(column, [which])
    with durable.replacing(path) as file:
        write_table(mine, file, "parquet")
    return {"data": str(path), "part": column}


def _check_validation(rule: str, federation: Federation) -> None:
    """A node that goes by validation examples refuses to go without; say so before it starts."""
    part = federation.validation
    counts = np.zeros(len(federation.clients)) if part is None else part.counts
    if (counts == 0).any():
        raise ScafflixError(
            f"alpha is {rule!r}, which goes by validation examples here, and client "
            f"{federation.clients[int(np.argmin(counts))]} has none; give a larger validation, or "
            "fewer clients."
        )


def _digest(federation: Federation) -> str:
    things: list[Any] = [list(federation.clients)]
    for name, part in federation.parts.items():
        rows = part.features
        things += [name, part.labels, part.offsets]
        things += [rows] if isinstance(rows, np.ndarray) else [rows.data, rows.indices, rows.indptr]
    return digest_of(*things)


def _classes(config: DeployConfig, federation: Federation) -> tuple[Any, ...]:
    labels = federation.train.labels
    measured = labels.dtype.kind == "f" and (labels != np.rint(labels)).any()
    if config.model == "linear" or labels.ndim > 1 or measured:
        return ()
    found = np.unique(np.concatenate([part.labels for part in federation.parts.values()]))
    return tuple(found.tolist())


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:100] or "client"
