"""The server: rounds, cohorts, the ledger, the checkpoints.

A round is closed with the replies that came, and the checkpoint of its average is on disk before
any client can learn of it. So a server that crashes either repeats the open round with the same
point and the same K, or has already closed it for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from scafflix import algorithm
from scafflix.core import durable
from scafflix.core.durable import Arrays, Hook
from scafflix.core.errors import DivergenceError, ScafflixError, one_line
from scafflix.federate.distance import distance
from scafflix.federate.files import Moment, ServerFiles
from scafflix.federate.ledger import Entry
from scafflix.federate.messages import (
    NONE,
    REFUSALS,
    Fault,
    Refusal,
    Train,
    Upload,
    fault_of,
    problem_with_arrays,
    receipt_of,
)
from scafflix.federate.roster import Roster
from scafflix.federate.secure.messages import Keys
from scafflix.federate.server_noise import server_noise
from scafflix.federate.settings import Settings
from scafflix.federate.spending import Asked, Spending
from scafflix.federate.standing import Standing
from scafflix.federate.uploads import Expected, problem_with_upload, weighted_mean
from scafflix.methods.disclosure import points_asked
from scafflix.methods.method import Client, Method, Turn
from scafflix.personalization.rules.contract import Told
from scafflix.simulate.batch import own_steps, steps_of, uniforms
from scafflix.simulate.cohorts import cohort_of


class Closed(NamedTuple):
    """Who was in the last closed round."""

    replied: int
    asked: int
    absent: tuple[str, ...]  # asked, but not in the average


class ServerCore(Standing):
    """One run, new or continued from its folder.

    `method` is planned for the clients that take part (alpha_i > 0), in the order of the roster.
    The run continues after its last closed round, or, in a new epoch, after the round `back_to`.
    """

    def __init__(
        self,
        folder: Path,
        roster: Roster,
        method: Method,
        start: Arrays,
        settings: Settings,
        hook: Hook = durable.quiet,
        back_to: int | None = None,
    ) -> None:
        super().__init__(ServerFiles(folder, hook), roster, method, start, settings)
        self.closed: Closed | None = None
        self.others: Told | None = None  # what the clients told to choose alpha_i, at the end
        self.reported: dict[str, float] | None = None  # means, where only these are known
        weights = {name: self._exchange(self.server, name)[1] for name in self.names}
        examples = {name: int(client.examples) for name, client in self.clients.items()}
        self.spending = Spending(folder, settings.privacy, weights, examples)
        self.least_noisy = (self.cohort_size + 1) // 2  # over how many replies noise is shared out
        self._points = 1 if settings.privacy is None else points_asked(self.method, self.arrays)
        self.noise = server_noise(folder, settings.privacy, self.method, self.arrays, hook)
        self.resume(back_to)
        self._open()
        if not self.round and self._over_budget():
            raise ScafflixError(
                "One round could already exceed the budget; give a larger one, or more noise."
            )

    @property
    def done(self) -> bool:
        """Whether all rounds are closed, or one more could go beyond a budget."""
        return self.round >= self.settings.rounds or self._over_budget()

    def _over_budget(self) -> bool:
        """Whether the open round could take a client beyond its budget."""
        return self.spending.exhausted(self.names, self.minimum, self._asked)

    @property
    def _asked(self) -> Asked:
        """What is asked for in the open round."""
        steps = {name: min(self.own[name], self.steps) for name in self.cohort}
        return Asked(steps, self.least_noisy, self._points)

    # a round

    def _open(self) -> None:
        """Draw the steps and the cohort of the round from the seed and the round number only."""
        seed, n = self.settings.seed, len(self.names)
        self.steps = int(steps_of(self.method, seed, self.round, 1)[0])
        chosen = cohort_of(seed, self.round, np.arange(n), self.cohort_size)
        self.cohort = [self.names[k] for k in chosen]
        self.places = {self.names[k]: place for place, k in enumerate(sorted(chosen))}
        self.sent = self.method.broadcast(self.server)
        self.point: Arrays = tuple(map(np.asarray, jax.tree.leaves(self.sent)))
        self.own = self._own_steps()
        self.accepted: dict[str, Upload] = {}  # with the messages as they arrive
        self.receipts: dict[str, str] = {}  # of what was sent
        self.lost: set[str] = set()
        self.attempt = 0
        self.tally.open_round()

    def _own_steps(self) -> dict[str, int]:
        """K_i of every client; K + 1 for one that does not stop on its own."""
        if self.method.own_steps is None:
            return dict.fromkeys(self.names, self.steps + 1)
        numbers = np.array([self.numbers[name] for name in self.names])
        draws = uniforms(self.settings.seed, self.round, numbers, self.total)
        columns = zip(*(self.clients[name][:2] for name in self.names), strict=True)
        alpha, gamma = (np.array(column) for column in columns)
        examples = np.array([self.clients[name].examples for name in self.names])
        clients = Client(alpha, gamma, None, examples, float(len(self.names)))
        drawn = own_steps(self.method, clients, self.steps, draws)
        return dict(zip(self.names, drawn.tolist(), strict=True))

    def requests(self) -> dict[str, Train]:
        """A message to each client of the cohort that has not sent its upload yet."""
        asked = [name for name in self.cohort if name not in self.accepted]
        return {name: self.request(name) for name in asked}

    def request(self, name: str) -> Train:
        """The message to one client in the open round."""
        entry = self.ledger.entries[name]
        direct = entry.included == self.round - 1  # then x_r is that average
        message = Train(
            **self.address(name),
            steps=min(self.own[name], self.steps),
            stops=self.own[name] <= self.steps,
            place=self.places[name],
            cohort=len(self.cohort),
            report=self.round % self.settings.every == 0,
            point=self.down(self.point),
            average=() if direct else self.down(self.average_for(entry)),
        )
        self.tally.sent(message.point, message.average, message.restored)
        return message

    def address(self, name: str) -> dict[str, Any]:
        """The fields common to all messages to a client: the state of the run, what to commit."""
        entry = self.ledger.entries[name]
        return {
            "run": self.run,
            "epoch": self.epoch,
            "round": self.round,
            "iteration": self.iteration,
            "number": self.numbers[name],
            "clients": len(self.names),
            "seed": self.settings.seed,
            "method": self.method.name,
            "settings": self.settings_text,
            "gamma": self.clients[name].gamma,
            "included": entry.included,
            "receipt": entry.receipt,
            "restored": self._restored(name),
        }

    def average_for(self, entry: Entry) -> Arrays:
        """The broadcast after the round that the client has to commit; empty if there is none."""
        if entry.included in (NONE, entry.confirmed) or not self.remembers:
            return ()
        if entry.included == self.round - 1:
            return self.point
        return self.files.average(entry.included)

    def _restored(self, name: str) -> Arrays:
        if name not in self.lost:
            return ()
        return self.mirrors.arrays(name, self.epoch, self.ledger.entries[name].included)

    def receive(self, sender: str, reply: Any) -> bool:
        """Take in a reply from the client `sender`; return whether to ask it again."""
        if isinstance(reply, Refusal):
            return self.receive_refusal(sender, reply)
        wrong = self.problem_with(sender, reply, Upload)
        if wrong is not None:
            self.refuse(sender, wrong)
        elif reply.round < self.round:
            self.tally.counts["late"] += 1
        elif sender in self.accepted:
            self.tally.counts["repeated"] += 1
        else:
            self._accept(sender, reply)
        return False

    def _accept(self, sender: str, reply: Upload) -> None:
        """Take in an upload as the message that it encodes, if it does."""
        point = self._decoded(sender, reply.point)
        if isinstance(point, Fault):
            self.refuse(sender, point)
            return
        self.accepted[sender] = reply._replace(point=point)
        self.receipts[sender] = receipt_of(reply.point) if self.remembers else ""
        self.ledger.confirm(sender, reply.committed)
        self.tally.received(reply.point)

    def _decoded(self, sender: str, arrays: Arrays) -> Arrays | Fault:
        """What arrives of an upload in the open round."""
        compressor = self.method.compressor
        if compressor is None:
            return arrays
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                message = compressor.decode(self._turn(sender), arrays, self.message)
        except ScafflixError as error:
            return Fault("range", f"its upload is no encoded message: {error}")
        point = tuple(map(np.asarray, jax.tree.leaves(message)))
        return problem_with_arrays("point", point, self.message_layout) or point

    def _turn(self, name: str) -> Turn:
        """A client's part in the open round."""
        place = self.places[name], len(self.cohort)
        return algorithm.turn_of(self.settings.seed, self.round, *place)

    def problem_with(self, sender: str, reply: Any, wanted: type[Upload | Keys]) -> Fault | None:
        """Why the answer to Train cannot be taken in."""
        if not isinstance(reply, wanted):
            kind = type(reply).__name__
            return Fault("type", f"its reply is of type {kind}; it must be {wanted.__name__}.")
        if sender not in self.clients:
            return Fault("unknown_client", "it does not take part in this run.")
        _, weight, _ = self._exchange(self.server, sender)
        expected = Expected(
            client=sender,
            run=self.run,
            epoch=self.epoch,
            round=self.round,
            asked=sender in self.cohort,
            layout=self.upload_layout,
            weight=weight,
            committed=self.ledger.entries[sender].included if self.remembers else None,
        )
        return problem_with_upload(reply, expected)

    def receive_refusal(self, sender: str, reply: Refusal) -> bool:
        """Take in a client's refusal; return whether to restore its state and ask again."""
        wrong = fault_of(reply)
        if wrong is not None or reply.client != sender or sender not in self.clients:
            self.refuse(
                sender,
                wrong or Fault("unknown_client", "its refusal is in the name of another client."),
            )
            return False
        if (reply.epoch, reply.round) != (self.epoch, self.round):
            self.tally.counts["late"] += 1
            return False
        kind = reply.kind if reply.kind in REFUSALS else "other"
        self.tally.note(self.round, sender, Fault(f"client_{kind}", reply.reason))
        able = self.settings.mirror and self.remembers and sender not in self.lost
        if reply.kind in ("lost", "damaged") and able:
            self.lost.add(sender)
            self.tally.counts["restored"] += 1
            return True
        return False

    def refuse(self, sender: str, wrong: Fault) -> None:
        """Count a refused message, and log who sent it."""
        self.tally.refuse(self.round, sender, wrong)

    def fail(self, sender: str, reason: str) -> None:
        """Note that a client will not reply."""
        self.tally.note(self.round, sender, Fault("error", reason))

    def close(self) -> bool:
        """Average the uploads and go on, or repeat the round if there were too few replies."""
        distances = self._refuse_far()
        if len(self.accepted) < self.minimum:
            self.repeat(len(self.accepted), self.minimum)
            return False
        names = [name for name in self.names if name in self.accepted]
        uploads = [self.accepted[name] for name in names]
        if self.round % self.settings.every == 0:
            self.judge({name: self.accepted[name].loss for name in names})
        losses = [upload.loss for upload in uploads]
        loss = float(np.mean(losses)) if np.isfinite(losses).all() else np.nan
        self.close_with(names, weighted_mean(uploads), loss, [distances[name] for name in names])
        return True

    def close_with(
        self, names: list[str], average: Arrays, loss: float, distances: Sequence[float]
    ) -> None:
        """Go on with the average of the messages of these clients, and their mean loss."""
        if self.noise is not None:
            weights = [self.spending.weights[name] for name in names]
            average = self.noise.added(Moment(self.epoch, self.round), average, weights)
        with np.errstate(over="ignore", invalid="ignore"):
            form = jax.tree.structure(self.message)
            mean = jax.tree.unflatten(form, average)
            share = len(names) / len(self.names)
            server, following = algorithm.communicate(
                self.method, self.server, self.steps, mean, share
            )
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((server, following))):
            raise self.diverged("the average of the uploads is not finite")
        self._keep_average()
        for name in names:
            entry = self.ledger.entries[name]
            if self.settings.mirror and self.remembers:
                moment = (self.epoch, entry.included, self.round)
                local = jax.tree.unflatten(form, self.accepted[name].point)
                turn, made = self._turn(name), min(self.own[name], self.steps)
                self.mirrors.advance(name, moment, self.sent, local, following, made, turn)
            included = self.round if self.remembers else NONE
            self.ledger.include(name, included, self.receipts[name])
        self.spending.take((self.epoch, self.round), names, self._asked)
        self._journal(loss, len(names))
        self.yardstick.take(distances, self.steps)
        self.server = server
        self.iteration += self.steps
        self.round += 1
        absent = tuple(name for name in self.cohort if name not in names)
        self.closed = Closed(len(names), len(self.cohort), absent)
        self.tally.counts["dropped"] += len(absent)
        self.checkpoint()
        self.forget()
        self._open()

    def _refuse_far(self) -> dict[str, float]:
        """Refuse uploads that are too far from x_r. Return the distances, or the norms of messages
        that are not points."""
        distances = {name: self.moved(one.point) for name, one in self.accepted.items()}
        for name, wrong in self.too_far(distances).items():
            self.refuse(name, wrong)
            del self.accepted[name]
        return distances

    def moved(self, point: Arrays) -> float:
        """How far a message is from x_r, or its norm if it is not a point."""
        origin = tuple(jax.tree.leaves(self.sent.x))
        near = self.sends_local and self.message_layout == self.layout
        return distance(point, origin if near else None)

    def too_far(self, distances: Mapping[str, float]) -> dict[str, Fault]:
        """Whose messages are further away than is usual."""
        length = distance(tuple(jax.tree.leaves(self.sent.x)))
        return self.yardstick.too_far(distances, self.steps, length)

    def repeat(self, came: int, needed: int) -> None:
        """Note that too few replies came, and give up if that happened too often."""
        self.attempt += 1
        self.tally.counts["attempts_repeated"] += 1
        if self.attempt >= self.settings.attempts:
            seen = ", ".join(f"{what} ({many})" for what, many in self.tally.recent.items())
            why = " ".join(f"{name}: {one_line(w)}" for name, w in self.tally.reasons.items())
            raise ScafflixError(
                f"Round {self.round} got {came} of the {needed} replies it "
                f"needs, in {self.attempt} attempts ({seen or 'no other messages came'}); start "
                f"the server again to continue from this round. {why}".strip()
            )

    def judge(self, told: Mapping[str, float]) -> None:
        """Take in the clients' losses at x_r, and stop if their objective has blown up."""
        self.losses.take(self.round, told)
        wrong = self.losses.blown_up(told, self.settings.blow_up)
        if wrong is not None:
            raise self.diverged(wrong)

    def diverged(self, how: str) -> DivergenceError:
        """What to say when the run cannot go on like this."""
        return DivergenceError(
            f"{self.method.name} diverged: after {self.round} rounds {how}; the best model is the "
            f"one after round {self.losses.best}: go back to it with --from {self.losses.best} "
            "(and drop a client with --without if needed), or start a run with smaller stepsizes "
            "in another folder.",
            self.round,
        )

    def new_epoch(self) -> None:
        """Every client sets h = 0 and drops its pending upload: sum_i alpha_i h_i = 0 again.

        For when a client has lost its state and there is no mirror. The model is kept.
        """
        self.begin_epoch()
        self._open()

    def settle(self, told: Mapping[str, float]) -> None:
        """At the end of a run: save what was confirmed, and remove what is no longer needed."""
        self.checkpoint()
        self.forget()
        self.judge(told)

    def _keep_average(self) -> None:
        """Keep x_r, the average of round r - 1, if a client still has to commit it."""
        if self.round - 1 in self.ledger.waiting() and self.remembers:
            self.files.keep_average(self.round - 1, self.point)

    def _journal(self, loss: float, replies: int) -> None:
        row = {
            "round": self.round + 1,
            "iterations": self.iteration + self.steps,
            "local_steps": self.steps,
            "loss": loss if np.isfinite(loss) else None,
            "replies": replies,
            "refused": self.tally.counts["refused"],
            "bits_up": self.tally.bits_up,
            "bits_down": self.tally.bits_down,
        }
        if self.settings.privacy is not None:
            row["epsilon"] = self.spending.worst
        self.files.journal(row)
