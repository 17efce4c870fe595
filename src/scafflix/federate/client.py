"""One client: it trains, keeps its upload until it knows the outcome, and commits exactly once.

The rule: an upload is *pending* from the moment it is stored until a message from a later round
says which round's average last included an upload of this client. If that is the pending upload,
the control variate advances with that average. If not, the upload was in no average and is dropped.
Either way sum_i alpha_i h_i stays 0. The new pending upload and the settled state are in one file,
which is replaced atomically before the reply is sent: after an earlier crash the work is repeated,
after a later crash only the reply is.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from scafflix import algorithm
from scafflix.core import durable
from scafflix.core.durable import Arrays, Hook
from scafflix.core.errors import ScafflixError
from scafflix.core.precision import precision
from scafflix.core.types import Floats
from scafflix.core.vector import Vector
from scafflix.federate import client_state, judging
from scafflix.federate.client_state import Memory, Pending
from scafflix.federate.learner import Learner, Scales
from scafflix.federate.messages import (
    Curve,
    Evaluate,
    Evaluation,
    Hello,
    Introduction,
    Refusal,
    RefusedError,
    Reply,
    Request,
    Train,
    Upload,
    checked_name,
    fault_of,
    layout_of,
    problem_with_arrays,
    receipt_of,
)
from scafflix.federate.naming import first_names, named, names_of, under_names
from scafflix.federate.planning import UsersMethod, own_method
from scafflix.federate.privacy import Guard
from scafflix.federate.secure import numbers
from scafflix.federate.secure.fixed import DOUBLE, FixedPoint
from scafflix.federate.secure.identity import Identity
from scafflix.federate.secure.masks import Occasion
from scafflix.federate.secure.member import Member
from scafflix.federate.secure.messages import Keys, Mask, Share, Unmask
from scafflix.federate.slopes import Slopes
from scafflix.methods.method import Client, Method, Number, Turn
from scafflix.methods.private import ready
from scafflix.methods.remembering import Kept
from scafflix.methods.transport import FULL, Transport, transported
from scafflix.personalization.mixing import mix
from scafflix.personalization.rules import blending
from scafflix.personalization.rules.choosing import consults

ALONE = "alone"  # the name of the run of a client with alpha_i = 0, which takes part in none


class ClientCore:
    """A client with its own id, data, x_i* and folder. Everything it must remember is on disk.

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
            found = durable.read(path)
            mark = {"client": self.name, "fingerprint": self.learner.fingerprint}
            if found is None or found[0] != mark or layout_of(found[1]) != self.layout:
                x_star = self.learner.optimum()
                durable.write(path, mark, x_star.tree, self.hook)
                found = mark, x_star.tree
            self._x_star = Vector(found[1])
        return self._x_star

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
            place = (message.run, message.epoch, self.name, message.round)
            return Refusal(*place, kind, f"Client {self.name}: {error}")

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
        )

    def control(self, message: Train | Evaluate) -> Vector | None:
        """The current h_i, in Scafflix's scale: for the node's owner, never sent."""
        method, client = self._method(message)
        kept = client_state.load(self._path(message.run), self._fresh_state(method, client))
        state = self._fresh_state(method, client) if kept is None else kept.state
        return method.controls(client, state)

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
        client = client._replace(turn=_turn(message))
        if self.guard is not None:
            at, least = (client, kept.state, sent), (message.cohort + 1) // 2
            local = self.guard.release(method, self._names, least, at, local)
            self.guard.count(self.folder / f"privacy{durable.SUFFIX}", self.hook)
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
        client = client._replace(turn=_turn(pending))
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
        client = client._replace(turn=_turn(pending))
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
            return Curve(*place, judging.curve_of(self._judged(x, message.clients)))
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

    def _judged(self, x: Vector, clients: int) -> judging.Judgement:
        assert self.word is not None
        judge = judging.judge_of(self.learner, self.word)
        return judge.judged(self.word, self.optimum, x, clients)

    def _choose(self, message: Evaluate, x: Vector, told: Evaluation) -> tuple[Vector, Evaluation]:
        """alpha_i x + (1 - alpha_i) x_i* with alpha_i by the rule, and what is said about it."""
        others = judging.told_in(message.others) if message.others else blending.NOTHING
        made = judging.chosen(self._judged(x, message.clients), others)
        alpha = float(made.alpha[0])
        model = Vector(
            tuple(
                mix(leaf.dtype.type(alpha), leaf, star)
                for leaf, star in zip(x.tree, self.optimum.tree, strict=True)
            )
        )
        judge = judging.judge_of(self.learner, made.rule)
        local, shared, own = map(judge.test_loss, (self.optimum, x, model))
        return model, told._replace(
            alpha=alpha,
            gain=float(made.gain[0]),
            note=str(made.note[0]),
            test_loss_local=local,
            test_loss_global=shared,
            test_loss_personal=own,
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
                client = client._replace(turn=_turn(pending))
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
        kept = durable.read(self.model_path(run))
        found = {} if kept is None else {"personal": kept[1]}
        if self.alpha < 1 or self.rule:
            found["local"] = self.optimum.tree
        names = names_of(self.learner, self._start)
        return {
            name: array[None]
            for kind, arrays in found.items()
            for name, array in under_names(kind, names, arrays).items()
        }

    def model_path(self, run: str) -> Path:
        """The file of this client's own model."""
        return self.folder / f"{checked_name(run)}-model{durable.SUFFIX}"


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


def _turn(of: Train | Pending) -> Turn:
    """The client's part in a round."""
    return algorithm.turn_of(of.seed, of.round, of.place, of.cohort)


def _number(loss: float | None) -> float | None:
    """JSON has no NaN."""
    return loss if loss is not None and math.isfinite(loss) else None


def _round(number: int) -> str:
    return "none" if number < 0 else f"round {number}"
