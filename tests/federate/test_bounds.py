"""What one client may claim and send: beyond it is refused, and the run goes on or says why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hospitals import (
    LEARNERS,
    Direct,
    Faulty,
    Hospital,
    Quadratic,
    flat,
    flix_optimum,
    fresh_roster,
    imbalance,
    make_server,
    quadratic_hospitals,
    quick_folder,
)

import scafflix as sx
from scafflix.core.vector import Vector
from scafflix.federate.configuration import DeployConfig
from scafflix.federate.distance import Yardstick, distance
from scafflix.federate.flower_server import plan_run
from scafflix.federate.learner import Place
from scafflix.federate.messages import Introduction, Upload
from scafflix.federate.roster import Roster, new_roster
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import serve
from scafflix.methods import METHODS, parameters

START = LEARNERS[0].start()


@pytest.fixture
def folder() -> Iterator[Path]:
    with quick_folder() as made:
        yield made


class Scaling:
    """One upload of one client is multiplied on its way."""

    def __init__(self, hospitals: dict[str, Hospital], server: ServerCore, **at: Any) -> None:
        self.hospitals, self.server, self.at = hospitals, server, at
        self.struck = False

    def exchange(self, requests: Any) -> Any:
        for name, reply in Direct(self.hospitals).exchange(requests):
            here = (name, self.server.round) == (self.at["client"], self.at["round"])
            if here and isinstance(reply, Upload) and not self.struck:
                self.struck = True
                point = tuple(self.at["factor"] * array for array in reply.point)
                yield name, reply._replace(point=point)
            else:
                yield name, reply


@pytest.mark.parametrize("factor", [1e3, 1e12, 1e300])
@pytest.mark.parametrize("cohort", [None, 2])
def test_one_scaled_upload_is_refused_and_changes_nothing(
    folder: Path, factor: float, cohort: int | None
) -> None:
    hospitals = quadratic_hospitals(folder)
    rounds = 120 if cohort is None else 400
    server = make_server(folder, fresh_roster(hospitals), START, rounds=rounds, cohort=cohort)
    at = {"round": 30, "client": _cohort_of_round(server, 30)[0], "factor": factor}
    serve(server, Scaling(hospitals, server, **at))
    assert server.tally.counts["far"] == server.tally.counts["refused"] == 1
    assert np.linalg.norm(flat(server.x) - flix_optimum()[0]) < 1e-6
    assert imbalance(server, hospitals) < 1e-10


def test_a_cohort_of_one_is_held_to_what_was_usual_before(folder: Path) -> None:
    ends = []
    for number, factor in enumerate((1.0, 1e3)):
        place = folder / str(number)
        hospitals = quadratic_hospitals(place)
        server = make_server(place, fresh_roster(hospitals), START, rounds=40, cohort=1)
        at = {"round": 30, "client": _cohort_of_round(server, 30)[0], "factor": factor}
        serve(server, Scaling(hospitals, server, **at))
        assert server.tally.counts["far"] == number  # and it is asked again
        ends.append(flat(server.x))
    np.testing.assert_array_equal(*ends)


def _cohort_of_round(server: ServerCore, round: int) -> list[str]:
    from scafflix.simulate.cohorts import cohort_of

    chosen = cohort_of(server.settings.seed, round, np.arange(5), server.cohort_size)
    return [server.names[k] for k in chosen]


def test_one_scaled_upload_that_is_not_refused_stops_the_run_with_a_way_back(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    roster = fresh_roster(hospitals)
    server = make_server(folder, roster, START, rounds=120, far=0.0)
    attack = Scaling(hospitals, server, round=30, client="clinic-1", factor=1e3)
    with pytest.raises(sx.ScafflixError, match=r"diverged: after 31 rounds .* --from 30"):
        serve(server, attack)
    assert server.round == 31  # nothing was built on it
    again = make_server(folder, roster, START, rounds=120, far=0.0, back_to=30)
    assert (again.epoch, again.round) == (1, 30)
    assert len(again.rows()) == 30
    serve(again, Direct(hospitals))
    assert np.linalg.norm(flat(again.x) - flix_optimum()[0]) < 1e-8
    assert imbalance(again, hospitals) < 1e-10


def test_an_average_that_overflows_is_not_taken_in(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    options: dict[str, Any] = {"rounds": 9, "far": 0.0}
    server = make_server(folder, fresh_roster(hospitals), START, "nesterov", **options)
    for name, reply in Direct(hospitals).exchange(server.requests()):
        assert isinstance(reply, Upload)
        huge = tuple(np.full_like(array, 1.7e308) for array in reply.point)
        server.receive(name, reply._replace(point=huge))
    with pytest.raises(
        sx.ScafflixError, match="not finite; the best model is the one after round 0"
    ):
        server.close()


def test_an_attack_in_the_last_round_is_noticed_at_the_farewell(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    server = make_server(folder, fresh_roster(hospitals), START, rounds=10, far=0.0)
    attack = Scaling(hospitals, server, round=9, client="clinic-1", factor=1e6)
    with pytest.raises(sx.ScafflixError, match="diverged: after 10 rounds"):
        serve(server, attack)


class Steep(Quadratic):
    """A learner whose stepsize is not what it claims: the run diverges by itself."""

    def gradient(self, point: Vector, place: Place) -> Vector:
        return 2.3 * super().gradient(point, place)


def test_a_run_that_diverges_stops_with_a_sentence_and_keeps_its_best_model(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder, learners=[Steep(k) for k in range(len(LEARNERS))])
    roster = fresh_roster(hospitals)
    server = make_server(folder, roster, START, rounds=500)
    with pytest.raises(sx.ScafflixError, match=r"scafflix diverged: after .* smaller stepsizes"):
        serve(server, Direct(hospitals))
    kept = [one.round for one in server.files.moments()]
    assert server.losses.best in kept
    assert kept[-5:] == list(range(server.round - 4, server.round + 1))
    assert len(kept) <= 6
    assert make_server(folder, roster, START, rounds=500, back_to=server.losses.best).epoch == 1
    with pytest.raises(sx.ScafflixError, match="no checkpoint of round 499; the rounds it has are"):
        make_server(folder, roster, START, rounds=500, back_to=499)


@pytest.mark.parametrize("name", METHODS)
def test_honest_clients_with_unequal_alpha_and_stepsizes_are_never_refused(
    folder: Path, name: str
) -> None:
    hospitals = quadratic_hospitals(folder)
    few = 2 if "s" in parameters(METHODS[name]) else 1  # a number of the model has s senders
    for cohort in (None, few):
        place = folder / str(cohort)
        server = make_server(place, fresh_roster(hospitals), START, name, rounds=60, cohort=cohort)
        serve(server, Direct(hospitals))
        assert server.tally.counts["refused"] == 0


def test_a_cohort_that_is_too_small_for_the_method_is_refused_before_the_first_round(
    folder: Path,
) -> None:
    roster = fresh_roster(quadratic_hospitals(folder))
    with pytest.raises(sx.ScafflixError, match="s is 2; it must be at most 1, the clients a round"):
        make_server(folder, roster, START, "tamuna", rounds=2, cohort=1)


def test_clients_that_come_back_to_a_run_that_has_converged_are_not_refused(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    server = make_server(folder, fresh_roster(hospitals), START, rounds=300, minimum=1)
    away = "clinic-4"
    faulty = Faulty(hospitals, seed=0)
    while not server.done:
        asked = server.requests()
        if 5 <= server.round < 150:
            asked.pop(away, None)
        for name, reply in faulty.exchange(asked):
            server.receive(name, reply)
        server.close()
    serve(server, Direct(hospitals))
    assert server.tally.counts["far"] == 0
    assert np.linalg.norm(flat(server.x) - flix_optimum()[0]) < 1e-4


def test_a_minority_cannot_stretch_the_yardstick() -> None:
    kept = Yardstick(100.0)
    for round in range(50):
        sent = {"a": 1.0, "b": 1.1, "c": 0.9 * 50.0**round}
        far = kept.too_far(sent, steps=1, length=0.0)
        kept.take([value for name, value in sent.items() if name not in far], steps=1)
    assert kept.usual < 50
    assert kept.too_far({"c": 200.0}, steps=1, length=0.0)


def test_longer_rounds_and_longer_models_allow_longer_ways() -> None:
    kept = Yardstick(10.0, recent=[1.0] * 5, usual=1.0, longest=2)
    assert kept.too_far({"a": 11.0}, steps=2, length=0.0)
    assert not kept.too_far({"a": 11.0}, steps=4, length=0.0)
    assert not kept.too_far({"a": 11.0}, steps=2, length=12.0)
    assert kept.too_far({"a": np.inf}, steps=2, length=np.inf)
    assert not Yardstick(0.0).too_far({"a": np.inf}, steps=1, length=0.0)
    assert distance((np.full(2, 1e300, np.float64), np.zeros(1))) == np.inf


def people(**changed: Any) -> Roster:
    made = [Introduction(f"c{k}", 0.5, 0.5, 0.05, 1.0, 9, "float64[2]", ()) for k in range(4)]
    made[2] = made[2]._replace(**changed)
    return new_roster(made)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ({"gamma": 1e-12, "gamma_mu": 0.05}, r"c2 .* gamma 1e-12 .* the weight 2.5e\+11"),
        ({"gamma_L": 1e9}, r"c2 .* gamma_L 1e\+09, which implies"),
        ({"alpha": 1e-6, "gamma": 1e-12}, r"c2 .* implies L = 1e\+12; at most 1000 times"),
        ({"gamma_mu": 1e-10}, "c2 .* gamma_mu 1e-10 .* 100000 local steps per round; at most 1000"),
        ({"gamma_mu": 0.0}, "c2 .* endless local steps"),
        ({"gamma_mu": 2.0}, "c2 sent an invalid introduction: .* gamma_mu at most gamma_L"),
        ({"gamma": float("nan")}, "c2 sent an invalid introduction: gamma is nan"),
        ({"gamma": -1.0}, "c2 sent an invalid introduction"),
        ({"gamma_L": 0.0}, "c2 sent an invalid introduction"),
        ({"examples": 0}, "c2 sent an invalid introduction: examples is 0"),
        ({"gamma": 0.0, "gamma_mu": 0.0, "gamma_L": 0.0}, "c2 has no stepsize, but 3 others do"),
    ],
)
def test_a_claim_beyond_bounds_is_one_sentence_with_client_and_numbers(
    claim: dict[str, Any], said: str
) -> None:
    with pytest.raises(sx.ScafflixError, match=f"Client {said}"):
        plan_run(DeployConfig(data="nodes"), people(**claim))


def test_the_operator_sets_the_bounds_on_claims() -> None:
    steep = people(gamma=1e-5, gamma_mu=1e-8)
    wide = DeployConfig(data="nodes", largest_weight=1e9, largest_steps=1e5)
    method, _ = plan_run(wide, steep)
    assert 1 / float(method.p) == pytest.approx(1e4)
    plan_run(DeployConfig(data="nodes", p=0.1), people(gamma_mu=1e-10))  # p is not the client's


def test_who_leaves_for_good_is_no_part_of_the_problem_any_more(folder: Path) -> None:
    hospitals = quadratic_hospitals(folder)
    roster = fresh_roster(hospitals)
    server = make_server(folder, roster, START, rounds=150, minimum=1)

    def play(server: ServerCore, until: int, away: str) -> None:
        while server.round < until:
            for name, request in server.requests().items():
                if name != away:
                    server.receive(name, hospitals[name].handle(request))
            server.close()

    play(server, 3, "")
    # silent, clinic-1 is there by its last gradient: the others feel the pull of alpha_1 h_1
    play(server, 150, "clinic-1")
    hospitals["clinic-1"].handle(server.request("clinic-1"))  # it commits round 2
    control = hospitals["clinic-1"].core.control(server.request("clinic-1"))
    pull = hospitals["clinic-1"].core.alpha * flat(control)
    assert np.linalg.norm(flat(server.x) - flix_optimum(1, pull)[0]) < 1e-8
    assert np.linalg.norm(flat(server.x) - flix_optimum(1)[0]) > 1e-2
    # taken out, it is not there at all
    fewer = make_server(folder, roster.without(["clinic-1"]), START, rounds=300)
    assert (fewer.epoch, fewer.round, len(fewer.names)) == (1, 150, 4)
    del hospitals["clinic-1"]
    serve(fewer, Direct(hospitals))
    assert np.linalg.norm(flat(fewer.x) - flix_optimum(1)[0]) < 1e-8
    assert imbalance(fewer, hospitals) < 1e-10
    again = make_server(folder, roster.without(["clinic-1"]), START, rounds=300)
    assert again.epoch == 1  # taken out once
    with pytest.raises(sx.ScafflixError, match="no client nobody in this run"):
        roster.without(["nobody"])
