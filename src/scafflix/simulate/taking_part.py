"""What taking part was worth to the clients: against the models that they have alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scafflix.core.types import Floats
from scafflix.models.calibration import reliability
from scafflix.problems.evaluation import Examined
from scafflix.simulate.intervals import (
    ANY,
    DIFFERENCE_OF_SHARES,
    LEVEL,
    POSITIVE,
    SHARE,
    errors,
    intervals,
)

PARTS = ("test", "validation")  # held-out examples, the more honest first
RANGES = {  # of the mean, and of a difference of two
    "accuracy": (SHARE, DIFFERENCE_OF_SHARES),
    "loss": (ANY, ANY),  # one's own may be negative
    "squared error": (POSITIVE, ANY),
}
CLEARLY = 2  # standard errors of a client's own examples, beyond which harm is no chance
Clients = Mapping[str, NDArray[Any]]


class Look(NamedTuple):
    """What models of each kind made of the clients' held-out examples."""

    part: str
    owners: NDArray[np.int64]  # [rows], whose example it is
    kinds: Mapping[str, Examined]
    of: str  # whose probability the models forecast

    def error(self, clients: int, measure: str, kind: str, less: str | None = None) -> Floats:
        """The standard error of each client's mean loss or score, or of what it has over that of
        another kind, on the same examples."""
        one = self.kinds[kind]
        values = getattr(one, measure).astype(float)
        if less is not None:
            values -= getattr(self.kinds[less], measure)
        return errors(values, one.entries.astype(float), self.owners, clients)


def worth(clients: Clients, look: Look | None, metric: str, seed: int) -> dict[str, Any]:
    """What a summary says of it; without a look, the noise of the examples is not known."""
    return {
        "taken_home": taken_home(clients, look, metric, seed),
        "taking_part": gained(clients, look, seed),
        "calibration": None if look is None else calibration(look),
    }


def gained(clients: Clients, look: Look | None = None, seed: int = 0) -> dict[str, Any] | None:
    """The loss saved on held-out examples, and who is worse off than alone, from the table of
    clients; None where there are no such examples, or no models of their own.

    >>> loss = {"local": [0.4, 0.2], "global": [0.3, 0.5], "personal": [0.3, 0.2]}
    >>> table = {f"test_loss_{kind}": np.array(values) for kind, values in loss.items()}
    >>> gained(table)["global"]["hurt"], gained(table)["personal"]["share_hurt"]
    (1, 0.0)
    """
    part = next((part for part in PARTS if f"{part}_loss_local" in clients), None)
    if part is None or f"{part}_loss_personal" not in clients:
        return None
    local = clients[f"{part}_loss_local"]
    known = np.isfinite(local)
    if not known.any():
        return None
    kinds = ("personal", "global")
    gains = np.array([(local - clients[f"{part}_loss_{kind}"])[known] for kind in kinds])
    noise = np.full(gains.shape, np.nan)
    if look is not None:
        noise = np.array([look.error(len(known), "loss", k, "local")[known] for k in kinds])
    made: dict[str, Any] = {"part": part, "clients": int(known.sum()), "clearly": CLEARLY}
    for kind, gain, error, ends in zip(
        kinds, gains, noise, intervals(gains, noise, seed, [ANY] * 2), strict=True
    ):
        hurt = gain < 0
        made[kind] = {
            "gain": float(gain.mean()),
            "interval": ends,
            "gaining": int((gain > 0).sum()),
            "hurt": int(hurt.sum()),
            "share_hurt": float(hurt.mean()),
            "harm": float(-gain[hurt].mean()) if hurt.any() else 0.0,  # to those who are hurt
            "clearly_hurt": None if look is None else int((gain < -CLEARLY * error).sum()),
        }
    return made


def gain_errors(clients: int, look: Look | None, tuned: bool = False) -> dict[str, Floats]:
    """Columns of the table of clients: the standard error of what each saved of its loss; where
    own models are the shared one, tuned, also against that."""
    if look is None or not {"local", "personal"} <= look.kinds.keys():
        return {}
    against = {"gain_error": "local"} | ({"shared_gain_error": "global"} if tuned else {})
    return {
        f"{look.part}_{name}": look.error(clients, "loss", "personal", kind)
        for name, kind in against.items()
    }


def taken_home(
    clients: Clients, look: Look | None, metric: str, seed: int
) -> dict[str, Any] | None:
    """How good the models that clients take home are on held-out examples, on average over
    clients, and by how much they differ from each alone and from one for all, with intervals.

    By the model's metric, or by the loss where that is all that is known.
    """
    words = ((metric, ""), ("loss", "loss_"))
    found = [
        (part, *word) for word in words for part in PARTS if f"{part}_{word[1]}personal" in clients
    ]
    if not found:
        return None
    part, word, prefix = found[0]
    home = clients[f"{part}_{prefix}personal"]
    known, measure = np.isfinite(home), "loss" if prefix else "score"
    others = [kind for kind in ("local", "global") if f"{part}_{prefix}{kind}" in clients]
    means = [home, *(home - clients[f"{part}_{prefix}{kind}"] for kind in others)]
    noise = [np.full(len(home), np.nan) for _ in means]
    if look is not None:
        less = (None, *others)
        noise = [look.error(len(home), measure, "personal", other) for other in less]
    if not known.any():
        return None
    table = np.array(means)[:, known]
    whole, gap = RANGES.get(word, (ANY, ANY))
    ends, *differing = intervals(
        table, np.array(noise)[:, known], seed, [whole, *[gap] * len(others)]
    )
    made: dict[str, Any] = {
        "part": part,
        "metric": word,
        "clients": int(known.sum()),
        "mean": float(table[0].mean()),
        "interval": ends,
        "level": LEVEL,
        "over": " and ".join(_over(int(known.sum()), look)),
    }
    for kind, difference, one in zip(others, table[1:], differing, strict=True):
        mean = float(clients[f"{part}_{prefix}{kind}"][known].mean())
        made[kind] = {"mean": mean, "difference": float(difference.mean()), "interval": one}
    return made


def _over(clients: int, look: Look | None) -> list[str]:
    """What is resampled."""
    return ["clients"] * (clients > 1) + ["examples"] * (look is not None)


def calibration(look: Look) -> dict[str, Any] | None:
    """The reliability of each kind of model over the examples of all clients."""
    found = {kind: reliability(one.bins) for kind, one in look.kinds.items()}
    known = {kind: curve for kind, curve in found.items() if curve is not None}
    return {"part": look.part, "of": look.of, **known} if known else None
