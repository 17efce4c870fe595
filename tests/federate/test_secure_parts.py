"""The parts of secure aggregation: fixed point, shares, masks, and whose keys are whose."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from gatherings import READY, Circle, an_occasion

from scafflix.core.errors import ScafflixError
from scafflix.federate.certificates import make_certificates, make_node_key
from scafflix.federate.messages import RefusedError
from scafflix.federate.secure import masks
from scafflix.federate.secure.fixed import DOUBLE, SINGLE, FixedPoint, add, subtract
from scafflix.federate.secure.identity import Identity
from scafflix.federate.secure.messages import Keys, Shares, bytes_in, told_in
from scafflix.federate.secure.shares import combined, split, weights_of


def _numbers(seed: int, largest: float) -> np.ndarray:
    random = np.random.default_rng(seed)
    made = random.normal(size=400) * 10.0 ** random.uniform(-30, 9, 400)
    special = [0.0, -0.0, 1.0, -1.0, 0.1, -1e-40, 2.0**-64, -(2.0**-12)]
    return np.clip(np.concatenate([made, special]), -largest, largest)


@pytest.mark.parametrize("fixed", [SINGLE, DOUBLE], ids=["single", "double"])
def test_words_are_integers_modulo_a_power_of_two_and_their_sums_are_exact(
    fixed: FixedPoint,
) -> None:
    terms = 5
    largest = 0.999 * fixed.bound(terms)
    rows = [_numbers(seed, largest) for seed in range(terms)]
    total = np.zeros((fixed.limbs, len(rows[0])), np.uint64)
    for row in rows:
        add(total, fixed.encoded(row, terms))
    modulus = 2 ** (64 * fixed.limbs)
    found = fixed.decoded(total)
    for k, column in enumerate(zip(*rows, strict=True)):
        exact = sum(round(Fraction(number) * 2**fixed.fraction) for number in column)
        words = sum(int(limb) << (64 * place) for place, limb in enumerate(total[:, k]))
        assert words == exact % modulus
        assert found[k] == pytest.approx(float(Fraction(exact, 2**fixed.fraction)), rel=1e-15)
    for row in rows[1:]:
        subtract(total, fixed.encoded(row, terms))
    np.testing.assert_array_equal(total, fixed.encoded(rows[0], terms))


@pytest.mark.parametrize("fixed", [SINGLE, DOUBLE], ids=["single", "double"])
def test_a_number_is_off_by_half_a_step_at_most(fixed: FixedPoint) -> None:
    row = _numbers(0, 1e3)
    off = np.abs(fixed.decoded(fixed.encoded(row, 3)) - row)
    assert (off <= fixed.step() / 2 + 1e-16 * np.abs(row)).all()


def test_numbers_of_64_bits_that_are_not_tiny_arrive_exactly() -> None:
    row = _numbers(1, 1e9)
    row = row[np.abs(row) > 2.0**-23]
    assert len(row) > 100
    np.testing.assert_array_equal(DOUBLE.decoded(DOUBLE.encoded(row, 3)), row)


@pytest.mark.parametrize("fixed", [SINGLE, DOUBLE], ids=["single", "double"])
def test_the_sum_of_the_largest_numbers_does_not_wrap(fixed: FixedPoint) -> None:
    terms, largest = 3, np.nextafter(fixed.bound(3), 0)
    for number in (largest, -largest):
        total = np.zeros((fixed.limbs, 1), np.uint64)
        for _ in range(terms):
            add(total, fixed.encoded(np.array([number]), terms))
        assert fixed.decoded(total)[0] == pytest.approx(terms * number, rel=1e-12)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e300])
def test_a_number_beyond_the_range_is_refused_and_not_told(number: float) -> None:
    for fixed in (SINGLE, DOUBLE):
        with pytest.raises(ScafflixError, match="beyond the range") as caught:
            fixed.encoded(np.array([1.0, number]), 4)
        assert str(number) not in str(caught.value)


@pytest.mark.parametrize(("threshold", "count"), [(2, 3), (3, 5), (5, 5)])
def test_so_many_shares_give_the_secret_and_fewer_do_not(threshold: int, count: int) -> None:
    secret = masks.new_secret()
    shares = dict(enumerate(split(secret, threshold, count), start=1))
    for places in combinations(shares, threshold):
        assert combined(shares, weights_of(places)) == secret
    for places in combinations(shares, threshold - 1):
        assert combined(shares, weights_of(places)) != secret


def test_fewer_shares_fit_every_secret() -> None:
    mine, other = masks.new_secret(), masks.new_secret()
    shares = dict(enumerate(split(mine, 3, 5), start=1))
    known = {2: shares[2], 4: shares[4]}  # one too few
    for secret in (mine, other):
        points = {0: int.from_bytes(secret), **{k: int.from_bytes(v) for k, v in known.items()}}
        prime = 2**521 - 1

        def at(x: int, points: dict[int, int] = points, prime: int = prime) -> int:
            total = 0
            for j, y in points.items():
                for m in points:
                    if m != j:
                        y = y * (x - m) * pow(j - m, -1, prime) % prime
                total += y
            return total % prime

        whole = {k: at(k).to_bytes(66) for k in range(1, 6)}  # a polynomial of the same degree
        assert {k: whole[k] for k in known} == known
        assert combined(whole, weights_of([1, 3, 5])) == secret


def test_the_masks_of_a_pair_cancel_and_no_two_masks_are_alike() -> None:
    a, b = masks.new_secret(), masks.new_secret()
    found = []
    for occasion in (an_occasion("first"), an_occasion("second"), an_occasion("first", 1)):
        total = np.zeros((2, 50), np.uint64)
        masks.add_pair_mask(total, occasion, "north", a, "south", masks.public_of(b))
        found.append(total.copy())
        masks.add_pair_mask(total, occasion, "south", b, "north", masks.public_of(a))
        assert not total.any()
    found += [masks.own_mask(a, an_occasion(), name, (2, 50)) for name in ("north", "south")]
    assert len({one.tobytes() for one in found}) == len(found)


def test_a_note_is_for_one_receiver_and_one_purpose() -> None:
    key = masks.agreed_key(masks.new_secret(), masks.public_of(masks.new_secret()), b"seal")
    note = masks.sealed(b"shares", key, b"north to south")
    assert masks.opened(note, key, b"north to south") == b"shares"
    wrong = bytes([note[0] ^ 1]) + note[1:]
    for other in ((note, key, b"south to north"), (note, key[::-1], b"north to south")):
        with pytest.raises(ScafflixError, match="not sealed"):
            masks.opened(*other)
    for cut in (wrong, note[:-1], b""):
        with pytest.raises(ScafflixError, match="not sealed"):
            masks.opened(cut, key, b"north to south")
    with pytest.raises(ScafflixError, match="none"):
        masks.agreed_key(masks.new_secret(), bytes(32), b"seal")  # a point of small order


@pytest.mark.parametrize("text", ["", "[]", "3", '{"a": []}', '{"a": [1]}', '{"a": "b"}', "{"])
def test_what_is_told_is_words_of_each_client(text: str) -> None:
    with pytest.raises(ScafflixError, match="1 words of each client"):
        told_in(text, 1)


@pytest.mark.parametrize("digits", ["", "zz", "abc", "abcd"])
def test_keys_are_hexadecimal_digits(digits: str) -> None:
    with pytest.raises(ScafflixError, match="hexadecimal"):
        bytes_in(digits, 32)


# whose keys


def _identities(folder: Path, names: list[str]) -> dict[str, Identity]:
    make_certificates(folder, ["localhost"])
    for name in names:
        make_node_key(folder, name)
    return {
        name: Identity(folder / name, folder / f"{name}.crt", folder / "ca.crt") for name in names
    }


def test_certified_nodes_gather_a_sum(tmp_path: Path) -> None:
    names = ["east", "north", "south"]
    numbers = {name: np.arange(3.0) + k for k, name in enumerate(names)}
    circle = Circle(tmp_path, numbers, DOUBLE, _identities(tmp_path / "keys", names))
    sums = circle.gather(2).sums()
    np.testing.assert_allclose(sums, 3 * np.arange(3.0) + 3, rtol=1e-15)


@pytest.mark.parametrize(
    "how", ["another key", "no certificate", "another authority", "the server", "a replay"]
)
def test_a_server_passes_off_no_key_as_a_certified_nodes(how: str, tmp_path: Path) -> None:
    names = ["localhost", "north", "south"]
    mine, other = (_identities(tmp_path / folder, names) for folder in ("keys", "other"))
    circle = Circle(tmp_path, {name: np.ones(2) for name in names}, DOUBLE, mine)
    occasion = an_occasion()
    keys = {name: circle.members[name].keys(occasion, READY, {"kind": "test"}) for name in names}
    bad = keys["localhost"]
    own = masks.public_of(masks.new_secret()).hex()  # a key that the server knows
    if how == "another key":
        bad = bad._replace(mask=own)
    elif how == "no certificate":
        bad = bad._replace(mask=own, certificate="", signature="")
    elif how == "another authority":
        signed = other["localhost"].signed(occasion, "localhost", own, bad.seal)
        bad = bad._replace(mask=own, certificate=signed[0], signature=signed[1])
    elif how == "the server":  # which has a certificate of the authority, under this very name
        folder = tmp_path / "keys"
        server = _server_identity(folder)
        signed = server.signed(occasion, "localhost", own, bad.seal)
        bad = bad._replace(mask=own, certificate=signed[0], signature=signed[1])
    else:
        earlier = mine["localhost"].signed(an_occasion("earlier"), "localhost", own, bad.seal)
        bad = bad._replace(mask=own, certificate=earlier[0], signature=earlier[1])
    from scafflix.federate.secure.gathering import Gathering

    server_side = Gathering(occasion, 2, DOUBLE, 2)
    server_side.keys = {**keys, "localhost": bad}
    server_side.stage = Shares
    message = server_side.request("north")
    with pytest.raises(RefusedError, match="keys of localhost are not signed by a node") as caught:
        circle.members["north"].shares(message)  # type: ignore[arg-type]
    assert caught.value.kind == "identity"
    server_side.keys = keys
    assert isinstance(keys["north"], Keys)
    circle.members["north"].shares(server_side.request("north"))  # type: ignore[arg-type]


def _server_identity(folder: Path) -> Identity:
    """What a server could make of the key that it has."""
    from cryptography.hazmat.primitives import serialization

    private = serialization.load_pem_private_key((folder / "server.key").read_bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH)
    (folder / "as-node").write_bytes(private.private_bytes(*form, serialization.NoEncryption()))
    return Identity(folder / "as-node", folder / "server.crt", folder / "ca.crt")
