"""What every run refuses at the border, whoever asks for it: in Python, in a file, in a command."""

from __future__ import annotations

from scafflix.core.arguments import choice, whole_number

MOST_ROUNDS = 10**9


def check_rounds(rounds: object, name: str = "rounds") -> int:
    """A number of rounds, or of clients: at least one."""
    return whole_number(name, rounds, least=1, most=MOST_ROUNDS)


def check_seed(seed: object, name: str = "seed") -> int:
    """A seed that every stream takes."""
    return whole_number(name, seed, least=0, most=2**63 - 1)


def check_part(part: object) -> str:
    """A part of the examples that is held out."""
    return choice("part", part, ("test", "validation"))


def check_start(start: object) -> str:
    """A word that names a point."""
    return choice("start", start, ("ones", "zeros"))


def check_controls(h0: object) -> str:
    """A word that names control variates."""
    return choice("h0", h0, ("zero", "warm"))
