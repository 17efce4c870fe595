"""FedBN: Li, Jiang, Zhang, Kamp and Dou, "FedBN: Federated Learning on Non-IID Features via Local
Batch Normalization" (2021), on the functions f~_i.

FedPer whose own arrays are those of normalization layers: clients whose inputs are distributed
unlike each other scale and shift what is inside the network in their own way.
"""

from __future__ import annotations

from dataclasses import replace

from scafflix.methods.fedper import fedper
from scafflix.methods.method import Method
from scafflix.theory import Plan

NORMALIZATION = "*[Nn]orm* *bn*"


def fedbn(
    plan: Plan, stepsize: float | None = None, p: float | None = None, own: str = NORMALIZATION
) -> Method:
    """FedBN, with the arrays at home whose names say that they belong to a normalization, or
    match `own`.

    The networks of this package have none: it is for modules of your own. Running means and
    variances are no parameters: those of a PyTorch module are each client's own with every method.
    """
    return replace(fedper(plan, stepsize, p, own), name="fedbn")
