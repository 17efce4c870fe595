"""Numbers that travel as float32 or bfloat16: the models, the invariant, the bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hospitals import (
    ALPHA,
    DIM,
    LEARNERS,
    Direct,
    Faulty,
    Hospital,
    flat,
    flix_optimum,
    fresh_roster,
    imbalance,
    make_server,
    quadratic_hospitals,
    quick_folder,
)

import cases
import scafflix as sx
from scafflix import ScafflixError
from scafflix.federate.client import ClientCore
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.convex import ConvexLearner
from scafflix.federate.parcels import packed, unpacked
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import serve
from scafflix.gradients import Exact
from scafflix.methods import METHODS, Method
from scafflix.methods.transport import Transport, transported
from scafflix.runs.config import RunConfig
from scafflix.runs.refusals import check_keys

START = LEARNERS[0].start()
UNIT = {"float32": 2.0**-24, "bfloat16": 2.0**-8}  # the largest relative error of a rounding
WEIGHT = sum(a * a * f.spectrum[-1] for a, f in zip(ALPHA, LEARNERS, strict=True))


def hospitals_of(folder: Path, kind: str) -> dict[str, Hospital]:
    made: Any = partial(ClientCore, transport=kind)
    return quadratic_hospitals(folder, made)


def by(kind: str, name: str = "scafflix") -> Callable[..., Method]:
    def make(plan: Any, p: float | None = None) -> Method:
        return transported(METHODS[name](plan, p=p), kind)

    return make


def server_of(
    folder: Path, hospitals: Mapping[str, Hospital], kind: str, **keys: Any
) -> ServerCore:
    return make_server(folder, fresh_roster(hospitals), START, make=by(kind), **keys)


@pytest.mark.parametrize(("kind", "cohort"), [("float32", 3), ("bfloat16", None)])
def test_the_invariant_stays_within_one_rounding_through_any_faults(
    kind: str, cohort: int | None
) -> None:
    """Clients have other weights, come and go, crash, and commit once."""
    with quick_folder() as folder:
        hospitals = hospitals_of(folder, kind)
        keys: dict[str, Any] = {"cohort": cohort, "attempts": 100, "p": 0.5}
        roster = fresh_roster(hospitals)
        server = make_server(folder, roster, START, make=by(kind), rounds=80, **keys)
        faulty = Faulty(hospitals, seed=5)
        serve(server, faulty)
        quiet = make_server(folder, roster, START, make=by(kind), rounds=140, **keys)
        serve(quiet, Direct(hospitals))
        assert all(faulty.happened.values())
        x = flix_optimum()[0]
        one = UNIT[kind] * float(np.linalg.norm(x))
        assert imbalance(quiet, hospitals) <= 2 * 0.5 * WEIGHT * one
        assert np.linalg.norm(flat(quiet.x) - x) <= 10 * one


def test_what_rounding_loses_is_made_up_for() -> None:
    """Without the server's debt, sum_i alpha_i h_i drifts away with every round."""
    found = []
    for owes in (True, False):
        with quick_folder() as folder:
            hospitals = hospitals_of(folder, "float32")
            server = server_of(folder, hospitals, "float32", rounds=90, p=0.5, cohort=3)
            while not server.done:
                for name, reply in Direct(hospitals).exchange(server.requests()):
                    server.receive(name, reply)
                if not owes:
                    server.server = server.server._replace(owed=0 * server.server.owed)
                server.close()
            serve(server, Direct(hospitals))  # all commit what is pending
            found.append(imbalance(server, hospitals))
    assert found[1] > 10 * found[0]


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_federation_makes_the_models_of_the_simulator(kind: str, tmp_path: Path) -> None:
    case = cases.case("softmax")
    method = transported(sx.scafflix(case.plan), kind)
    simulated = sx.run(case.problem, case.person, method, rounds=20, seed=1)
    fed = cases.federation("softmax")
    classes = tuple(np.unique(fed.train.labels).tolist())

    def maker(number: int) -> Any:
        mine = ConvexLearner(
            fed.take([number]), sx.models.softmax(), cases.L2, gradient=Exact(), classes=classes
        )
        own: Any = (f"client-{number}", float(cases.ALPHA[number]), mine, tmp_path)
        return lambda hook: ClientCore(*own, hook, transport=kind)

    hospitals = {f"client-{k}": Hospital(maker(k)) for k in range(len(cases.ALPHA))}
    start = hospitals["client-0"].core.learner.start()
    roster = fresh_roster(hospitals)
    server = make_server(tmp_path, roster, start, make=by(kind), rounds=20, seed=1)
    wire = Direct(hospitals)
    serve(server, wire)
    away = np.abs(server.x[0] - simulated.models["global"]).max()
    scale = np.abs(server.x[0]).max()
    # one of them may round a number up that is nearly in the middle, and the other down
    assert away <= 4 * UNIT[kind] * scale
    assert simulated.metrics["bits_up"][-1] == server.rows()[-1]["bits_up"]
    assert simulated.metrics["bits_down"][-1] == server.rows()[-1]["bits_down"]


