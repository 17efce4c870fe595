"""The server: rounds, cohorts, the weighted mean, the ledger, the checkpoint.

A round is closed with the replies that came, and the checkpoint of its average is on the disk
before anybody can learn of it: a server that crashes repeats the open round with the same point
and the same K, or has already closed it for good.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from scafflix.cohorts.training import cohort_of
from scafflix.deploy import durable, memory
from scafflix.deploy.durable import Arrays, Hook
from scafflix.deploy.ledger import Entry, Ledger
from scafflix.deploy.messages import (
    NONE,
    Evaluate,
    Evaluation,
    Introduction,
    Problem,
    Refusal,
    Train,
    Upload,
    layout_of,
    problem_with,
    problem_with_arrays,
    receipt_of,
)
from scafflix.engine import streams
from scafflix.engine.streams import Stream
from scafflix.errors import ScafflixError
from scafflix.methods.method import Client, Method
from scafflix.vector import Vector

LOG = logging.getLogger("scafflix.deploy")
WEIGHT_TOLERANCE = 1e-9  # relative, between a weight and what alpha_i and gamma_i imply


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How long, with whom, and how much patience."""

    rounds: int
    cohort: int | None = None  # clients a round; None: all that take part
    minimum: int | None = None  # replies without which a round is repeated; None: half a cohort
    attempts: int = 5  # at most, for one round
    seed: int = 0
    mirror: bool = False  # keep every h_i here too, to give back to a client that lost its own
    report: bool = True  # have clients report f_i(x~_i) with every upload
    pace: str = ""  # of the method's control variates, if it has any


class Roster(NamedTuple):
    """Who takes part, agreed on before the first round."""

    run: str
    introductions: tuple[Introduction, ...]  # in the order of the client numbers

    def save(self, folder: Path, start: Arrays, hook: Hook = durable.quiet) -> None:
        """For a server that starts again."""
        kept = [one._replace(start=())._asdict() for one in self.introductions]
        facts = {"run": self.run, "introductions": kept}
        durable.write(folder / f"roster{durable.SUFFIX}", facts, start, hook)

    @staticmethod
    def load(folder: Path) -> tuple[Roster, Arrays] | None:
        """The roster and the start of a run in this folder, if there is one."""
        found = durable.read(folder / f"roster{durable.SUFFIX}")
        if found is None:
            return None
        facts, start = found
        people = [Introduction(**{**one, "start": ()}) for one in facts["introductions"]]
        return Roster(facts["run"], tuple(people)), start


