"""Where things are kept between runs: data, programs, local models, finished runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``$SCAFFLIX_CACHE``, else ``$XDG_CACHE_HOME/scafflix``, else ``~/.cache/scafflix``."""
    own = os.environ.get("SCAFFLIX_CACHE")
    if own:
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "scafflix"
