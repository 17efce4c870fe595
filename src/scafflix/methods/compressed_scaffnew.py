"""CompressedScaffnew: Condat, Agarsky and Richtarik, "Provably Doubly Accelerated Federated
Learning: The First Theoretically Successful Combination of Local Training and Compressed
Communication" (2022), on the functions f~_i.

TAMUNA with everybody in every round: each number of the model is sent by s of the n clients.
"""

from __future__ import annotations

from dataclasses import replace

from scafflix.methods.method import Method
from scafflix.methods.tamuna import tamuna
from scafflix.theory import Plan, check_plan


def compressed_scaffnew(
    plan: Plan,
    stepsize: float | None = None,
    p: float | None = None,
    pace: str | None = None,
    s: int | None = None,
    chi: float | None = None,
) -> Method:
    """CompressedScaffnew with one stepsize; with s = n, Scaffnew."""
    check_plan(plan)
    return replace(tamuna(plan, stepsize, p, pace, s, chi), name="compressed_scaffnew")
