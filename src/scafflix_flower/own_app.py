"""The process of one task, which runs the app of the installed scafflix and no other.

Flower passes every task an archive (a FAB) with the app that the server asks for. Nothing in it is
unpacked or imported. If its digest equals that of the app installed here, the installed app runs;
if not, the task is refused and the server is told why.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
import zipfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import Queue
from types import ModuleType
from typing import Any

from flwr.cli.build import build_fab_from_disk
from flwr.supercore.logger import mirror_output_to_queue, restore_output

LIMIT = 1_000_000  # largest size of an app in bytes; ours has a few thousand


class OtherAppError(Exception):
    """The server asks for an app that is not ours."""


def folder() -> Path:
    """Where the app is installed; found without importing scafflix and JAX."""
    spec = find_spec("scafflix")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "federate" / "app"


def digest(fab: bytes) -> str:
    """A digest of names and contents; the archive's bytes also depend on the compression."""
    found = hashlib.sha256()
    try:
        with zipfile.ZipFile(io.BytesIO(fab)) as archive:
            entries = sorted(archive.infolist(), key=lambda entry: entry.filename)
            if sum(entry.file_size for entry in entries) > LIMIT:
                return f"more than {LIMIT} bytes"
            for entry in entries:
                found.update(f"{entry.filename}\0{entry.file_size}\0".encode())
                found.update(archive.read(entry))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError) as error:
        return f"none, as it is not an app ({error})"
    return found.hexdigest()


def check(fab: bytes, **_: Any) -> None:
    """Replaces the installation of an app: refuse any app but ours."""
    asked, own = digest(fab), digest(build_fab_from_disk(folder()))
    if asked != own:
        raise OtherAppError(
            f"Refused to run an app other than scafflix's own: its digest is {asked}, and that of "
            f"the installed app is {own}; install the same version of scafflix on every machine."
        )


def substitute(module: ModuleType, name: str, value: Any) -> None:
    """Replace a function in Flower; stop if this version of Flower has no such function."""
    if not callable(getattr(module, name, None)):
        raise SystemExit(
            f"{module.__name__} has no {name}, so this Flower is not known to be safe; use 1.41."
        )
    setattr(module, name, value)


def run_client(address: str, token: str, parent: int) -> None:
    """Handle a message to a node."""
    task = import_module("flwr.supernode.runtime.run_clientapp")
    substitute(task, "install_from_fab", check)
    substitute(import_module("flwr.clientapp.utils"), "get_project_dir", lambda *_: folder())
    task.run_clientapp(address, token, insecure=True, parent_pid=parent)


def run_server(address: str, token: str, parent: int) -> None:
    """Do a run on the server; its output goes to whoever follows the run."""
    task = import_module("flwr.superlink.runtime.run_serverapp")
    substitute(task, "install_from_fab", check)
    substitute(task, "get_project_dir", lambda *_: folder())
    output: Queue[str | None] = Queue()
    mirror_output_to_queue(output)
    task.run_serverapp(address, output, token, insecure=True, parent_pid=parent)
    restore_output()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=("client", "server"))
    parser.add_argument("address")
    parser.add_argument("parent", type=int)
    asked = parser.parse_args()
    token = sys.stdin.readline().strip()
    run = run_client if asked.side == "client" else run_server
    run(asked.address, token, asked.parent)


if __name__ == "__main__":
    main()
