"""One client: it trains, keeps its upload until it knows the outcome, and commits exactly once.

The new pending upload and the settled state are in one file, which is replaced atomically before
the reply is sent: after an earlier crash the work is repeated, after a later crash only the reply
is.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scafflix import algorithm
from scafflix.core import durable
from scafflix.core.durable import Arrays
from scafflix.core.errors import ScafflixError
from scafflix.core.precision import precision
from scafflix.core.types import Floats
from scafflix.core.vector import Vector
from scafflix.federate import client_state, judging
from scafflix.federate.client_standing import ClientStanding, turn_of
from scafflix.federate.client_state import Memory, Pending
from scafflix.federate.learner import Scales
from scafflix.federate.messages import (
    Curve,
    Evaluate,
    Evaluation,
    Hello,
    Introduction,
    RefusedError,
    Reply,
    Request,
    Train,
    Upload,
    checked_name,
    fault_of,
    problem_with_arrays,
    receipt_of,
    refusal_of,
)
from scafflix.federate.naming import names_of
from scafflix.federate.sameness import computes_of
from scafflix.federate.secure import numbers
from scafflix.federate.secure.fixed import DOUBLE, FixedPoint
from scafflix.federate.secure.masks import Occasion
from scafflix.federate.secure.member import Member
from scafflix.federate.secure.messages import Keys, Mask, Share, Unmask
from scafflix.methods.method import Client, Method, Number
from scafflix.methods.transport import FULL, Transport
from scafflix.personalization.mixing import mix
from scafflix.personalization.rules import blending
from scafflix.personalization.rules.choosing import consults

ALONE = "alone"  # the name of the run of a client with alpha_i = 0, which takes part in none


class ClientCore(ClientStanding):
    """A client that replies to the server's messages."""

    def handle(self, message: Request) -> Reply:
        """Reply to any message; a repeated message has no further effect."""
        if isinstance(message, Hello):
            return self.introduce(message)
        try:
            if isinstance(message, Train | Evaluate):
                message = self._wide(message)
            wrong = fault_of(message)
            if wrong is not None:
                raise RefusedError(wrong.kind, wrong.reason)
            with durable.locked(self.folder), precision(self._double):
                if isinstance(message, Train):
                    return self._train(message)
                if isinstance(message, Evaluate):
                    return self._evaluate(message)
                return self._aggregate(message)
        except ScafflixError as error:
            kind = "damaged" if isinstance(error, durable.DamagedError) else "error"
            kind = error.kind if isinstance(error, RefusedError) else kind
            return refusal_of(message, self.name, kind, str(error))

    def _wide(self, message: Train | Evaluate) -> Train | Evaluate:
        """With the server's arrays in the types of the model."""
        if self.transport == FULL:
            return message
        wide, like = Transport(self.transport).wide, self._start.tree
        return message._replace(
            point=wide(message.point, like), average=wide(message.average, like)
        )

    def introduce(self, message: Hello) -> Introduction:
        """This client's id, and what the server needs for weights and planning.

        With alpha_i = 0 it is asked for nothing more, and takes home x_i*.
        """
        scales = self.learner.scales if self.guard is None else Scales()
        start = self.learner.start()
        if self.alpha == 0:
            with durable.locked(self.folder), precision(self._double):
                self._take_home(self.optimum, 0.0, ALONE, 0)
        return Introduction(
            client=self.name,
            alpha=self.alpha,
            gamma=scales.gamma,
            gamma_mu=scales.gamma_mu,
            gamma_L=scales.gamma_L,
            examples=self.examples,
            layout=self.layout,
            start=start.tree if message.start else (),
            names=names_of(self.learner, start),
            rule=self.rule,
            computes=computes_of(self.learner),
        )

    def _train(self, message: Train) -> Upload | Keys:
        if self.secure and not message.attempt:
            raise RefusedError("insecure", "it takes part only with secure aggregation.")
        method, client = self._method(message)
        kept = self._memory(message, method, client)
        if message.round < kept.latest:
            raise RefusedError(
                "stale",
                f"round {message.round} is over; round {kept.latest} has already been trained.",
            )
        if kept.pending is not None and message.round == kept.pending.round:
            return self._answer(message, kept, kept.pending)
        sent = self._sent(method, "point", message.point)
        kept = self._settle(message, kept, method, client)
        home = method.personal(client, kept.state, sent.x)
        tells = message.report and self.guard is None
        loss = self.learner.loss(home) if tells else None
        gradient = partial(self._slopes.at, message)
        local = algorithm.local_steps(
            method, client, kept.state, sent, message.steps, gradient, message.stops
        )
        client = client._replace(turn=turn_of(message))
        if self.guard is not None:
            at, least = (client, kept.state, sent), (message.cohort + 1) // 2
            local = self.guard.release(method, self._names, least, at, local)
            sums = self.guard.sums(method, self._names, message.steps)
            path = self.folder / f"privacy{durable.SUFFIX}"
            self.guard.count(path, sums, self.examples, self.hook)
        up, weight = _encoded_upload(method, client, kept.state, sent, local)
        receipt = secrets.token_hex(16) if message.attempt else receipt_of(up)
        remembers = bool(jax.tree.leaves(kept.state))
        pending = Pending(
            message.round,
            message.steps,
            receipt,
            float(weight),
            _number(loss),
            message.seed,
            message.place,
            message.cohort,
            tuple(jax.tree.leaves(local)),
            message.point,
        )
        pending = pending if remembers or message.attempt else pending._replace(sent=())
        kept = kept._replace(latest=message.round, pending=pending)
        self.hook("trained")
        client_state.save(self._path(message.run), kept, self.hook)
        return self._answer(message, kept, pending)

    def _answer(self, message: Train, kept: Memory, pending: Pending) -> Upload | Keys:
        if not message.attempt:
            return self._upload(message, kept, pending)
        occasion = Occasion(message.run, kept.epoch, pending.round, message.attempt)
        ready = (kept.committed, pending.weight, pending.receipt)
        return self._member(message.run).keys(occasion, ready, numbers.kept(message))

    def _aggregate(self, message: Share | Mask | Unmask) -> Reply:
        """Take the next step in the secure aggregation of a round."""
        member = self._member(message.run)
        if isinstance(message, Share):
            return member.shares(message)
        if isinstance(message, Mask):
            return member.masked(message, self._numbers)
        return member.revealed(message)

    def _numbers(self, about: Mapping[str, Any]) -> tuple[Floats, FixedPoint]:
        """Line 11, as numbers to be added to those of others: the message as it arrives, times its
        weight in units, and the loss."""
        if "numbers" in about:
            return np.array(about["numbers"]), DOUBLE
        asked = numbers.asked(about)
        method, client = self._method(asked)
        kept = client_state.load(self._path(asked.run), self._fresh_state(method, client))
        pending = None if kept is None else kept.pending
        if (
            kept is None
            or pending is None
            or (kept.epoch, pending.round) != (asked.epoch, asked.round)
        ):
            raise RefusedError("stale", f"it has no message of round {asked.round}.")
        sent = self._sent(method, "point", pending.sent)
        local = self._local(method, client, kept.state, sent, pending.local)
        client = client._replace(turn=turn_of(pending))
        message, weight = algorithm.upload(method, client, kept.state, sent, local)
        share = float(weight) / about["unit"]
        return numbers.row(message, share, pending.loss, about["terms"])

    def _member(self, run: str) -> Member:
        path = self.folder / f"{checked_name(run)}-secure{durable.SUFFIX}"
        return Member(self.name, path, self.hook, self.identity)

    def _upload(self, message: Train, kept: Memory, pending: Pending) -> Upload:
        method, client = self._method(message)
        sent = self._sent(method, "point", message.point)
        local = self._local(method, client, kept.state, sent, pending.local)
        client = client._replace(turn=turn_of(pending))
        up, _ = _encoded_upload(method, client, kept.state, sent, local)
        return Upload(
            run=message.run,
            epoch=kept.epoch,
            client=self.name,
            round=pending.round,
            committed=kept.committed,
            weight=pending.weight,
            loss=math.nan if pending.loss is None else pending.loss,
            point=up,
        )

    def _evaluate(self, message: Evaluate) -> Curve | Evaluation | Keys:
        """Settle, save the model, and tell how good it is; of secure runs, only in sums."""
        told = self._closing(message)
        if message.attempt:
            occasion = Occasion(message.run, told.epoch, told.round, message.attempt)
            ready = (told.committed, 1.0, "")
            return self._member(message.run).keys(occasion, ready, numbers.reported(told))
        if not self.secure:
            return told
        return Evaluation(*told[:5], loss=math.nan, score=math.nan)

    def _closing(self, message: Evaluate) -> Curve | Evaluation:
        """Settle the pending upload at the end of a run, and save this client's own model."""
        method, client = self._method(message)
        kept = self._memory(message, method, client)
        x = self._final(message)
        if kept.pending is None or kept.pending.round < message.round:
            kept = self._settle(message, kept, method, client)
            client_state.save(self._path(message.run), kept, self.hook)
        place = (message.run, kept.epoch, self.name, message.round, kept.committed)
        if self.rule and consults(self.rule) and not message.others:
            self._keep_final(message)
            return Curve(*place, judging.curve_of(self._judged(message, x)))
        gradient = self._slopes.at_the_end(message)
        x_tilde = algorithm.take_home(method, client, kept.state, x, gradient)
        told = Evaluation(*place, self.learner.loss(x_tilde), math.nan, alpha=self.alpha)
        if self.rule:
            x_tilde, told = self._choose(message, x, told)
        self._take_home(x_tilde, told.alpha, message.run, message.round)
        if self.guard is not None:  # how good it is stays here
            return Evaluation(*place, math.nan, math.nan, alpha=self.alpha)
        loss, score = self.learner.loss(x_tilde), self.learner.score(x_tilde)
        return told._replace(loss_personal=loss, score=score)

    def _judged(self, message: Evaluate, x: Vector) -> judging.Judgement:
        assert self.word is not None
        judge = judging.judge_of(self.learner, self.word)
        return judge.judged(self.word, self.own_model(message, x), x, message.clients)

    def _choose(self, message: Evaluate, x: Vector, told: Evaluation) -> tuple[Vector, Evaluation]:
        """alpha_i x + (1 - alpha_i) x_i* with alpha_i by the rule, and what is said about it."""
        others = judging.told_in(message.others) if message.others else blending.NOTHING
        made = judging.chosen(self._judged(message, x), others)
        own = self.own_model(message, x)
        alpha = float(made.alpha[0])
        model = Vector(
            tuple(
                mix(leaf.dtype.type(alpha), leaf, star)
                for leaf, star in zip(x.tree, own.tree, strict=True)
            )
        )
        judge = judging.judge_of(self.learner, made.rule)
        local, shared, personal = map(judge.test_loss, (own, x, model))
        return model, told._replace(
            alpha=alpha,
            gain=float(made.gain[0]),
            note=str(made.note[0]),
            test_loss_local=local,
            test_loss_global=shared,
            test_loss_personal=personal,
        )

    def _final(self, message: Evaluate) -> Vector:
        """The model at the end of a run: from the message, or as it was kept with the curve."""
        wrong = judging.problem_with_mean(message.others) if message.others else None
        if message.point or not message.others:
            wrong = wrong or problem_with_arrays("point", message.point, self.layout)
        if wrong is not None:
            raise RefusedError(wrong.kind, wrong.reason)
        if message.point:
            return Vector(message.point)
        found = durable.read(self._final_path(message.run))
        if found is None or found[0] != _moment(message):
            raise RefusedError("lost", f"the model after round {message.round} is not stored here.")
        return Vector(found[1])

    def _keep_final(self, message: Evaluate) -> None:
        path = self._final_path(message.run)
        durable.write(path, _moment(message), message.point, self.hook)

    def _final_path(self, run: str) -> Path:
        return self.folder / f"{checked_name(run)}-final{durable.SUFFIX}"


def _encoded_upload(
    method: Method, client: Client, state: Any, sent: Any, local: Any
) -> tuple[Arrays, Number]:
    """Line 11: the message as it travels, and its weight."""
    message, weight = method.upload(client, state, sent, local)
    if method.compressor is None:
        return tuple(map(np.asarray, jax.tree.leaves(message))), weight
    assert client.turn is not None
    return method.compressor.encode(client.turn, message), weight


def _moment(message: Evaluate) -> dict[str, int]:
    """Which model is the last."""
    return {"epoch": message.epoch, "round": message.round}


def _number(loss: float | None) -> float | None:
    """JSON has no NaN."""
    return loss if loss is not None and math.isfinite(loss) else None