def new_roster(introductions: Sequence[Introduction]) -> Roster:
    """A run of these clients, in this order, under a name of its own."""
    if not introductions:
        raise ScafflixError("No client introduced itself; start nodes first.")
    names = Counter(one.client for one in introductions)
    name, times = names.most_common(1)[0]
    if times > 1:
        raise ScafflixError(f"{times} nodes call themselves {name}; give each its own id.")
    for one in introductions:
        wrong = problem_with(one)
        if wrong is not None:
            raise ScafflixError(f"Client {one.client} introduced itself badly: {wrong.reason}")
        if one.layout != introductions[0].layout:
            raise ScafflixError(
                f"Client {one.client} has models of the layout {one.layout}, client "
                f"{introductions[0].client} of {introductions[0].layout}; they must be the same."
            )
    return Roster(secrets.token_hex(8), tuple(introductions))


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
        self.folder, self.method, self.settings, self.hook = folder, method, settings, hook
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
        self._check_settings()
        first = method.init_server(Vector(start))
        self._structure = jax.tree.structure(first)
        self._zero = memory.zero(Vector(start))
        self.remembers = bool(jax.tree.leaves(self._fresh_state(self.names[0])))
        self.epoch = self.round = self.iteration = 0
        self.server: Any = first
        self.ledger = Ledger({name: Entry() for name in self.names})
        self.counts: Counter[str] = Counter()
        self.refused_of: Counter[str] = Counter()  # by client
        self.bits_up = self.bits_down = 0
        self.evaluations: dict[str, Evaluation] = {}
        self._resume()
        self._open()

    def _check_settings(self) -> None:
        chosen, n = self.settings, len(self.names)
        size = self.cohort_size
        if not 1 <= size <= n:
            raise ScafflixError(f"cohort is {size}; it must be at least 1 and at most {n}.")
        if not 1 <= self.minimum <= size:
            raise ScafflixError(
                f"minimum is {self.minimum}; it must be at least 1 and at most {size}, the "
                "clients of a round."
            )
        if chosen.rounds < 1 or chosen.attempts < 1:
            raise ScafflixError("rounds and attempts must be at least 1.")

    @property
    def cohort_size(self) -> int:
        """Clients a round."""
        return len(self.names) if self.settings.cohort is None else self.settings.cohort

    @property
    def minimum(self) -> int:
        """Replies that a round needs."""
        half = (self.cohort_size + 1) // 2
        return half if self.settings.minimum is None else self.settings.minimum

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
        self.cohort = self.names
        if self.settings.cohort is not None:
            chosen = cohort_of(seed, self.round, np.arange(n), self.cohort_size)
            self.cohort = [self.names[k] for k in chosen]
        self.point: Arrays = tuple(map(np.asarray, self.method.broadcast(self.server).tree))
        self.accepted: dict[str, Upload] = {}
        self.lost: set[str] = set()
        self.attempt = 0
        self.trouble: Counter[str] = Counter()  # of this round

    def requests(self) -> dict[str, Train]:
        """A message to each client of the cohort from which there is no upload yet."""
        asked = [name for name in self.cohort if name not in self.accepted]
        return {name: self.request(name) for name in asked}

    def request(self, name: str) -> Train:
        """The message of the open round to one client."""
        entry = self.ledger.entries[name]
        direct = entry.included == self.round - 1  # then x_r is that average
        message = Train(
            run=self.run,
            epoch=self.epoch,
            round=self.round,
            steps=self.steps,
            iteration=self.iteration,
            number=self.numbers[name],
            clients=len(self.names),
            seed=self.settings.seed,
            method=self.method.name,
            p=float(self.method.p),
            pace=self.settings.pace,
            gamma=self.clients[name].gamma,
            included=entry.included,
            receipt=entry.receipt,
            report=self.settings.report,
            point=self.point,
            average=() if direct else self._average(entry),
            restored=self._restored(name),
        )
        self.bits_down += _bits(message.point, message.average, message.restored)
        return message

    def _average(self, entry: Entry) -> Arrays:
        """The broadcast after the round that the client has to commit."""
        if entry.included in (NONE, entry.confirmed) or not self.remembers:
            return ()
        if entry.included == self.round - 1:
            return self.point
        found = durable.read(self._average_path(entry.included))
        if found is None:
            raise ScafflixError(f"{self._average_path(entry.included)} is missing.")
        return found[1]

    def _restored(self, name: str) -> Arrays:
        if name not in self.lost:
            return ()
        return tuple(jax.tree.leaves(self._mirrored(name, self.ledger.entries[name].included)))

    def receive(self, sender: str, reply: Any) -> bool:
        """Take in what came from a client (`sender`: who was asked); whether to ask it again."""
        if isinstance(reply, Refusal):
            return self._receive_refusal(sender, reply)
        if not isinstance(reply, Upload):
            self.refuse(sender, Problem("type", f"a {type(reply).__name__} came as reply."))
            return False
        wrong = self._problem_with(sender, reply)
        if wrong is not None:
            self.refuse(sender, wrong)
        elif reply.round < self.round:
            self.counts["late"] += 1
        elif sender in self.accepted:
            self.counts["repeated"] += 1
        else:
            self.accepted[sender] = reply
            self.ledger.confirm(sender, reply.committed)
            self.bits_up += _bits(reply.point)
        return False

    def fail(self, sender: str, reason: str) -> None:
        """No reply will come from a client that was asked."""
        self._note(sender, Problem("error", reason))

    def _problem_with(self, sender: str, reply: Upload) -> Problem | None:
        if sender not in self.clients or reply.client != sender:
            return Problem("unknown_client", f"it calls itself {reply.client!r}.")
        wrong = problem_with(reply, self.layout)
        if wrong is not None:
            return wrong
        if reply.run != self.run:
            return Problem("run", f"it is of the run {reply.run!r}.")
        if reply.epoch != self.epoch:
            return Problem("epoch", f"it is of epoch {reply.epoch}; this is {self.epoch}.")
        if reply.round > self.round or (reply.round == self.round and sender not in self.cohort):
            return Problem("round", f"it is for round {reply.round}; this is {self.round}.")
        implied = self._implied_weight(sender, Vector(reply.point))
        if not math.isclose(reply.weight, implied, rel_tol=WEIGHT_TOLERANCE):
            return Problem(
                "weight", f"its weight is {reply.weight:g}; alpha and gamma imply {implied:g}."
            )
        entry = self.ledger.entries[sender]
        if reply.round == self.round and self.remembers and reply.committed != entry.included:
            return Problem(
                "committed",
                f"it committed round {reply.committed}; it was last in that of {entry.included}.",
            )
        return None

    def _implied_weight(self, name: str, point: Vector) -> float:
        _, weight = self.method.upload(self.clients[name], self._fresh_state(name), point)
        return float(weight)

    def _receive_refusal(self, sender: str, reply: Refusal) -> bool:
        wrong = problem_with(reply)
        if wrong is not None or reply.client != sender or sender not in self.clients:
            self.refuse(sender, wrong or Problem("unknown_client", "another's name."))
            return False
        if (reply.epoch, reply.round) != (self.epoch, self.round):
            self.counts["late"] += 1
            return False
        kind = reply.kind if reply.kind.isidentifier() else "other"
        self._note(sender, Problem(f"client_{kind}", reply.reason))
        able = self.settings.mirror and self.remembers and sender not in self.lost
        if reply.kind in ("lost", "damaged") and able:
            self.lost.add(sender)
            self.counts["restored"] += 1
            return True
        return False

    def refuse(self, sender: str, wrong: Problem) -> None:
        """Count what is refused, and say whose it was."""
        self.counts["refused"] += 1
        self.refused_of[sender] += 1
        self._note(sender, wrong)

    def _note(self, sender: str, wrong: Problem) -> None:
        self.counts[wrong.kind] += 1
        self.trouble[f"{sender}: {wrong.kind}"] += 1
        words = (self.round, sender, wrong.kind, wrong.reason)
        LOG.warning("round %d, client %s: %s: %s", *words)

    def close(self) -> bool:
        """Form the average of what came and go on; or, with too few replies, repeat the round."""
        if len(self.accepted) < self.minimum:
            self.attempt += 1
            self.counts["attempts_repeated"] += 1
            if self.attempt >= self.settings.attempts:
                seen = ", ".join(f"{what} ({many})" for what, many in self.trouble.items())
                raise ScafflixError(
                    f"Round {self.round} got {len(self.accepted)} replies in {self.attempt} "
                    f"attempts and needs {self.minimum} ({seen or 'nothing else came'}); start "
                    "the server again to go on from here."
                )
            return False
        names = [name for name in self.names if name in self.accepted]
        uploads = [self.accepted[name] for name in names]
        mean = _weighted_mean(uploads)
        server = self.method.combine(self.server, mean)
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
        self.counts["dropped"] += len(self.cohort) - len(names)
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
        self.counts["epochs"] += 1
        self._checkpoint()
        self._forget()
        self._open()

    # the end

    def farewells(self) -> dict[str, Evaluate]:
        """To everybody who has not answered yet: settle, report, take the model home."""
        return {name: self.farewell(name) for name in self.unsettled}

    @property
    def unsettled(self) -> list[str]:
        """Clients that have not answered a farewell."""
        return [name for name in self.names if name not in self.evaluations]

    def farewell(self, name: str) -> Evaluate:
        """The last message to one client."""
        entry = self.ledger.entries[name]
        message = Evaluate(
            run=self.run,
            epoch=self.epoch,
            round=self.round,
            finish=True,
            method=self.method.name,
            p=float(self.method.p),
            pace=self.settings.pace,
            gamma=self.clients[name].gamma,
            included=entry.included,
            receipt=entry.receipt,
            point=self.x,
            average=self._average(entry),
            restored=self._restored(name),
        )
        self.bits_down += _bits(message.point, message.average, message.restored)
        return message

    def receive_evaluation(self, sender: str, reply: Any) -> bool:
        """Take in the answer to a farewell; whether to ask again."""
        if isinstance(reply, Refusal):
            return self._receive_refusal(sender, reply)
        if not isinstance(reply, Evaluation) or reply.client != sender:
            self.counts["late" if isinstance(reply, Upload) else "refused"] += 1
            return False
        wrong = problem_with(reply)
        if wrong is None and (reply.run, reply.epoch, reply.round) != (
            self.run,
            self.epoch,
            self.round,
        ):
            wrong = Problem("round", f"it is for round {reply.round}; this is {self.round}.")
        if wrong is not None:
            self.refuse(sender, wrong)
            return False
        self.evaluations[sender] = reply
        self.ledger.confirm(sender, reply.committed)
        return False

    def settle(self) -> None:
        """After the farewells: keep what was confirmed, drop what nobody needs."""
        self._checkpoint()
        self._forget()

    # what is on the disk

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{durable.SUFFIX}"

    def _average_path(self, round: int) -> Path:
        return self._path(f"average-{round}")

    def _mirror_path(self, name: str, round: int) -> Path:
        return self._path(f"mirror-{self.epoch}-{self.numbers[name]}-{round}")

    def _keep_average(self) -> None:
        """x_r is the average of round r - 1; it outlives the round if somebody must commit it."""
        if self.round - 1 in self.ledger.waiting() and self.remembers:
            note = {"round": self.round - 1}
            durable.write(self._average_path(self.round - 1), note, self.point, self.hook)

    def _mirrored(self, name: str, round: int) -> Any:
        template = self._fresh_state(name)
        if round == NONE:
            return template
        found = durable.read(self._mirror_path(name, round))
        if found is None:
            raise ScafflixError(f"{self._mirror_path(name, round)} is missing.")
        return memory.state_from(found[1], template)

    def _advance_mirror(self, name: str, following: Vector) -> None:
        """h_i as its client will compute it; a file for each round, so that repeating is safe."""
        state = self._mirrored(name, self.ledger.entries[name].included)
        x_hat = Vector(self.accepted[name].point)
        state = self.method.commit(self.clients[name], state, x_hat, following, self.steps)
        path = self._mirror_path(name, self.round)
        durable.write(path, {"client": name}, jax.tree.leaves(state), self.hook)

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
            "refused": self.counts["refused"],
            "bits_up": self.bits_up,
            "bits_down": self.bits_down,
        }
        durable.append(self.folder / "rounds.jsonl", json.dumps(row, allow_nan=False), self.hook)

    def rows(self) -> list[dict[str, Any]]:
        """The closed rounds."""
        path = self.folder / "rounds.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines[: self.round]]

    @property
    def _terms(self) -> dict[str, Any]:
        """What must stay as it is in all rounds: clients have trained by it already."""
        return {
            "run": self.run,
            "method": self.method.name,
            "seed": self.settings.seed,
            "p": float(self.method.p),
            "pace": self.settings.pace,
            "cohort": self.settings.cohort,
            "gamma": [client.gamma for client in self.clients.values()],
        }

    def _checkpoint(self) -> None:
        facts = {
            **self._terms,
            "epoch": self.epoch,
            "round": self.round,
            "iteration": self.iteration,
            "ledger": self.ledger.plain(),
            "counts": dict(self.counts),
            "refused_of": dict(self.refused_of),
            "bits": [self.bits_up, self.bits_down],
        }
        durable.write(self._path("checkpoint"), facts, jax.tree.leaves(self.server), self.hook)

    def _resume(self) -> None:
        found = durable.read(self._path("checkpoint"))
        if found is None:
            durable.remove(self.folder / "rounds.jsonl")
            return
        facts, leaves = found
        for name, mine in self._terms.items():
            if facts[name] != mine:
                raise ScafflixError(
                    f"{self.folder} holds a run whose {name} is {facts[name]}, not {mine}; give "
                    "another folder, or the settings it began with."
                )
        self.epoch, self.round = facts["epoch"], facts["round"]
        self.iteration = facts["iteration"]
        self.ledger = Ledger.of(facts["ledger"])
        self.counts, self.refused_of = Counter(facts["counts"]), Counter(facts["refused_of"])
        self.bits_up, self.bits_down = facts["bits"]
        self.server = jax.tree.unflatten(self._structure, leaves)
        wrong = problem_with_arrays("the model", self.x, self.layout)
        if wrong is not None:
            raise ScafflixError(f"{self.folder}: {wrong.reason}")
        self.counts["resumed"] += 1
        self._cut_journal()

    def _cut_journal(self) -> None:
        """A round that was written down but not closed is not part of the run."""
        path = self.folder / "rounds.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        if len(lines) > self.round:
            durable.put(path, "".join(lines[: self.round]).encode(), self.hook)

    def _forget(self) -> None:
        """Remove the averages and mirrored states that the checkpoint no longer needs."""
        averages = {self._average_path(round) for round in self.ledger.waiting()}
        mirrors = {
            self._mirror_path(name, entry.included) for name, entry in self.ledger.entries.items()
        }
        for kept, pattern in ((averages, "average-*"), (mirrors, "mirror-*")):
            for path in self.folder.glob(f"{pattern}{durable.SUFFIX}"):
                if path not in kept:
                    durable.remove(path)


def _weighted_mean(uploads: Sequence[Upload]) -> Vector:
    """Line 11's average, summed in double precision."""
    weights = np.array([upload.weight for upload in uploads])
    share = weights / weights.sum()
    leaves = []
    for stack in zip(*(upload.point for upload in uploads), strict=True):
        total = np.zeros(stack[0].shape)
        for part, leaf in zip(share, stack, strict=True):
            total += part * leaf
        leaves.append(total.astype(stack[0].dtype))
    return Vector(tuple(leaves))


def _bits(*points: Arrays) -> int:
    return sum(8 * array.nbytes for point in points for array in point)


def summary_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """What went wrong in a run, by kind."""
    return {name: number for name, number in sorted(counts.items()) if number}
