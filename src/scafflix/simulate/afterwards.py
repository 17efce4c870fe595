"""What is left for the end of a run: local optima from the model that its rounds gave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from scafflix.core import private
from scafflix.core.cache import cache_folder
from scafflix.core.checkpoint import Checkpoints
from scafflix.core.progress import Progress
from scafflix.core.store import disk_errors
from scafflix.models.network import Params
from scafflix.personalization.personalize import with_optima
from scafflix.problems.problem import Problem
from scafflix.simulate.recording import Run

FOLDER = "optima"


@contextmanager
def settled(
    problem: Problem,
    member: Run,
    x: Params,
    progress: Progress | None,
    checkpoints: Checkpoints,
) -> Iterator[Run]:
    """The run with every x_i*. Those that are looked for only now are there as long as it takes to
    record them; a run that is stopped on the way goes on with those that it has."""
    if member.person.after is None:
        yield member
        return
    with _place(checkpoints) as folder:
        person = with_optima(problem, member.person, x, folder, progress, checkpoints)
        yield member._replace(person=person)


@contextmanager
def _place(checkpoints: Checkpoints) -> Iterator[Path]:
    """A folder beside the checkpoints, or one for as long as it is needed."""
    if checkpoints.folder is not None:
        yield checkpoints.folder / FOLDER
        return
    parent = cache_folder() / "states"
    with disk_errors(parent):
        folder = TemporaryDirectory(dir=private.make_folder(parent))
    with folder as name:
        yield Path(name) / FOLDER
