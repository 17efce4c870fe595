"""Personalized federated learning that communicates rarely.

>>> import scafflix as sx
>>> problem = sx.Problem(sx.data.synthetic(clients=4, seed=0), sx.models.logistic(), l2=0.1)
>>> person = sx.personalize(problem, alpha=0.5)
>>> plan = sx.plan(problem, person)
>>> record = sx.run(problem, person, sx.scafflix(plan), rounds=60)
>>> bool(record.summary["final_gap"] < 1e-6)
True
"""

from typing import TYPE_CHECKING

from scafflix.lazy import lazily

if TYPE_CHECKING:
    from scafflix import control, data, gradients, models, theory, trackers
    from scafflix.cohorts.optima import Recipe
    from scafflix.engine.planning import plan
    from scafflix.engine.recording import Run
    from scafflix.engine.run import run, sweep
    from scafflix.errors import ScafflixError, ScafflixWarning
    from scafflix.machine import use_all_cores
    from scafflix.methods import METHODS
    from scafflix.methods.fedavg import fedavg
    from scafflix.methods.gd import gd
    from scafflix.methods.i_scaffnew import i_scaffnew
    from scafflix.methods.nesterov import nesterov
    from scafflix.methods.scafflix import scafflix
    from scafflix.methods.scaffnew import scaffnew
    from scafflix.methods.sgd import sgd
    from scafflix.personalization import Personalization, Start, personalize
    from scafflix.problem import Problem
    from scafflix.record import Record
else:
    __getattr__ = lazily(
        __name__,
        {
            "engine.planning": ["plan"],
            "engine.recording": ["Run"],
            "engine.run": ["run", "sweep"],
            "errors": ["ScafflixError", "ScafflixWarning"],
            "machine": ["use_all_cores"],
            "methods": [
                "METHODS", "fedavg", "gd", "i_scaffnew", "nesterov", "scafflix", "scaffnew", "sgd"
            ],
            "cohorts.optima": ["Recipe"],
            "personalization": ["Personalization", "Start", "personalize"],
            "problem": ["Problem"],
            "record": ["Record"],
        },
        modules=["control", "data", "gradients", "models", "theory", "trackers"],
    )  # fmt: skip

__all__ = [
    "METHODS",
    "Personalization",
    "Problem",
    "Recipe",
    "Record",
    "Run",
    "ScafflixError",
    "ScafflixWarning",
    "Start",
    "control",
    "data",
    "fedavg",
    "gd",
    "gradients",
    "i_scaffnew",
    "models",
    "nesterov",
    "personalize",
    "plan",
    "run",
    "scafflix",
    "scaffnew",
    "sgd",
    "sweep",
    "theory",
    "trackers",
    "use_all_cores",
]


def __dir__() -> list[str]:
    return [*globals(), *__all__]
