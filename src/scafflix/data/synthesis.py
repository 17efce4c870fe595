"""Made-up federations with two knobs: how far optima lie apart, how unequal smoothness is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from scafflix.core.arguments import choice, real_number, whole_number
from scafflix.core.errors import ScafflixError
from scafflix.data.admission import check_dense_size
from scafflix.data.federation import Examples, Federation, Labels
from scafflix.data.identity import CLIENT_LIMIT
from scafflix.data.streams import Stream, generator

Array = NDArray[np.float64]


def synthetic(
    clients: int = 10,
    rows: int = 50,
    features: int = 20,
    optima: float = 1.0,
    conditioning: float = 10.0,
    task: str = "logistic",
    noise: float = 0.1,
    classes: int = 3,
    seed: int = 0,
) -> Federation:
    r"""A federation of n clients with m ``rows`` of d ``features`` each.

    Client i = 0, ..., n-1 has features a_ij = c_i z_ij with z_ij ~ N(0, I_d), where c_i > 0
    makes its mean squared row norm exactly

        (1/m) sum_j ||a_ij||^2 = s_i,    s_i = conditioning^(i / (n-1))

    (s_0 = 1 when n = 1). The smoothness constants of the losses are proportional to s_i, up to
    the randomness of z: ``conditioning`` is the ratio between the last and the first. Its true
    parameters are

        w_i = w + optima * v_i,    w, v_i ~ N(0, I_d) rescaled to norm sqrt(d),

    so ``optima`` is exactly the root mean square distance of the coordinates of w_i from those
    of w; with 0 all clients have the same. Labels, with e_ij ~ N(0, 1):

    - ``linear``: y_ij = <a_ij, w_i> + noise * e_ij
    - ``logistic``: y_ij = +1 if <a_ij, w_i> + noise * e_ij > 0, else -1
    - ``softmax``: y_ij = argmax_k <a_ij, w_i^k> + noise * e_ij^k over ``classes`` classes, with
      w^k and v_i^k drawn for each class

    For one seed all knobs work on the same z, w, v and e.

    >>> fed = synthetic(clients=3, rows=4, features=2, conditioning=100.0)
    >>> squares = (fed.train.features**2).sum(axis=1).reshape(3, 4)
    >>> squares.mean(axis=1).round(9).tolist()
    [1.0, 10.0, 100.0]
    """
    n = whole_number("clients", clients, least=1)
    m = whole_number("rows", rows, least=1)
    d = whole_number("features", features, least=1)
    optima = real_number("optima", optima)
    conditioning = real_number("conditioning", conditioning, least=1.0)
    noise = real_number("noise", noise)
    choice("task", task, tuple(LABELLINGS))
    outputs = whole_number("classes", classes, least=2) if task == "softmax" else 1
    if n > CLIENT_LIMIT:
        raise ScafflixError(f"clients is {n}; at most {CLIENT_LIMIT} are possible.")
    check_dense_size(n * m, max(d, outputs), "synthetic")
    check_dense_size(n * d, outputs, "synthetic")

    random = generator(seed, Stream.SYNTHETIC)
    z = random.standard_normal((n, m, d))
    w = normalize(random.standard_normal((d, outputs)), axis=0) * np.sqrt(d)
    v = normalize(random.standard_normal((n, d, outputs)), axis=1) * np.sqrt(d)
    e = random.standard_normal((n, m, outputs))

    s = conditioning ** (np.arange(n) / max(n - 1, 1))
    a = normalize(z, axis=(1, 2)) * (np.sqrt(m) * np.sqrt(s))[:, None, None]
    with np.errstate(over="ignore", invalid="ignore"):
        scores = a @ (w + optima * v) + noise * e
    if not np.isfinite(scores).all():
        raise ScafflixError(
            f"synthetic: optima {optima:g}, conditioning {conditioning:g} and noise {noise:g} "
            "give infinite labels; make them smaller."
        )
    labels = LABELLINGS[task](scores).reshape(n * m)
    train = Examples(a.reshape(n * m, d), labels, np.arange(n + 1, dtype=np.int64) * m)
    return Federation("synthetic", tuple(f"client-{i}" for i in range(n)), train)


def normalize(array: Array, axis: int | tuple[int, ...]) -> Array:
    """The array with Euclidean norm 1 along the axes."""
    normalized: Array = array / np.sqrt((array**2).sum(axis=axis, keepdims=True))
    return normalized


LABELLINGS: dict[str, Callable[[Array], Labels]] = {
    "logistic": lambda scores: np.where(scores > 0, 1, -1),
    "linear": lambda scores: scores,
    "softmax": lambda scores: scores.argmax(axis=-1),
}
"""From the noisy scores [clients, rows, outputs] to the labels."""


def parse_synthetic(options: str) -> dict[str, int | float | str]:
    """The options of ``synthetic:NAME=VALUE,NAME=VALUE``, as arguments of `synthetic`.

    >>> parse_synthetic("optima=2,rows=50,task=linear")
    {'optima': 2.0, 'rows': 50, 'task': 'linear'}
    """
    found: dict[str, int | float | str] = {}
    for option in filter(None, options.split(",")):
        name, _, value = (part.strip() for part in option.partition("="))
        if name not in OPTIONS:
            raise ScafflixError(
                f"synthetic has no option {option.strip()!r}; give NAME=VALUE, where NAME is one "
                f"of {', '.join(OPTIONS)}."
            )
        if name in found:
            raise ScafflixError(f"synthetic: the option {name!r} is given twice; give it once.")
        try:
            found[name] = OPTIONS[name](value)
        except ValueError as error:
            kind = "whole number" if OPTIONS[name] is int else "number"
            raise ScafflixError(f"synthetic: {name} is {value!r}; give a {kind}.") from error
    return found


OPTIONS: dict[str, Callable[[str], int | float | str]] = {
    "clients": int,
    "rows": int,
    "features": int,
    "optima": float,
    "conditioning": float,
    "task": str,
    "noise": float,
    "classes": int,
}
"""How each option of `synthetic` is read from text."""
