"""The server's part in one attempt: it passes on sealed notes, adds up masked messages, and takes
the masks away from the sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.federate.messages import Fault, fault_of
from scafflix.federate.secure import masks
from scafflix.federate.secure.fixed import FixedPoint, Words, add, subtract
from scafflix.federate.secure.masks import Occasion
from scafflix.federate.secure.member import KEY, SEED
from scafflix.federate.secure.messages import (
    Hidden,
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
from scafflix.federate.secure.shares import SHARE, combined, mark_of, weights_of

STAGES: tuple[type[Hidden], ...] = (Keys, Shares, Masked, Unmasked)


class Gathering:
    """One attempt, from keys to the sum. What a client sent in a stage is needed in the next."""

    def __init__(self, occasion: Occasion, threshold: int, fixed: FixedPoint, numbers: int) -> None:
        self.occasion, self.threshold, self.fixed = occasion, threshold, fixed
        self.stage: type[Hidden] = Keys
        self.keys: dict[str, Keys] = {}
        self.told: dict[str, Told] = {}  # by client, of the shares of its secrets
        self.seeds: dict[str, str] = {}  # by client, the digest of its seed
        self.survivors: list[str] = []  # whose masked messages are in the total
        self.total: Words = np.zeros((fixed.limbs, numbers), np.uint64)
        self.revealed: dict[str, Told] = {}  # by survivor

    @property
    def came(self) -> Sequence[str]:
        """Who has answered in this stage."""
        return list((self.keys, self.told, self.survivors, self.revealed)[STAGES.index(self.stage)])

    @property
    def asked(self) -> list[str]:
        """Who is asked in this stage, after the first: who answered in the one before."""
        return list((self.keys, self.told, self.survivors)[STAGES.index(self.stage) - 1])

    @property
    def unit(self) -> float:
        """A power of 2 that no weight exceeds."""
        return 2.0 ** math.frexp(max(one.weight for one in self.keys.values()))[1]

    def advance(self) -> None:
        """Go on with those who answered."""
        self.stage = STAGES[STAGES.index(self.stage) + 1]

    def request(self, name: str) -> Share | Mask | Unmask:
        """The message to a client, after the first stage."""
        if self.stage is Shares:
            words = {
                who: [one.mask, one.seal, one.certificate, one.signature]
                for who, one in self.keys.items()
            }
            return Share(*self.occasion, self.threshold, self.unit, text_of(words))
        if self.stage is Masked:
            return Mask(
                *self.occasion, text_of({who: told[name][:1] for who, told in self.told.items()})
            )
        return Unmask(*self.occasion, text_of({who: [what] for who, what in self.wanted.items()}))

    @property
    def wanted(self) -> dict[str, str]:
        """The secret of each client that is needed: of its own mask where its message is in the
        sum, of its masks with the others where it is not."""
        return {who: SEED if who in self.survivors else KEY for who in self.told}

    def take(self, sender: str, reply: Hidden) -> Fault | None:
        """Take in an answer of this stage, after its address was checked, or say what is wrong."""
        layout = self.fixed.layout(self.total.shape[1])
        wrong = fault_of(reply, layout)
        if wrong is not None:
            return wrong
        if sender not in self.asked and self.stage is not Keys:
            return Fault("round", "it was not asked in this stage of the attempt.")
        try:
            self._take(sender, reply)
        except ScafflixError as error:
            return Fault("share", f"its answer cannot be used: {error}")
        return None

    def _take(self, sender: str, reply: Hidden) -> None:
        if isinstance(reply, Keys):
            for key in (reply.mask, reply.seal):
                bytes_in(key, masks.KEY)
            self.keys[sender] = reply
        elif isinstance(reply, Shares):
            told = told_in(reply.told, 3)
            if told.keys() != self.keys.keys():
                raise ScafflixError("it has no shares for some clients.")
            self.told[sender], self.seeds[sender] = told, reply.mark
        elif isinstance(reply, Masked):
            add(self.total, reply.words[0])
            self.survivors.append(sender)
        else:
            told = told_in(reply.told, 1)
            if told.keys() != self.told.keys():
                raise ScafflixError("it has no shares of some clients.")
            for who, what in self.wanted.items():
                mark = self.told[who][sender][1 if what == KEY else 2]
                if mark_of(bytes_in(told[who][0], SHARE)) != mark:
                    raise ScafflixError("a share is another than the one that it was given.")
            self.revealed[sender] = told

    def sums(self) -> Floats:
        """The sum of the survivors' numbers, once enough of them have revealed shares."""
        places = {name: place for place, name in enumerate(sorted(self.keys), start=1)}
        holders = list(self.revealed)[: self.threshold]
        weights = weights_of([places[name] for name in holders])
        total, shape = self.total.copy(), (self.total.shape[0], self.total.shape[1])
        for who, what in self.wanted.items():
            found = {places[name]: bytes_in(self.revealed[name][who][0]) for name in holders}
            secret = self._checked(who, what, combined(found, weights))
            if what == SEED:
                subtract(total, masks.own_mask(secret, self.occasion, who, shape))
                continue
            for other in self.survivors:  # what they added, the lost one would have subtracted
                public = bytes_in(self.keys[other].mask)
                masks.add_pair_mask(total, self.occasion, who, secret, other, public)
        return self.fixed.decoded(total)

    def _checked(self, who: str, what: str, secret: bytes | None) -> bytes:
        if secret is not None:
            if what == SEED and mark_of(secret) == self.seeds[who]:
                return secret
            if what == KEY and masks.public_of(secret).hex() == self.keys[who].mask:
                return secret
        raise ScafflixError(
            f"The shares of client {who} do not fit together, so that the sum of round "
            f"{self.occasion.round} cannot be unmasked; start the server again with --without "
            f"{who}."
        )

    def plain(self) -> dict[str, Any]:
        """All but the total, for JSON, when the survivors are known."""
        keys = {name: one._asdict() for name, one in self.keys.items()}
        return {
            "occasion": list(self.occasion),
            "threshold": self.threshold,
            "keys": keys,
            "told": self.told,
            "seeds": self.seeds,
            "survivors": self.survivors,
        }

    @staticmethod
    def of(plain: dict[str, Any], total: Words, fixed: FixedPoint) -> Gathering:
        """Go on from what `plain` returned: nobody may take part in another sum any more."""
        made = Gathering(Occasion(*plain["occasion"]), plain["threshold"], fixed, total.shape[1])
        made.keys = {name: Keys(**one) for name, one in plain["keys"].items()}
        made.told, made.seeds, made.survivors = plain["told"], plain["seeds"], plain["survivors"]
        made.total, made.stage = total, Unmasked
        return made
