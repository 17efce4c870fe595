"""What the commands that compute do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scafflix.cli.display import conclusion, in_words, progress, show, show_facts, tell, wrote
from scafflix.cli.figures import reproduce
from scafflix.core.compilation import keep_programs
from scafflix.core.errors import ScafflixError
from scafflix.core.folders import file_name
from scafflix.core.machine import use_all_cores
from scafflix.models import is_network
from scafflix.record import Record
from scafflix.report import latex as latex_tables
from scafflix.report import tables, worth
from scafflix.report.curves import alpha_label
from scafflix.report.recommendation import recommendation
from scafflix.report.table import Table
from scafflix.runs import config as configuration
from scafflix.runs import runner, tuning
from scafflix.runs.assembly import build_problem
from scafflix.runs.config import CompareConfig, RunConfig, TuneConfig
from scafflix.runs.costs import costs
from scafflix.runs.forecast import forecast, time_of_gradient
from scafflix.runs.workfolder import Asked, Job, begin


def prepare() -> None:
    """Make the most of the machine, and of what was compiled before."""
    use_all_cores()
    keep_programs()


def work(asked: Asked, folder: Path, force: bool = False) -> None:
    """Do what was asked for, from the start or from where it was stopped."""
    prepare()
    with begin(asked, folder, force=force) as job:
        if job.announced:
            tell("resuming", f"{folder} continues where it was stopped")
        WORK[asked.command](job, **asked.arguments)


def _run(job: Job, config: dict[str, Any]) -> None:
    asked = configuration.build(RunConfig, config)
    with progress(asked.method) as (report,):
        record = runner.execute(asked, report, job.checkpoints)
    with job.output() as aside:
        record.write(aside)
    if is_network(asked.model):
        _print_network_summary(record)
    else:
        _print_summary(record)
    wrote("record", job.folder)
    conclusion(*recommendation(record), taken_home=record.summary["taken_home"])
    _refuse_divergence(record, job.folder)


def _compare(job: Job, config: dict[str, Any], title: str, latex: str | None = None) -> None:
    wanted, folder = configuration.build(CompareConfig, config), job.folder
    table_file = None if latex is None else Path(latex)
    if table_file is not None:
        latex_tables.check(table_file)
    with progress("comparing") as (report,):
        records = runner.compare(wanted, report, job.checkpoints)
    # drawing takes a second to import: only once there is something to draw
    from scafflix.report import accuracy, curves, figures, page

    with job.output() as aside:
        for number, record in enumerate(records):
            asked, alpha = record.config, alpha_label(record.config["alpha"])
            words = (asked["method"], asked["stepsize"], alpha, asked["seed"])
            # numbered: two files or vectors of alphas may have the same label
            name = file_name(f"{number:03d}-{'-'.join(map(str, words))}")
            (aside / "runs" / name).mkdir(parents=True)
            record.write(aside / "runs" / name)
        curves.write_csv(records, aside / "curves.csv")
        if is_network(wanted.model):
            panel = accuracy.panel(title, records)
            figures.save(accuracy.figure([panel]), aside, "figure")
            made = [accuracy.table(panel, accuracy.BRIEF)]
        else:
            figures.save(figures.convergence(records), aside, "figure")
            made = [tables.to_target(records, wanted.target), tables.scores(records)]
        page.write(records, aside / "report.html", title, wanted.target)
    for table in made:
        show(table)
    wrote("figure", folder / "figure.png")
    wrote("report", folder / "report.html")
    if table_file is not None:
        latex_tables.write(records, table_file, wanted.target)
        wrote("table", table_file)


def _tune(job: Job, config: dict[str, Any]) -> None:
    wanted, folder = configuration.build(TuneConfig, config), job.folder
    with progress("tuning") as (report,):
        tuned = tuning.tune(wanted, folder, report, job.checkpoints)
    from scafflix.report import grids

    with job.output() as aside:
        grids.write_csv(tuned, aside / "tune.csv")
        for method, record in tuned.winners.items():
            place = aside / "winners" / file_name(method)
            place.mkdir(parents=True)
            record.write(place)
    show(grids.grid(tuned))
    show(grids.winners(tuned))
    wrote("record", folder)


def plan(
    config: RunConfig,
    latency: str = "",
    up: str = "",
    down: str = "",
    gradient: str = "",
    measure: bool = False,
    picture: Path | None = None,
) -> None:
    """What theory says before anything runs."""
    given = bool(latency or up or down or gradient or measure)
    if given and not (latency and up and (gradient or measure)):
        raise ScafflixError("Give latency, up and gradient (or measure) together, or none of them.")
    if gradient and measure:
        raise ScafflixError("Give the time of a gradient, or measure it: leave out one of them.")
    if picture is not None and not given:
        raise ScafflixError("picture needs the costs of your network: latency, up and gradient.")
    prepare()
    known = costs(latency, up, down or up, gradient or "0") if given else None
    if known is not None and measure:
        known = known._replace(gradient=time_of_gradient(build_problem(config)))
    made = forecast(config, known)
    facts, header = made.facts, ["method", "p", "zeta", "iterations", "rounds", "megabytes"]
    if known is not None:
        facts["seconds of a gradient"] = known.gradient
        header = ["method", "cohort", "p", "rounds", "megabytes", "seconds"]
    show_facts("Plan", facts)
    sure = [one for one in made.methods if one.iterations is not None]
    rows = [tuple(in_words(getattr(one, name)) for name in header) for one in sure]
    show(Table(f"Predicted for Psi <= {made.epsilon:g}", tuple(header), rows))
    others = ", ".join(one.method for one in made.methods if one.iterations is None)
    if others:
        tell("no guarantee", others)
    if picture is not None and known is not None:
        from scafflix.report.winners import winners

        winners(made.tried, known).savefig(picture, dpi=150)
        wrote("picture", picture)


WORK: dict[str, Callable[..., None]] = {
    "run": _run,
    "compare": _compare,
    "tune": _tune,
    "reproduce": reproduce,
}


def _print_summary(record: Record) -> None:
    summary, clients = record.summary, record.clients
    shown = (
        "method n_clients n_active cohort dim p zeta kappa_max gamma_min gamma_max rounds "
        "iterations final_gap predicted_rounds seconds compile_seconds"
    )
    facts = {name: summary[name] for name in shown.split()}
    certificate = summary["certificate"]
    if certificate is None:
        facts["certificate"] = f"none: {summary['no_certificate']}"
    else:
        verdict = "holds" if certificate["holds"] else "exceeded"
        ratio, at = certificate["worst_ratio"], certificate["worst_round"]
        facts["certificate"] = f"{verdict}: Psi / bound at most {ratio:.3f} (round {at})"
    part = "test" if "test_local" in clients else "train"
    worst = np.nanmin if summary["metric"] == "accuracy" else np.nanmax
    for kind in ("local", "global", "personal"):
        scores = clients[f"{part}_{kind}"]
        words = f"mean {np.nanmean(scores):.4g}, worst client {worst(scores):.4g}"
        facts[f"{part} {summary['metric']}, {kind}"] = words
    show_facts("Run", facts | privacy_facts(summary) | worth.facts(record) | _left_out(record))


def privacy_facts(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What was spent of the clients' privacy, if it was counted."""
    found = summary.get("privacy")
    if found is None:
        return {}
    epsilon = "unbounded" if found["epsilon"] is None else f"{found['epsilon']:.4g}"
    noise = f"clip {found['clip']:g}, noise multiplier {found['noise_multiplier']:.4g}"
    noise += " at the server" if found.get("noise_at") == "server" else ""
    made = {f"epsilon for each {found['unit']}": f"{epsilon} at delta {found['delta']:g} ({noise})"}
    if found["ended_by_budget"]:
        made["ended"] = f"by the budget {found['budget']:g}, of {found['rounds_asked']} rounds"
    return made


