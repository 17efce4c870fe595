"""Which alpha, and when: rules that choose it against every common alpha.

A panel is a data set: for a linear model, divided into training and test examples several times;
for a network, trained with several seeds. What one division or seed gives is kept in the cache, so
that a study that was stopped goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from scafflix.core.errors import ScafflixError, ScafflixWarning
from scafflix.core.progress import Progress
from scafflix.models import is_network
from scafflix.runs import alpha_convex, alpha_networks
from scafflix.runs.fates import Fate
from scafflix.runs.runner import figure_settings
from scafflix.runs.studies import chosen_panels, kept, whole_numbers

RECIPE = 6  # to be raised when the same settings give other numbers
CHANGEABLE = ("divisions", "rounds", "looks", "panels")
SHARED = ("divisions", "rounds", "looks", "alphas")  # of a panel that has none of its own


class Study(NamedTuple):
    """What the divisions of one data set gave: for every line, a fate from each division."""

    title: str
    ends: dict[str, list[Fate]]  # after the last round: local, global, common alphas, rules
    rounds: dict[str, dict[int, list[Fate]]]  # line -> rounds -> fates
    newcomers: dict[int, dict[str, list[Fate]]]  # examples -> line -> fates


def study(
    changes: Mapping[str, str] | None = None, progress: Progress | None = None
) -> list[Study]:
    """All data sets; `changes` to divisions, rounds and looks are for trying it out."""
    settings = figure_settings("alpha")
    panels = _panels(settings, _read(changes or {}))
    every = [(panel, division) for panel in panels for division in range(panel["divisions"])]
    made: dict[str, list[dict[str, Any]]] = {panel["title"]: [] for panel in panels}
    for done, (panel, division) in enumerate(every):
        if progress is not None:
            progress(done, len(every), f"{panel['title']}, division {division + 1}")
        made[panel["title"]].append(_kept(settings, panel, division))
    return [_gathered(title, found) for title, found in made.items()]


def _read(changes: Mapping[str, str]) -> dict[str, list[int]]:
    """Whole numbers for keys that can be changed."""
    made = {}
    for name, words in changes.items():
        if name not in CHANGEABLE:
            raise ScafflixError(
                f"There is no key {name!r} of this study; it has {', '.join(CHANGEABLE)}."
            )
        made[name] = whole_numbers(name, words, 0 if name == "panels" else 1)
    return made


def _panels(
    settings: Mapping[str, Any], changes: Mapping[str, Sequence[int]]
) -> list[dict[str, Any]]:
    """Those that were asked for, each with its number of divisions, rounds, looks and alphas."""
    made = []
    for chosen in chosen_panels(settings["panels"], changes.get("panels")):
        panel = {**{name: settings[name] for name in SHARED}, **chosen}
        panel |= {name: changes[name][0] for name in ("divisions", "rounds") if name in changes}
        looks, last = changes.get("looks", panel["looks"]), panel["rounds"]
        panel["looks"] = sorted({min(look, last) for look in looks} | {last})
        made.append(panel)
    return made


def _kept(settings: Mapping[str, Any], panel: Mapping[str, Any], division: int) -> dict[str, Any]:
    """One division, from the cache if it was made before."""
    shared = {name: value for name, value in settings.items() if name not in ("panels", *SHARED)}
    asked = {name: value for name, value in panel.items() if name != "divisions"}

    def make() -> dict[str, Any]:
        by = alpha_networks if is_network(panel["model"]) else alpha_convex
        with warnings.catch_warnings():
            # clients of one class are expected here
            warnings.simplefilter("ignore", ScafflixWarning)
            return by.fates_of(settings, panel, division)._asdict()

    return kept("alpha", RECIPE, [shared, asked, division], make)


def _gathered(title: str, made: Sequence[dict[str, Any]]) -> Study:
    """The same line of all divisions side by side."""

    def keys(part: str) -> Iterable[str]:
        return dict.fromkeys(key for one in made for key in one[part])

    def inner(part: str, key: str) -> Iterable[str]:
        return dict.fromkeys(other for one in made for other in one[part].get(key, {}))

    def fates(*path: str) -> list[Fate]:
        found: list[Fate] = []
        for one in made:
            there: Any = one
            for key in path:
                there = there.get(key, {})
            found += [Fate(*there)] if there else []
        return found

    return Study(
        title,
        {line: fates("ends", line) for line in keys("ends")},
        {
            line: {int(look): fates("rounds", line, look) for look in inner("rounds", line)}
            for line in keys("rounds")
        },
        {
            int(size): {line: fates("newcomers", size, line) for line in inner("newcomers", size)}
            for size in keys("newcomers")
        },
    )
