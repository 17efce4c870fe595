"""alpha as users write it: a number, one for each client, a file of them, or the word of a rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scafflix.core.arguments import numbers
from scafflix.core.errors import ScafflixError
from scafflix.core.types import Floats
from scafflix.personalization.rules.words import WORDS, asked_rule

# below it 1 - alpha_i is 1, and alpha_i^2, by which gradients count, vanishes in float32
LEAST_ALPHA = 1e-16
Alpha = float | Sequence[float] | Floats | str | Path  # a word is a rule, or the name of a file


def rule_in(alpha: object) -> str | None:
    """The word of the rule that alpha names, if it does."""
    asked = asked_rule(alpha)
    return None if asked is None else asked.rule


def check_trained(alpha: object) -> None:
    """Refuse another alpha to train at where there is nothing to mix with before the end."""
    asked = asked_rule(alpha)
    if asked is not None and float(asked.trained) != 1:
        raise ScafflixError(
            f"alpha is '{asked.rule}:{asked.trained}', but where local optima come after the "
            f"rounds these are at alpha = 1; give {asked.rule}."
        )


def checked_alpha(alpha: Alpha, clients: int, optima: bool) -> Floats:
    """alpha_i of every client; below 1 only where there is something to mix with."""
    values, rule = read_alpha(alpha, clients), rule_in(alpha)
    if not optima and rule is not None:
        raise ScafflixError(f"alpha is {rule!r}, but there are no local optima to mix with.")
    if not optima and (values < 1).any():
        raise ScafflixError("alpha is below 1, but there are no local optima to mix with.")
    return values


def read_alpha(alpha: Alpha, clients: int | None) -> Floats:
    """One alpha_i per client; of an unknown number of clients (None), as many as are given. With
    a rule, the alpha of the training: 1 unless told otherwise.

    >>> read_alpha(0.5, 3).tolist(), read_alpha("auto", 2).tolist()
    ([0.5, 0.5, 0.5], [1.0, 1.0])
    """
    where, asked = "alpha", asked_rule(alpha)
    if asked is not None:
        alpha = _number_after(asked.rule, asked.trained)
    if isinstance(alpha, str | Path):
        alpha, where = _parse(alpha)
    values = numbers(where, alpha, finite=False)
    clients = max(1, values.size) if clients is None else clients
    if values.ndim == 0:
        values = np.full(clients, values)
    if values.shape != (clients,):
        held = f"{values.size} values" if values.ndim == 1 else f"the shape {values.shape}"
        raise ScafflixError(
            f"{where} has {held}, but there are {clients} clients; "
            "give one number for all or a list of one for each client."
        )
    wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(wrong):
        raise ScafflixError(
            f"{where} is {values[wrong[0]]:g} for client number {wrong[0] + 1}; "
            "it must lie between 0 (the client's own optimum) and 1 (the global model)."
        )
    tiny = np.flatnonzero((values > 0) & (values < LEAST_ALPHA))
    if len(tiny):
        raise ScafflixError(
            f"{where} is {values[tiny[0]]:g} for client number {tiny[0] + 1}: its square is lost "
            f"in rounding; give 0 (the client's own optimum) or at least {LEAST_ALPHA:g}."
        )
    return values


def _number_after(rule: str, trained: str) -> float:
    try:
        value = float(trained)
    except ValueError:
        value = np.nan
    if not LEAST_ALPHA <= value <= 1:
        raise ScafflixError(
            f"alpha is '{rule}:{trained}'; after the rule give the alpha to train at, above 0 and "
            "at most 1, or leave it out."
        )
    return value


def _parse(alpha: str | Path) -> tuple[float | list[float], str]:
    try:
        return float(str(alpha)), "alpha"
    except ValueError:
        pass
    try:
        words = Path(alpha).read_text().replace(",", " ").split()
    except (OSError, ValueError):  # the latter of a name that no file has, or of no text
        raise ScafflixError(
            f"alpha is {str(alpha)!r}; it must be a number between 0 and 1, a rule "
            f"({', '.join(WORDS)}), or a text file with one number for each client."
        ) from None
    try:
        return [float(word) for word in words], f"alpha from {alpha}"
    except ValueError:
        raise ScafflixError(f"{alpha} holds something that is not a number.") from None
