"""The one exception for what users can fix."""

from pathlib import Path

MOST_LETTERS = 800
"""The length of a sentence; what is quoted in it may be a whole file."""


class ScafflixError(Exception):
    """One sentence: what was given, what is allowed, what to do.

    >>> str(ScafflixError("The file 'a\\nb' is empty."))
    "The file 'a\\\\nb' is empty."
    """

    exit_code = 2  # of a command that ends with it

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


class EndedError(ScafflixError):
    """A process ended that should not have; giving the same command again may be all it needs."""

    exit_code = 1


class DivergenceError(ScafflixError):
    """A run whose numbers blew up, with the round in which they did."""

    def __init__(self, sentence: str, round: int) -> None:
        super().__init__(sentence)
        self.round = round


class StopError(Exception):
    """A signal asked to stop, and what was done so far is kept."""

    resumable: Path | None = None  # the folder to resume, if there is something in it

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


class ScafflixWarning(UserWarning):
    """A condition of the theory that a run violates, with the numbers."""


def one_line(text: str) -> str:
    """The text without what a terminal would obey, its middle left out if it is long."""
    if len(text) > MOST_LETTERS:
        half = MOST_LETTERS // 2 - 10
        text = f"{text[:half]} ... {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def reason_of(error: BaseException) -> str:
    """What a library says about a fault, as a phrase."""
    said = " ".join(str(error).split())[:200].rstrip(".")
    return said or type(error).__name__