@pytest.mark.parametrize(("kind", "size"), [("full", 8), ("float32", 4), ("bfloat16", 2)])
def test_what_travels_is_as_short_as_it_is_said_to_be(kind: str, size: int, tmp_path: Path) -> None:
    """In the parcels themselves, both ways."""
    hospitals = hospitals_of(tmp_path, kind)
    server = server_of(tmp_path, hospitals, kind, rounds=1)
    (name, request), *_ = server.requests().items()
    reply = hospitals[name].handle(request)
    for message, extra in ((request, 0), (reply, 0 if kind == "full" else 4)):
        again: Any = unpacked(packed(message))
        assert sum(array.nbytes for array in again.point) == size * DIM + extra
    assert not server.receive(name, reply)
    assert name in server.accepted


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_bad_upload_is_refused_in_any_type(kind: str, tmp_path: Path) -> None:
    hospitals = hospitals_of(tmp_path, kind)
    server = server_of(tmp_path, hospitals, kind, rounds=1)
    requests = server.requests()
    name = server.names[0]
    reply: Any = hospitals[name].handle(requests[name])
    endless = Transport(kind).narrow((np.full(3, np.inf), np.zeros((1, 2))))
    server.receive(name, reply._replace(point=(*endless, reply.point[-1])))
    server.receive(name, reply._replace(point=tuple(a.astype(float) for a in reply.point)))
    server.receive(name, reply._replace(point=reply.point[:-1]))
    assert server.tally.counts["not_finite"] == 1
    assert server.tally.counts["dtype"] == 1
    assert server.tally.counts["shape"] == 1
    assert not server.accepted


@pytest.mark.parametrize("name", ["scaffold", "tamuna", "locodl", "fedper", "ditto"])
def test_a_method_that_sends_something_else_is_refused(name: str) -> None:
    network = {"model": "dense"} if name == "fedper" else {}
    kind = "bfloat16"
    config = RunConfig(data="iris", method=name, alpha=1.0, transport=kind, **network)
    with pytest.raises(ScafflixError, match="send where they arrived"):
        check_keys(config)


def test_a_network_has_no_use_for_float32() -> None:
    with pytest.raises(ScafflixError, match="so are networks"):
        check_keys(RunConfig(data="iris", model="dense", transport="float32"))
    with pytest.raises(ScafflixError, match="float32 or bfloat16"):
        check_keys(RunConfig(data="iris", transport="float16"))


def test_all_libraries_round_alike() -> None:
    jax = pytest.importorskip("jax")
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    some = random.normal(size=1000) * 10.0 ** random.integers(-30, 30, 1000)
    for kind in ("float32", "bfloat16"):
        rounded = Transport(kind).rounded
        with jax.enable_x64(True):
            theirs = np.asarray(jax.jit(rounded)(jax.numpy.asarray(some)))
        np.testing.assert_array_equal(rounded(some), theirs)
        np.testing.assert_array_equal(rounded(some), rounded(torch.from_numpy(some)).numpy())
        back = Transport(kind).wide(Transport(kind).narrow((some,)), (some,))
        np.testing.assert_array_equal(rounded(some), back[0])


def test_it_does_not_go_with_privacy_secure_aggregation_or_a_mirror() -> None:
    with pytest.raises(ScafflixError, match="does not go with privacy"):
        check_keys(
            RunConfig(
                data="iris", transport="float32", privacy="client", clip=1.0, noise_multiplier=1.0
            )
        )
    with pytest.raises(ScafflixError, match="secure aggregation sends whole numbers"):
        checked(DeployConfig(data="iris", transport="float32", secure_aggregation=True))
    with pytest.raises(ScafflixError, match="how far they went, but mirror needs where"):
        checked(DeployConfig(data="iris", transport="float32", mirror=True))