def _print_network_summary(record: Record) -> None:
    summary = record.summary
    shown = (
        "method n_clients n_left_out cohort dim p gamma_min gamma_median gamma_max "
        "warmup_rounds rounds iterations seconds compile_seconds"
    )
    facts = {name: summary[name] for name in shown.split()}
    show_facts("Run", facts | privacy_facts(summary) | worth.facts(record) | _left_out(record))
    for part, kinds in summary["scores"].items():
        header = ("models", "over examples", "over clients", "std", "10th percentile", "worst")
        names = ("examples", "clients", "std", "p10", "worst")
        rows = [(kind, *(f"{found[name]:.4f}" for name in names)) for kind, found in kinds.items()]
        title = f"{part.capitalize()} {summary['metric']}"
        show(Table(title, header, rows))


def _left_out(record: Record) -> dict[str, str]:
    """That the clients' models are not kept, where nobody asked for that."""
    if record.config["keep"] != "auto" or record.summary["kept"] == "personal":
        return {}
    return {"models kept": "the global one only, because those of all clients take more than 8 GiB"}


def _refuse_divergence(record: Record, folder: Path) -> None:
    """Say so once what was good is written."""
    diverged = record.summary.get("diverged")
    if diverged is not None:
        raise ScafflixError(
            f"{record.config['method']} diverged in round {diverged['round']} at client "
            f"{diverged['client']} (loss {in_words(diverged['loss'])} on its batches); {folder} "
            "holds the last good model. Use a smaller stepsize."
        )
