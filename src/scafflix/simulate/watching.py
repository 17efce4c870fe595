"""A user's own functions, called while a run goes: after each round, and after each look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from scafflix.core.arguments import shown
from scafflix.core.errors import ScafflixError
from scafflix.core.own_code import fault_in


@dataclass(frozen=True, eq=False)
class Moment:
    """How a run stands after a round.

    ``values`` are what was measured in this round, under the names of ``record.metrics``; where
    the models were not looked at, only ``train_loss``.
    """

    round: int
    rounds: int  # that the run is to have
    seconds: float  # since the run began, with what came before a resume
    bits: int  # sent so far, up and down
    values: Mapping[str, float]
    evaluated: bool  # whether the models were looked at after this round
    _model: Callable[[], Any] = field(repr=False)

    @property
    def x(self) -> Any:
        """The global model: an array, or for a network a tree of them. It is copied when you ask,
        which is possible only while the callback runs."""
        return self._model()


@dataclass(frozen=True)
class Stop:
    """What a callback returns to end the run after this round, and why."""

    reason: str = "a callback asked for it"


Callback = Callable[[Moment], Stop | None]


class CallbackError(ScafflixError):
    """A callback that failed. ``record`` is that of the rounds made until then."""

    record: Any = None


class Watcher:
    """Calls the callbacks of one run and remembers whether one of them ended it."""

    def __init__(self, on_round: Callback | None, on_evaluate: Callback | None) -> None:
        self._callbacks = {"on_round": on_round, "on_evaluate": on_evaluate}
        for name, function in self._callbacks.items():
            if function is not None and not callable(function):
                raise ScafflixError(f"{name} is {shown(function)}; give a function, or None.")
        self._shown: Moment | None = None  # the one whose model is still there
        self.stop: Stop | None = None
        self.failure: CallbackError | None = None

    @property
    def idle(self) -> bool:
        """Whether there is nobody to call."""
        return not any(self._callbacks.values())

    def see(
        self,
        round: int,
        rounds: int,
        seconds: float,
        bits: int,
        values: Mapping[str, float],
        evaluated: bool,
        model: Callable[[], Any],
    ) -> None:
        """A round is over."""
        if self.idle:
            return
        measured = {name: float(value) for name, value in values.items() if value == value}

        def current() -> Any:
            if self._shown is not moment:
                raise ScafflixError(
                    f"The model of round {round} is gone; ask for x while the callback runs."
                )
            return model()

        moment = Moment(
            round, rounds, seconds, bits, MappingProxyType(measured), evaluated, current
        )
        self._shown = moment
        for name, function in self._callbacks.items():
            if function is not None and (evaluated or name == "on_round") and self.stop is None:
                self._call(name, function, moment)
        self._shown = None

    def _call(self, name: str, function: Callback, moment: Moment) -> None:
        try:
            answer = function(moment)
        except Exception as error:
            sentence = str(fault_in(error, f"{name} failed after round {moment.round}"))
            self._fail(sentence, error)
            return
        if answer is None:
            return
        if not isinstance(answer, Stop):
            self._fail(
                f"{name} returned {shown(answer)} after round {moment.round}; return None, or "
                "sx.Stop(reason) to end the run."
            )
            return
        self.stop = answer

    def _fail(self, sentence: str, error: Exception | None = None) -> None:
        """The run ends here, so that its rounds are kept; what went wrong is raised after that."""
        self.stop = Stop(sentence)
        self.failure = CallbackError(sentence)
        self.failure.__cause__ = error

    def conclude(self, records: Sequence[Any]) -> None:
        """Raise what went wrong in a callback, with the record of what was done."""
        if self.failure is not None:
            (self.failure.record,) = records
            raise self.failure


NOBODY = Watcher(None, None)
