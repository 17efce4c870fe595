"""The state of a run, in memory and on disk."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from scafflix import algorithm
from scafflix.core.durable import Arrays
from scafflix.core.errors import ScafflixError
from scafflix.core.vector import Vector
from scafflix.federate.counts import Tally
from scafflix.federate.distance import Yardstick
from scafflix.federate.divergence import Losses
from scafflix.federate.files import Moment, ServerFiles
from scafflix.federate.ledger import Entry, Ledger
from scafflix.federate.messages import layout_of, problem_with_arrays
from scafflix.federate.mirroring import Mirrors
from scafflix.federate.naming import first_names
from scafflix.federate.planning import settings_text
from scafflix.federate.roster import Roster
from scafflix.federate.settings import Settings
from scafflix.methods.averaging import share_of
from scafflix.methods.method import Client, Method, fitted
from scafflix.methods.transport import Transport


class Standing:
    """The clients, the model, the ledger and the counts; a checkpoint holds all that changes."""

    def __init__(
        self,
        files: ServerFiles,
        roster: Roster,
        method: Method,
        start: Arrays,
        settings: Settings,
    ) -> None:
        self.arrays = first_names(roster.introductions[0].names, len(start))
        method = fitted(method, self.arrays)
        self.files, self.method, self.settings = files, method, settings
        self.run = roster.run
        self.roster = roster
        active = [(k, one) for k, one in enumerate(roster.introductions) if one.alpha > 0]
        self.numbers = {one.client: k for k, one in active}
        self.total = len(roster.introductions)
        n = float(len(active))
        self.clients = {
            one.client: Client(one.alpha, float(gamma), None, float(one.examples), n)
            for (_, one), gamma in zip(active, np.asarray(method.gamma), strict=True)
        }
        self.names = list(self.clients)
        self.layout = layout_of(start)
        self.cohort_size, self.minimum = settings.sizes(len(self.names))
        first = method.init_server(Vector(start))
        self._structure = jax.tree.structure(first)
        self.settings_text = settings_text(method)
        self.mirrors = Mirrors(self.files, method, self.clients, self.numbers, Vector(start))
        self.remembers = bool(jax.tree.leaves(self.mirrors.fresh(self.names[0])))
        self._some_turn = algorithm.turn_of(settings.seed, 0, 0, self.cohort_size)
        message, _, self.sends_local = self._exchange(first, self.names[0])
        self.message = jax.tree.map(np.asarray, message)
        leaves = jax.tree.leaves(self.message)
        self.message_layout = self.upload_layout = layout_of(leaves)
        if method.compressor is not None:  # which may refuse so few clients a round
            self.upload_layout = layout_of(method.compressor.encode(self._some_turn, self.message))
        if settings.mirror and self.remembers and not self.sends_local:
            raise ScafflixError(
                f"mirror needs a method whose clients upload their iterates, and {method.name} "
                "uploads something else; leave mirror out."
            )
        self.epoch = self.round = self.iteration = 0
        self.server: Any = first
        self.ledger = Ledger({name: Entry() for name in self.names})
        self.tally = Tally()
        self.yardstick = Yardstick(settings.far)
        self.losses = Losses()

    def _exchange(self, server: Any, name: str) -> tuple[Any, float, bool]:
        """A client's message before its first step, its weight, and whether it is its iterate."""
        client = self.clients[name]._replace(turn=self._some_turn)
        state = self.mirrors.fresh(name)
        sent = self.method.broadcast(server)
        local = self.method.begin(client, state, sent)
        message, weight = self.method.upload(client, state, sent, local)
        return message, float(weight), message is local and self.method.compressor is None

    def down(self, arrays: Arrays) -> Arrays:
        """The server's arrays as they travel to clients."""
        compressor = self.method.compressor
        return compressor.narrow(arrays) if isinstance(compressor, Transport) else arrays

    @property
    def x(self) -> Arrays:
        """The global model."""
        return tuple(np.asarray(leaf) for leaf in self.server.x.tree)

    def begin_epoch(self) -> None:
        """Begin a new epoch: every client resets h to 0, and the server keeps only the model."""
        if not self.method.restarts:
            raise ScafflixError(
                f"With {self.method.name} clients cannot begin anew in the middle of a run; start "
                "a run in another folder."
            )
        self.epoch += 1
        self.server = self.method.init_server(Vector(self.x))
        self.ledger.new_epoch()
        self.tally.counts["epochs"] += 1
        self.checkpoint()
        self.forget()

    def rows(self) -> list[dict[str, Any]]:
        """The closed rounds."""
        return self.files.rows(self.round)

    @property
    def _terms(self) -> dict[str, Any]:
        """What must stay the same in all rounds, because clients have already trained with it."""
        return {
            "run": self.run,
            "method": self.method.name,
            "seed": self.settings.seed,
            "settings": self.settings_text,
            "cohort": self.cohort_size,
            "gamma": [client.gamma for client in self.clients.values()],
            "average": share_of(self.method),
        }

    def checkpoint(self) -> None:
        facts = {
            **self._terms,
            "epoch": self.epoch,
            "round": self.round,
            "iteration": self.iteration,
            "ledger": self.ledger.plain(),
            "distances": self.yardstick.plain(),
            "losses": self.losses.plain(),
            **self.tally.plain(),
        }
        at = Moment(self.epoch, self.round)
        self.files.checkpoint(at, facts, jax.tree.leaves(self.server))
        self.files.keep_checkpoints(self.settings.checkpoints, self.losses.best)

    def resume(self, back_to: int | None) -> None:
        moments = self.files.moments()
        wanted = [one for one in moments if back_to in (None, one.round)]
        if back_to is not None and not wanted:
            kept = ", ".join(str(one.round) for one in moments)
            raise ScafflixError(
                f"{self.files.folder} has no checkpoint of round {back_to}; the rounds it has are: "
                f"{kept or 'none'}."
            )
        if not wanted:
            self.checkpoint()
        else:
            facts, leaves = self.files.checkpoint_at(wanted[-1])
            self._take(facts, leaves)
            left = set(facts["ledger"]) != set(self.names)
            if back_to is not None:
                self.epoch = moments[-1].epoch  # clients may have been in it
                self.tally.counts["went_back"] += 1
            if left or back_to is not None:
                self.begin_epoch()
                self.files.forget_after(Moment(self.epoch, self.round))
        self.files.cut_journal(self.round)
        if self.round > self.settings.rounds:
            raise ScafflixError(
                f"rounds is {self.settings.rounds}, but {self.round} rounds are closed in "
                f"{self.files.folder}; set rounds to at least {self.round}, or go back with "
                "--from ROUND."
            )

    def _take(self, facts: dict[str, Any], leaves: Arrays) -> None:
        """Restore the state from a checkpoint."""
        left = set(facts["ledger"]) - set(self.names)
        facts = {"average": 0.0, **facts}  # a run that does not speak of it has none
        for name, mine in self._terms.items():
            if facts[name] != mine and not (left and name in ("settings", "cohort", "gamma")):
                raise ScafflixError(
                    f"{self.files.folder} holds a run whose {name} is {facts[name]}, not {mine}; "
                    "choose another folder, or use the settings it began with."
                )
        self.epoch, self.round = facts["epoch"], facts["round"]
        self.iteration = facts["iteration"]
        entries = {name: facts["ledger"][name] for name in self.names}
        self.ledger, self.tally = Ledger.of(entries), Tally.of(facts)
        self.yardstick = Yardstick(self.settings.far, **facts["distances"])
        self.losses = Losses(**facts["losses"])
        for name in left:
            self.losses.leave(name)
        self.server = jax.tree.unflatten(self._structure, leaves)
        wrong = problem_with_arrays("the model", self.x, self.layout)
        if wrong is not None:
            raise ScafflixError(f"{self.files.folder}: {wrong.reason}")
        self.tally.counts["resumed"] += 1

    def forget(self) -> None:
        """Remove the averages and mirrored states that the checkpoint no longer needs."""
        mirrors = {
            self.mirrors.where(name, self.epoch, entry.included)
            for name, entry in self.ledger.entries.items()
        }
        self.files.forget_all_but(self.ledger.waiting(), mirrors)
