"""Who takes part in a run, agreed on before the first round."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scafflix.core import durable
from scafflix.core.durable import Arrays, Hook
from scafflix.core.errors import ScafflixError
from scafflix.federate.bounds import problem_with_introduction
from scafflix.federate.messages import Introduction
from scafflix.federate.sameness import compute_alike


class Roster(NamedTuple):
    """Who takes part, agreed on before the first round."""

    run: str
    introductions: tuple[Introduction, ...]  # in the order of the client numbers
    left: tuple[str, ...] = ()  # clients that the operator removed

    def save(self, folder: Path, start: Arrays, hook: Hook = durable.quiet) -> None:
        """Save the roster for a server that starts again."""
        kept = [one._replace(start=())._asdict() for one in self.introductions]
        facts = {"run": self.run, "introductions": kept, "left": list(self.left)}
        durable.write(folder / f"roster{durable.SUFFIX}", facts, start, hook)

    @staticmethod
    def load(folder: Path) -> tuple[Roster, Arrays] | None:
        """The roster and the starting point of the run in this folder, if there is one."""
        found = durable.read(folder / f"roster{durable.SUFFIX}")
        if found is None:
            return None
        facts, start = found
        people = [Introduction(**{**one, "start": ()}) for one in facts["introductions"]]
        return Roster(facts["run"], tuple(people), tuple(facts["left"])), start

    def without(self, clients: Sequence[str]) -> Roster:
        """The same run without these clients; those already removed may be named again."""
        names = [one.client for one in self.introductions]
        for client in clients:
            if client not in (*names, *self.left):
                raise ScafflixError(
                    f"There is no client {client} in this run; choose from {', '.join(names)}."
                )
        others = tuple(one for one in self.introductions if one.client not in clients)
        if not others:
            raise ScafflixError(
                "Without these clients nobody is left; keep one, or start a run in another folder."
            )
        gone = [name for name in names if name in clients]
        return self._replace(introductions=others, left=(*self.left, *gone))


def new_roster(introductions: Sequence[Introduction]) -> Roster:
    """A new run of these clients, in this order, with a new name."""
    if not introductions:
        raise ScafflixError("No client introduced itself; start the nodes first.")
    names = Counter(one.client for one in introductions)
    name, times = names.most_common(1)[0]
    if times > 1:
        raise ScafflixError(f"{times} nodes use the client id {name}; give each node its own id.")
    for one in introductions:
        wrong = problem_with_introduction(one)
        if wrong is not None:
            raise ScafflixError(f"Client {one.client} sent an invalid introduction: {wrong.reason}")
        if one.layout != introductions[0].layout:
            raise ScafflixError(
                f"Client {one.client} has a model with the layout {one.layout}, but client "
                f"{introductions[0].client} has {introductions[0].layout}; the layouts must be "
                "the same, so use one model on all nodes."
            )
        if not compute_alike(one.computes, introductions[0].computes):
            raise ScafflixError(
                f"The module of client {one.client} computes something else than that of client "
                f"{introductions[0].client} with the same arrays; its code, or what is frozen in "
                "it, differs, so give all nodes the same file and the same base."
            )
    by_rule = {one.rule: one.client for one in introductions if one.rule}
    if len(by_rule) > 1:
        said = ", ".join(f"{client} by {rule}" for rule, client in by_rule.items())
        raise ScafflixError(
            f"Clients choose alpha by different rules ({said}), whose curves have no common mean; "
            "use one rule on all nodes, or a number."
        )
    return Roster(secrets.token_hex(8), tuple(introductions))


def check_order(roster: Roster, order: Sequence[str]) -> None:
    """Refuse to continue with clients other than those of the run."""
    names = [one.client for one in roster.introductions]
    if order and [name for name in order if name not in roster.left] != names:
        raise ScafflixError(
            f"The clients of this run are {', '.join(names)}, not {', '.join(order)}; choose "
            "another --out, or use the clients it began with."
        )
