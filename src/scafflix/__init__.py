"""Personalized federated learning that communicates rarely.

>>> import scafflix as sx
>>> problem = sx.Problem(sx.data.synthetic(clients=4, seed=0), sx.models.logistic(), l2=0.1)
>>> person = sx.personalize(problem, alpha=0.5)
>>> plan = sx.plan(problem, person)
>>> record = sx.run(problem, person, sx.scafflix(plan), rounds=60)
>>> bool(record.summary["final_gap"] < 1e-6)
True
"""

import os
from contextlib import suppress

import jax

jax.config.update("jax_enable_x64", True)  # convex problems run in float64
# one device for each core, over which the clients of a cohort are shared out; a user's own choice
# stands, and so does what JAX began with before this import
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    with suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

from scafflix import control, data, gradients, memory, models, theory, trackers  # noqa: E402
from scafflix.cohorts.problem import NetworkProblem  # noqa: E402
from scafflix.engine.planning import plan  # noqa: E402
from scafflix.engine.recording import Run  # noqa: E402
from scafflix.engine.run import run, sweep  # noqa: E402
from scafflix.errors import ScafflixError, ScafflixWarning  # noqa: E402
from scafflix.laboratory import train_network  # noqa: E402
from scafflix.methods import (  # noqa: E402
    METHODS,
    fedavg,
    gd,
    i_scaffnew,
    nesterov,
    scafflix,
    scaffnew,
    sgd,
)
from scafflix.personalize import Personalization, personalize  # noqa: E402
from scafflix.problem import Problem  # noqa: E402
from scafflix.record import Record  # noqa: E402

memory.keep_blocks()

__all__ = [
    "METHODS",
    "NetworkProblem",
    "Personalization",
    "Problem",
    "Record",
    "Run",
    "ScafflixError",
    "ScafflixWarning",
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
    "train_network",
]
