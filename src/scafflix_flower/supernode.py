"""Flower's SuperNode, with an executor that can start only the app of this package.

It takes the options of `flower-supernode`, and a file for the secret that the two share.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from flwr.supernode.cli import flower_supernode

from scafflix_flower import executor
from scafflix_flower.secret import new_secret


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--secret-file", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    asked, others = parser.parse_known_args()
    new_secret(asked.secret_file)
    executor.start("client", asked.port, asked.secret_file)
    sys.argv[1:] = [*others, "--host", "127.0.0.1", "--port", str(asked.port)]
    sys.argv += ["--isolation", "process", "--superexec-auth-secret-file", str(asked.secret_file)]
    flower_supernode()


if __name__ == "__main__":
    main()
