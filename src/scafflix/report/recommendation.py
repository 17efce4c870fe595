"""How good the models are that clients take home, and for whom taking part does not pay: in two
sentences, for a reader who decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scafflix.record import Record


class Words(NamedTuple):
    """What the clients' own models are called, which others are compared with."""

    act: str  # what makes the difference
    own: str
    each: str
    than: str


ALONE = Words("taking part", "alone", "each alone", "alone")
TUNED = Words("mixing", "fine-tuning", "fine-tuning", "with fine-tuning")
# whose own models are the shared one, tuned: what all of it is worth shows against that one
SHARED = Words(
    "tuning and mixing", "one model for all", "one model for all", "with one model for all"
)
NAMED = 5  # clients that a sentence names; more are counted
NOBODY_ALONE = (
    "For whom taking part pays is not known: no client has a model of its own to compare with, "
    "because none was looked for (optima is none)."
)
NOT_TOLD = (
    "What taking part was worth is not known to the server: clients tell their test losses where "
    "they hold examples out and choose alpha by a rule, such as auto."
)


def recommendation(record: Record) -> tuple[str, ...]:
    """Two sentences for a run with a test part, else none; one for a federation whose clients do
    not tell what they found."""
    home = record.summary.get("taken_home")
    if not record.summary["rounds"]:
        return ()
    if home is None:
        return (NOT_TOLD,) if "final_objective" in record.summary else ()
    return (how_good(record), for_whom(record)) if home["part"] == "test" else ()


def words_of(summary: Mapping[str, Any]) -> Words:
    """Where x_i* come from a model that all trained together, nobody is compared with alone."""
    return TUNED if summary.get("tuned") else ALONE


def how_good(record: Record) -> str:
    """The models taken home, and against each alone and one for all."""
    home, alone = record.summary["taken_home"], words_of(record.summary)
    unit = " %" if home["metric"] == "accuracy" else ""
    many = "1 client" if home["clients"] == 1 else f"{home['clients']:,} clients"
    words = f"The models that clients take home have a test {home['metric']} of {mean(home)}{unit}"
    words += f" on average over {many}{_interval(home, home['level'])}"
    kinds = [kind for kind in ("local", "global") if kind in home]
    if not kinds:
        return f"{words}."
    doubt = [
        name for name, kind in zip(("first", "second"), kinds, strict=False) if _open(home[kind])
    ]
    said = {0: "", 1: f"; the {doubt[0]} may be chance" if doubt else "", 2: "; both may be chance"}
    if len(kinds) == 1 and doubt:
        said[1] = ", which may be chance"
    against = {"local": alone.each, "global": "one model for all"}
    both = " and ".join(_against(home, kind, against[kind]) for kind in kinds)
    return f"{words}: {both}{said[len(doubt)]}."


def _open(one: Mapping[str, Any]) -> bool:
    """Whether a difference may be chance."""
    low, high = one["interval"] or (0.0, 0.0)
    return low <= 0 <= high and low < high


def mean(home: Mapping[str, Any]) -> str:
    """What they score, in percent if it is an accuracy."""
    return number(home, home["mean"])


def number(home: Mapping[str, Any], value: float, sign: str = "") -> str:
    """A score, or a difference of two.

    >>> number({"metric": "accuracy"}, 0.0712, "+"), number({"metric": "loss"}, 0.0712, "+")
    ('+7.1', '+0.0712')
    """
    if home["metric"] == "accuracy":
        return f"{100 * value:{sign}.1f}"
    return f"{value:{sign}.3g}"


def ends(home: Mapping[str, Any], one: Mapping[str, Any], sign: str = "") -> str:
    """The interval of the mean, or of a difference; empty where none is known."""
    if one["interval"] is None:
        return ""
    low, high = (number(home, end, sign) for end in one["interval"])
    return f"{low} to {high}"


def _interval(home: Mapping[str, Any], level: float) -> str:
    found = ends(home, home)
    return f" ({100 * level:.0f} % interval {found})" if found else ""


