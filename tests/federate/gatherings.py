"""Secure aggregation of given numbers, without training: members, and a server that asks them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from scafflix.core import durable
from scafflix.core.types import Floats
from scafflix.federate.secure.fixed import FixedPoint
from scafflix.federate.secure.gathering import Gathering
from scafflix.federate.secure.identity import Identity
from scafflix.federate.secure.masks import Occasion
from scafflix.federate.secure.member import Member
from scafflix.federate.secure.messages import Keys, Masked, Shares, Unmasked

READY = (-1, 1.0, "r")  # last committed, weight, receipt


def an_occasion(attempt: str = "first", round: int = 0) -> Occasion:
    return Occasion("run", 0, round, attempt)


class Circle:
    """Clients with numbers of their own, and all that a server gets to see of them."""

    def __init__(
        self,
        folder: Path,
        numbers: Mapping[str, Floats],
        fixed: FixedPoint,
        identities: Mapping[str, Identity] | None = None,
    ) -> None:
        self.numbers, self.fixed = numbers, fixed
        self.members = {
            name: Member(name, folder / f"{name}.safetensors", durable.quiet, one)
            for name, one in ((name, (identities or {}).get(name)) for name in numbers)
        }
        self.seen: dict[str, list[Any]] = {name: [] for name in numbers}

    def kept(self, name: str, gathering: Gathering) -> Any:
        """What a client has on disk of an attempt, secrets and all."""
        found = durable.read(self.members[name].path)
        assert found is not None
        return found[0]["attempts"][gathering.occasion.attempt]

    def answer(self, gathering: Gathering, name: str) -> Any:
        """What a client says in the present stage."""
        member = self.members[name]
        if gathering.stage is Keys:
            return member.keys(gathering.occasion, READY, {"kind": "test"})
        message: Any = gathering.request(name)
        if gathering.stage is Shares:
            return member.shares(message)
        if gathering.stage is Masked:
            return member.masked(message, lambda about: (self.numbers[name], self.fixed))
        return member.revealed(message)

    def gather(
        self,
        threshold: int,
        gone: Mapping[type, Collection[str]] | None = None,
        occasion: Occasion | None = None,
    ) -> Gathering:
        """An attempt in which some clients are gone from a stage on; up to the shares."""
        size = len(next(iter(self.numbers.values())))
        made = Gathering(occasion or an_occasion(), threshold, self.fixed, size)
        away: set[str] = set()
        for stage in (Keys, Shares, Masked, Unmasked):
            away |= {*(gone or {}).get(stage, ())}
            asked = list(self.numbers) if stage is Keys else made.asked
            for name in asked:
                if name not in away:
                    reply = self.answer(made, name)
                    self.seen[name].append(reply)
                    assert made.take(name, reply) is None
            if stage is not Unmasked:
                made.advance()
        return made
