"""Estimates of gradients, and what some of them remember."""

from scafflix.gradients.estimates import (
    Exact,
    Gradient,
    Minibatch,
    Noisy,
    Reduced,
    check_batch,
    checked_gradient,
    gradient,
    nothing_of,
    query_of,
)
from scafflix.gradients.memory import (
    Query,
    Reference,
    answer_of,
    either,
    points_of,
    renewal_draw,
)

__all__ = [
    "Exact",
    "Gradient",
    "Minibatch",
    "Noisy",
    "Query",
    "Reduced",
    "Reference",
    "answer_of",
    "check_batch",
    "checked_gradient",
    "either",
    "gradient",
    "nothing_of",
    "points_of",
    "query_of",
    "renewal_draw",
]
