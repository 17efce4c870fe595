"""Where a client stands: its id, data, x_i* and folder, and what it remembers there.

The rule: an upload is *pending* from the moment it is stored until a message from a later round
says which round's average last included an upload of this client. If that is the pending upload,
the control variate advances with that average. If not, the upload was in no average and is dropped.
Either way sum_i alpha_i h_i stays 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix import algorithm
from scafflix.core import durable
from scafflix.core.digest import digest_of
from scafflix.core.durable import Arrays, Hook
from scafflix.core.errors import ScafflixError
from scafflix.core.vector import Vector
from scafflix.federate import client_state, judging
from scafflix.federate.client_state import Memory, Pending
from scafflix.federate.learner import Learner, Tuner
from scafflix.federate.messages import (
    Evaluate,
    RefusedError,
    Train,
    checked_name,
    layout_of,
    problem_with_arrays,
)
from scafflix.federate.naming import first_names, named, names_of, recorded
from scafflix.federate.planning import UsersMethod, own_method
from scafflix.federate.privacy import Guard
from scafflix.federate.secure.identity import Identity
from scafflix.federate.slopes import Slopes
from scafflix.methods.method import Client, Method, Turn
from scafflix.methods.private import ready
from scafflix.methods.remembering import Kept
from scafflix.methods.transport import FULL, transported
from scafflix.personalization.rules.choosing import consults


class ClientStanding:
    """A client between messages. Everything it must remember is on disk.

    With a rule, alpha is that of the training; what it takes home is mixed with alpha_i, chosen at
    the end.
    """

    def __init__(
        self,
        name: str,
        alpha: float,
        learner: Learner,
        folder: Path,
        hook: Hook = durable.quiet,
        users_method: UsersMethod | None = None,
        rule: str | None = None,
        transport: str = FULL,
        secure: bool = False,
        identity: Identity | None = None,
        guard: Guard | None = None,
        after: bool = False,
    ) -> None:
        self.guard = guard  # with privacy: nothing made of data leaves without noise
        self.name = checked_name(name)
        if not 0 <= alpha <= 1:
            raise ScafflixError(f"alpha is {alpha}; it must be between 0 and 1.")
        self.alpha = float(alpha)
        self.learner, self.examples = learner, learner.examples
        self._slopes = Slopes(learner)
        self.folder = durable.new_folder(folder / self.name)
        self.hook = hook
        self.users_method = users_method  # a method from outside this package
        self.transport = transport
        self.secure, self.identity = secure, identity  # whether only sums of uploads may be seen
        self.word = rule
        self.rule = "" if rule is None else judging.judge_of(learner, rule).rule(rule)
        if guard is not None and self.rule and consults(self.rule):
            raise ScafflixError(
                f"alpha is {rule!r}, for which clients tell how good models are on their data; "
                "with privacy give a number, or a rule by which a client decides alone."
            )
        # by whom x_i* is found when the rounds are over, where that is asked for and possible
        self.tuner = learner if after and isinstance(learner, Tuner) else None
        self._start = learner.start()
        self.layout = layout_of(self._start.tree)
        self._names = first_names(names_of(learner, self._start), len(self._start.tree))
        self._double = all(leaf.dtype == np.float64 for leaf in self._start.tree)
        self._x_star: Vector | None = None

    @property
    def x_star(self) -> Vector | None:
        """The local optimum that training mixes with; not needed where alpha_i = 1."""
        return self.optimum if self.alpha < 1 else None

    @property
    def optimum(self) -> Vector:
        """The local optimum, found once and kept."""
        if self._x_star is None:
            path = self.folder / f"optimum{durable.SUFFIX}"
            self._x_star = self._kept(path, {}, self.learner.optimum)
        return self._x_star

    def own_model(self, message: Evaluate, x: Vector) -> Vector:
        """x_i* at the end of a run: the local optimum, or x as this client tunes it, kept until it
        has chosen alpha_i."""
        if self.tuner is None:
            return self.optimum
        look = partial(self.tuner.tuned, x, message.number)
        mark = {"number": message.number, "x": digest_of(*x.tree)}
        return self._kept(self._tuned_path(message.run), mark, look)

    def _kept(self, path: Path, about: Mapping[str, Any], look: Callable[[], Vector]) -> Vector:
        """A point that depends on this client's data; from its file if it was found before."""
        mark = {"client": self.name, "fingerprint": self.learner.fingerprint, **about}
        found = durable.read(path)
        if found is None or found[0] != mark or layout_of(found[1]) != self.layout:
            found = mark, look().tree
            durable.write(path, *found, self.hook)
        return Vector(found[1])

    def control(self, message: Train | Evaluate) -> Vector | None:
        """The current h_i, in Scafflix's scale: for the node's owner, never sent."""
        method, client = self._method(message)
        kept = client_state.load(self._path(message.run), self._fresh_state(method, client))
        state = self._fresh_state(method, client) if kept is None else kept.state
        return method.controls(client, state)

    def _take_home(self, model: Vector, alpha: float, run: str, rounds: int) -> None:
        note = {"client": self.name, "run": run, "rounds": rounds, "alpha": alpha}
        saved = named(self.learner, model)
        durable.write(self.model_path(run), note, list(saved.values()), self.hook, list(saved))

    def _settle(
        self, message: Train | Evaluate, kept: Memory, method: Method, client: Client
    ) -> Memory:
        """Line 13 for the pending upload if it was in an average; otherwise drop it."""
        pending = kept.pending
        if pending is not None and pending.round == message.included:
            following = isinstance(message, Train) and message.round == message.included + 1
            average = message.point if following else message.average
            if pending.receipt == message.receipt and average:
                sent = self._sent(method, "point", pending.sent)
                after = self._sent(method, "average", average)
                local = self._local(method, client, kept.state, sent, pending.local)
                client = client._replace(turn=turn_of(pending))
                state = method.commit(client, kept.state, sent, local, after, pending.steps)
                return kept._replace(state=state, committed=pending.round, pending=None)
        elif kept.committed == message.included:
            return kept._replace(pending=None, state=self._remembering(kept, method, client))
        raise RefusedError(
            "lost",
            f"the server has averaged an upload of round {message.included} that is not stored "
            f"here (last committed: {_round(kept.committed)}); put back the folder {self.folder}, "
            "let the server restore the state from its mirror, or start a new epoch.",
        )

    def _remembering(self, kept: Memory, method: Method, client: Client) -> Any:
        """The state without the pending steps; what gradients remember after them is true still."""
        if kept.pending is None or not isinstance(kept.state, Kept):
            return kept.state
        sent = self._sent(method, "point", kept.pending.sent)
        local = self._local(method, client, kept.state, sent, kept.pending.local)
        return kept.state._replace(memory=local.memory)

    def _memory(self, message: Train | Evaluate, method: Method, client: Client) -> Memory:
        """What this client remembers, in the epoch of the message."""
        template = self._fresh_state(method, client)
        fresh = Memory(message.method, message.epoch, template)
        try:
            kept = client_state.load(self._path(message.run), template)
        except durable.DamagedError:
            if not message.restored:
                raise
            kept = None
        if kept is not None and kept.method != message.method:
            raise RefusedError(
                "method", f"this run uses the method {kept.method}, not {message.method}."
            )
        if kept is not None and message.epoch < kept.epoch:
            raise RefusedError(
                "stale", f"epoch {message.epoch} is over; this is epoch {kept.epoch}."
            )
        if kept is None or message.epoch > kept.epoch:
            kept = fresh
        if message.restored and message.round >= kept.latest:
            known = kept.pending is not None and kept.pending.round == message.round
            if not known:
                state = client_state.restored(message.restored, template)
                return fresh._replace(state=state, committed=message.included)
        return kept

    def _fresh_state(self, method: Method, client: Client) -> Any:
        return method.init_client(client, self._start, 0 * self._start)

    def _sent(self, method: Method, name: str, arrays: Arrays) -> Any:
        """The server's arrays, in the method's own structure."""
        leaves, form = jax.tree.flatten(method.broadcast(method.init_server(self._start)))
        wrong = problem_with_arrays(name, arrays, layout_of(leaves))
        if wrong is not None:
            raise RefusedError(wrong.kind, wrong.reason)
        return jax.tree.unflatten(form, arrays)

    def _local(self, method: Method, client: Client, state: Any, sent: Any, kept: Arrays) -> Any:
        """The stored result of the local steps, in the method's own structure."""
        form = jax.tree.structure(method.begin(client, state, sent))
        return jax.tree.unflatten(form, kept)

    def _method(self, message: Train | Evaluate) -> tuple[Method, Client]:
        asked = (message.method, message.settings)
        method = own_method(*asked, self.alpha, message.gamma, self.users_method)
        method = transported(method, self.transport)
        if self._slopes.reduction is not None:
            method = replace(method, gradient=self._slopes.reduction.estimate)
        method = ready(method, self._names)
        examples, clients = float(self.examples), float(message.clients)
        return method, Client(self.alpha, message.gamma, self.x_star, examples, clients)

    def _path(self, run: str) -> Path:
        return self.folder / f"{checked_name(run)}{durable.SUFFIX}"

    def models(self, run: str) -> dict[str, NDArray[Any]]:
        """The model of this client, and its own optimum if it has one, as a record of one client
        holds them."""
        kept, learner = durable.read(self.model_path(run)), self.learner
        names = named(learner, self._start)
        found = {} if kept is None else {"personal": dict(zip(names, kept[1], strict=True))}
        if self.tuner is not None:
            tuned = durable.read(self._tuned_path(run))
            found |= {} if tuned is None else {"local": named(learner, Vector(tuned[1]))}
        elif self.alpha < 1 or self.rule:
            found["local"] = named(learner, self.optimum)
        return {
            name: array
            for kind, saved in found.items()
            for name, array in recorded(learner, self._start, kind, saved).items()
        }

    def _tuned_path(self, run: str) -> Path:
        return self.folder / f"{checked_name(run)}-tuned{durable.SUFFIX}"

    def model_path(self, run: str) -> Path:
        """The file of this client's own model."""
        return self.folder / f"{checked_name(run)}-model{durable.SUFFIX}"


def turn_of(of: Train | Pending) -> Turn:
    """The client's part in a round."""
    return algorithm.turn_of(of.seed, of.round, of.place, of.cohort)


def _round(number: int) -> str:
    return "none" if number < 0 else f"round {number}"
