"""The only place that opens a connection: known files from their original source."""

from __future__ import annotations

import base64
import binascii
import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from filelock import lock_descriptor

from scafflix.core.arguments import instance
from scafflix.core.errors import ScafflixError
from scafflix.data.catalogue import (
    FEDJAX,
    OWN,
    Entry,
    KnownFile,
    cached,
    cached_file,
    digest,
    entry_of,
    is_intact,
    note_beside,
)
from scafflix.data.hub import PREFIX, fetch_from_hub
from scafflix.data.release import check_database

ADDRESS = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
FEDJAX_ADDRESS = "https://storage.googleapis.com/gresearch/fedjax/"
TIMEOUT = 30.0
"""Seconds without a byte before the source is given up."""

CHUNK = 2**16

Progress = Callable[[str, int, int | None], None]
"""Called with the name of the file, its bytes received and announced (None: not announced)."""


@dataclass(frozen=True)
class Transfer:
    """How one file is fetched."""

    name: str  # of the data set
    url: str
    size_limit: int
    timeout: float
    report: Callable[[int, int | None], None]


def fetch(
    name: str,
    progress: Progress | None = None,
    *,
    address: str | None = None,
    timeout: float = TIMEOUT,
    size_limit: int | None = None,
) -> Path:
    """The path of a data set in the cache, downloaded unless it is there already.

    That is the file, or the folder of the files. A file appears in the cache only whole and
    checked: by its SHA-256 where the source states one; else by the MD5 sum that the server
    sends along, if it does, and by a check of the SQLite file, and its SHA-256 is noted beside
    it for later. A download that breaks off leaves ``NAME.part``, with which the next goes on.

    ``hf:OWNER/NAME`` is a data set of the Hugging Face hub, which `datasets` downloads.
    """
    instance("name", name, str, "the name of a data set")
    if name.startswith(PREFIX):
        return fetch_from_hub(name.removeprefix(PREFIX))
    entry = entry_of(name)
    if entry.source == OWN:
        raise ScafflixError(
            f"{name} is not fetched; put its files into the folder {name} in a folder that "
            "SCAFFLIX_DATA names."
        )
    if not entry.files:
        raise ScafflixError(f"{name} comes with {entry.source}, so there is nothing to fetch.")
    for file in entry.files:
        if is_intact(cached_file(entry, file), file):
            continue

        def report(received: int, announced: int | None, file: KnownFile = file) -> None:
            if progress is not None:
                progress(file.name, received, announced)

        base = FEDJAX_ADDRESS if entry.source == FEDJAX else ADDRESS
        limit = file.size_limit if size_limit is None else size_limit
        url = (base if address is None else address) + file.address
        transfer = Transfer(name, url, limit, timeout, report)
        fetch_file(entry, file, transfer)
    return cached(entry)


def fetch_file(entry: Entry, file: KnownFile, transfer: Transfer) -> None:
    """Download one file, or the rest of it, and put it into the cache once it is checked."""
    target = cached_file(entry, file)
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(part, transfer) as content:
            try:
                try:
                    md5 = receive(content, transfer)
                finally:
                    content.flush()
                check(part, file, md5, transfer)
            except UnusableError:
                part.unlink()
                raise
            finally:
                # Nothing received is nothing to go on with.
                if part.is_file() and part.stat().st_size == 0:
                    part.unlink()
            if file.sha256 is None:
                note_beside(target).write_text(digest(part) + "\n", encoding="ascii")
            part.replace(target)
    except OSError as error:
        raise ScafflixError(
            f"{target.parent}: cannot be written ({error.strerror}); "
            "set SCAFFLIX_CACHE to another folder."
        ) from error


class UnusableError(ScafflixError):
    """What arrived is not what was asked for, so the next download must start anew."""


@contextmanager
def locked(part: Path, transfer: Transfer) -> Iterator[IO[bytes]]:
    """The partial file, for this process alone."""
    with part.open("ab") as content:
        try:
            alone = lock_descriptor(content.fileno(), blocking=False)
            # Between the opening and the lock another process may have finished the file.
            alone = alone and os.path.samestat(os.fstat(content.fileno()), part.stat())
        except OSError:
            alone = False
        if not alone:
            raise ScafflixError(
                f"{part}: another process is fetching {transfer.name}; wait until it is done."
            )
        yield content


