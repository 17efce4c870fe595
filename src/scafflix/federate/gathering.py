"""Before the first round: wait for the clients, and agree with them on what is done to columns."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from scafflix.core.errors import ScafflixError
from scafflix.federate.flower_transport import FlowerTransport
from scafflix.federate.messages import Introduction
from scafflix.federate.roster import Roster, new_roster

TOGETHER = 5.0  # seconds to wait for all nodes, to greet them at once

Agree = Callable[[Mapping[str, str]], str]  # from what clients told of their tables


def gather(
    transport: FlowerTransport,
    count: int,
    order: Sequence[str],
    agree: Agree | None = None,
    least: int | None = None,
) -> Roster:
    """Wait for this many clients to introduce themselves; in natural order unless one is given.

    Clients with tables first tell of their columns; when all have, they are told what is agreed.
    Clients that refuse to take part are not waited for, if `least` are left (default: all).
    """
    found: dict[int, Introduction] = {}
    until = time.monotonic() + transport.patience
    wanted, soon = max(count, len(order), 1), min(until, time.monotonic() + TOGETHER)
    while time.monotonic() < soon and len(list(transport.grid.get_node_ids())) < wanted:
        time.sleep(transport.poll)
    while True:
        found |= transport.greet()
        here = set(transport.grid.get_node_ids())
        found = {
            node: one
            for node, one in found.items()
            if node in here and (not order or one.client in order)
        }
        refusing = {
            node: name
            for node, name in transport.refusing.items()
            if node in here and (not order or not name or name in order)
        }
        needed = wanted - len(refusing)
        if refusing and needed < (wanted if least is None else least):
            raise ScafflixError(
                f"{len(refusing)} of {wanted} clients refuse to take part, and "
                f"{'all' if least is None else f'at least {least}'} are needed: "
                + " ".join(transport.silent[node] for node in refusing)
            )
        if len(found) >= needed:
            break
        told = {
            one.client: one.told
            for node, one in transport.told.items()
            if node in here and (not order or one.client in order)
        }
        if agree is not None and told and len(told) + len(found) >= needed:
            if found:
                raise ScafflixError(
                    f"Client {next(iter(found.values())).client} has arrays, but client "
                    f"{next(iter(told))} has a table; use files of one kind."
                )
            transport.agree(agree(dict(sorted(told.items(), key=lambda one: _natural(one[0])))))
            continue
        if time.monotonic() > until:
            names = ", ".join(sorted(one.client for one in found.values()))
            raise ScafflixError(
                f"Only {len(found)} of {wanted} clients introduced themselves within "
                f"{transport.patience:g} seconds ({names or 'none'}); start the missing nodes, or "
                "raise patience."
                + "".join(f" Node {node}: {why}" for node, why in transport.silent.items())
            )
        time.sleep(transport.poll)
    place = {name: number for number, name in enumerate(order)}
    roster = new_roster(
        sorted(found.values(), key=lambda one: (place.get(one.client, 0), _natural(one.client)))
    )
    if not refusing:
        return roster
    present = {one.client for one in roster.introductions}
    left = [name for name in order or refusing.values() if name and name not in present]
    transport.tell(f"The run begins without {', '.join(sorted(left)) or len(refusing)}.")
    return roster._replace(left=tuple(left))


def _natural(name: str) -> list[tuple[int, str]]:
    """client-2 before client-10."""
    return [(int(w), "") if w.isdigit() else (0, w) for w in re.findall(r"\d+|\D+", name)]
