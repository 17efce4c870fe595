"""Estimates of gradients, and what some of them remember."""

from scafflix.gradients.choosing import (
    check_batch,
    checked_gradient,
    gradient,
    private_gradient,
)
from scafflix.gradients.estimates import (
    Exact,
    Gradient,
    Minibatch,
    Noisy,
    Reduced,
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
from scafflix.gradients.private import Private

__all__ = [
    "Exact",
    "Gradient",
    "Minibatch",
    "Noisy",
    "Private",
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
    "private_gradient",
    "query_of",
    "renewal_draw",
]
