"""What a run leaves behind: a folder that everything afterwards is made from.

config.toml          what was asked for
metrics.jsonl        a line per communication round
summary.json         the run in numbers
clients.jsonl        a line per client
models.safetensors   global, local, personal
features.safetensors how features were scaled, where they were
curves.safetensors   what each client expected at every alpha, where alpha was chosen
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from scafflix.core import durable, private
from scafflix.core.arguments import choice, flag, instance, path_of, real_number
from scafflix.core.errors import ScafflixError
from scafflix.core.showing import Shown

Columns = Mapping[str, NDArray[Any]]
CURVES, FEATURES = "curves.safetensors", "features.safetensors"
COUNTS = ("round", "iterations", "local_steps")  # 0 at the start


@dataclass(frozen=True, eq=False)
class Record(Shown):
    """One run. The first entry of every metric is the start, round 0."""

    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    metrics: Columns
    clients: Columns
    # global [*shape]; local and personal [clients, *shape]; of a network one for each array
    models: Columns
    # where alpha was chosen: the alphas, and at them each client's own curve and the one it went by
    curves: Columns = field(default_factory=dict)
    # where features were scaled, with what: (feature - shift) / divisor, before the intercept
    features: Columns = field(default_factory=dict)

    def personal_model(self, client: str) -> Any:
        """The model that a client takes home: alpha_i x + (1 - alpha_i) x_i*.

        An array for a linear model; for a network a dict of them by name, such as `conv1/weight`.
        """
        instance("client", client, str, "the id of a client")
        (found,) = np.nonzero(self.clients["client"] == client)
        if not len(found):
            raise ScafflixError(f"There is no client {client!r} in this record.")
        prefix, place = "personal", found[0]
        if prefix in self.models:
            return self.models[prefix][place]
        tree = {
            name.removeprefix(f"{prefix}/"): stacked[place]
            for name, stacked in self.models.items()
            if name.startswith(f"{prefix}/")
        }
        if not tree:
            raise ScafflixError("This record keeps no personal models; run with keep personal.")
        return tree

    def rounds_to(self, gap: float) -> int | None:
        """The first round whose objective gap is at most `gap`."""
        gap = real_number("gap", gap, least=-math.inf)
        if "objective_gap" not in self.metrics:
            raise ScafflixError("This record has no objective gap, because its model is a network.")
        (reached,) = np.nonzero(self.metrics["objective_gap"] <= gap)
        return int(self.metrics["round"][reached[0]]) if len(reached) else None

    def frame(self, table: str = "metrics") -> Any:
        """A pandas DataFrame of the metrics, by round, or of the clients."""
        choice("table", table, ("metrics", "clients"))
        try:
            import pandas
        except ImportError:
            raise ScafflixError(
                "pandas is not installed; run: pip install 'scafflix[pandas]'."
            ) from None
        index = {"metrics": "round", "clients": "client"}[table]
        return pandas.DataFrame(dict(getattr(self, table))).set_index(index)

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the whole folder or nothing."""
        folder = path_of("folder", folder)
        with new_folder(folder, force=flag("force", force)) as partial:
            self.write(partial)
        return folder

    def write(self, folder: Path) -> None:
        """Write the files into an existing folder."""
        (folder / "config.toml").write_text(tomli_w.dumps(dict(self.config)))
        start = {name: self.metrics[name][0] for name in self.metrics if name not in COUNTS}
        summary = {**self.summary, "start": start}
        (folder / "summary.json").write_text(to_json(summary, indent=2) + "\n")
        _write_lines(folder / "metrics.jsonl", self.metrics, skip=1)
        _write_lines(folder / "clients.jsonl", self.clients)
        _write_arrays(folder / "models.safetensors", self.models)
        for name, arrays in ((CURVES, self.curves), (FEATURES, self.features)):
            if arrays:
                _write_arrays(folder / name, arrays)

    @staticmethod
    def load(folder: str | Path, *, models: bool = True) -> Record:
        """Read a folder that `save` wrote; without the models, which may be large, if so asked."""
        folder, models = path_of("folder", folder), flag("models", models)
        try:
            config = tomllib.loads((folder / "config.toml").read_text())
            summary = json.loads((folder / "summary.json").read_text())
            rows = [
                {**dict.fromkeys(COUNTS, 0), **summary.pop("start")},
                *_read_lines(folder / "metrics.jsonl"),
            ]
            clients = _read_lines(folder / "clients.jsonl")
            for name, expected, found in (
                ("metrics.jsonl", summary["rounds"], len(rows) - 1),
                ("clients.jsonl", summary["n_clients"], len(clients)),
            ):
                if found != expected:
                    raise ValueError(f"{name} has {found} lines instead of {expected}")
            kept = load_file(folder / "models.safetensors") if models else {}
            others = [
                load_file(folder / name) if (folder / name).exists() else {}
                for name in (CURVES, FEATURES)
            ]
            return Record(config, summary, _columns(rows), _columns(clients), kept, *others)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise ScafflixError(f"{folder} does not hold a readable run: {error}.") from None