def _against(home: Mapping[str, Any], kind: str, who: str) -> str:
    """Above or below the models of a kind."""
    one = home[kind]
    gap = one["difference"]
    if not gap and one["interval"] in (None, [0.0, 0.0]):
        return f"the same as {who}"
    unit = " points" if home["metric"] == "accuracy" else ""
    words = f"{number(home, abs(gap))}{unit} {'below' if gap < 0 else 'above'} {who}"
    found = ends(home, one, "+")
    return f"{words} ({found})" if found else words


def for_whom(record: Record) -> str:
    """Who has no less test loss than alone, or than with the shared model that it tuned, and what
    taking part cost."""
    found, clients = record.summary["taking_part"], record.clients
    if found is None:
        return NOBODY_ALONE
    tuned = bool(record.summary.get("tuned"))
    gain = clients[f"test_loss_{'global' if tuned else 'local'}"] - clients["test_loss_personal"]
    known = "test_shared_gain_error" if tuned else "test_gain_error"
    error = clients.get(known, np.full(len(gain), np.nan))
    more, same, clearly = gain < 0, gain == 0, gain < -found["clearly"] * error
    left = int(more.sum() + same.sum())
    many = f"{found['clients']:,} clients"
    if found["clients"] < record.summary["n_clients"]:
        many += " with test examples"
    alone = SHARED if tuned else ALONE
    begin, end = f"By test loss{_on_average(record)}, {alone.act}", f"it took {_cost(record)}"
    if not left:
        return f"{begin} pays for all {many}; {end}."

    def have(chosen: NDArray[np.bool_]) -> str:
        return f"{_who(record, chosen)} {'has' if chosen.sum() == 1 else 'have'}"

    parts = []
    if more.any():
        parts.append(f"{have(more)} more than {alone.than}")
    if clearly.any():
        errors = f"{found['clearly']} standard errors"
        parts[0] += f" ({_who(record, clearly)} by more than {errors})"
    if same.any():
        parts.append(f"{have(same)} as much" + ("" if parts else f" as {alone.than}"))
    return f"{begin} does not pay for {left:,} of {many}: {', '.join(parts)}; {end}."


def _on_average(record: Record) -> str:
    """The mean loss, where the first sentence does not have it."""
    home, part = record.summary["taken_home"], record.summary["taking_part"]
    if home["metric"] == "loss":
        return ""
    if record.summary.get("tuned"):
        saved = part["personal"]["gain"] - part["global"]["gain"]
        return f", on average {against_own({'gain': saved}, SHARED.own)}"
    return f", on average {against_own(part['personal'])}"


def against_own(one: Mapping[str, Any], own: str = ALONE.own) -> str:
    """The mean loss of a kind of model, against that of the clients' own.

    >>> against_own({"gain": 0.25, "interval": [-0.5, 1.0]}), against_own({"gain": 0.0})
    ('0.25 below alone (-1 to +0.5)', 'the same as alone')
    """
    gain, interval = one["gain"], one.get("interval")
    if not gain and not any(interval or ()):
        return f"the same as {own}"
    words = f"{abs(gain):.3g} {'above' if gain < 0 else 'below'} {own}"
    if interval is None:
        return words
    low, high = (0.0 - end for end in reversed(interval))  # never minus zero
    return f"{words} ({low:+.3g} to {high:+.3g})"


def _who(record: Record, chosen: NDArray[np.bool_]) -> str:
    """Some of the clients by name, or how many they are."""
    names = record.clients["client"][chosen].tolist()
    return listed(names) if len(names) <= NAMED else f"{len(names):,}"


def listed(names: list[str]) -> str:
    """Names in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _cost(record: Record) -> str:
    rounds = record.summary["rounds"] + record.summary.get("warmup_rounds", 0)
    bits = record.metrics["bits_up"][-1] + record.metrics["bits_down"][-1]
    return f"{rounds:,} round{'' if rounds == 1 else 's'} and {bits / 8e6:.3g} megabytes"
