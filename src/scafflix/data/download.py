"""The only place that opens a connection: known files from their original source."""

from __future__ import annotations

import http.client
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

from scafflix.data.catalogue import cached, digest, entry_of
from scafflix.errors import ScafflixError

ADDRESS = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
TIMEOUT = 30.0
"""Seconds without a byte before the source is given up."""

SIZE_LIMIT = 16 * 2**20
"""The most bytes that are accepted; the largest known file has 1.2 million."""

CHUNK = 2**16

Progress = Callable[[int, int | None], None]
"""Called with the bytes received and the bytes announced (None: not announced)."""


def fetch(
    name: str,
    progress: Progress | None = None,
    *,
    address: str | None = None,
    timeout: float = TIMEOUT,
    size_limit: int = SIZE_LIMIT,
) -> Path:
    """The path of a known file in the cache, downloaded unless it is there already.

    The file appears in the cache only whole and with the right checksum.
    """
    entry = entry_of(name)
    if entry.sha256 is None:
        raise ScafflixError(f"{name} comes with {entry.source}, so there is nothing to fetch.")
    target = cached(entry)
    if target.is_file() and digest(target) == entry.sha256:
        return target
    url = (ADDRESS if address is None else address) + name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch_name = tempfile.mkstemp(dir=target.parent, prefix=f".{name}-")
    except OSError as error:
        raise ScafflixError(
            f"{target.parent}: cannot be written ({error.strerror}); "
            "set SCAFFLIX_CACHE to another folder."
        ) from error
    scratch = Path(scratch_name)
    try:
        with os.fdopen(handle, "wb") as file:
            receive(url, name, file, progress, timeout, size_limit)
        received = digest(scratch)
        if received != entry.sha256:
            raise ScafflixError(
                f"{url}: the checksum of what arrived is {received}, not {entry.sha256}, so it "
                "is not used; try again, or get the file elsewhere and set SCAFFLIX_DATA."
            )
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
    return target


def receive(
    url: str,
    name: str,
    file: IO[bytes],
    progress: Progress | None,
    timeout: float,
    size_limit: int,
) -> None:
    """Copy what the address sends to the file, all of it and no more than allowed."""
    received = 0
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            length = response.headers.get("Content-Length", "")
            announced = int(length) if length.isdecimal() else None
            while announced is None or announced <= size_limit:
                chunk = response.read(CHUNK)
                if not chunk:
                    break
                received += len(chunk)
                if received > size_limit:
                    break
                file.write(chunk)
                if progress is not None:
                    progress(received, announced)
    except urllib.error.HTTPError as error:
        error.close()
        raise ScafflixError(
            f"{url}: the server answers {error.code} ({error.reason}); get the file "
            "elsewhere and set SCAFFLIX_DATA to its folder."
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ScafflixError(
            f"{url}: cannot be fetched ({reason}); set SCAFFLIX_DATA to a folder that holds "
            f"{name}, or run `scafflix data fetch {name}` when online."
        ) from error
    if max(received, announced or 0) > size_limit:
        raise ScafflixError(
            f"{url}: more than the {size_limit} bytes allowed, so it is not used; get the file "
            "elsewhere and set SCAFFLIX_DATA to its folder."
        )
    if announced is not None and received < announced:
        raise ScafflixError(
            f"{url}: ended after {received} of {announced} bytes, so it is not used; "
            f"run `scafflix data fetch {name}` again."
        )
