"""The words that stand for alpha: a rule, and the alpha of the training before it."""

from __future__ import annotations

from typing import NamedTuple

WORDS = ("auto", "loo", "validation", "james-stein", "common")


class Asked(NamedTuple):
    """A rule by its word, and what alpha is until it chooses."""

    rule: str
    trained: str = "1"


def asked_rule(alpha: object) -> Asked | None:
    """The rule that alpha names, if it does; `loo:0.3` trains at 0.3 and chooses then.

    >>> asked_rule("loo:0.3")
    Asked(rule='loo', trained='0.3')
    >>> asked_rule("auto"), asked_rule(0.5), asked_rule("./auto")
    (Asked(rule='auto', trained='1'), None, None)
    """
    if not isinstance(alpha, str):
        return None
    rule, colon, trained = alpha.partition(":")
    if rule not in WORDS:
        return None
    return Asked(rule, trained) if colon else Asked(rule)
