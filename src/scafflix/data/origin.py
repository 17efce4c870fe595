"""What a user means by a source: a known name, made-up data, or a path and its format."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scafflix.core.errors import ScafflixError
from scafflix.data.catalogue import CATALOGUE, FEDJAX, LIBSVM, OWN, SCIKIT_LEARN
from scafflix.data.hub import hub_folder
from scafflix.data.recognition import is_table, kind_of, stem, tables_in

Kind = Literal["synthetic", "bundled", "svmlight", "table", "archive", "people", "huggingface"]
"""``people``: the source names its clients, see `scafflix.data.recognition`."""

KINDS: dict[str, Kind] = {
    LIBSVM: "svmlight",
    SCIKIT_LEARN: "bundled",
    FEDJAX: "people",
    OWN: "people",
}
"""What the known data sets of each source are."""


@dataclass(frozen=True)
class Origin:
    """Where data come from; a known file has no path until it has been located."""

    kind: Kind
    name: str
    path: Path | None = None
    options: str = ""  # of synthetic data

    def __str__(self) -> str:
        return self.name if self.path is None else str(self.path)


def resolve(source: str | Path) -> Origin:
    """The origin that a source names.

    >>> resolve("synthetic:rows=5").options, resolve("a6a").kind
    ('rows=5', 'svmlight')
    >>> resolve("mushroom")
    Traceback (most recent call last):
    scafflix.core.errors.ScafflixError: There is no data set or file 'mushroom'; ...
    """
    if not isinstance(source, str | os.PathLike):
        from scafflix.core.arguments import shown  # with NumPy, which lists of names do without

        raise ScafflixError(
            f"The source is {shown(source)}; give the name of a data set or a path."
        )
    path = Path(source).expanduser()
    # A text with a separator, or a Path, can only be meant as a path.
    spells_path = not isinstance(source, str) or "/" in source or os.sep in source
    if isinstance(source, str) and not (spells_path and os.path.exists(path)):
        name, _, options = source.partition(":")
        if name == "synthetic":
            return Origin("synthetic", name, options=options)
        if name == "hf":
            return _on_disk(options)
        if source in CATALOGUE:
            return Origin(KINDS[CATALOGUE[source].source], source)
    # os.path, unlike Path.exists, answers False also for names that no file can have.
    if not os.path.exists(path):
        raise ScafflixError(
            f"There is no data set or file {str(source)!r}; the known names are "
            f"{', '.join((*CATALOGUE, 'synthetic'))}."
        )
    if kind_of(path) is not None:
        name = path.resolve().name
        return Origin("people", name if path.is_dir() else name.partition(".")[0], path)
    if path.is_dir() and tables_in(path):
        return Origin("table", path.resolve().name, path)
    if path.is_dir():
        raise ScafflixError(
            f"{path}: is a folder without the files of clients in a known format; give a file."
        )
    archive = path.suffix.lower() == ".npz"
    kind: Kind = "table" if is_table(path) else "archive" if archive else "svmlight"
    return Origin(kind, stem(path), path)


def _on_disk(name: str) -> Origin:
    """A data set of `datasets` in a folder or a file, or one that was fetched from the hub."""
    if not name:
        raise ScafflixError("The source is 'hf:'; give hf:FOLDER.")
    path = Path(name).expanduser()
    place = path if os.path.exists(path) else hub_folder(name)
    if not os.path.exists(place):
        raise ScafflixError(
            f"There is no folder {name!r}, and no data set of that name was fetched from the "
            f"Hugging Face hub; scafflix data fetch hf:{name} downloads one."
        )
    return Origin("huggingface", place.resolve().stem, place)
