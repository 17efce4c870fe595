"""What nodes with tables agree on before round 1: what is done to columns, and the classes.

Every node tells of its training rows what `scafflix.data.summaries` lists, and which labels occur.
The server puts it together, decides as a simulation on the joined table does, and tells all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scafflix.core import durable
from scafflix.core.errors import ScafflixError
from scafflix.data.arrays import Preparation, set_aside
from scafflix.data.federation import Federation
from scafflix.data.loading import check_options, naming, read_table, share_out
from scafflix.data.origin import resolve
from scafflix.data.preprocessing import Preprocessing, from_dict
from scafflix.data.recognition import stem
from scafflix.data.scaling import Scale, check_scale
from scafflix.data.summaries import decide, merge, summary_from
from scafflix.data.table import open_table, whole_column
from scafflix.data.tabular import (
    Columns,
    TableOptions,
    columns_for,
    prepared,
    read_columns,
    table_options,
)
from scafflix.federate.configuration import DeployConfig
from scafflix.federate.examples import by_parts
from scafflix.models import is_network
from scafflix.record import Record
from scafflix.runs.assembly import OF_TABLES, SHARE

CLASS_LIMIT = 1000  # labels that a node may tell
Label = str | float | bool


class Agreement(NamedTuple):
    """What all do alike."""

    preprocessing: Preprocessing
    classes: tuple[Label, ...]  # none for numbers to predict

    def text(self) -> str:
        """As it travels and is kept."""
        words = {"preprocessing": self.preprocessing.as_dict(), "classes": self.classes}
        return json.dumps(words, allow_nan=False)


def agreement_from(text: str) -> Agreement:
    """What `text` wrote; anything else is refused in one sentence."""
    try:
        words = json.loads(text)
        return Agreement(from_dict(words["preprocessing"]), _labels(words["classes"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ScafflixError(f"What was agreed on about columns cannot be read: {error}.") from None


@dataclass(frozen=True, eq=False)
class DividedTable:
    """A table, its rows set aside for training and testing."""

    columns: Columns
    rows: Federation  # with the numbers of rows instead of features

    def told(self, config: DeployConfig) -> str:
        """What a node tells of it, as JSON."""
        told = self.columns.summary(self.rows, _scale(config))
        labels = np.concatenate([part.labels for part in self.rows.parts.values()])
        classes = [] if config.model == "linear" else np.unique(labels).tolist()
        if len(classes) > CLASS_LIMIT:
            raise ScafflixError(
                f"{self.columns.table.name}: column {self.columns.label!r} has {len(classes)} "
                f"different labels, more than {CLASS_LIMIT}; use the model linear for numbers."
            )
        words = {"columns": told.as_dict(), "label": self.columns.label, "classes": classes}
        return json.dumps(words, allow_nan=False)

    def prepared(self, agreed: Agreement) -> Federation:
        """The examples, as all agreed."""
        made = agreed.preprocessing
        return prepared(self.rows, columns_for(made, self.columns.table), made)


def own_table(path: Path, config: DeployConfig, part: str | None = None) -> DividedTable:
    """The table in a node's file; without a column that names the part of each row, shares of them
    are held out."""
    if part is None:
        return joined_table(path, replace(config, clients=1, split=None, min_examples=None))
    options = _options(config)
    table = open_table(path, {part: "text"}, options.missing_as)
    table.check_column(part)
    columns, rows = read_columns(table, replace(options, drop=(*options.drop, part)))
    divided = by_parts(rows.features, rows.labels, whole_column(table, part), str(path))
    return DividedTable(columns, Federation(path.name, (stem(path),), *divided))


def joined_table(path: Path, config: DeployConfig) -> DividedTable:
    """The table of several clients, divided as a simulation does."""
    origin, options = resolve(path), _options(config)
    check_options(origin, options, config.features)
    test = config.test if config.test is not None else SHARE if is_network(config.model) else 0.0
    wanted = Preparation(test, config.validation or 0.0, config.min_examples, config.data_seed)
    with naming(origin):
        columns, rows = read_table(origin, config.split, options)
        whole = share_out(rows, origin, config.clients, config.split, config.data_seed)
        return DividedTable(columns, set_aside(whole, wanted))


def agree_on(told: Mapping[str, str], config: DeployConfig) -> Agreement:
    """What is done to columns, from what every client told; the one that does not fit is named."""
    found, labels, named = {}, {}, {}
    for client, text in told.items():
        try:
            words = json.loads(text)
            found[client] = summary_from(words["columns"])
            labels[client] = _labels(words["classes"])
            named[client] = str(words["label"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ScafflixError(
                f"Client {client} told something unreadable of its columns: {error}."
            ) from None
    options, network = _options(config), is_network(config.model)
    made = decide(
        merge(found),
        scale=_scale(config),
        intercept=not network if config.intercept is None else config.intercept,
        label=_one_label(named),
        missing=options.missing,
        missing_as=options.missing_as,
        unknown=options.unknown,
    )
    return Agreement(made, config.classes or _all_labels(labels))


def _one_label(named: Mapping[str, str]) -> str:
    """The column that is the label everywhere."""
    (first, label), *_ = named.items()
    for client, other in named.items():
        if other != label:
            raise ScafflixError(
                f"The label is column {label!r} at client {first!r} and {other!r} at {client!r}; "
                "name it in the server's file with label."
            )
    return label


class Kept:
    """What a server keeps of the agreement in its folder, to start again with."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"columns{durable.SUFFIX}"
        found = durable.read(self._path)
        self.text: str = "" if found is None else found[0]["agreed"]

    def agree(self, told: Mapping[str, str], config: DeployConfig) -> str:
        """Decide, and keep it before anybody is told."""
        self.text = agree_on(told, config).text()
        durable.write(self._path, {"agreed": self.text}, [])
        return self.text

    def told_in(self, made: Record) -> Record:
        """The record with what is done to columns, so that its global model can answer."""
        if not self.text:
            return made
        agreed = agreement_from(self.text)
        kinds = {str: "text", bool: "boolean", int: "integer", float: "real"}
        kind = kinds[type(agreed.classes[0])] if agreed.classes else "real"
        summary = {**made.summary, "classes": list(map(str, agreed.classes)), "label_kind": kind}
        return replace(made, summary=summary, preprocessing=agreed.preprocessing)


def _all_labels(labels: Mapping[str, tuple[Label, ...]]) -> tuple[Label, ...]:
    """Every label that occurs anywhere, in order."""
    kinds = {isinstance(one, str): client for client, ones in labels.items() for one in ones}
    if len(kinds) > 1:
        raise ScafflixError(
            f"The labels of client {kinds[True]!r} are text, but those of {kinds[False]!r} are "
            "numbers; make them alike."
        )
    return tuple(sorted({one for ones in labels.values() for one in ones}))


def _labels(words: Any) -> tuple[Label, ...]:
    if not isinstance(words, list) or not all(isinstance(w, str | int | float) for w in words):
        raise ValueError("the labels are not a list")
    return tuple(words)


def _scale(config: DeployConfig) -> Scale:
    return "standard" if config.scale == "auto" else check_scale(config.scale)


def _options(config: DeployConfig) -> TableOptions:
    return table_options(**{name: getattr(config, name) for name in OF_TABLES})
