"""What scafflix does to the process of whoever imports it: nothing that was not asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import scafflix as sx
from scafflix.core.streams import Stream, key
from scafflix.federate.convex import ConvexLearner
from scafflix.federate.learner import Place

LOOK = """
import ctypes, json, os, sys, warnings
import scipy.sparse, sklearn.metrics  # which add filters and variables of their own
import jax
from jax._src import monitoring

def look():
    return {
        "configuration": {name: str(value) for name, value in sorted(jax.config.values.items())},
        "listeners": len(monitoring.get_event_duration_listeners()),
        "environment": dict(os.environ),
        "filters": [str(entry) for entry in warnings.filters],
        "hooks": [str(sys.excepthook), str(warnings.showwarning)],
        "asked": list(asked),
    }

asked = []  # of glibc, which does not tell its thresholds

class Library(ctypes.CDLL):
    def __getattr__(self, name):
        found = super().__getattr__(name)
        return (lambda *values: asked.append(values)) if name == "mallopt" else found

ctypes.CDLL = Library
before = look()
"""
TELL = """
print(json.dumps([before, look(), jax.device_count()]))
"""


def fresh(script: str, **environment: str) -> str:
    """What a script prints in a process of its own."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    words = [sys.executable, "-c", script]
    ran = subprocess.run(
        words, env={**variables, **environment}, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_importing_all_of_it_changes_nothing_in_the_process() -> None:
    everything = "import scafflix as sx\nfor name in sx.__all__: getattr(sx, name)\n"
    before, after, devices = json.loads(fresh(LOOK + everything + TELL))
    assert before == after
    assert before["configuration"]["jax_enable_x64"] == "False"
    assert devices == 1


def test_a_convex_run_computes_in_float64_and_leaves_the_process_as_it_was() -> None:
    run = """
import numpy as np
import scafflix as sx
problem = sx.Problem(sx.data.synthetic(clients=3, seed=0), sx.models.logistic(), l2=0.1)
person = sx.personalize(problem, alpha=0.5)
record = sx.run(problem, person, sx.scafflix(sx.plan(problem, person)), rounds=30)
assert record.summary["final_gap"] < 1e-9, record.summary["final_gap"]
made = [person.x_star, person.mix(record.models["global"]), *record.models.values()]
assert all(type(one) is np.ndarray and one.dtype == np.float64 for one in made)
assert jax.numpy.ones(2).dtype == np.float32
"""
    before, after, _ = json.loads(fresh(LOOK + run + TELL))
    assert after["listeners"] == before["listeners"] + 1  # it says how long compiling took
    assert {**before, "listeners": 0} == {**after, "listeners": 0}


ASK = """
import jax
import scafflix as sx
{before}
try:
    sx.use_all_cores()
    sx.use_all_cores()
except sx.ScafflixError as error:
    print(error)
print(jax.device_count())
"""


@pytest.mark.parametrize(
    ("environment", "devices"),
    [
        ({}, os.cpu_count()),
        ({"JAX_NUM_CPU_DEVICES": "3"}, 3),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, 5),
    ],
)
def test_every_core_is_used_when_asked_for_unless_the_user_chose(
    environment: dict[str, str], devices: int
) -> None:
    assert fresh(ASK.format(before=""), **environment) == f"{devices}\n"


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="there is one core")
def test_asking_for_every_core_too_late_is_refused_in_a_sentence() -> None:
    said, devices = fresh(ASK.format(before="jax.numpy.ones(2)")).splitlines()
    assert said.startswith("JAX has already started, with 1 of ")
    assert devices == "1"


def test_a_nodes_functions_are_in_float64_whatever_jax_is_set_to() -> None:
    learner = ConvexLearner(sx.data.synthetic(clients=1, seed=0), sx.models.logistic(), 0.1)
    place = Place(0, 0, 0, 0, 0, 1)
    (g,) = learner.gradient(learner.start(), place).tree
    with jax.enable_x64(True):
        (again,) = learner.gradient(learner.start(), place).tree
    assert g.dtype == np.float64
    np.testing.assert_array_equal(g, again)
    (x,) = learner.optimum().tree
    (slope,) = learner.gradient(learner.optimum(), place).tree
    assert x.dtype == np.float64
    assert np.linalg.norm(slope) < 1e-12


def test_keys_of_large_seeds_do_not_depend_on_the_precision() -> None:
    ours = jax.random.key_data(key(2**40 + 5, Stream.MODEL))
    assert not np.array_equal(ours, jax.random.key_data(key(5, Stream.MODEL)))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(ours, jax.random.key_data(key(2**40 + 5, Stream.MODEL)))
