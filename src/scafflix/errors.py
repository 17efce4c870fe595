"""The one exception for what users can mend."""


class ScafflixError(Exception):
    """One sentence: what was given, what is allowed, what to do."""


class ScafflixWarning(UserWarning):
    """A condition of the theory that a run violates, with the numbers."""
