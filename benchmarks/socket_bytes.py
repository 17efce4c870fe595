"""Bytes at the SuperLink's TCP socket: what a node sends and gets in a round, by transport and
compressor.

python benchmarks/socket_bytes.py [NUMBER ...]

Three nodes on this machine, as real processes, through a port in front of the SuperLink's that
counts. Two runs of different length: what a round costs is their difference, without the start, the
end, and the start point, which every run sends once. Nodes ask the server for work while there is
none; that counts too, as it does for whoever pays for the line.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "federate"))

from between import Between

from flower import row
from scafflix.federate.configuration import DeployConfig
from scafflix.federate.local import LocalFederation
from scafflix.federate.partition import write_nodes

NODES, FEATURES, SHORT, LONG = 3, 50_000, 2, 12
CASES: dict[str, dict[str, Any]] = {
    "nothing shorter, `scafflix`": {"method": "scafflix"},
    '`scafflix`, `transport = "float32"`': {"transport": "float32"},
    '`scafflix`, `transport = "bfloat16"`': {"transport": "bfloat16"},
    "`tamuna:s=2`": {"method": "tamuna:s=2"},
    "`locodl:compressor=natural`": {"method": "locodl:compressor=natural"},
    "`locodl:compressor=dithering:8,omega=28`": {
        "method": "locodl:compressor=dithering:8,omega=28"
    },
    "`locodl:compressor=rand_k:0.1`": {"method": "locodl:compressor=rand_k:0.1"},
}


def passed(keys: dict[str, Any], rounds: int) -> tuple[int, int, int, int]:
    """Bytes up and down at the socket, and of the arrays by the record, in a run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = DeployConfig(
            data=f"synthetic:rows=20,features={FEATURES}", clients=NODES, p=0.5, rounds=rounds,
            minimum=NODES, alpha=1.0, **keys,
        )  # fmt: skip
        asked, nodes = write_nodes(config, NODES, folder / "nodes")
        made = LocalFederation(folder, asked, nodes)
        with Between(made.link.port) as wire, made.processes:
            made.link.start()
            for number in range(NODES):
                made.processes.start(f"node-{number}", *made.node_words(number, port=wire.port))
            record = made.run()
        assert record.summary["dropped"] == record.summary["refused"] == 0
        up, down = (int(record.metrics[f"bits_{way}"][-1]) // 8 for way in ("up", "down"))
        return wire.up, wire.down, up, down


def main() -> None:
    print(f"bytes of a round and a node, of a model of {FEATURES:,} float64 numbers")
    print(row("run", "up, on the socket", "up, arrays", "down, on the socket", "down, arrays"))
    print(row("---", *["---:"] * 4))
    everything = list(CASES.items())
    for name, keys in [everything[int(word)] for word in sys.argv[1:]] or everything:
        both = zip(passed(keys, SHORT), passed(keys, LONG), strict=True)
        share = [(longer - shorter) / (LONG - SHORT) / NODES for shorter, longer in both]
        up, down, arrays_up, arrays_down = (f"{one:,.0f}" for one in share)
        print(row(name, up, arrays_up, down, arrays_down), flush=True)


if __name__ == "__main__":
    main()
