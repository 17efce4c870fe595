"""What `scafflix reproduce` does: one function for each kind of figure."""

from __future__ import annotations

import json
from typing import Any

from scafflix.cli.display import progress, show, tell, wrote
from scafflix.core.errors import ScafflixError
from scafflix.record import Record
from scafflix.report import tables
from scafflix.runs import (
    alpha_study,
    convex_figures,
    durations,
    privacy_study,
    published,
    reproduction,
)
from scafflix.runs.config import Scale
from scafflix.runs.workfolder import Job

LONG = (Scale.machine, Scale.paper)  # how long is said before


def reproduce(job: Job, name: str, scale: str | None, changes: dict[str, str]) -> None:
    """A figure by its name."""
    convex = {"fig1": _fig1, "triple": _triple}
    studies = {
        "alpha": _alpha,
        "heart": _published,
        "landmine": _published,
        "privacy": _privacy,
    }
    if name in studies:
        _check_one_scale(name, scale)
        studies[name](job, name, changes)
        wrote("figure", job.folder / f"{name}.png")
        return
    if name not in convex:
        _tuned(job, name, Scale(scale or Scale.laptop), changes)
        return
    _check_one_scale(name, scale)
    configs = convex_figures.comparisons(name, changes)
    titles = [f"{config.data}: {', '.join(config.methods)}" for config in configs]
    with progress(*titles) as reports:
        records = convex_figures.run(configs, reports, job.checkpoints)
    convex[name](job, name, records, configs[0].target)
    wrote("figure", job.folder / f"{name}.png")


def _check_one_scale(name: str, scale: str | None) -> None:
    if scale is not None:
        raise ScafflixError(f"{name} has one scale; leave it out, and change keys with --set.")


def _alpha(job: Job, name: str, changes: dict[str, str]) -> None:
    with progress(name) as (report,):
        found = alpha_study.study(changes, report)
    from scafflix.report import alpha_study as drawing
    from scafflix.report import figures

    made = drawing.tables(found)
    with job.output() as aside:
        figures.save(drawing.figure(found), aside, name)
        (aside / f"{name}.md").write_text("\n\n".join(table.markdown for table in made) + "\n")
    for table in made:
        show(table)


def _privacy(job: Job, name: str, changes: dict[str, str]) -> None:
    with progress(name) as (report,):
        found = privacy_study.study(changes, report)
    from scafflix.report import figures
    from scafflix.report import privacy_study as drawing

    made = drawing.tables(found)
    with job.output() as aside:
        figures.save(drawing.figure(found), aside, name)
        (aside / f"{name}.md").write_text("\n\n".join(table.markdown for table in made) + "\n")
        drawing.write_csv(found, aside / f"{name}.csv")
    for table in made:
        show(table)


def _published(job: Job, name: str, changes: dict[str, str]) -> None:
    with progress(name) as (report,):
        found = published.study(name, changes, report)
    from scafflix.report import figures
    from scafflix.report import published as drawing

    made = drawing.tables(found)
    with job.output() as aside:
        figures.save(drawing.figure(found), aside, name)
        (aside / f"{name}.md").write_text("\n\n".join(table.markdown for table in made) + "\n")
        drawing.write_csv(found, aside / f"{name}.csv")
    for table in made:
        show(table)


def _tuned(job: Job, name: str, scale: Scale, changes: dict[str, str]) -> None:
    if scale in LONG:
        ahead = durations.foreseen(name, scale, changes)
        if ahead is not None:
            tell("time", f"{ahead}.")
    with progress(name) as (report,):
        panels = reproduction.reproduce(name, scale, changes, report, job.checkpoints)
    # drawing takes a second to import: only once there is something to draw
    from scafflix.report import accuracy, drift, figures, rivals

    if name == "rivals":
        with job.output() as aside:
            figures.save(rivals.figure(panels), aside, name)
            if (courses := rivals.courses(panels)) is not None:
                figures.save(courses, aside, f"{name}_rounds")
            rivals.write(panels, aside, name)
        for panel in panels:
            for table in rivals.tables(panel):
                show(table)
        wrote("figure", job.folder / f"{name}.png")
        return
    shared = name == "drift"  # about the model that all share
    with job.output() as aside:
        figures.save(accuracy.figure(panels, "loss" if shared else "personal"), aside, name)
        accuracy.write_csv(panels, aside / f"{name}.csv")
        accuracy.write_tables(panels, aside, name, drift.table if shared else accuracy.table)
    for panel in panels:
        show(drift.table(panel) if shared else accuracy.table(panel, accuracy.BRIEF))
    wrote("figure", job.folder / f"{name}.png")


def _fig1(job: Job, name: str, records: list[Record], target: float) -> None:
    from scafflix.report import curves, figures

    with job.output() as aside:
        figures.save(figures.convergence(records, methods=("scafflix", "gd")), aside, name)
        figures.save(
            figures.convergence(records, methods=("scafflix", "scafflix:common")),
            aside,
            f"{name}_stepsizes",
        )
        curves.write_csv(records, aside / f"{name}.csv")
        (aside / f"{name}_runs.json").write_text(_facts(records))
    show(tables.by_panel(records, target))


def _triple(job: Job, name: str, records: list[Record], target: float) -> None:
    from scafflix.report import figures, triple

    made = triple.tables(records, target)
    with job.output() as aside:
        figures.save(triple.figure(records, target), aside, name)
        (aside / f"{name}.md").write_text("\n\n".join(table.markdown for table in made) + "\n")
        (aside / f"{name}_runs.json").write_text(_facts(records))
    for table in made:
        show(table)


def _facts(records: list[Record]) -> str:
    """What every run was, and how it ended."""
    names = ("method", "seed", "p", "zeta", "kappa_max", "final_gap", "certificate")

    def facts(record: Record) -> dict[str, Any]:
        asked = {name: record.config[name] for name in ("data", "alpha")}
        return asked | {name: record.summary[name] for name in names}

    return json.dumps([facts(record) for record in records], indent=1) + "\n"