def check(part: Path, file: KnownFile, md5: str | None, transfer: Transfer) -> None:
    """Refuse what arrived if it is not the file that is known, or not what the server meant."""
    expected, received = file.sha256, ""
    if expected is not None:
        received = digest(part)
    elif md5 is not None:
        expected = md5
        with part.open("rb") as content:
            received = hashlib.file_digest(
                content, lambda: hashlib.md5(usedforsecurity=False)
            ).hexdigest()
    if expected is not None and received != expected:
        raise UnusableError(
            f"{transfer.url}: the checksum of what arrived is {received}, not {expected}, so it "
            "is not used; try again, or get the file elsewhere and set SCAFFLIX_DATA."
        )
    if file.sha256 is None:
        try:
            check_database(part)
        except ScafflixError as error:
            raise UnusableError(
                f"{transfer.url}: what arrived is not a SQLite release, so it is not used; "
                "get the file elsewhere and set SCAFFLIX_DATA."
            ) from error


def receive(content: IO[bytes], transfer: Transfer) -> str | None:
    """Append what the address sends behind what there is; the MD5 sum that it states, if any."""
    try:
        with connect(content, transfer) as response:
            received = content.tell()
            length = response.headers.get("Content-Length", "")
            known = length.isdecimal() and len(length) < 20
            announced = received + int(length) if known else None
            while announced is None or announced <= transfer.size_limit:
                chunk = response.read(CHUNK)
                if not chunk:
                    break
                received += len(chunk)
                if received > transfer.size_limit:
                    break
                content.write(chunk)
                transfer.report(received, announced)
            md5 = stated_md5(response.headers)
    except urllib.error.HTTPError as error:
        error.close()
        raise ScafflixError(
            f"{transfer.url}: the server answers {error.code} ({error.reason}); get the file "
            "elsewhere and set SCAFFLIX_DATA to its folder."
        ) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ScafflixError(
            f"{transfer.url}: cannot be fetched ({reason}); set SCAFFLIX_DATA to a folder that "
            f"holds {transfer.name}, or run `scafflix data fetch {transfer.name}` when online."
        ) from error
    if max(received, announced or 0) > transfer.size_limit:
        raise UnusableError(
            f"{transfer.url}: more than the {transfer.size_limit} bytes allowed, so it is not "
            "used; get the file elsewhere and set SCAFFLIX_DATA to its folder."
        )
    if announced is not None and received < announced:
        raise ScafflixError(
            f"{transfer.url}: ended after {received} of {announced} bytes, so it is not used; "
            f"run `scafflix data fetch {transfer.name}` again to continue from there."
        )
    return md5


def connect(content: IO[bytes], transfer: Transfer) -> Any:
    """An answer that goes on where the partial file ends; the file is emptied if none does."""
    here = content.seek(0, os.SEEK_END)
    if 0 < here <= transfer.size_limit:
        request = urllib.request.Request(transfer.url, headers={"Range": f"bytes={here}-"})
        try:
            response = urllib.request.urlopen(request, timeout=transfer.timeout)
            span = response.headers.get("Content-Range", "")
            if response.status == 206 and re.match(rf"bytes {here}-\d+/", span):
                return response
            if response.status == 200:
                content.truncate(0)
                content.seek(0)
                return response
            response.close()
        except urllib.error.HTTPError as error:
            if error.code != 416:  # the part is as long as the file, or longer
                raise
            error.close()
    content.truncate(0)
    content.seek(0)
    return urllib.request.urlopen(transfer.url, timeout=transfer.timeout)


def stated_md5(headers: Any) -> str | None:
    """The MD5 sum of the whole file as Google's storage states it, in hexadecimal."""
    for header in headers.get_all("x-goog-hash", []):
        for kind, _, value in (entry.strip().partition("=") for entry in header.split(",")):
            if kind == "md5":
                try:
                    return base64.b64decode(value, validate=True).hex()
                except binascii.Error:
                    return None
    return None
