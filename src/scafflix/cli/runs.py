"""`scafflix run`, `compare`, `plan`, `demo` and `reproduce`."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from scafflix import config as configuration
from scafflix import experiment, reproduction, tuning
from scafflix.cli.display import OUT, progress
from scafflix.cli.options import configured
from scafflix.config import CompareConfig, RunConfig, TuneConfig
from scafflix.engine.run import Progress as Report
from scafflix.errors import ScafflixError
from scafflix.models import is_network
from scafflix.record import Record, check_new_folder, new_folder
from scafflix.report import tables
from scafflix.report.curves import alpha_label
from scafflix.reproduction import Scale

Out = Annotated[Path | None, typer.Option("--out", help="Folder to write.", metavar="DIR")]
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")]


@configured(RunConfig)
def run(config: RunConfig, out: Out = None, force: Force = False) -> None:
    """One run: any data, any method. Writes the record of it."""
    words = (Path(config.data).stem, config.method, alpha_label(config.alpha), config.seed)
    folder = out or Path("runs") / _safe("-".join(map(str, words)))
    check_new_folder(folder, force=force)
    with progress(config.method) as (report,):
        record = experiment.execute(config, report)
    record.save(folder, force=force)
    if is_network(config.model):
        _print_network_summary(record)
    else:
        _print_summary(record)
    OUT.print(f"written to {folder}", soft_wrap=True)
    _refuse_divergence([record], folder)


@configured(CompareConfig)
def compare(config: CompareConfig, out: Out = None, force: Force = False) -> None:
    """Several methods on one problem: one picture, one table, one page."""
    folder = out or Path("runs") / _safe(f"{Path(config.data).stem}-compare")
    _compare(config, folder, force, title=f"Comparison on {Path(config.data).name}")


def demo(out: Out = None, force: Force = False) -> None:
    """Handwritten digits over 20 unlike clients: GD, Nesterov, FedAvg, Scafflix."""
    config = configuration.build(CompareConfig, experiment.figure_settings("demo"))
    _compare(config, out or Path("demo"), force, title="Digits over 20 unlike clients")


def _compare(config: CompareConfig, folder: Path, force: bool, title: str) -> None:
    check_new_folder(folder, force=force)
    with progress("comparing") as (report,):
        records = experiment.compare(config, report)
    # drawing takes a second to import: only once there is something to draw
    from scafflix.report import accuracy, curves, figures, page

    with new_folder(folder, force=force) as aside:
        for number, record in enumerate(records):
            asked, alpha = record.config, alpha_label(record.config["alpha"])
            words = (asked["method"], asked["stepsize"], alpha, asked["seed"])
            # numbered: two files or vectors of alphas may have the same label
            name = _safe(f"{number:03d}-{'-'.join(map(str, words))}")
            (aside / "runs" / name).mkdir(parents=True)
            record.write(aside / "runs" / name)
        curves.write_csv(records, aside / "curves.csv")
        if is_network(config.model):
            panel = accuracy.panel(title, records)
            figures.save(accuracy.figure([panel]), aside, "figure")
            made = [accuracy.table(panel, accuracy.BRIEF)]
        else:
            figures.save(figures.convergence(records), aside, "figure")
            made = [tables.to_target(records, config.target), tables.scores(records)]
        page.write(records, made, title, aside / "report.html")
    for table in made:
        OUT.print(table.on_terminal())
    OUT.print(f"figure: {folder / 'figure.png'}", soft_wrap=True)
    OUT.print(f"report: {folder / 'report.html'}", soft_wrap=True)


@configured(RunConfig)
def plan(config: RunConfig) -> None:
    """Constants, stepsizes, p, and predicted rounds and megabytes, before anything runs."""
    made = experiment.forecast(config)
    _print_facts("Plan", made.facts)
    header = ("method", "p", "zeta", "iterations", "rounds", "megabytes")
    rows = [tuple(map(_words, row)) for row in made.methods]
    OUT.print(tables.Table(f"Predicted for Psi <= {made.epsilon:g}", header, rows).on_terminal())


@configured(TuneConfig)
def tune(config: TuneConfig, out: Out = None, force: Force = False) -> None:
    """Stepsizes for each method on validation data, then the winners on the test data.

    A search that was stopped goes on when the same command is given again.
    """
    folder = out or Path("runs") / _safe(f"{Path(config.data).stem}-{config.model}-tune")
    if (folder / "tune.csv").exists():
        check_new_folder(folder, force=force)
    with progress("tuning") as (report,):
        tuned = tuning.tune(config, folder, report)
    from scafflix.report import grids

    with new_folder(folder, force=True) as aside:
        grids.write_csv(tuned, aside / "tune.csv")
        for method, record in tuned.winners.items():
            (aside / "winners" / method).mkdir(parents=True)
            record.write(aside / "winners" / method)
    OUT.print(grids.grid(tuned).on_terminal())
    OUT.print(grids.winners(tuned).on_terminal())
    OUT.print(f"written to {folder}", soft_wrap=True)


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


def reproduce(
    figure: Annotated[
        FigureName,
        typer.Argument(help="A figure of the paper, or warm or pace, which it lacks."),
    ],
    scale: Annotated[
        Scale, typer.Option(help="How large: a minute, an hour, or the paper's (not fig1).")
    ] = Scale.laptop,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key for all runs.", metavar="KEY=VALUE"),
    ] = None,
    out: Out = None,
    force: Force = False,
) -> None:
    """A figure of the paper: pictures, tables, a CSV of every curve.

    Runs are cached: a figure that was stopped goes on when the same command is given again.
    """
    name = figure.value
    folder = out or Path("runs") / name
    check_new_folder(folder, force=force)
    if name == "fig1":
        _reproduce_fig1(folder, force)
        return
    changes = configuration.assigned(assignments or [])
    with progress(name) as (report,):
        panels = reproduction.reproduce(name, scale, changes, report)
    from scafflix.report import accuracy, figures

    with new_folder(folder, force=force) as aside:
        figures.save(accuracy.figure(panels), aside, name)
        accuracy.write_csv(panels, aside / f"{name}.csv")
        accuracy.write_tables(panels, aside, name)
    for panel in panels:
        OUT.print(accuracy.table(panel, accuracy.BRIEF).on_terminal())
    OUT.print(f"figure: {folder / f'{name}.png'}", soft_wrap=True)


def _reproduce_fig1(folder: Path, force: bool) -> None:
    """Convex problems: every seed and alpha in one sweep, with certificates."""
    name = "fig1"
    settings = experiment.figure_settings(name)
    panels = settings.pop("panels")
    configs = [configuration.build(CompareConfig, {**settings, "data": data}) for data in panels]
    with progress(*panels) as reports:
        records = _compare_all(configs, reports)
    from scafflix.report import curves, figures

    with new_folder(folder, force=force) as aside:
        figures.save(figures.convergence(records, methods=("scafflix", "gd")), aside, name)
        figures.save(
            figures.convergence(records, methods=("scafflix", "scafflix:common")),
            aside,
            f"{name}_stepsizes",
        )
        curves.write_csv(records, aside / f"{name}.csv")
        summaries = json.dumps([_facts(record) for record in records], indent=1)
        (aside / f"{name}_runs.json").write_text(summaries + "\n")
    OUT.print(tables.by_panel(records, configs[0].target).on_terminal())
    OUT.print(f"figure: {folder / f'{name}.png'}", soft_wrap=True)


def _compare_all(configs: list[CompareConfig], reports: list[Report]) -> list[Record]:
    """Two panels at a time: compiling hardly uses a second core."""
    stopped = threading.Event()

    def compare_panel(config: CompareConfig, report: Report) -> list[Record]:
        def report_or_stop(done: int, total: int, gap: float) -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            report(done, total, gap)

        return experiment.compare(config, report_or_stop, scores=False)

    with ThreadPoolExecutor(max_workers=2) as pool:
        try:
            return list(itertools.chain(*pool.map(compare_panel, configs, reports)))
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _facts(record: Record) -> dict[str, Any]:
    names = ("method", "seed", "p", "zeta", "kappa_max", "final_gap", "certificate")
    return {"data": record.config["data"], "alpha": record.config["alpha"]} | {
        name: record.summary[name] for name in names
    }


def _print_summary(record: Record) -> None:
    summary, clients = record.summary, record.clients
    shown = (
        "method n_clients n_active dim p zeta kappa_max gamma_min gamma_max rounds iterations "
        "final_gap predicted_rounds seconds compile_seconds"
    )
    facts = {name: summary[name] for name in shown.split()}
    certificate = summary["certificate"]
    if certificate is not None:
        verdict = "holds" if certificate["holds"] else "exceeded"
        ratio, at = certificate["worst_ratio"], certificate["worst_round"]
        facts["certificate"] = f"{verdict}: Psi / bound at most {ratio:.3f} (round {at})"
    part = "test" if "test_local" in clients else "train"
    worst = np.nanmin if summary["metric"] == "accuracy" else np.nanmax
    for kind in ("local", "global", "personal"):
        scores = clients[f"{part}_{kind}"]
        words = f"mean {np.nanmean(scores):.4g}, worst client {worst(scores):.4g}"
        facts[f"{part} {summary['metric']}, {kind}"] = words
    _print_facts("Run", facts)


def _print_network_summary(record: Record) -> None:
    summary = record.summary
    shown = (
        "method n_clients n_left_out cohort dim p gamma_min gamma_median gamma_max "
        "warmup_rounds rounds iterations seconds compile_seconds"
    )
    _print_facts("Run", {name: summary[name] for name in shown.split()})
    for part, kinds in summary["scores"].items():
        header = ("models", "over examples", "over clients", "std", "10th percentile", "worst")
        names = ("examples", "clients", "std", "p10", "worst")
        rows = [(kind, *(f"{found[name]:.4f}" for name in names)) for kind, found in kinds.items()]
        title = f"{part.capitalize()} {summary['metric']}"
        OUT.print(tables.Table(title, header, rows).on_terminal())


def _refuse_divergence(records: list[Record], folder: Path) -> None:
    """Say so once what was good is written."""
    for record in records:
        diverged = record.summary.get("diverged")
        if diverged is not None:
            raise ScafflixError(
                f"{record.config['method']} diverged in round {diverged['round']} at client "
                f"{diverged['client']} (loss {_words(diverged['loss'])}); {folder} holds the last "
                "good model. Give a smaller stepsize."
            )


def _print_facts(title: str, facts: Mapping[str, Any]) -> None:
    table = Table(title=title, title_justify="left", show_header=False, box=SIMPLE_HEAD)
    for name, value in facts.items():
        table.add_row(name, _words(value))
    OUT.print(table)


def _words(value: Any) -> str:
    if value is None or value != value:
        return "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _safe(name: str) -> str:
    """A folder name from words that may hold a path."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "_", name)[:100]
