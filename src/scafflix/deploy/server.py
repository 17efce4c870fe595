"""The server: rounds, cohorts, the ledger, the checkpoint.

A round is closed with the replies that came, and the checkpoint of its average is on the disk
before anybody can learn of it: a server that crashes repeats the open round with the same point
and the same K, or has already closed it for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scafflix import durable
from scafflix.cohorts.training import cohort_of
from scafflix.deploy import memory
from scafflix.deploy.files import Mirror, ServerFiles
from scafflix.deploy.ledger import Entry, Ledger
from scafflix.deploy.messages import (
    NONE,
    Problem,
    Refusal,
    Train,
    Upload,
    layout_of,
    problem_with,
    problem_with_arrays,
    receipt_of,
)
from scafflix.deploy.roster import Roster
from scafflix.deploy.settings import Settings
from scafflix.deploy.tally import Tally
from scafflix.deploy.uploads import Expected, problem_with_upload, weighted_mean
from scafflix.durable import Arrays, Hook
from scafflix.engine import streams
from scafflix.engine.streams import Stream
from scafflix.errors import ScafflixError
from scafflix.methods.method import Client, Method
from scafflix.vector import Vector


class ServerCore:
    """One run, begun or taken up again from its folder.

    `method` is that of the clients that take part (alpha_i > 0), in the order of the roster.
    """

    def __init__(
        self,
        folder: Path,
        roster: Roster,
        method: Method,
        start: Arrays,
        settings: Settings,
        hook: Hook = durable.quiet,
    ) -> None:
        self.files = ServerFiles(folder, hook)
        self.method, self.settings = method, settings
        self.run = roster.run
        self.roster = roster
        active = [(k, one) for k, one in enumerate(roster.introductions) if one.alpha > 0]
        if not active:
            raise ScafflixError("Every alpha is 0: nobody takes part, and no round is needed.")
        # the simulator counts the clients that take part, and with networks all there are
        theory = all(one.gamma > 0 for _, one in active)
        self.numbers = {one.client: place if theory else k for place, (k, one) in enumerate(active)}
        self.clients = {
            one.client: Client(one.alpha, float(gamma))
            for (_, one), gamma in zip(active, np.asarray(method.gamma), strict=True)
        }
        self.names = list(self.clients)
        self.layout = layout_of(start)
        self.cohort_size, self.minimum = settings.sizes(len(self.names))
        first = method.init_server(Vector(start))
        self._structure = jax.tree.structure(first)
        self._zero = memory.zero(Vector(start))
        self.remembers = bool(jax.tree.leaves(self._fresh_state(self.names[0])))
        self.epoch = self.round = self.iteration = 0
        self.server: Any = first
        self.ledger = Ledger({name: Entry() for name in self.names})
        self.tally = Tally()
        self._resume()
        self._open()

    @property
    def done(self) -> bool:
        """Whether all rounds are closed."""
        return self.round >= self.settings.rounds

    @property
    def x(self) -> Arrays:
        """The global model."""
        return tuple(np.asarray(leaf) for leaf in self.server.x.tree)

    # a round

    def _open(self) -> None:
        """Draw what the round is made of, from the seed and the round alone."""
        seed, n = self.settings.seed, len(self.names)
        drawn = streams.uniforms(seed, Stream.COIN, self.round, 1)
        self.steps = int(self.method.local_steps(drawn)[0])
        chosen = cohort_of(seed, self.round, np.arange(n), self.cohort_size)
        self.cohort = [self.names[k] for k in chosen]
        self.point: Arrays = tuple(map(np.asarray, self.method.broadcast(self.server).tree))
        self.accepted: dict[str, Upload] = {}
        self.lost: set[str] = set()
        self.attempt = 0
        self.tally.recent.clear()

    def requests(self) -> dict[str, Train]:
        """A message to each client of the cohort from which there is no upload yet."""
        asked = [name for name in self.cohort if name not in self.accepted]
        return {name: self.request(name) for name in asked}

    def request(self, name: str) -> Train:
        """The message of the open round to one client."""
        entry = self.ledger.entries[name]
        direct = entry.included == self.round - 1  # then x_r is that average
        message = Train(
            **self.address(name),
            steps=self.steps,
            iteration=self.iteration,
            number=self.numbers[name],
            clients=len(self.names),
            seed=self.settings.seed,
            report=self.round % self.settings.every == 0,
            point=self.point,
            average=() if direct else self.average_for(entry),
        )
        self.tally.sent(message.point, message.average, message.restored)
        return message

    def address(self, name: str) -> dict[str, Any]:
        """The fields of every message to a client: where the run stands, and what to commit."""
        entry = self.ledger.entries[name]
        return {
            "run": self.run,
            "epoch": self.epoch,
            "round": self.round,
            "method": self.method.name,
            "p": float(self.method.p),
            "pace": self.settings.pace,
            "gamma": self.clients[name].gamma,
            "included": entry.included,
            "receipt": entry.receipt,
            "restored": self._restored(name),
        }

    def average_for(self, entry: Entry) -> Arrays:
        """The broadcast after the round that the client has to commit; empty for none."""
        if entry.included in (NONE, entry.confirmed) or not self.remembers:
            return ()
        if entry.included == self.round - 1:
            return self.point
        return self.files.average(entry.included)

    def _restored(self, name: str) -> Arrays:
        if name not in self.lost:
            return ()
        return tuple(jax.tree.leaves(self._mirrored(name, self.ledger.entries[name].included)))

    def receive(self, sender: str, reply: Any) -> bool:
        """Take in what came from a client (`sender`: who was asked); whether to ask it again."""
        if isinstance(reply, Refusal):
            return self.receive_refusal(sender, reply)
        wrong = self._problem_with(sender, reply)
        if wrong is not None:
            self.refuse(sender, wrong)
        elif reply.round < self.round:
            self.tally.counts["late"] += 1
        elif sender in self.accepted:
            self.tally.counts["repeated"] += 1
        else:
            self.accepted[sender] = reply
            self.ledger.confirm(sender, reply.committed)
            self.tally.received(reply.point)
        return False

    def _problem_with(self, sender: str, reply: Any) -> Problem | None:
        if not isinstance(reply, Upload):
            return Problem("type", f"a {type(reply).__name__} came as reply.")
        if sender not in self.clients:
            return Problem("unknown_client", "it does not take part in this run.")
        fresh = self._fresh_state(sender)
        _, weight = self.method.upload(self.clients[sender], fresh, self._zero)
        expected = Expected(
            client=sender,
            run=self.run,
            epoch=self.epoch,
            round=self.round,
            asked=sender in self.cohort,
            layout=self.layout,
            weight=float(weight),
            committed=self.ledger.entries[sender].included if self.remembers else None,
        )
        return problem_with_upload(reply, expected)

    def receive_refusal(self, sender: str, reply: Refusal) -> bool:
        """Take in that a client did not do it; whether it can be helped and asked again."""
        wrong = problem_with(reply)
        if wrong is not None or reply.client != sender or sender not in self.clients:
            self.refuse(sender, wrong or Problem("unknown_client", "another's name."))
            return False
        if (reply.epoch, reply.round) != (self.epoch, self.round):
            self.tally.counts["late"] += 1
            return False
        kind = reply.kind if reply.kind.isidentifier() else "other"
        self.tally.note(self.round, sender, Problem(f"client_{kind}", reply.reason))
        able = self.settings.mirror and self.remembers and sender not in self.lost
        if reply.kind in ("lost", "damaged") and able:
            self.lost.add(sender)
            self.tally.counts["restored"] += 1
            return True
        return False

    def refuse(self, sender: str, wrong: Problem) -> None:
        """Count what is refused, and say whose it was."""
        self.tally.refuse(self.round, sender, wrong)

    def fail(self, sender: str, reason: str) -> None:
        """No reply will come from a client that was asked."""
        self.tally.note(self.round, sender, Problem("error", reason))

    def close(self) -> bool:
        """Form the average of what came and go on; or, with too few replies, repeat the round."""
        if len(self.accepted) < self.minimum:
            self.attempt += 1
            self.tally.counts["attempts_repeated"] += 1
            if self.attempt >= self.settings.attempts:
                seen = ", ".join(f"{what} ({many})" for what, many in self.tally.recent.items())
                raise ScafflixError(
                    f"Round {self.round} got {len(self.accepted)} replies in {self.attempt} "
                    f"attempts and needs {self.minimum} ({seen or 'nothing else came'}); start "
                    "the server again to go on from here."
                )
            return False
        names = [name for name in self.names if name in self.accepted]
        uploads = [self.accepted[name] for name in names]
        server = self.method.combine(self.server, weighted_mean(uploads))
        following = self.method.broadcast(server)
        self._keep_average()
        if self.settings.mirror and self.remembers:
            for name in names:
                self._advance_mirror(name, following)
        for name in names:
            receipt = receipt_of(self.accepted[name].point) if self.remembers else ""
            self.ledger.include(name, self.round if self.remembers else NONE, receipt)
        self._journal(uploads)
        self.server = server
        self.iteration += self.steps
        self.round += 1
        self.tally.counts["dropped"] += len(self.cohort) - len(names)
        self._checkpoint()
        self._forget()
        self._open()
        return True

    def new_epoch(self) -> None:
        """Every client sets h = 0 and drops what is pending: sum_i alpha_i h_i = 0 again.

        What an operator does when a client lost its state and there is no mirror. The model stays.
        """
        self.epoch += 1
        self.ledger.new_epoch()
        self.tally.counts["epochs"] += 1
        self._checkpoint()
        self._forget()
        self._open()

    def settle(self) -> None:
        """At the end of a run: keep what was confirmed, drop what nobody needs."""
        self._checkpoint()
        self._forget()

    # what is on the disk

    def _keep_average(self) -> None:
        """x_r is the average of round r - 1; it outlives the round if somebody must commit it."""
        if self.round - 1 in self.ledger.waiting() and self.remembers:
            self.files.keep_average(self.round - 1, self.point)

    def _mirrored(self, name: str, round: int) -> Any:
        template = self._fresh_state(name)
        if round == NONE:
            return template
        return memory.state_from(self.files.mirror(self._mirror(name, round)), template)

    def _advance_mirror(self, name: str, following: Vector) -> None:
        """h_i as its client will compute it; a file for each round, so that repeating is safe."""
        state = self._mirrored(name, self.ledger.entries[name].included)
        x_hat = Vector(self.accepted[name].point)
        state = self.method.commit(self.clients[name], state, x_hat, following, self.steps)
        self.files.keep_mirror(self._mirror(name, self.round), name, jax.tree.leaves(state))

    def _mirror(self, name: str, round: int) -> Mirror:
        return Mirror(self.epoch, self.numbers[name], round)

    def _fresh_state(self, name: str) -> Any:
        return self.method.init_client(self.clients[name], self._zero, self._zero)

    def _journal(self, uploads: Sequence[Upload]) -> None:
        losses = [upload.loss for upload in uploads]
        row = {
            "round": self.round + 1,
            "iterations": self.iteration + self.steps,
            "local_steps": self.steps,
            "loss": float(np.mean(losses)) if np.isfinite(losses).all() else None,
            "replies": len(uploads),
            "refused": self.tally.counts["refused"],
            "bits_up": self.tally.bits_up,
            "bits_down": self.tally.bits_down,
        }
        self.files.journal(row)

    def rows(self) -> list[dict[str, Any]]:
        """The closed rounds."""
        return self.files.rows(self.round)

    @property
    def _terms(self) -> dict[str, Any]:
        """What must stay as it is in all rounds: clients have trained by it already."""
        return {
            "run": self.run,
            "method": self.method.name,
            "seed": self.settings.seed,
            "p": float(self.method.p),
            "pace": self.settings.pace,
            "cohort": self.cohort_size,
            "gamma": [client.gamma for client in self.clients.values()],
        }

    def _checkpoint(self) -> None:
        facts = {
            **self._terms,
            "epoch": self.epoch,
            "round": self.round,
            "iteration": self.iteration,
            "ledger": self.ledger.plain(),
            **self.tally.plain(),
        }
        self.files.checkpoint(facts, jax.tree.leaves(self.server))

    def _resume(self) -> None:
        found = self.files.last_checkpoint()
        if found is None:
            self.files.cut_journal(0)
            return
        facts, leaves = found
        for name, mine in self._terms.items():
            if facts[name] != mine:
                raise ScafflixError(
                    f"{self.files.folder} holds a run whose {name} is {facts[name]}, not {mine}; "
                    "give another folder, or the settings it began with."
                )
        self.epoch, self.round = facts["epoch"], facts["round"]
        self.iteration = facts["iteration"]
        self.ledger = Ledger.of(facts["ledger"])
        self.tally = Tally.of(facts)
        self.server = jax.tree.unflatten(self._structure, leaves)
        wrong = problem_with_arrays("the model", self.x, self.layout)
        if wrong is not None:
            raise ScafflixError(f"{self.files.folder}: {wrong.reason}")
        self.tally.counts["resumed"] += 1
        self.files.cut_journal(self.round)

    def _forget(self) -> None:
        """Remove the averages and mirrored states that the checkpoint no longer needs."""
        entries = self.ledger.entries.items()
        mirrors = {self._mirror(name, entry.included) for name, entry in entries}
        self.files.forget_all_but(self.ledger.waiting(), mirrors)
