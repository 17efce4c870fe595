"""Gradient descent on the FLIX objective: x <- x - gamma (1/n) sum_i alpha_i grad f_i(x~_i).

With alpha below 1 it is the algorithm that Gasanov et al. (2022) call FLIX, the baseline of the
paper's Figure 1; with alpha = 1, plain distributed gradient descent.
"""

from __future__ import annotations

from dataclasses import replace

from scafflix.core.errors import ScafflixError
from scafflix.methods.method import Method
from scafflix.methods.sgd import sgd
from scafflix.theory import Plan, check_plan


def gd(plan: Plan, stepsize: float | None = None) -> Method:
    """SGD with exact gradients: stepsize 1/mean_i(alpha_i^2 L_i), or a given one."""
    check_plan(plan)
    if not plan.exact:
        raise ScafflixError("gd takes exact gradients; use the method sgd, or batch full.")
    return replace(sgd(plan, stepsize), name="gd")
