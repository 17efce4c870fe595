"""Data sets of the Hugging Face hub, in the cache once they were fetched."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from scafflix.core.cache import cache_folder
from scafflix.core.errors import ScafflixError, reason_of
from scafflix.core.extras import library

PREFIX = "hf:"


def hub_folder(name: str) -> Path:
    """Where a data set of the hub is on this machine, once it was fetched.

    >>> hub_folder("flwrlabs/femnist").name
    'flwrlabs--femnist'
    """
    safe = "".join(one if one.isalnum() or one in "-_.:" else "--" for one in name)
    return cache_folder() / "huggingface" / safe.strip(".").replace(":", "@")


def fetch_from_hub(name: str) -> Path:
    """Download ``OWNER/NAME``, or ``OWNER/NAME:CONFIGURATION``, all of it or nothing."""
    target = hub_folder(name)
    if target.exists():
        return target
    address, _, configuration = name.partition(":")
    if not address:
        raise ScafflixError("hf: names no data set; give hf:OWNER/NAME.")
    datasets = library("datasets", "huggingface")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".", dir=target.parent))
    try:
        made = datasets.load_dataset(address, configuration or None)
        made.save_to_disk(str(partial))
        os.replace(partial, target)
    except Exception as error:  # whatever the library or the connection says
        raise ScafflixError(
            f"hf:{name} cannot be fetched from the Hugging Face hub ({reason_of(error)})."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target
