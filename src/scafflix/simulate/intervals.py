"""How sure a mean over clients is: a bootstrap over clients and over their examples.

Clients are drawn with replacement, and for each the mean of as many of its examples, by its mean
and standard error (normal, so that nothing of single examples is needed). Drawing twice would count
the noise of examples twice, for the means of the clients are spread by it already; and n drawn
clients are spread less than n clients. So the means of the clients are first moved towards their
mean m by a factor s:

    s^2 (n - 1)/n B + W = max(B, W),   B the variance of the means, W the mean squared error

after which resampled means have the variance of m. Few clients know little of how unlike clients
are: the interval is stretched by what Student's t with n - 1 degrees of freedom has over the normal
distribution.

A mean between two ends, as an accuracy is, moves on a scale without ends, the log-odds of where it
lies between them: to first order the interval is the same, and it never leaves the range. Near an
end, where few clients understate their spread, it is longer on the other side, and holds the mean
more often. Where there is only a smallest value the interval is cut there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scafflix.core import streams
from scafflix.core.quantiles import normal, student
from scafflix.core.streams import Stream
from scafflix.core.types import Floats

LEVEL = 0.95
TAIL = (1 - LEVEL) / 2
RESAMPLES, FEWEST = 2000, 400  # resamples, and those of very many clients
MOST_DRAWS = 2**22  # of clients, in all resamples
AT_ONCE = 2**20  # clients that are drawn together

Range = tuple[float, float]
"""The smallest and the largest value that a mean can have."""

SHARE: Range = (0.0, 1.0)
DIFFERENCE_OF_SHARES: Range = (-1.0, 1.0)
POSITIVE: Range = (0.0, np.inf)
ANY: Range = (-np.inf, np.inf)


def errors(values: Floats, entries: Floats, owners: NDArray[np.int64], clients: int) -> Floats:
    """The standard error of each client's mean, from sums over the entries of its examples; NaN
    for a client with fewer than two examples.

    >>> errors(np.array([1.0, 3.0, 5.0]), np.ones(3), np.array([0, 0, 1]), 2).tolist()
    [1.0, nan]
    """
    examples, total, entry = (
        np.bincount(owners, weights, clients) for weights in (None, values, entries)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        residuals = values - (total / entry)[owners] * entries
        square = np.bincount(owners, residuals**2, clients) / entry**2
        return np.where(examples > 1, np.sqrt(square * examples / (examples - 1)), np.nan)


def intervals(
    means: Floats, errors: Floats, seed: int, ranges: Sequence[Range]
) -> list[list[float] | None]:
    """Where each of several means over the same clients is, at `LEVEL`: its low and its high end.

    Means and errors are `[means, clients]`, and every mean has its range. An error that is not
    known counts as none: then the spread of the clients speaks for it. None for a single client of
    which no error is known.
    """
    (many, n), centre = means.shape, means.mean(axis=1)
    noise = np.nan_to_num(errors) ** 2
    if n == 1:
        factor, stretch = np.zeros(many), 1.0
    else:
        between = means.var(axis=1, ddof=1)
        unexplained = np.maximum(0, between - noise.mean(axis=1))  # by the noise of examples
        factor = np.sqrt(unexplained / np.where(between, between, 1) * n / (n - 1))
        stretch = float(student(n - 1, TAIL)) / normal(TAIL)
    resampled = _resampled(factor[:, None] * (means - centre[:, None]), noise, seed)
    away = stretch * np.quantile(resampled, (TAIL, 1 - TAIL), axis=0)
    known = noise.any(axis=1) | (n > 1)
    return [
        [_moved(float(mean), float(end), span) for end in pair] if there else None
        for mean, pair, span, there in zip(centre, away.T, ranges, known, strict=True)
    ]


def _moved(mean: float, away: float, span: Range) -> float:
    """The mean moved by as much on the scale without ends, at the speed that it has there.

    >>> round(_moved(0.5, 0.01, SHARE), 4), round(_moved(0.9, 0.3, SHARE), 4), _moved(1.0, 0, SHARE)
    (0.51, 0.9961, 1.0)
    """
    low, high = span
    if not np.isfinite(high):
        return max(low, mean + away)
    if not low < mean < high:  # all clients are at the same end
        return mean
    odds = np.log((mean - low) / (high - mean))
    odds += away * (high - low) / ((mean - low) * (high - mean))
    return float(low + (high - low) * (1 + np.tanh(odds / 2)) / 2)


def _resampled(means: Floats, noise: Floats, seed: int) -> Floats:
    """`[resamples, means]`, over as many clients, drawn with replacement, each with its noise."""
    n = means.shape[1]
    resamples = max(FEWEST, min(RESAMPLES, MOST_DRAWS // n))
    random = streams.generator(seed, Stream.RESAMPLING, 0)
    at_once, made = max(1, AT_ONCE // n), []
    for start in range(0, resamples, at_once):
        count = min(at_once, resamples - start)
        drawn = random.integers(0, n, (count, n)) + n * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * n).reshape(count, n).astype(float)
        shared = random.standard_normal((count, 1))
        made.append((times @ means.T + shared * np.sqrt(times @ noise.T)) / n)
    return np.concatenate(made)
