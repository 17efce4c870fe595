"""What a server sees of one client: noise. And what it learns: the sum."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gatherings import Circle, an_occasion
from hospitals import (
    LEARNERS,
    Direct,
    Faulty,
    fresh_roster,
    make_server,
    quadratic_hospitals,
    quick_folder,
)
from scipy.stats import chisquare

from scafflix.federate.records import record
from scafflix.federate.secure import masks
from scafflix.federate.secure.fixed import DOUBLE, SINGLE, FixedPoint, Words, add, subtract
from scafflix.federate.secure.gathering import Gathering
from scafflix.federate.secure.member import KEY, SEED
from scafflix.federate.secure.messages import Masked, Shares, Unmasked, bytes_in
from scafflix.federate.secure.shares import combined, weights_of
from scafflix.federate.serving import serve

NAMES = ["a", "b", "c", "d", "e"]
SIZE = 4000  # numbers of a message


def noisy(words: Words) -> bool:
    """Whether the bytes of words look as if drawn evenly and at random: chance errs once in a
    million."""
    counts = np.bincount(words.view(np.uint8).ravel(), minlength=256)
    return bool(chisquare(counts).pvalue > 1e-6)


def given(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {name: random.normal(size=SIZE) for name in NAMES}


def masked_of(circle: Circle, name: str) -> Words:
    """What a client sent in place of its message."""
    (found,) = (one for one in circle.seen[name] if isinstance(one, Masked))
    return found.words[0].copy()


def secrets_of(gathering: Gathering) -> dict[str, bytes]:
    """Every secret that the server can put together from what was revealed to it."""
    places = {name: place for place, name in enumerate(sorted(gathering.keys), start=1)}
    holders = list(gathering.revealed)
    weights = weights_of([places[name] for name in holders])
    found = {}
    for who in gathering.told:
        shares = {places[h]: bytes_in(gathering.revealed[h][who][0]) for h in holders}
        secret = combined(shares, weights)
        assert secret is not None
        found[who] = secret
    return found


def test_a_message_without_masks_is_not_noise() -> None:
    numbers = given(0)["a"]
    for fixed in (SINGLE, DOUBLE):
        assert not noisy(fixed.encoded(numbers, 5))


@pytest.mark.parametrize("fixed", [SINGLE, DOUBLE], ids=["single", "double"])
def test_uploads_that_differ_with_the_same_sum_cannot_be_told_apart(
    fixed: FixedPoint, tmp_path: Path
) -> None:
    first = given(1)
    scale = 2.0**-30  # so that the sums agree to the last bit
    first = {name: scale * np.round(row / scale) for name, row in first.items()}
    moved = 1e3 * np.ones(SIZE)
    second = {**first, "a": first["a"] + moved, "b": first["b"] - moved}
    seen = []
    for k, numbers in enumerate((first, second)):
        circle = Circle(tmp_path, numbers, fixed)
        gathering = circle.gather(3, occasion=an_occasion(round=k))
        seen.append((circle, gathering.sums()))
    np.testing.assert_array_equal(seen[0][1], seen[1][1])
    for circle, _ in seen:
        for name in NAMES:
            assert noisy(masked_of(circle, name))
    difference = masked_of(seen[0][0], "a")
    subtract(difference, masked_of(seen[1][0], "a"))
    assert noisy(difference)


@pytest.mark.parametrize("fixed", [SINGLE, DOUBLE], ids=["single", "double"])
def test_taking_away_all_that_is_revealed_leaves_noise_of_every_single_message(
    fixed: FixedPoint, tmp_path: Path
) -> None:
    """The server knows the seeds of the survivors a, b, c, and the key of d, whose masked message
    comes late; e was gone from the start."""
    numbers = given(2)
    circle = Circle(tmp_path, numbers, fixed)
    gathering = circle.gather(3, {Shares: ["e"], Masked: ["d"]})
    survivors = ["a", "b", "c"]
    expected = sum(numbers[name] for name in survivors)
    np.testing.assert_allclose(gathering.sums(), expected, atol=5 * fixed.step())
    secret = secrets_of(gathering)
    occasion, shape = gathering.occasion, (fixed.limbs, SIZE)
    for name in survivors:
        left = masked_of(circle, name)
        subtract(left, masks.own_mask(secret[name], occasion, name, shape))
        public = bytes_in(gathering.keys[name].mask)
        masks.add_pair_mask(left, occasion, "d", secret["d"], name, public)
        assert noisy(left)
        assert np.abs(fixed.decoded(left) - numbers[name]).min() > 1e-3
    late = Gathering(occasion, 3, fixed, SIZE)
    late.__dict__.update(gathering.__dict__)
    late.stage = Masked
    answer = circle.members["d"].masked(
        late.request("d"),  # type: ignore[arg-type]
        lambda about: (numbers["d"], fixed),
    )
    left = answer.words[0].copy()
    for name in survivors:
        public = bytes_in(gathering.keys[name].mask)
        mask = np.zeros(shape, np.uint64)
        masks.add_pair_mask(mask, occasion, "d", secret["d"], name, public)
        subtract(left, mask)
    assert noisy(left)  # its own mask is still there, and nobody reveals a share of that
    assert np.abs(fixed.decoded(left) - numbers["d"]).min() > 1e-3
    # with both secrets, which nobody reveals, it would be open
    seed = bytes_in(circle.kept("d", gathering)[SEED])
    subtract(left, masks.own_mask(seed, occasion, "d", shape))
    np.testing.assert_allclose(fixed.decoded(left), numbers["d"], atol=fixed.step())


def test_of_each_client_one_secret_is_revealed_and_no_share_of_the_other(tmp_path: Path) -> None:
    circle = Circle(tmp_path, given(3), SINGLE)
    gathering = circle.gather(3, {Masked: ["d"]})
    kept = {name: circle.kept(name, gathering) for name in NAMES}
    secret = secrets_of(gathering)
    told = "".join(str(one._replace(words=())) if isinstance(one, Masked) else str(one)
                   for seen in circle.seen.values() for one in seen)  # fmt: skip
    for name in NAMES:
        mine: Any = kept[name]
        assert secret[name].hex() == mine[KEY if name == "d" else SEED]
        assert not [what for what in (KEY, SEED, "seal") if mine[what] in told]
        for holder in NAMES:
            holding: Any = kept[holder]
            if holder != "d":  # which was gone before it got any
                key_share, seed_share = holding["opened"][name]
                shown, hidden = (key_share, seed_share) if name == "d" else (seed_share, key_share)
                assert shown in told
                assert hidden not in told


def test_fewer_shares_than_the_threshold_give_no_secret(tmp_path: Path) -> None:
    circle = Circle(tmp_path, given(4), SINGLE)
    gathering = circle.gather(4, {Unmasked: ["a", "b"]})
    assert len(gathering.revealed) == 3
    places = {name: place for place, name in enumerate(NAMES, start=1)}
    weights = weights_of([places[name] for name in gathering.revealed])
    for who in NAMES:
        shares = {places[h]: bytes_in(told[who][0]) for h, told in gathering.revealed.items()}
        assert combined(shares, weights) != bytes_in(circle.kept(who, gathering)[SEED])


def test_many_attempts_with_random_dropouts_give_exact_sums(torture: bool) -> None:
    random = np.random.default_rng(5)
    numbers = {name: random.normal(size=7) for name in NAMES}
    words = {name: DOUBLE.encoded(row, 5) for name, row in numbers.items()}
    sizes = []
    with quick_folder() as folder:
        circle = Circle(folder, numbers, DOUBLE)
        for round in range(3000 if torture else 100):
            order = random.permutation(NAMES).tolist()
            cuts = sorted(random.integers(0, 3, 3))  # who is gone: at most two of five
            gone: dict[Any, list[str]] = {
                stage: order[:cut]
                for stage, cut in zip((Shares, Masked, Unmasked), cuts, strict=True)
            }
            gathering = circle.gather(3, gone, an_occasion("attempt", round))
            total = np.zeros((2, 7), np.uint64)
            for name in NAMES:
                if name not in gone[Masked]:
                    add(total, words[name])
            np.testing.assert_array_equal(gathering.sums(), DOUBLE.decoded(total))
            sizes.append(len(gathering.survivors))
            assert set(gathering.keys) == set(NAMES)
            circle.seen = {name: [] for name in NAMES}
    assert {*sizes} == {3, 4, 5}


def test_no_secret_is_in_logs_or_in_what_the_server_keeps_or_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[bytes] = []

    def new_secret() -> bytes:
        made.append(secrets.token_bytes(32))
        return made[-1]

    monkeypatch.setattr(masks, "new_secret", new_secret)
    caplog.set_level(0)
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder)
        wire = Faulty(hospitals, seed=3, rate=0.1)
        told: list[str] = []
        asked: dict[str, Any] = {"rounds": 6, "attempts": 100, "secure_aggregation": True}
        start = LEARNERS[0].start()
        server = make_server(folder, fresh_roster(hospitals), start, **asked)
        kept = b""
        while not server.done:
            for name, reply in wire.exchange(server.requests()):
                told.append(repr(reply))
                server.receive(name, reply)
            files = (folder / "server").iterdir()
            kept += b"".join(file.read_bytes() for file in files if file.is_file())
            server.close()
        evaluations = serve(server, Direct(hospitals))
        record(server, evaluations, {"method": "scafflix"}, 1.0).save(folder / "server" / "record")
        files = (folder / "server").rglob("*")
        kept += b"".join(file.read_bytes() for file in files if file.is_file())
    assert len(made) >= 3 * 5 * 5
    assert any("Refusal" in one for one in told)
    texts = "".join([*told, caplog.text])
    for secret in made:
        for written in (secret.hex(), repr(secret)[2:-1], base64.b64encode(secret).decode()):
            assert written not in texts
            assert written.encode() not in kept
        assert secret not in kept
