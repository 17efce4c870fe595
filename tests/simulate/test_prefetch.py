"""States on their way: what is read ahead is what was written last, and nothing is lost."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import miniature
from miniature import GAMMA, N
from scafflix.core.errors import ScafflixError
from scafflix.core.sharing import all_devices, spread
from scafflix.core.store import Store
from scafflix.gradients import Minibatch
from scafflix.simulate.prefetch import Ahead

SMALL = miniature.problem((6,), 0.0)
BATCH = Minibatch(4)


def rows(value: float) -> NDArray[np.float32]:
    """Two for each device."""
    return np.full((2 * SMALL.mesh.size, 16), value, np.float32)


def test_a_client_of_two_cohorts_in_a_row_is_read_as_the_first_left_it() -> None:
    states = Store({"h": np.zeros(3, np.float32)}, clients=4)
    hold = threading.Event()
    write = states.write_rows

    def late(clients: NDArray[np.int64], found: NDArray[np.float32]) -> None:
        hold.wait(10)
        write(clients, found)

    states.write_rows = late  # type: ignore[method-assign]
    ahead = Ahead([states], states)
    ahead.start(np.array([1, 2]))
    ahead.put(np.array([0, 1]), spread(all_devices(), rows(7.0)))
    (found,) = ahead.take(np.array([1, 2]))
    assert found[:, :3].tolist() == [[7, 7, 7], [0, 0, 0]]
    hold.set()
    ahead.settle()
    ahead.close()
    assert states.read_rows(np.arange(4))[:, 0].tolist() == [7, 7, 0, 0]


def test_rows_stay_as_they_are_while_those_of_the_next_round_are_read() -> None:
    states = Store({"h": np.zeros(3, np.float32)}, clients=4)
    states.write(np.arange(4), {"h": np.arange(12, dtype=np.float32).reshape(4, 3)})
    cohorts = [np.array(pair) for pair in ([0, 1], [2, 3], [1, 2])]
    ahead = Ahead([states], states)
    (now,) = ahead.take(cohorts[0])
    for this, then in pairwise(cohorts):
        ahead.start(then)
        (later,) = ahead.take(then)
        assert now[:, 0].tolist() == (3 * this).tolist()
        assert later[:, 0].tolist() == (3 * then).tolist()
        now = later
    ahead.close()


def test_a_write_that_fails_in_the_last_round_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 0
    write = Store.write_rows

    def fail_at_the_end(store: Store, *written: Any) -> None:
        nonlocal count
        count += 1
        if count > 3 * SMALL.mesh.size - 1:
            raise ScafflixError("states.f32 cannot be used: No space left on device.")
        write(store, *written)

    monkeypatch.setattr(Store, "write_rows", fail_at_the_end)
    chosen = miniature.method("scafflix", np.ones(N), GAMMA, 0.3, BATCH)
    with pytest.raises(ScafflixError, match="No space left"):
        miniature.run(SMALL, chosen, np.ones(N), None, rounds=3, cohort=SMALL.mesh.size)
