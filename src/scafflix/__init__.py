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

from scafflix.core.lazy import lazily
from scafflix.core.showing import Shown

if TYPE_CHECKING:
    from scafflix import control, data, export, gradients, models, theory
    from scafflix.core.checkpoint import Checkpoints, Often
    from scafflix.core.errors import ScafflixError, ScafflixWarning
    from scafflix.core.machine import use_all_cores
    from scafflix.estimators.classifier import ScafflixClassifier
    from scafflix.estimators.regressor import ScafflixRegressor
    from scafflix.methods import METHODS
    from scafflix.methods.apfl import apfl
    from scafflix.methods.averaging import averaged
    from scafflix.methods.compressed_scaffnew import compressed_scaffnew
    from scafflix.methods.ditto import ditto
    from scafflix.methods.fedavg import fedavg
    from scafflix.methods.fedbn import fedbn
    from scafflix.methods.feddyn import feddyn
    from scafflix.methods.fedlin import fedlin
    from scafflix.methods.fedper import fedper
    from scafflix.methods.fedprox import fedprox
    from scafflix.methods.fedrep import fedrep
    from scafflix.methods.finetuning import finetuning
    from scafflix.methods.five_gcs import five_gcs
    from scafflix.methods.gd import gd
    from scafflix.methods.gradskip import gradskip
    from scafflix.methods.i_scaffnew import i_scaffnew
    from scafflix.methods.l2gd import l2gd
    from scafflix.methods.locodl import locodl
    from scafflix.methods.mr_mtl import mr_mtl
    from scafflix.methods.nesterov import nesterov
    from scafflix.methods.per_fedavg import per_fedavg
    from scafflix.methods.pfedme import pfedme
    from scafflix.methods.private import private
    from scafflix.methods.s_local_svrg import s_local_svrg
    from scafflix.methods.scafflix import scafflix
    from scafflix.methods.scaffnew import scaffnew
    from scafflix.methods.scaffold import scaffold
    from scafflix.methods.sgd import sgd
    from scafflix.methods.tamuna import tamuna
    from scafflix.personalization.personalize import Personalization, Start, personalize
    from scafflix.personalization.recipe import Recipe
    from scafflix.problems.problem import Problem
    from scafflix.record import Record
    from scafflix.report import trackers
    from scafflix.report.latex import to_latex
    from scafflix.simulate.planning import plan
    from scafflix.simulate.recording import Run
    from scafflix.simulate.run import run, sweep
    from scafflix.simulate.watching import CallbackError, Moment, Stop
else:
    __getattr__ = lazily(
        __name__,
        {
            "simulate.planning": ["plan"],
            "simulate.recording": ["Run"],
            "simulate.run": ["run", "sweep"],
            "simulate.watching": ["CallbackError", "Moment", "Stop"],
            "core.checkpoint": ["Checkpoints", "Often"],
            "core.errors": ["ScafflixError", "ScafflixWarning"],
            "core.machine": ["use_all_cores"],
            "estimators.classifier": ["ScafflixClassifier"],
            "estimators.regressor": ["ScafflixRegressor"],
            "methods": [
                "METHODS", "apfl", "compressed_scaffnew", "ditto", "fedavg", "fedbn", "feddyn",
                "fedlin", "fedper", "fedprox", "fedrep", "finetuning", "five_gcs", "gd", "gradskip",
                "i_scaffnew", "l2gd", "locodl", "mr_mtl", "nesterov", "per_fedavg", "pfedme",
                "s_local_svrg", "scafflix", "scaffnew", "scaffold", "sgd", "tamuna",
            ],
            "methods.averaging": ["averaged"],
            "methods.private": ["private"],
            "personalization.recipe": ["Recipe"],
            "personalization.personalize": ["Personalization", "Start", "personalize"],
            "problems.problem": ["Problem"],
            "record": ["Record"],
            "report.latex": ["to_latex"],
        },
        modules=["control", "data", "export", "gradients", "models", "report.trackers", "theory"],
    )  # fmt: skip

Shown.drawn_by = "scafflix.report.notebook"

__all__ = [
    "METHODS",
    "CallbackError",
    "Checkpoints",
    "Moment",
    "Often",
    "Personalization",
    "Problem",
    "Recipe",
    "Record",
    "Run",
    "ScafflixClassifier",
    "ScafflixError",
    "ScafflixRegressor",
    "ScafflixWarning",
    "Start",
    "Stop",
    "apfl",
    "averaged",
    "compressed_scaffnew",
    "control",
    "data",
    "ditto",
    "export",
    "fedavg",
    "fedbn",
    "feddyn",
    "fedlin",
    "fedper",
    "fedprox",
    "fedrep",
    "finetuning",
    "five_gcs",
    "gd",
    "gradients",
    "gradskip",
    "i_scaffnew",
    "l2gd",
    "locodl",
    "models",
    "mr_mtl",
    "nesterov",
    "per_fedavg",
    "personalize",
    "pfedme",
    "plan",
    "private",
    "run",
    "s_local_svrg",
    "scafflix",
    "scaffnew",
    "scaffold",
    "sgd",
    "sweep",
    "tamuna",
    "theory",
    "to_latex",
    "trackers",
    "use_all_cores",
]


def __dir__() -> list[str]:
    return [*globals(), *__all__]
