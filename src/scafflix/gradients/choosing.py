"""An estimate of gradients by the words of a configuration, and what is refused of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scafflix.core.arguments import flag, real_number, shown, whole_number
from scafflix.core.errors import ScafflixError
from scafflix.data.federation import Federation
from scafflix.gradients.estimates import Exact, Gradient, Minibatch, Noisy, Reduced
from scafflix.gradients.private import Private
from scafflix.privacy.terms import checked_release

LARGEST_NOISE = 1e150  # its square is a number still


def size_of(batch: str | int) -> int | None:
    """The examples of a batch; None for all."""
    if isinstance(batch, str) and not (batch.isdecimal() and len(batch) < 19):
        if batch != "full":
            raise ScafflixError(f"batch is {batch!r}; it must be a whole number above 0, or full.")
        return None
    return whole_number("batch", int(batch) if isinstance(batch, str) else batch, least=1)


def private_gradient(clip: float, noise: float, batch: str | int = "full") -> Private:
    """Gradients with privacy for every example: that of each is clipped to the norm `clip`, and
    their sum gets Gaussian noise of standard deviation `noise` times `clip`.

    With a batch, every example takes part in a step with probability batch / n_i, by itself.
    """
    return Private(*checked_release(clip, noise), size_of(batch))


def gradient(batch: str | int = "full", noise: float = 0.0, reduced: bool = False) -> Gradient:
    """The estimate that `--batch`, `--noise` and `--reduced` name.

    >>> gradient("full"), gradient(20), gradient(noise=0.5)
    (Exact(), Minibatch(size=20), Noisy(sigma=0.5))
    >>> gradient(20, reduced=True)
    Reduced(size=20, q=None, counts=None)
    """
    flag("reduced", reduced)
    noise = real_number("noise", noise, below=LARGEST_NOISE)
    size = size_of(batch)
    if size is None:
        if reduced:
            raise ScafflixError("reduced is for minibatches; give batch as a number.")
        return Noisy(noise) if noise else Exact()
    if noise:
        raise ScafflixError("noise is added to full gradients only; leave out batch or noise.")
    return Reduced(size) if reduced else Minibatch(size)


def checked_gradient(estimate: object) -> Gradient:
    """The estimate, if it is one; its numbers are checked here, since JAX makes such objects too,
    with whatever it traces in their places."""
    if isinstance(estimate, type) or not isinstance(estimate, Gradient):
        raise ScafflixError(f"gradient is {shown(estimate)}; give sx.gradients.gradient(...).")
    if isinstance(estimate, Noisy):
        return Noisy(real_number("sigma", estimate.sigma, below=LARGEST_NOISE))
    if isinstance(estimate, Minibatch):
        return Minibatch(whole_number("batch", estimate.size, least=1))
    if isinstance(estimate, Reduced):
        size, q = whole_number("batch", estimate.size, least=1), estimate.q
        if q is not None and not 0 < (q := real_number("q", q)) <= 1:
            raise ScafflixError(f"q is {q:g}; it must be above 0 and at most 1.")
        return Reduced(size, q)
    if isinstance(estimate, Private):
        batch = estimate.size and whole_number("batch", estimate.size, least=1)
        return Private(*checked_release(estimate.clip, estimate.noise), batch)
    return estimate


def check_batch(
    estimate: Gradient, federation: Federation, clients: NDArray[np.int64] | None = None
) -> None:
    """Refuse a batch that is larger than the data of some client, of those that take part."""
    counts = federation.train.counts
    chosen = np.arange(len(counts)) if clients is None else clients
    smallest = int(chosen[np.argmin(counts[chosen])])
    size = getattr(estimate, "size", None)  # of minibatches
    if size is not None and size > counts[smallest]:
        raise ScafflixError(
            f"batch is {size}, but client {federation.clients[smallest]} has "
            f"only {counts[smallest]} examples; give at most {counts[smallest]}, or full."
        )
