"""The one exception for what users can mend."""


class ScafflixError(Exception):
    """One sentence: what was given, what is allowed, what to do."""


class DivergenceError(ScafflixError):
    """A run whose numbers blew up, with the round in which they did."""

    def __init__(self, sentence: str, round: int) -> None:
        super().__init__(sentence)
        self.round = round


class ScafflixWarning(UserWarning):
    """A condition of the theory that a run violates, with the numbers."""
