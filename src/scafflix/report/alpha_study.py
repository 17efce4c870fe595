"""What rules for alpha are worth: tables and a picture of divisions of several data sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scafflix.report.figures import Picture
from scafflix.report.table import Table
from scafflix.runs.alpha_study import Study
from scafflix.runs.fates import Fate

CHOSEN = "alpha 1, chosen"
DRAWN = {  # lines of the picture
    "FedAvg": ("FedAvg", "C4", "-"),
    "alpha 1, as trained": ("one model for all (alpha = 1)", "C1", "-"),
    "alpha 0.5, as trained": ("FLIX (alpha = 0.5)", "C2", "-"),
    CHOSEN: ("alpha chosen at the end (auto)", "C0", "-"),
}
RULES = ("loo", "validation", "james-stein", "common")
LEVELS = ("loo at 0.5", "loo", "loo at 0")
ABSENT = "–"  # of a rule that does not serve the model


def tables(found: Sequence[Study]) -> list[Table]:
    """Loss, who is hurt, accuracy, rounds, newcomers."""
    made = [
        Table(
            "Mean test loss over clients, ± standard error of its difference to local",
            ("data", "local", "global", "best common alpha", *RULES),
            [_losses(study) for study in found],
        ),
        Table(
            "Share of the clients whose test loss is above that of their own model",
            ("data", "global", "best common alpha", *RULES),
            [_row(study, ("global", hindsight(study), *RULES), _hurt) for study in found],
        ),
        Table(
            "Test accuracy in percent: mean over clients / 10th percentile",
            ("data", "local", "global", "best common alpha", *RULES),
            [_row(one, ("local", "global", hindsight(one), *RULES), _accuracy) for one in found],
        ),
    ]
    linear = [study for study in found if LEVELS[0] in study.ends]
    if linear:
        made.append(
            Table(
                "Level of the test by which a client's own evidence forbids an alpha: mean test "
                "loss, and share of the clients worse off than alone",
                ("data", "0.5: by the mean", "0.05", "0: nothing is forbidden"),
                [_row(study, LEVELS, _loss_and_hurt) for study in linear],
            )
        )
    made += [_by_round(study) for study in found]
    made += [_of_newcomers(study) for study in found if study.newcomers]
    return made


def hindsight(study: Study) -> str:
    """The common alpha, trained for, with the least mean test loss, that of 0 among them."""
    commons = ("local", *(line for line in study.ends if line.startswith("alpha ")))
    return min(commons, key=lambda line: _mean(study.ends[line]))


def _mean(fates: Sequence[Fate], name: str = "loss") -> float:
    return float(np.mean([getattr(fate, name) for fate in fates]))


def _losses(study: Study) -> tuple[str, ...]:
    alone = np.array([fate.loss for fate in study.ends["local"]])

    def cell(line: str) -> str:
        if line not in study.ends:
            return ABSENT
        apart = np.array([fate.loss for fate in study.ends[line]]) - alone
        error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else np.nan
        return f"{_mean(study.ends[line]):.4f} ± {error:.4f}"

    best = hindsight(study)
    which = "0" if best == "local" else best.removeprefix("alpha ")
    local, common = f"{alone.mean():.4f}", f"{_mean(study.ends[best]):.4f} ({which})"
    return study.title, local, cell("global"), common, *map(cell, RULES)


def _row(
    study: Study, lines: Sequence[str], cell: Callable[[Sequence[Fate]], str]
) -> tuple[str, ...]:
    cells = (cell(study.ends[line]) if line in study.ends else ABSENT for line in lines)
    return study.title, *cells


def _hurt(fates: Sequence[Fate]) -> str:
    return f"{_mean(fates, 'hurt'):.2f}"


def _loss_and_hurt(fates: Sequence[Fate]) -> str:
    return f"{_mean(fates):.4f} ({_hurt(fates)})"


def _accuracy(fates: Sequence[Fate]) -> str:
    return f"{100 * _mean(fates, 'accuracy'):.1f} / {100 * _mean(fates, 'p10'):.1f}"


def _by_round(study: Study) -> Table:
    looks = list(study.rounds[CHOSEN])
    rows = [
        (line, *(f"{_mean(fates[look]):.4f}" for look in looks))
        for line, fates in study.rounds.items()
    ]
    alone = f"{_mean(study.ends['local']):.4f}"
    return Table(
        f"{study.title}: test loss after so many rounds; alone {alone}",
        ("trained at", *map(str, looks)),
        rows,
    )


def _of_newcomers(study: Study) -> Table:
    lines = list(next(iter(study.newcomers.values())))
    rows = [
        (str(size), *(f"{_mean(fates[line]):.4f}" for line in lines))
        for size, fates in study.newcomers.items()
    ]
    return Table(
        f"{study.title}: test loss of newcomers with so many examples", ("examples", *lines), rows
    )


def figure(found: Sequence[Study]) -> Picture:
    """Test loss of what clients take home against rounds, a panel a data set."""
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    made = Picture(figsize=(0.6 + 3.9 * columns, 0.9 + 2.6 * rows), layout="constrained")
    grid = made.subplots(rows, columns, squeeze=False)
    for axes, study in zip(grid.flat, found, strict=False):
        first = axes is grid[0, 0]
        for line, (label, colour, style) in DRAWN.items():
            looks = study.rounds[line]
            values = [_mean(fates) for fates in looks.values()]
            wide = 2.4 if line == CHOSEN else 1.4
            axes.semilogx(
                list(looks), values, style, color=colour, lw=wide, marker=".",
                label=label if first else None,
            )  # fmt: skip
        alone = _mean(study.ends["local"])
        axes.axhline(alone, color="0.4", ls="--", lw=1, label="alone" if first else None)
        chosen = [_mean(fates) for fates in study.rounds[CHOSEN].values()]
        room = 1.6 * max(abs(alone - min(chosen)), 0.02 * alone)
        drawn = [_mean(fates) for line in DRAWN for fates in study.rounds[line].values()]
        top = min(max(alone, *chosen) + room, max(alone, *drawn) + 0.3 * room)
        axes.set_ylim(min(drawn) - 0.3 * room, top)
        axes.set_xticks(list(study.rounds[CHOSEN]), list(map(str, study.rounds[CHOSEN])))
        axes.minorticks_off()
        axes.set_title(study.title)
        axes.grid(visible=True, alpha=0.3)
    for axes in grid.flat[len(found) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel("rounds")
    for axes in grid[:, 0]:
        axes.set_ylabel("mean test loss")
    made.legend(loc="outside lower center", ncols=2 * columns - 1, frameon=False)
    return made
