"""The data sets known by name, and where their files are on this machine."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from scafflix.errors import ScafflixError

LIBSVM = "LIBSVM"
SCIKIT_LEARN = "scikit-learn"


@dataclass(frozen=True)
class Entry:
    """What is known of a data set before it is read."""

    name: str
    rows: int
    features: int
    classes: int | None  # None: the labels are numbers to be predicted
    source: str
    sha256: str | None = None  # None: no file of its own


CATALOGUE = {
    entry.name: entry
    for entry in (
        Entry(
            *("mushrooms", 8124, 112, 2, LIBSVM),
            sha256="f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538",
        ),
        Entry(
            *("a6a", 11220, 123, 2, LIBSVM),
            sha256="6023becedbd392fdc6a62ad94b60c9363149370d4c57ef13949fcc765842a031",
        ),
        Entry(
            *("w6a", 17188, 300, 2, LIBSVM),
            sha256="0db197939896da01e6677f8dc39fe824dffcb75c185bd681bb870d33c93c8f82",
        ),
        Entry("digits", 1797, 64, 10, SCIKIT_LEARN),
        Entry("breast_cancer", 569, 30, 2, SCIKIT_LEARN),
        Entry("wine", 178, 13, 3, SCIKIT_LEARN),
        Entry("iris", 150, 4, 3, SCIKIT_LEARN),
        Entry("diabetes", 442, 10, None, SCIKIT_LEARN),
    )
}


def known() -> tuple[Entry, ...]:
    """Every data set that `load` knows by name.

    >>> [entry.name for entry in known()][:3]
    ['mushrooms', 'a6a', 'w6a']
    """
    return tuple(CATALOGUE.values())


def entry_of(name: str) -> Entry:
    """The entry of a name."""
    if name not in CATALOGUE:
        raise ScafflixError(
            f"There is no data set {name!r}; the known names are {', '.join(CATALOGUE)}."
        )
    return CATALOGUE[name]


def locate(name: str) -> Path | None:
    """The file of a data set on this machine, or None.

    ``$SCAFFLIX_DATA`` is looked through first (``libsvm/NAME``, then ``NAME``) and taken as it
    is; then the cache, whose files must have the right checksum. What scikit-learn bundles has
    no file.
    """
    entry = entry_of(name)
    if entry.sha256 is None:
        return None
    folder = os.environ.get("SCAFFLIX_DATA")
    if folder:
        own = Path(folder).expanduser()
        if not own.is_dir():
            raise ScafflixError(
                f"SCAFFLIX_DATA is {folder!r}, which is no folder; correct it or unset it."
            )
        for path in (own / "libsvm" / name, own / name):
            if path.is_file():
                return path
    path = cached(entry)
    if not path.is_file():
        return None
    if digest(path) != entry.sha256:
        raise ScafflixError(
            f"{path}: its checksum is wrong, so it is not used; "
            f"`scafflix data fetch {name}` replaces it."
        )
    return path


def cached(entry: Entry) -> Path:
    """Where the cache keeps the file of a data set."""
    return cache_folder() / "libsvm" / entry.name


def cache_folder() -> Path:
    """``$SCAFFLIX_CACHE``, else ``$XDG_CACHE_HOME/scafflix``, else ``~/.cache/scafflix``."""
    own = os.environ.get("SCAFFLIX_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "scafflix"


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ScafflixError(f"{path}: cannot be read ({error.strerror}).") from error
