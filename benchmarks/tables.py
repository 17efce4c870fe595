"""Results as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Results = dict[str, Any]
OURS = "fedavg"  # what peers are compared with: the same algorithm
FIGURE = 20.0  # times faster than the NumPy loop, for Figure 1
TARGETS = (  # workload, peer, times faster
    ("cnn", "torch1", 1.2),
    ("cnn", "torch2", 1.2),
    ("cnn", "fedjax", 1.7),
    ("cnn", "flower", 3.0),
    ("lstm", "torch1", 1.2),
    ("lstm", "torch2", 1.2),
    ("lstm", "fedjax", 1.7),
    ("lstm", "flower", 3.0),
    ("many", "fedjax", 20.0),
    ("many", "flower", 100.0),
)
AMONG = (  # method, over another of ours, at most
    ("scaffold", "scafflix", 1.15),
    ("tamuna", "scafflix", 1.15),
    ("ditto", "fedavg", 2.2),
    ("apfl", "fedavg", 2.2),
)
MODULE = (  # a PyTorch module in our rounds, over another, at most
    ("fedavg_module", "torch2", 1.05),
    ("scafflix_module", "fedavg_module", 1.15),
    ("fedavg_module", "flower", 1.0),
    ("fedavg_module", "pfl2", 1.0),
)
EXTRA = 0.15  # the most that Scafflix may cost over FedAvg
SHARE = 0.5  # of the matrix-product peak, for networks
MEMORY = 1.2  # times the bytes that must be there


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table whose first column is text."""
    names = list(head)
    lines = [names, ["---", *["---:"] * (len(names) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def best(peer: Results) -> float:
    """Seconds a round, the best of all runs."""
    return min(run["seconds"] for run in peer["runs"])


def ours(peers: Results) -> str:
    """What the peers of a workload are compared with."""
    return OURS if OURS in peers else f"{OURS}_module"


def ratios(workload: Results, name: str) -> list[float]:
    """A peer's time over ours, for each repetition, in which they ran one after the other."""
    peers = workload["peers"]
    mine = peers[ours(peers)]["runs"]
    return [
        theirs["seconds"] / own["seconds"]
        for theirs, own in zip(peers[name]["runs"], mine, strict=True)
    ]


def gigaflops(workload: Results, name: str) -> float:
    """Of a peer's best round."""
    steps = workload["recipe"]["cohort"] * workload["recipe"]["steps"]
    return workload["operations"] * steps / best(workload["peers"][name]) / 1e9


def number(value: float) -> str:
    """Three figures, thousands with commas."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def machine(found: Results) -> str:
    by = ", ".join(f"{name} {value:.0f}" for name, value in found["gigaflops_by"].items())
    return (
        f"{found['cores']} cores of an {found['processor']}, {found['memory_gigabytes']:.0f} GB, "
        f"{found['system']}, Python {found['python']}, jax {found['jax']}, no GPU. Float32 matrix "
        f"products reach {found['gigaflops']:.0f} GFLOP/s on all cores ({by}), copies "
        f"{found['bandwidth_gigabytes']:.1f} GB/s. Load before the run: "
        f"{found['load_before']:.1f}.\n"
    )


def convex(found: Results, limits: Results) -> str:
    head = (
        "milliseconds an iteration of one run", "NumPy loop", "scafflix alone",
        "scafflix in the sweep", "times faster", "GFLOP/s", "of the peak", "compiling, s",
    )  # fmt: skip
    rows = []
    for data, row in found["panels"].items():
        speed = row["operations"] / min(row["sweep_ms"]) / 1e6
        rows.append([
            data, *(number(min(row[key])) for key in ("numpy_ms", "alone_ms", "sweep_ms")),
            number(row["ratio"]), number(speed), f"{speed / limits['gigaflops']:.1%}",
            number(row["compile_seconds"]),
        ])  # fmt: skip
    text = table(head, [*rows, ["all", "", "", "", number(found["ratio"]), "", "", ""]])
    if "cold" in found:
        text += (
            f"\n`scafflix reproduce fig1`, cold: {found['cold']['seconds']:.1f} s, "
            f"{found['cold']['peak_bytes'] / 1e9:.2f} GB.\n"
        )
    return text


def workload(found: Results, limits: Results) -> str:
    recipe = found["recipe"]
    head = (
        "milliseconds a client-step", "best", "median", "times ours", "in one repetition",
        "GFLOP/s", "of the peak", "start, s", "loss",
    )  # fmt: skip
    rows = []
    for name, peer in found["peers"].items():
        all_steps = recipe["cohort"] * recipe["steps"]
        times = sorted(1e3 * run["seconds"] / all_steps for run in peer["runs"])
        speed = gigaflops(found, name)
        mine = ratios(found, name)
        last = peer["runs"][-1]
        rows.append([
            peer["label"], number(times[0]), number(times[len(times) // 2]),
            number(best(peer) / best(found["peers"][ours(found["peers"])])),
            f"{number(min(mine))} to {number(max(mine))}",
            number(speed), f"{speed / limits['gigaflops']:.1%}", number(peer["start_seconds"]),
            f"{last['loss_before']:.2f} to {last['loss_after']:.2f}",
        ])  # fmt: skip
    return table(head, rows) + bytes_moved(found, limits)


def bytes_moved(found: Results, limits: Results) -> str:
    """The share of the memory's speed that reading and writing states and examples takes."""
    if "scafflix" not in found["peers"]:
        return ""
    mine = found["peers"]["scafflix"]
    speed = found["client_bytes"] * found["recipe"]["cohort"] / best(mine) / 1e9
    return (
        f"\n{found['clients']:,} clients, {found['recipe']['cohort']:,} a round, "
        f"{found['recipe']['steps']} steps of batch {found['recipe']['batch']}. Scafflix reads and "
        f"writes {number(found['client_bytes'] / 1e3)} kB of states and examples a client: "
        f"{number(speed)} GB/s, {speed / limits['bandwidth_gigabytes']:.1%} of the memory's. "
        f"Resident: {mine['runs'][-1]['resident'] / 1e9:.2f} GB, with "
        f"{found['state_bytes'] / 1e9:.2f} GB of states (x_i\\* and h_i) and "
        f"{found['data_bytes'] / 1e9:.2f} GB of examples.\n"
    )


def growth(found: Results) -> str:
    head = (
        "one more of", "costs a round, microseconds", "at the machine's limits",
        "off the line", "costs memory, bytes", "states + examples, bytes", "off the line",
    )  # fmt: skip
    rows = [
        [
            name, number(1e6 * grown["seconds"]["slope"]), number(1e6 * grown["limit_slope"]),
            f"{grown['seconds']['off']:.1%}", number(grown["resident"]["slope"]),
            number(grown["bytes_slope"]), f"{grown['resident']['off']:.1%}",
        ]
        for name, grown in found.items()
    ]  # fmt: skip
    points = [
        [name, number(point[name]), number(1e3 * point["seconds"]), number(point["resident"] / 1e6)]
        for name, grown in found.items()
        for point in grown["points"]
    ]
    return (
        table(head, rows)
        + "\n"
        + table(("size", "value", "milliseconds a round", "resident, MB"), points)
    )


def store(found: list[Results]) -> str:
    head = ("clients", "state on disk, GB", "seconds a round", "peak resident memory, GB")
    return table(
        head,
        [
            [
                number(row["clients"]),
                number(row["state"] / 1e9),
                number(row["seconds"]),
                number(row["peak"] / 1e9),
            ]
            for row in found
        ],
    )


def targets(results: Results) -> str:
    """What was aimed at, what was measured, and whether that is enough."""
    rows = []

    def add(what: str, aim: str, measured: str, met: bool) -> None:
        rows.append([what, aim, measured, "yes" if met else "**no**"])

    if "convex" in results:
        times = results["convex"]["ratio"]
        add(
            "convex: times faster than the NumPy loop",
            number(FIGURE),
            number(times),
            times >= FIGURE,
        )
    for name, peer, least in TARGETS:
        peers = results.get(name, {}).get("peers", {})
        if {peer, OURS} <= peers.keys():
            times = best(peers[peer]) / best(peers[OURS])
            what = f"{name}: times faster than {peers[peer]['label']}"
            add(what, number(least), number(times), times >= least)
    for name in ("cnn", "lstm"):
        peers = results.get(name, {}).get("peers", {})
        if {"scafflix", OURS} <= peers.keys():
            extra = best(peers["scafflix"]) / best(peers[OURS]) - 1
            what = f"{name}: Scafflix over our FedAvg, at most"
            add(what, f"{EXTRA:.0%}", f"{extra:.1%}", extra <= EXTRA)
            share = gigaflops(results[name], OURS) / results["machine"]["gigaflops"]
            what = f"{name}: share of the matrix-product peak"
            add(what, f"{SHARE:.0%}", f"{share:.1%}", share >= SHARE)
    peers = results.get("methods", {}).get("peers", {})
    for name, other, most in AMONG:
        if {name, other} <= peers.keys():
            times = best(peers[name]) / best(peers[other])
            what = f"methods: {peers[name]['label']} over {peers[other]['label']}, at most"
            add(what, number(most), number(times), times <= most)
    for workload_name in ("cnn_module", "lstm_module"):
        peers = results.get(workload_name, {}).get("peers", {})
        for name, other, most in MODULE:
            if {name, other} <= peers.keys():
                times = best(peers[name]) / best(peers[other])
                what = f"{workload_name}: {peers[name]['label']} over {peers[other]['label']}"
                add(f"{what}, at most", number(most), number(times), times <= most)
    if clients := results.get("growth", {}).get("clients"):
        times = clients["resident"]["slope"] / clients["bytes_slope"]
        what = "growth: bytes in memory over those of states and examples, at most"
        add(what, number(MEMORY), number(times), times <= MEMORY)
    return table(("target", "aim", "measured", "met"), rows) if rows else ""


def page(results: Results) -> str:
    """Everything that was measured."""
    limits = results["machine"]
    parts = [machine(limits), targets(results)]
    for name, found in results.items():
        if name == "machine":
            continue
        title = found["title"] if "title" in found else name.capitalize()
        made = {"convex": convex, "growth": growth, "store": store}.get(name, workload)
        body = made(found) if name in ("growth", "store") else made(found, limits)
        parts.append(f"### {title}\n\n{body}")
    return "\n".join(parts)
