"""What a run leaves behind: a folder that everything afterwards is made from.

config.toml          what was asked for
metrics.jsonl        a line per communication round
summary.json         the run in numbers
clients.jsonl        a line per client
models.safetensors   global, local, personal
preprocessing.json   what is done to columns or features before the model sees them
curves.safetensors   what each client expected at every alpha, where alpha was chosen
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from scafflix.core import private
from scafflix.core.arguments import choice, flag, instance, path_of, real_number
from scafflix.core.as_json import to_json
from scafflix.core.errors import ScafflixError
from scafflix.core.extras import library
from scafflix.core.folders import whole_folder
from scafflix.core.showing import Shown
from scafflix.data.preprocessing import Preprocessing, from_dict

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import nn

    from scafflix.prediction import Predictor

Columns = Mapping[str, NDArray[Any]]
CURVES, PREPROCESSING = "curves.safetensors", "preprocessing.json"
KINDS = ("personal", "local", "global")  # of models
COUNTED = "counted"  # before the kind: what batch norms counted of each client's examples
COUNTS = ("round", "iterations", "local_steps")  # 0 at the start


@dataclass(frozen=True, eq=False)
class Record(Shown):
    """One run. The first entry of every metric is the start, round 0."""

    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    metrics: Columns
    clients: Columns
    # global [*shape]; local and personal [clients, *shape]; of a network one for each array;
    # what batch norms of a PyTorch module counted at each of them, [clients, *shape]
    models: Columns
    # where alpha was chosen: the alphas, and at them each client's own curve, its standard error,
    # and the curve it went by
    curves: Columns = field(default_factory=dict)
    preprocessing: Preprocessing | None = None  # what is done to features, if anything

    def personal_model(self, client: str) -> Any:
        """The model that a client takes home: alpha_i x + (1 - alpha_i) x_i*.

        An array for a linear model; for a network a dict of them by name, such as `conv1/weight`.
        Of a PyTorch module they have the names of its state_dict: what was trained, and what batch
        norms counted of the client's training examples. What is frozen is as your file makes it.
        """
        return self.model(client)

    def model(self, client: str | None, kind: str = "personal") -> Any:
        """The `personal` or the `local` model of a client, or the `global` one of all."""
        place: Any = ()
        mine: Any = ()
        if choice("model", kind, KINDS) != "global" or client is not None:
            known = _listed(self.clients["client"].tolist())
            instance("client", client, str, f"the id of a client ({known})")
            (found,) = np.nonzero(self.clients["client"] == client)
            if not len(found):
                raise ScafflixError(
                    f"There is no client {client!r} in this record; its clients are {known}."
                )
            mine = found[0]
            place = () if kind == "global" else mine
        if kind in self.models:
            return self.models[kind][place]
        tree = {
            name.removeprefix(f"{kind}/"): stacked[place]
            for name, stacked in self.models.items()
            if name.startswith(f"{kind}/")
        }
        if not tree and "final_objective" in self.summary:  # of a federation
            raise ScafflixError(
                f"The record of a server has the global model alone; the {kind} model of {client} "
                f"is at its node, in the folder {client}/home."
            )
        if not tree:
            keep = "global" if kind == "global" else "personal"
            raise ScafflixError(f"This record keeps no {kind} models; run with keep {keep}.")
        if client is not None:
            before = f"{COUNTED}/{kind}/"
            own = [name for name in self.models if name.startswith(before)]
            tree |= {n.removeprefix(before): self.models[n][mine] for n in own}
        return tree

    def module(self, client: str | None, make: Any = None, *, model: str = "personal") -> nn.Module:
        """Your PyTorch module with the arrays of a model, in evaluation mode.

        `make` is its class, a function that makes it, or what `from_torch` returned; without it,
        the module that FILE.py:NAME of the run names. It must be as it was in the run.
        """
        from scafflix.problems.restoring import restored

        found = self._predictor(client, model, make)
        if found.own is None:
            raise ScafflixError(f"The model {found.model} is no PyTorch module.")
        return restored(found.own.network, found.weights, found.own.about).module.eval()

    def predictor(
        self, client: str | None = None, model: str = "personal", module: Any = None
    ) -> Predictor:
        """What answers for a client: its model with all that it takes to use it."""
        from scafflix.prediction import check_answers  # with JAX, which few need

        found = self._predictor(client, model, module)
        check_answers(found)
        return found

    def _predictor(self, client: str | None, model: str, module: Any = None) -> Predictor:
        """The same, also for models that cannot answer."""
        from scafflix.prediction import Predictor, own_module

        name, classes = self.config["model"], tuple(self.summary.get("classes", ()))
        kind = self.summary.get("label_kind", "text")
        own = own_module(name, self.summary.get("module"), module)
        return Predictor(name, self.model(client, model), classes, kind, self.preprocessing, own)

    def predict(
        self, client: str | None, table: Any, *, model: str = "personal", module: Any = None
    ) -> NDArray[Any]:
        """The class, or the number, that a client's model says for each row.

        `table` has the columns of the training table: a path, a pandas frame or an Arrow table; of
        a run without a table it is an array of examples. `model` is `personal`, `local` or
        `global`. `module` is the class of your PyTorch module, where the run does not name its
        file. With a loss of your own, the answers are what the module returns.
        """
        return self.predictor(client, model, module)(table).values

    def predict_proba(
        self, client: str | None, table: Any, *, model: str = "personal", module: Any = None
    ) -> NDArray[np.float64]:
        """How probable each class is, `[rows, classes]`, in the order of `summary["classes"]`."""
        found = self.predictor(client, model, module)(table).probabilities
        if found is None:
            raise ScafflixError(
                "The run's model answers with numbers, which have no probabilities."
            )
        return found

    def coefficients(self, client: str | None, *, model: str = "personal") -> pa.Table:
        """The weights of a linear model in the units of the training table: an Arrow table with a
        coefficient for each column and each value of a text, and odds ratios for a logistic one.
        """
        from scafflix.export.coefficients import coefficients

        return coefficients(self._predictor(client, model))

    def export(
        self,
        client: str | None,
        file: str | Path,
        format: str,
        *,
        model: str = "personal",
        module: Any = None,
        check: Any = None,
        force: bool = False,
    ) -> float | None:
        """Write a client's model for other programs: as `onnx`, `sklearn-json`, `safetensors`,
        `torch` or `table`.

        `check` are rows as `predict` takes them. Then the file is asked for its answers, and the
        largest difference from those of this record is returned; nothing is written if it is more
        than rounding.
        """
        from scafflix.export.writing import write

        path, force = path_of("file", file), flag("force", force)
        found = self._predictor(client, model, module)
        return write(found, path, format, check=check, force=force)

    def rounds_to(self, gap: float) -> int | None:
        """The first round whose objective gap is at most `gap`."""
        gap = real_number("gap", gap, least=-math.inf)
        if "objective_gap" not in self.metrics:
            raise ScafflixError("This record has no objective gap, because its model is a network.")
        (reached,) = np.nonzero(self.metrics["objective_gap"] <= gap)
        return int(self.metrics["round"][reached[0]]) if len(reached) else None

    def to_pandas(self, table: str = "metrics") -> Any:
        """A pandas DataFrame of the metrics, by round, or of the clients."""
        choice("table", table, ("metrics", "clients"))
        pandas = library("pandas", "pandas")
        index = {"metrics": "round", "clients": "client"}[table]
        return pandas.DataFrame(dict(getattr(self, table))).set_index(index)

    def to_latex(self) -> str:
        """A table for a paper: how good the models are on average over clients, with the spread.

        Of several runs `scafflix.to_latex` makes one, with the spread over seeds.
        """
        table: str = self._artist().latex(self)
        return table

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the whole folder or nothing."""
        folder = path_of("folder", folder)
        with whole_folder(folder, force=flag("force", force)) as partial:
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
        if self.curves:
            _write_arrays(folder / CURVES, self.curves)
        if self.preprocessing is not None:
            words = json.dumps(self.preprocessing.as_dict(), allow_nan=False, indent=1)
            (folder / PREPROCESSING).write_text(words + "\n")

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
            curves = load_file(folder / CURVES) if (folder / CURVES).exists() else {}
            file, made = folder / PREPROCESSING, None
            if file.exists():
                made = from_dict(json.loads(file.read_text()))
            return Record(config, summary, _columns(rows), _columns(clients), kept, curves, made)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            if not folder.is_dir():
                raise ScafflixError(f"{folder}: there is no such folder.") from None
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


def _listed(names: list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


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
