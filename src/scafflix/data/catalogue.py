"""The data sets known by name, and where their files are on this machine."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from scafflix.core.cache import cache_folder
from scafflix.core.errors import ScafflixError
from scafflix.data.recognition import find_people

LIBSVM = "LIBSVM"
SCIKIT_LEARN = "scikit-learn"
FEDJAX = "FedJAX"
OWN = "your own files"


@dataclass(frozen=True)
class KnownFile:
    """A file of a data set: its address at the source, and what is known of its content."""

    address: str  # relative to the source
    sha256: str | None = None  # None: the source states none; `fetch` notes what it received
    size_limit: int = 16 * 2**20
    """The most bytes that are accepted; the largest file of LIBSVM has 1.2 million."""

    @property
    def name(self) -> str:
        """Its name on this machine."""
        return self.address.rpartition("/")[2]


@dataclass(frozen=True)
class Entry:
    """What is known of a data set before it is read."""

    name: str
    rows: int | None  # None: as many sequences as its texts are cut into
    features: int
    classes: int | None  # None: the labels are numbers to be predicted
    source: str
    files: tuple[KnownFile, ...] = ()  # none: there is nothing to fetch
    shape: str = ""  # of an example that is no vector, in words
    clients: int | None = None  # None: they are made by splitting the rows

    @property
    def examples(self) -> str:
        """What one example is."""
        return self.shape or f"{self.features} features"


def libsvm(name: str, rows: int, features: int, sha256: str) -> Entry:
    """A data set of two classes in one file of LIBSVM."""
    return Entry(name, rows, features, 2, LIBSVM, (KnownFile(name, sha256),))


CATALOGUE = {
    entry.name: entry
    for entry in (
        libsvm(
            *("mushrooms", 8124, 112),
            sha256="f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538",
        ),
        libsvm(
            *("a6a", 11220, 123),
            sha256="6023becedbd392fdc6a62ad94b60c9363149370d4c57ef13949fcc765842a031",
        ),
        libsvm(
            *("w6a", 17188, 300),
            sha256="0db197939896da01e6677f8dc39fe824dffcb75c185bd681bb870d33c93c8f82",
        ),
        Entry("digits", 1797, 64, 10, SCIKIT_LEARN),
        Entry("breast_cancer", 569, 30, 2, SCIKIT_LEARN),
        Entry("wine", 178, 13, 3, SCIKIT_LEARN),
        Entry("iris", 150, 4, 3, SCIKIT_LEARN),
        Entry("diabetes", 442, 10, None, SCIKIT_LEARN),
        Entry(
            *("femnist", 671_585 + 77_483, 784, 62, FEDJAX),
            files=(
                KnownFile("emnist/federated_emnist_train.sqlite", size_limit=2**30),
                KnownFile("emnist/federated_emnist_test.sqlite", size_limit=2**28),
            ),
            shape="28 x 28 images",
            clients=3400,
        ),
        Entry(
            *("shakespeare", None, 80, 90, FEDJAX),
            files=(
                KnownFile("shakespeare/shakespeare_train.sqlite", size_limit=2**26),
                KnownFile("shakespeare/shakespeare_test.sqlite", size_limit=2**26),
            ),
            shape="sequences of 80",
            clients=715,
        ),
        Entry("heart", 740, 13, 2, OWN, clients=4),
        Entry("landmine", 14_820, 9, 2, OWN, clients=29),
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
    if not isinstance(name, str) or name not in CATALOGUE:
        from scafflix.core.arguments import shown  # with NumPy, which lists of names do without

        raise ScafflixError(
            f"There is no data set {shown(name)}; the known names are {', '.join(CATALOGUE)}."
        )
    return CATALOGUE[name]


def locate(name: str) -> Path | None:
    """The file or folder of a data set on this machine, or None.

    ``$SCAFFLIX_DATA`` is looked through first and taken as it is: ``libsvm/NAME``, then
    ``NAME``; of data that name their clients, such as ``femnist`` and ``heart``, the folder
    ``NAME`` or what is first in it by name, in any format of `scafflix.data.recognition`. Then
    comes the cache, whose files must have the right checksum. What scikit-learn bundles has no
    file.
    """
    entry = entry_of(name)
    if entry.source == SCIKIT_LEARN:
        return None
    folder = os.environ.get("SCAFFLIX_DATA")
    if folder:
        own = Path(folder).expanduser()
        if not own.is_dir():
            raise ScafflixError(
                f"SCAFFLIX_DATA is {folder!r}, which is not a folder; correct it or unset it."
            )
        if entry.source in (FEDJAX, OWN):
            if found := find_people(own / name):
                return found
        else:
            for path in (own / "libsvm" / name, own / name):
                if path.is_file():
                    return path
    if entry.source == OWN:
        return None
    paths = [cached_file(entry, file) for file in entry.files]
    if not all(path.is_file() for path in paths):
        return None
    for path, file in zip(paths, entry.files, strict=True):
        if not is_intact(path, file):
            raise ScafflixError(
                f"{path}: its checksum is wrong, so it is not used; "
                f"`scafflix data fetch {name}` replaces it."
            )
    return cached(entry)


def cached(entry: Entry) -> Path:
    """Where the cache keeps a data set: its only file, or the folder of its files."""
    folder = cache_folder() / (entry.name if entry.source == FEDJAX else "libsvm")
    return folder if len(entry.files) > 1 else folder / entry.files[0].name


def cached_file(entry: Entry, file: KnownFile) -> Path:
    """Where the cache keeps one file of a data set."""
    return cached(entry) / file.name if len(entry.files) > 1 else cached(entry)


def is_intact(path: Path, file: KnownFile) -> bool:
    """Whether a cached file is there with the checksum that is known or was noted."""
    expected = file.sha256
    if expected is None:
        try:
            expected = note_beside(path).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return False
    return path.is_file() and digest(path) == expected


def note_beside(path: Path) -> Path:
    """Where the checksum of a file is noted, if its source states none."""
    return path.with_name(f"{path.name}.sha256")


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ScafflixError(f"{path}: cannot be read ({error.strerror}).") from error
