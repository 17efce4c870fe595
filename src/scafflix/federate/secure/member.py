"""A client's part in secure aggregation.

All that it must remember is in one file, which is replaced before each reply: after a crash a
repeated message gets the same reply. Of each client it reveals a share of one secret, never of
both, and it lets the message of a round be unmasked for one set of survivors only: two sums that
differ by one client would give away that client's message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scafflix.core import durable
from scafflix.core.durable import Hook
from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.federate.messages import RefusedError
from scafflix.federate.secure import masks
from scafflix.federate.secure.fixed import FixedPoint, Words, add
from scafflix.federate.secure.identity import Identity
from scafflix.federate.secure.masks import Occasion
from scafflix.federate.secure.messages import (
    Keys,
    Mask,
    Masked,
    Share,
    Shares,
    Told,
    Unmask,
    Unmasked,
    bytes_in,
    text_of,
    told_in,
)
from scafflix.federate.secure.shares import SHARE, mark_of, split

ATTEMPTS = 8  # at a round, whose secrets are kept until the next
KEY, SEED = "key", "seed"  # the secrets of a client: for the masks of pairs, and for its own


class Member:
    """The client of this name, with what it keeps in a file."""

    def __init__(self, name: str, path: Path, hook: Hook, identity: Identity | None = None) -> None:
        self.name, self.path, self.hook, self.identity = name, path, hook, identity

    def keys(
        self, occasion: Occasion, ready: tuple[int, float, str], about: Mapping[str, Any]
    ) -> Keys:
        """Fresh keys for an attempt; `about` is what its message will be made from again, and of
        which kind it is."""
        committed, weight, receipt = ready
        place, attempt = [*occasion[:3], about["kind"]], occasion.attempt
        file = self._read()
        if file is None or file["place"] != place:
            file = {"place": place, "unmasked": "", "attempts": {}}
        if attempt not in file["attempts"]:
            if file["unmasked"]:
                raise RefusedError(
                    "stale", f"its message of round {occasion.round} is in another sum already."
                )
            made = {what: masks.new_secret().hex() for what in (KEY, SEED, "seal")}
            # an old request that comes again must not take the place of the present attempt
            earlier = list(file["attempts"].items())[1 - ATTEMPTS :]
            file["attempts"] = {**dict(earlier), attempt: {**made, "about": dict(about)}}
            self._write(file)
        kept = file["attempts"][attempt]
        mask, seal = (masks.public_of(bytes_in(kept[what])).hex() for what in (KEY, "seal"))
        certificate = signature = ""
        if self.identity is not None:
            certificate, signature = self.identity.signed(occasion, self.name, mask, seal)
        here = self._place(occasion)
        return Keys(*here, committed, weight, receipt, mask, seal, certificate, signature)

    def shares(self, message: Share) -> Shares:
        """Shares of both secrets, sealed for each client of the attempt."""
        occasion, kept, file = self._current(message)
        asked = [message.threshold, message.unit, message.told]
        if kept.get("asked", asked) != asked:
            raise RefusedError("stale", "it has shared its secrets among others.")
        if "shares" not in kept:
            people = told_in(message.told, 4)
            self._check_people(occasion, kept, people, message.threshold)
            kept["asked"] = asked
            kept["own"], kept["shares"] = self._shared(occasion, kept, people, message.threshold)
            self._write(file)
        mark = mark_of(bytes_in(kept[SEED]))
        return Shares(*self._place(occasion), mark=mark, told=text_of(kept["shares"]))

    def _check_people(
        self, occasion: Occasion, kept: Mapping[str, Any], people: Told, threshold: int
    ) -> None:
        """Whether these are clients among whom a secret may be shared."""
        if not 2 <= threshold <= len(people) < 2 * threshold:
            raise RefusedError(
                "range",
                f"threshold is {threshold} of {len(people)} clients; it must be at least 2, and "
                "more than half of them.",
            )
        mine = [masks.public_of(bytes_in(kept[what])).hex() for what in (KEY, "seal")]
        if people.get(self.name, ())[:2] != mine:
            raise RefusedError("range", "it is said to have other keys than its own.")
        if self.identity is not None:
            for name, words in people.items():
                self.identity.check(occasion, name, *words)

    def _shared(
        self, occasion: Occasion, kept: Mapping[str, Any], people: Told, threshold: int
    ) -> tuple[list[str], Told]:
        """This client's shares of its own secrets, and what it tells of those for the others."""
        told: Told = {}
        own: list[str] = []
        both = [split(bytes_in(kept[what]), threshold, len(people)) for what in (KEY, SEED)]
        for name, *pair in zip(sorted(people), *both, strict=True):
            marks = [mark_of(share) for share in pair]
            if name == self.name:
                own, told[name] = [share.hex() for share in pair], ["", *marks]
                continue
            seal = self._seal(occasion, kept, bytes_in(people[name][1]))
            about = occasion.bytes_of("shares", self.name, name)
            told[name] = [masks.sealed(b"".join(pair), seal, about).hex(), *marks]
        return own, told

    def _seal(self, occasion: Occasion, kept: Mapping[str, Any], public: bytes) -> bytes:
        return masks.agreed_key(bytes_in(kept["seal"]), public, occasion.bytes_of("seal"))

    def masked(
        self, message: Mask, numbers: Callable[[Mapping[str, Any]], tuple[Floats, FixedPoint]]
    ) -> Masked:
        """Its numbers, made from `about`, plus its own mask and one for each other client."""
        occasion, kept, file = self._current(message, "asked")
        senders = told_in(message.told, 1)
        threshold, unit, told = kept["asked"]
        people = told_in(told, 4)
        if "opened" not in kept:
            if not {self.name} <= {*senders} <= {*people} or len(senders) < threshold:
                raise RefusedError("range", "shares must be of itself, others, and enough of them.")
            kept["opened"] = {
                name: self._opened(occasion, kept, name, people[name], *words)
                for name, words in senders.items()
            }
        elif {*senders} != {*kept["opened"]}:
            raise RefusedError("stale", "it has masked its message among others.")
        exact, fixed = numbers({**kept["about"], "unit": unit, "terms": len(people)})
        try:
            words = fixed.encoded(exact, len(people))
        except ScafflixError as error:
            raise RefusedError("range", str(error)) from None
        self._write(file)
        self._hide(words, occasion, kept, people)
        return Masked(*self._place(occasion), words=(words,))

    def _opened(
        self, occasion: Occasion, kept: Mapping[str, Any], name: str, keys: list[str], note: str
    ) -> list[str]:
        """The shares that another client, or this one, has for this one."""
        if name == self.name:
            own: list[str] = kept["own"]
            return own
        seal = self._seal(occasion, kept, bytes_in(keys[1]))
        about = occasion.bytes_of("shares", name, self.name)
        found = masks.opened(bytes_in(note), seal, about)
        if len(found) != 2 * SHARE:
            raise RefusedError("range", f"{name} sealed something else than two shares.")
        return [found[:SHARE].hex(), found[SHARE:].hex()]

    def _hide(
        self, words: Words, occasion: Occasion, kept: Mapping[str, Any], people: Told
    ) -> None:
        """Add all masks."""
        shape = (words.shape[0], words.shape[1])
        add(words, masks.own_mask(bytes_in(kept[SEED]), occasion, self.name, shape))
        for other in kept["opened"]:
            if other != self.name:
                public = bytes_in(people[other][0], masks.KEY)
                private = bytes_in(kept[KEY])
                masks.add_pair_mask(words, occasion, self.name, private, other, public)

    def revealed(self, message: Unmask) -> Unmasked:
        """Of each client a share of the secret that it is asked for."""
        occasion, kept, file = self._current(message, "opened")
        wanted = {name: what for name, (what,) in told_in(message.told, 1).items()}
        if file["unmasked"] and (file["unmasked"], kept.get("wanted")) != (message.attempt, wanted):
            raise RefusedError("stale", "it has revealed shares for another sum of this round.")
        survivors = [name for name, what in wanted.items() if what == SEED]
        if (
            {*wanted} != {*kept["opened"]}
            or not {*wanted.values()} <= {KEY, SEED}
            or self.name not in survivors
            or len(survivors) < kept["asked"][0]
        ):
            raise RefusedError("range", "a sum must have its message and those of enough others.")
        if not file["unmasked"]:
            file["unmasked"], kept["wanted"] = message.attempt, wanted
            self._write(file)
        told = {name: [kept["opened"][name][what == SEED]] for name, what in wanted.items()}
        return Unmasked(*self._place(occasion), told=text_of(told))

    def _current(self, message: Share | Mask | Unmask, needed: str = "about") -> Any:
        """The attempt of a message, what is kept of it, which must have come this far, and all
        that is kept."""
        occasion = Occasion(message.run, message.epoch, message.round, message.attempt)
        file = self._read()
        kept = None if file is None else file["attempts"].get(occasion.attempt)
        if (
            file is None
            or kept is None
            or needed not in kept
            or file["place"][:3] != [*occasion[:3]]
        ):
            raise RefusedError(
                "stale", f"it is not in this attempt at round {occasion.round}, or not so far."
            )
        return occasion, kept, file

    def _place(self, occasion: Occasion) -> tuple[str, int, str, int, str]:
        return occasion.run, occasion.epoch, self.name, occasion.round, occasion.attempt

    def _read(self) -> dict[str, Any] | None:
        found = durable.read(self.path, " Move it away; the client can then take part again.")
        return None if found is None else found[0]

    def _write(self, file: dict[str, Any]) -> None:
        durable.write(self.path, file, [], self.hook)
