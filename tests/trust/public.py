"""A right call of every public function, on problems that are tiny and of one shape, so that
programs are compiled once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import equinox
import numpy as np
from flax import linen
from fuzzer import check_federation

import scafflix as sx
from scafflix.core.store import Store
from scafflix.methods import find, parameters

ROUNDS = 2


class Call(NamedTuple):
    """A right call, and how what it returns is looked at."""

    function: Callable[..., Any]
    arguments: Mapping[str, Any]  # a right value of each
    check: Callable[[Any], None]


def finite(*values: Any) -> None:
    for value in values:
        assert np.isfinite(np.asarray(value, float)).all(), f"not finite: {value!r}"


@cache
def parts() -> dict[str, Any]:
    """What calls are made of."""
    fed = sx.data.synthetic(clients=3, rows=6, features=2, seed=0)
    problem = sx.Problem(fed, sx.models.logistic(), l2=0.1)
    person = sx.personalize(problem, 0.5)
    plan = sx.plan(problem, person)
    method = sx.scafflix(plan)
    record = sx.run(problem, person, method, rounds=ROUNDS)
    held = sx.data.from_arrays(
        np.asarray(fed.train.features), fed.train.labels, 3, test=0.2, validation=0.2
    )
    network = sx.models.dense(features=2, classes=2, hidden=())
    networks = sx.Problem(held, network)
    alone = sx.personalize(networks, 1.0, optima=False)
    return {
        "federation": fed,
        "examples": fed.train,
        "problem": problem,
        "person": person,
        "plan": plan,
        "method": method,
        "record": record,
        "model": sx.models.logistic(),
        "network": network,
        "networks": networks,
        "alone": alone,
        "network method": sx.fedavg(sx.plan(networks, alone, gradient=sx.gradients.Minibatch(2))),
        "gradient": sx.gradients.gradient(),
        "run": sx.Run(person, method),
        "function": sx.models.logistic,
        "class": sx.Problem,
        "module": sx,
    }


def of_record(record: Any) -> None:
    assert isinstance(record, sx.Record)
    finite(record.summary["final_gap"], *record.models.values())
    certificate = record.summary["certificate"]
    assert certificate is None or not math.isnan(certificate["worst_ratio"])


def of_records(records: Any) -> None:
    for record in records:
        of_record(record)


def of_network_record(record: Any) -> None:
    assert isinstance(record, sx.Record)
    if record.summary["diverged"] is None:
        finite(*(value for name, value in record.models.items() if name.startswith("global")))


def of_method(method: Any) -> None:
    assert isinstance(method, sx.methods.Method)
    finite(method.gamma, method.p)
    assert (np.asarray(method.gamma) > 0).all()
    assert 0 < method.p <= 1
    assert np.shape(method.gamma) == (3,)


def of_plan(plan: Any) -> None:
    finite(plan.gamma, plan.p, plan.A, plan.C)
    assert (plan.gamma > 0).all()


def of_problem(problem: Any) -> None:
    finite(problem.constants.L, problem.constants.mu)


def of_person(person: Any) -> None:
    points = [] if isinstance(person.x_star, Store | None) else [person.x_star]
    finite(person.alpha, *points, *person.quality.values())
    assert ((person.alpha >= 0) & (person.alpha <= 1)).all()


def of_examples(examples: Any) -> None:
    assert examples.features.shape[0] == len(examples.labels) == examples.offsets[-1]


def of_network(network: Any) -> None:
    assert isinstance(network, sx.models.Network)


def of_estimator(model: Any) -> None:
    finite(model.alpha_, model.coef_, model.site_coef_, model.intercept_)


def anything(_: Any) -> None:
    """The call returns: no more can be said."""


def calls() -> dict[str, Call]:
    """A right call of every public function."""
    p = parts()
    fed, problem, person, plan = p["federation"], p["problem"], p["person"], p["plan"]
    method, record, train = p["method"], p["record"], p["examples"]
    zeros, ids = np.zeros((3, 2)), ["a", "b", "b", "c", "a", "c"]
    rows = [[1.0, 2.0], [0.0, 1.0], [3.0, 1.0], [1.0, 1.0], [0.5, 0.0], [2.0, 2.0]]
    labels = [0, 1, 0, 1, 0, 1]
    every = {"problem": problem, "person": person, "method": method, "rounds": ROUNDS}
    options = {"seed": 1, "start": np.ones(2), "h0": zeros, "epsilon": 1e-3, "strict": False}
    options |= {"scores": True, "part": "test", "keep": "personal", "progress": None}
    sampled = {"cohort": 2, "seed": 0, "every": 1, "store": "memory", "keep": "global"}
    sampled |= {"part": "test", "scores": True, "progress": None}
    networks, alone = p["networks"], p["alone"]
    network_run = {"problem": networks, "person": alone, "method": p["network method"], "rounds": 1}
    recipe = {"stepsize": 0.1, "batch": 2, "steps": 4, "check": 2, "patience": 1, "seed": 0}
    start = {"x": networks.start(0), "rounds": 1, "bits": (10, 10)}
    optima = {"problem": networks, "alpha": 0.5, "optima": True, "start": sx.Start(**start)}
    optima |= {"recipe": sx.Recipe(**recipe), "progress": None}
    chosen = {"p": 0.5, "pace": "actual", "cap": 2.0, "pull": 0.2, "server_stepsize": 1.5}
    chosen |= {"compressor": "natural", "omega": 0.2}
    chosen |= {"sigma": 0.1, "rho": 0.9, "s": 2, "chi": 0.5}
    chosen |= {"inner": 2, "beta": 0.9, "weight": 0.4, "adapt": 0.5, "a": 0.1}
    chosen |= {"tuning_steps": 2, "tuning_stepsize": 0.1, "own": "output/*", "head_steps": 2}
    chosen |= {"cohort": 2, "tau": 0.5, "q": 0.5}
    per_method = {
        name: Call(
            made,
            {"plan": plan, "stepsize": 0.1} | {key: chosen[key] for key in parameters(made)},
            of_method,
        )
        for name, made in sx.METHODS.items()
    }
    splits = {"test": 0.4, "validation": 0.4, "min_examples": 1, "seed": 0, "scale": "none"}
    splits |= {"intercept": False, "split": "shuffled"}
    pair = {"a": (rows[:3], labels[:3]), "b": (rows[3:], labels[3:])}
    raw = {"features": train.features, "labels": train.labels, "offsets": train.offsets}
    whole = {"name": "raw", "clients": fed.clients, "train": train, "test": train}
    whole |= {"validation": None, "left_out": {}}
    made = {"clients": 3, "rows": 4, "features": 2, "optima": 1.0, "conditioning": 10.0}
    made |= {"task": "logistic", "noise": 0.1, "classes": 3, "seed": 0}
    examples = train.features, train.labels
    whose = {"groups": train.owners}
    estimator = {"alpha": 0.5, "l2": 0.1, "method": "scafflix", "rounds": ROUNDS, "cohort": None}
    estimator |= {"stepsize": "auto", "batch": "full", "scale": "maxabs", "intercept": False}
    estimator |= {"validation": None, "seed": 0, **whose}
    regressor = sx.ScafflixRegressor(rounds=ROUNDS).fit(*examples, **whose)
    plain = {"alpha": [0.5, 0.5, 1.0], "x_star": zeros}
    plain["quality"] = {"local_grad_norm": np.zeros(3)}
    return {
        **per_method,
        "find": Call(find, {"name": "scafflix"}, anything),
        "parameters": Call(parameters, {"method": sx.scafflix}, anything),
        "Problem": Call(
            sx.Problem,
            {"federation": fed, "model": p["model"], "l2": 0.1, "smoothness": "tight"},
            of_problem,
        ),
        "Problem.take": Call(
            lambda clients: problem.take(clients), {"clients": [0, 2]}, of_problem
        ),
        "Problem of a network": Call(
            sx.Problem, {"federation": fed, "model": p["network"], "l2": 0.1}, anything
        ),
        "Problem.start": Call(networks.start, {"seed": 0}, anything),
        "personalize": Call(sx.personalize, {"problem": problem, "alpha": [0.5, 0, 1]}, of_person),
        "personalize a network": Call(sx.personalize, optima, of_person),
        "Recipe": Call(
            lambda **given: sx.personalize(networks, 0.5, recipe=sx.Recipe(**given)),
            recipe,
            of_person,
        ),
        "Checkpoints": Call(
            sx.Checkpoints, {"folder": "kept", "often": sx.Often(rounds=2)}, anything
        ),
        "Often": Call(
            lambda **given: sx.Checkpoints("kept", sx.Often(**given)),
            {"rounds": 2, "minutes": 1.0},
            anything,
        ),
        "Start": Call(
            lambda **given: sx.personalize(networks, 1.0, optima=False, start=sx.Start(**given)),
            start,
            of_person,
        ),
        "Personalization": Call(sx.Personalization, plain, of_person),
        "at": Call(person.at, {"alpha": [0.5, 0.2, 1.0]}, of_person),
        "mix": Call(person.mix, {"x": np.ones(2)}, finite),
        "take": Call(person.take, {"clients": [0, 2]}, of_person),
        "gradient": Call(sx.gradients.gradient, {"batch": "full", "noise": 0.5}, anything),
        "minibatch": Call(sx.gradients.gradient, {"batch": 2, "noise": 0}, anything),
        "Noisy": Call(
            lambda sigma: sx.plan(problem, person, gradient=sx.gradients.Noisy(sigma)),
            {"sigma": 0.1},
            of_plan,
        ),
        "Minibatch": Call(
            lambda size: sx.plan(problem, person, gradient=sx.gradients.Minibatch(size)),
            {"size": 2},
            of_plan,
        ),
        "averaged": Call(
            sx.averaged, {"method": method, "average": 0.5}, lambda made: finite(made.p)
        ),
        "private": Call(
            sx.private, {"method": method, "clip": 1.0, "noise": 0.5}, lambda made: finite(made.p)
        ),
        "private_gradient": Call(
            sx.gradients.private_gradient, {"clip": 1.0, "noise": 0.5, "batch": 2}, anything
        ),
        "Reduced": Call(
            lambda size, q: sx.plan(problem, person, gradient=sx.gradients.Reduced(size, q)),
            {"size": 2, "q": 0.5},
            of_plan,
        ),
        "project": Call(
            sx.control.project, {"h": zeros, "alpha": np.ones(3), "gamma": np.ones(3)}, finite
        ),
        "check": Call(sx.control.check, {"h": zeros, "alpha": np.ones(3)}, anything),
        "plan": Call(
            sx.plan,
            {"problem": problem, "person": person, "gradient": p["gradient"], "epsilon": 0.1},
            of_plan,
        ),
        "plan of a network": Call(
            sx.plan,
            {"problem": networks, "person": alone, "stepsize": 0.1, "individual": False}
            | {"gradient": sx.gradients.Minibatch(2)},
            lambda made: finite(made.gamma, made.p),
        ),
        "run": Call(sx.run, every | options, of_record),
        "run of a cohort": Call(sx.run, every | sampled | {"start": np.ones(2)}, of_record),
        "run of a network": Call(sx.run, network_run | sampled, of_network_record),
        "words": Call(sx.run, every | options | {"start": "zeros", "h0": "warm"}, of_record),
        "sweep": Call(
            sx.sweep, {"problem": problem, "runs": [p["run"]], "rounds": ROUNDS}, of_records
        ),
        "Run": Call(
            lambda **given: sx.sweep(problem, [sx.Run(**given)], rounds=ROUNDS),
            {"person": person, "method": method, "seed": 3},
            of_records,
        ),
        "personal_model": Call(record.personal_model, {"client": fed.clients[0]}, finite),
        "rounds_to": Call(record.rounds_to, {"gap": 0.1}, anything),
        "to_pandas": Call(record.to_pandas, {"table": "clients"}, anything),
        "save": Call(record.save, {"folder": "kept", "force": True}, anything),
        "load record": Call(sx.Record.load, {"folder": "kept", "models": True}, anything),
        "track": Call(
            sx.trackers.track,
            {"record": record, "to": "tensorboard", "where": "events", "name": "one"},
            anything,
        ),
        "from_arrays": Call(
            sx.data.from_arrays,
            {"features": rows, "labels": labels, "clients": 2, "name": "n", **splits},
            check_federation,
        ),
        "ids": Call(
            sx.data.from_arrays, {"features": rows, "labels": labels, "clients": ids}, anything
        ),
        "from_clients": Call(
            sx.data.from_clients,
            {"examples": pair, "held_out": pair, "name": "n"},
            check_federation,
        ),
        "load": Call(sx.data.load, {"source": "iris", "clients": 3, **splits}, check_federation),
        "synthetic": Call(sx.data.synthetic, made, check_federation),
        "describe": Call(sx.data.describe, {"federation": fed}, anything),
        "locate": Call(sx.data.locate, {"name": "iris"}, anything),
        # nothing is downloaded here: the one name is wrong already
        "fetch": Call(sx.data.fetch, {"name": "no such data"}, anything),
        "Examples": Call(sx.data.Examples, raw, of_examples),
        "Examples.take": Call(train.take, {"clients": [2, 0]}, of_examples),
        "Federation": Call(sx.data.Federation, whole, check_federation),
        "Federation.take": Call(fed.take, {"clients": [2, 0]}, check_federation),
        "dense": Call(sx.models.dense, {"features": 2, "classes": 2, "hidden": (3,)}, of_network),
        "cnn": Call(sx.models.cnn, {"classes": 3}, of_network),
        "lstm": Call(
            sx.models.lstm, {"symbols": 5, "embedding": 2, "units": 3, "layers": 1}, of_network
        ),
        "from_torch": Call(
            sx.models.from_torch,
            {"make": dict, "loss": np.add, "score": np.add, "name": "n"},
            anything,
        ),
        "from_flax": Call(
            sx.models.from_flax, {"module": linen.Dense(2), "example_inputs": rows}, of_network
        ),
        "from_equinox": Call(
            sx.models.from_equinox, {"module": equinox.nn.Identity(), "name": "n"}, of_network
        ),
        # scikit-learn checks rows and labels
        "ScafflixClassifier": Call(
            lambda groups, **given: sx.ScafflixClassifier(**given).fit(*examples, groups=groups),
            {"model": "logistic", **estimator},
            of_estimator,
        ),
        "ScafflixRegressor": Call(
            lambda groups, **given: sx.ScafflixRegressor(**given).fit(*examples, groups=groups),
            estimator,
            of_estimator,
        ),
        "predict": Call(lambda groups: regressor.predict(train.features, groups), whose, finite),
        "LinearModel": Call(
            lambda **fields: sx.Problem(fed, sx.models.LinearModel(**fields), l2=0.1),
            p["model"]._asdict(),
            of_problem,
        ),
        "Network": Call(
            lambda **fields: sx.Problem(fed, sx.models.Network(**fields)),
            p["network"]._asdict(),
            anything,
        ),
    }
