"""The server of a run with secure aggregation: the ledger, the checkpoints and the rounds are those
of any run, but it sees the sum of the messages only.

An attempt may fail at any stage before the sum is fixed, and the next begins with fresh keys. From
then on, the sum of the masked messages is on disk and nobody is asked for another: survivors are
asked for their shares until enough have answered, also by a server that is started again.
"""

from __future__ import annotations

import secrets
from typing import Any

import jax
import numpy as np

from scafflix.core.durable import Arrays
from scafflix.core.errors import ScafflixError
from scafflix.federate.divergence import ALL
from scafflix.federate.files import Moment
from scafflix.federate.messages import Fault, Refusal
from scafflix.federate.secure.fixed import fixed_point_for
from scafflix.federate.secure.gathering import STAGES, Gathering
from scafflix.federate.secure.masks import Occasion
from scafflix.federate.secure.messages import Keys, Masked, Unmasked
from scafflix.federate.server import ServerCore

EXTRA = 2  # numbers after those of a message: the loss, and 1 if there is one


class SecureServer(ServerCore):
    """One run, of which the server sees sums of a round's messages."""

    gathering: Gathering

    def resume(self, back_to: int | None) -> None:
        self._check_weights()
        super().resume(back_to)

    def _open(self) -> None:
        super()._open()
        self.fixed = fixed_point_for(jax.tree.leaves(self.message))
        kept = self.files.masked(Moment(self.epoch, self.round))
        if kept is None:
            self._gather()
        else:
            self.gathering = Gathering.of(kept[0], kept[1][0], self.fixed)

    def _gather(self) -> None:
        """Begin an attempt, with fresh keys."""
        occasion = Occasion(self.run, self.epoch, self.round, secrets.token_hex(16))
        numbers = sum(leaf.size for leaf in jax.tree.leaves(self.message)) + EXTRA
        threshold = self.settings.threshold_of(self.cohort_size)
        self.gathering = Gathering(occasion, threshold, self.fixed, numbers)

    def _check_weights(self) -> None:
        """Refuse a method whose weights depend on more than the server knows."""
        random, name = np.random.default_rng(0), self.names[0]
        client = self.clients[name]._replace(turn=self._some_turn)

        def elsewhere(leaf: Any) -> Any:
            return leaf + np.asarray(random.normal(size=np.shape(leaf)), np.asarray(leaf).dtype)

        first = (self.mirrors.fresh(name), self.method.broadcast(self.server))
        state, sent = jax.tree.map(elsewhere, first)
        local = jax.tree.map(elsewhere, self.method.begin(client, state, sent))
        with np.errstate(all="ignore"):
            _, weight = self.method.upload(client, state, sent, local)
        if float(weight) != self._exchange(self.server, name)[1]:
            raise ScafflixError(
                f"secure_aggregation needs weights that the server knows, and those of "
                f"{self.method.name} depend on data; leave it out, or choose another method."
            )

    def requests(self) -> dict[str, Any]:
        """A message to each client that has not answered in this stage of the attempt."""
        asked = self.cohort if self.gathering.stage is Keys else self.gathering.asked
        return {name: self.request(name) for name in asked if name not in self.gathering.came}

    def request(self, name: str) -> Any:
        """The message to one client."""
        if self.gathering.stage is Keys:
            return super().request(name)._replace(attempt=self.gathering.occasion.attempt)
        message = self.gathering.request(name)
        self.tally.bits_down += 8 * len(message.told)
        return message

    def receive(self, sender: str, reply: Any) -> bool:
        """Take in a reply of any stage."""
        if isinstance(reply, Refusal):
            return self.receive_refusal(sender, reply)
        early = isinstance(reply, Keys) or not isinstance(reply, STAGES)
        wrong = self.problem_with(sender, reply, Keys) if early else None
        self.take_in(self.gathering, sender, reply, wrong)
        return False

    def take_in(self, now: Gathering, sender: str, reply: Any, wrong: Fault | None) -> None:
        """Take in a reply of the present stage, unless something is known to be wrong with it."""
        if wrong is None and (sender not in self.clients or reply.client != sender):
            wrong = Fault("unknown_client", f"its reply is in the name of {reply.client!r}.")
        if wrong is not None:
            self.refuse(sender, wrong)
        elif (
            not isinstance(reply, now.stage)
            or Occasion(reply.run, reply.epoch, reply.round, reply.attempt) != now.occasion
        ):
            self.tally.counts["late"] += 1
        elif sender in now.came:
            self.tally.counts["repeated"] += 1
        else:
            wrong = now.take(sender, reply)
            if wrong is not None:
                self.refuse(sender, wrong)
            else:
                words = reply.words if isinstance(reply, Masked) else ()
                self.tally.received(words)
                self.tally.bits_up += 8 * len(getattr(reply, "told", ""))

    def close(self) -> bool:
        """Go on to the next stage, or to the next round; or repeat the attempt."""
        now = self.gathering
        needed = now.threshold if now.stage is Unmasked else self.minimum
        if len(now.came) < needed:
            self.repeat(len(now.came), needed)
            if now.stage is not Unmasked:
                self._gather()
            return False
        if now.stage is not Unmasked:
            if now.stage is Masked:
                at = Moment(self.epoch, self.round)
                self.files.keep_masked(at, now.plain(), [now.total])
            now.advance()
            return False
        self._take_sum(now)
        return True

    def _take_sum(self, now: Gathering) -> None:
        """Close the round with the mean of the survivors' messages."""
        sums = now.sums()
        names = [name for name in self.names if name in now.survivors]
        for name in names:
            self.ledger.confirm(name, now.keys[name].committed)
            self.receipts[name] = now.keys[name].receipt if self.remembers else ""
        mean = self._shaped((now.unit / sum(now.keys[name].weight for name in names)) * sums)
        loss = float(sums[-2] / sums[-1]) if round(sums[-1]) else np.nan
        if self.round % self.settings.every == 0:
            self.judge({ALL: loss})
        moved = self.moved(mean)
        for wrong in self.too_far({ALL: moved}).values():
            how = wrong.reason.replace("its upload is", "the average of the uploads is")
            raise self.diverged(how.rstrip("."))
        self.close_with(names, mean, loss, [moved])

    def _shaped(self, numbers: Any) -> Arrays:
        """A message from its numbers in a row."""
        leaves, at = [], 0
        for leaf in jax.tree.leaves(self.message):
            part = numbers[at : at + leaf.size]
            leaves.append(part.reshape(leaf.shape).astype(leaf.dtype))
            at += leaf.size
        return tuple(leaves)

    def forget(self) -> None:
        super().forget()
        self.files.forget_masked(Moment(self.epoch, self.round))