def runs_in(folder: str | Path) -> list[Path]:
    """The folder itself if it is that of a run, else those of the runs that it holds."""
    folder, name = Path(folder), "summary.json"
    if (folder / name).exists():
        return [folder]
    places = sorted(path.parent for path in folder.rglob(name))
    # a hidden folder is one that is being written
    found = [one for one in places if "/." not in f"/{one.relative_to(folder)}"]
    if not found:
        raise ScafflixError(f"{folder} does not hold a run: there is no summary.json in it.")
    return found


def file_name(words: str) -> str:
    """Words that may hold a path, as the name of one file or folder.

    >>> file_name("own/timid.py:timid-0.5")
    'own_timid.py_timid-0.5'
    """
    return re.sub(r"[^A-Za-z0-9._=-]+", "_", words)[:100]


def check_new_folder(folder: str | Path, *, force: bool = False) -> None:
    """Refuse a folder that cannot be written or, unless forced, that holds something."""
    folder = Path(folder)
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if there.is_dir() and not os.access(there, os.W_OK):
        raise ScafflixError(f"{folder} cannot be written: no permission to write in {there}.")
    if not there.is_dir() and there != folder.absolute():
        raise ScafflixError(f"{folder} cannot be written: {there} is a file.")
    if folder.exists() and not folder.is_dir():
        raise ScafflixError(f"{folder} is a file; give a folder to write to.")
    if not force and folder.exists() and any(folder.iterdir()):
        raise ScafflixError(f"{folder} exists and is not empty; choose another, or use --force.")


@contextmanager
def new_folder(folder: str | Path, *, force: bool = False) -> Iterator[Path]:
    """A folder aside to write into, put in place when all is written and removed on failure.

    With `force`, files of the same name are replaced and others stay.
    """
    folder = Path(folder)
    check_new_folder(folder, force=force)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
        partial.mkdir()
    except OSError as error:
        raise ScafflixError(f"{folder} cannot be written: {error.strerror}.") from None
    try:
        yield partial
        _flush(partial)
        if folder.exists() and any(folder.iterdir()):
            _move_into(partial, folder)
        else:
            os.replace(partial, folder)
        durable.flush_folder(folder.parent)
    except OSError as error:
        raise ScafflixError(f"{folder} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Wait until everything below is on the disk."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            durable.flush_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _move_into(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        if path.is_dir():
            _move_into(path, target / path.name)
        else:
            os.replace(path, target / path.name)
    durable.flush_folder(target)


def to_json(value: Any, **options: Any) -> str:
    """JSON of results, in which NaN and infinity are null."""
    return json.dumps(_plain(value), allow_nan=False, **options)


def _plain(value: Any) -> Any:
    """JSON's own types; NaN and infinity, which JSON lacks, become null."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_arrays(path: Path, arrays: Columns) -> None:
    private.open_file(path, "wb").close()  # before there is anything in it to read
    save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, path)


def _write_lines(path: Path, columns: Columns, skip: int = 0) -> None:
    names = list(columns)
    rows = list(zip(*(columns[name] for name in names), strict=True))[skip:]
    path.write_text("".join(to_json(dict(zip(names, row, strict=True))) + "\n" for row in rows))


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _columns(rows: list[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    names = rows[0] if rows else {}
    return {
        name: np.array([math.nan if row[name] is None else row[name] for row in rows])
        for name in names
    }
