"""A method in words: NAME, or FILE.py:FUNCTION of your own, and its options after a colon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from scafflix.core.errors import ScafflixError


class Spec(NamedTuple):
    """What the words ask for."""

    name: str  # or FILE.py:FUNCTION
    stepsize: str  # auto, unless one of the options is a stepsize
    options: dict[str, Any]  # hyperparameters of the method's own


def read(text: str) -> Spec:
    """The parts of a method in words.

    >>> read("fedprox:pull=0.1")
    Spec(name='fedprox', stepsize='auto', options={'pull': 0.1})
    >>> read("mine.py:momentum:0.5,beta=0.9").stepsize
    '0.5'
    """
    file, python, rest = text.rpartition(".py:")
    name, _, words = rest.partition(":")
    stepsize, options = "auto", {}
    for word in filter(None, words.split(",")):
        key, equals, value = word.partition("=")
        if not equals:
            stepsize = word
        elif not value or key in options:
            raise ScafflixError(f"method is {text!r}; give its options as KEY=VALUE,...")
        else:
            options[key.strip()] = number_or_word(value.strip())
    return Spec(f"{file}{python}{name}", stepsize, options)


def written(name: str, options: Mapping[str, Any]) -> str:
    """The words for a method with these options.

    >>> written("fedprox", {"pull": 0.1, "p": 0.5})
    'fedprox:pull=0.1,p=0.5'
    """
    words = ",".join(f"{key}={value}" for key, value in options.items())
    return f"{name}:{words}" if words else name


def separate(text: str) -> list[str]:
    """Several methods, separated by commas as their options are.

    >>> separate("gd, locodl:p=0.5,compressor=rand_k:0.1, fedavg:0.1")
    ['gd', 'locodl:p=0.5,compressor=rand_k:0.1', 'fedavg:0.1']
    """
    found: list[str] = []
    for word in (part.strip() for part in text.split(",")):
        option, equals, _ = word.partition("=")
        if found and equals and ":" not in option:
            found[-1] += f",{word}"
        else:
            found.append(word)
    return found


def number_or_word(value: int | float | str) -> int | float | str:
    """A word from the command line as the number that it may be.

    >>> number_or_word("3"), number_or_word("0.5"), number_or_word("auto")
    (3, 0.5, 'auto')
    """
    for kind in (int, float):
        try:
            return kind(value) if isinstance(value, str) else value
        except ValueError:
            continue
    return value
