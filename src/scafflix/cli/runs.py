"""`scafflix run`, `compare`, `plan`, `demo`, `tune` and `reproduce`: what can be said to them.

What they do is in `cli.work`, imported once it is known that something is to be done: JAX takes
a second to import.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from scafflix.cli.options import configured
from scafflix.core.progress import MINUTES
from scafflix.runs import config as configuration
from scafflix.runs.config import CompareConfig, RunConfig, Scale, TuneConfig, plain

Out = Annotated[Path | None, typer.Option("--out", help="Folder to write to.", metavar="DIR")]
Force = Annotated[bool, typer.Option("--force", help="Write even if the folder is not empty.")]
Minutes = Annotated[
    float,
    typer.Option("--checkpoint-minutes", help="Minutes between checkpoints.", metavar="NUMBER"),
]
RoundsBetween = Annotated[
    int | None,
    typer.Option("--checkpoint-rounds", help="Rounds between checkpoints, at most.", metavar="N"),
]

Latex = Annotated[
    Path | None,
    typer.Option("--latex", help="Also write a LaTeX table of the runs.", metavar="FILE"),
]


@configured(RunConfig)
def run(
    config: RunConfig,
    out: Out = None,
    force: Force = False,
    minutes: Minutes = MINUTES,
    rounds_between: RoundsBetween = None,
) -> None:
    """Run one method on any data and write a record of it."""
    from scafflix.report.curves import alpha_label

    alpha = [] if config.alpha is None else [alpha_label(config.alpha)]
    name = "-".join(map(str, (Path(config.data).stem, config.method, *alpha, config.seed)))
    _begin("run", out or name, force, minutes, rounds_between, config=plain(config))


@configured(CompareConfig)
def compare(
    config: CompareConfig,
    latex: Latex = None,
    out: Out = None,
    force: Force = False,
    minutes: Minutes = MINUTES,
    rounds_between: RoundsBetween = None,
) -> None:
    """Several methods on one problem: one picture, one table, one page."""
    arguments = {"config": plain(config), "title": f"Comparison on {Path(config.data).name}"}
    arguments |= {} if latex is None else {"latex": str(latex)}
    name = f"{Path(config.data).stem}-compare"
    _begin("compare", out or name, force, minutes, rounds_between, **arguments)


def demo(out: Out = None, force: Force = False) -> None:
    """Handwritten digits over 20 unlike clients: GD, Nesterov, FedAvg, Scafflix."""
    from scafflix.runs.runner import figure_settings

    config = configuration.build(CompareConfig, figure_settings("demo"))
    title = "Digits over 20 unlike clients"
    _begin("compare", out or Path("demo"), force, config=plain(config), title=title)


OF_RUNS = ("seed", "part", "every", "store", "keep", "strict")


NETWORK = "Your network"  # a panel of the help


def _cost(name: str, help: str) -> Any:
    return typer.Option(name, help=help, metavar="TEXT", rich_help_panel=NETWORK)


@configured(
    RunConfig, unread=OF_RUNS, also={"epsilon": "--target"}, read_with={"rounds": "privacy"}
)
def plan(
    config: RunConfig,
    latency: Annotated[str, _cost("--latency", "Of a round, there and back: 0.1, 100ms.")] = "",
    up: Annotated[str, _cost("--up", "Bandwidth up of a client: 1Mbps, 500kbps.")] = "",
    down: Annotated[str, _cost("--down", "Bandwidth down (default: as up).")] = "",
    gradient: Annotated[str, _cost("--gradient", "Time of a gradient: 5ms.")] = "",
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Time a gradient on this machine.", rich_help_panel=NETWORK),
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture",
            help="Draw which method wins at which latency and bandwidth.",
            metavar="FILE",
            rich_help_panel=NETWORK,
        ),
    ] = None,
) -> None:
    """Show constants, stepsizes, p, and predicted rounds and megabytes, before anything runs.

    With the costs of your network, also seconds: every method with its best options, sorted.
    """
    from scafflix.cli import work

    work.plan(config, latency, up, down, gradient, measure, picture)


@configured(TuneConfig)
def tune(
    config: TuneConfig,
    out: Out = None,
    force: Force = False,
    minutes: Minutes = MINUTES,
    rounds_between: RoundsBetween = None,
) -> None:
    """Choose a stepsize for each method on validation data, then score the winners on test data."""
    name = f"{Path(config.data).stem}-{config.model}-tune"
    _begin("tune", out or name, force, minutes, rounds_between, config=plain(config))


class FigureName(StrEnum):
    """Figures that can be reproduced."""

    fig1 = "fig1"
    fig2 = "fig2"
    fig3a = "fig3a"
    fig3b = "fig3b"
    fig3c = "fig3c"
    figa1 = "figA1"
    figa2 = "figA2"
    figa3 = "figA3"
    warm = "warm"
    pace = "pace"
    triple = "triple"
    rivals = "rivals"
    drift = "drift"
    alpha = "alpha"
    heart = "heart"
    landmine = "landmine"
    privacy = "privacy"


def reproduce(
    figure: Annotated[
        FigureName,
        typer.Argument(
            help="A figure of the paper; one of ours: warm, pace, triple, rivals, drift, "
            "alpha; or a table that others published: heart (FLamby's), landmine; or privacy, "
            "accuracy against epsilon."
        ),
    ],
    scale: Annotated[
        Scale | None,
        typer.Option(
            help="A minute, an hour, the paper's rounds with the clients that are there, or all as "
            "in the paper (default: laptop). fig1, triple, alpha, heart, landmine and privacy have "
            "one scale.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a key for all runs; panels and lines choose some by their numbers.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    out: Out = None,
    force: Force = False,
    minutes: Minutes = MINUTES,
    rounds_between: RoundsBetween = None,
) -> None:
    """Reproduce a figure: pictures, tables, a CSV of every curve. Runs are cached."""
    name, changes = figure.value, configuration.assigned(assignments or [])
    arguments = {"name": name, "scale": scale and scale.value, "changes": changes}
    _begin("reproduce", out or name, force, minutes, rounds_between, **arguments)


def _begin(
    command: str,
    out: Path | str,  # a folder, or a name for one
    force: bool,
    minutes: float = MINUTES,
    rounds: int | None = None,
    **arguments: Any,
) -> None:
    from scafflix.cli import work
    from scafflix.core.checkpoint import Often
    from scafflix.core.folders import file_name
    from scafflix.runs.workfolder import Asked

    folder = out if isinstance(out, Path) else Path("runs") / file_name(out)
    work.work(Asked(command, arguments, str(Path.cwd()), Often(rounds, minutes)), folder, force)
