"""Damaged inputs, one after another, in a process that may not take memory, write or connect.

    python tests/trust/fuzzer.py FIRST COUNT [SUBJECT ...]

tries the inputs FIRST, FIRST + 1, ... of each subject and prints what came of them as JSON. An
input depends on its subject and number alone. It must be read into what satisfies the invariants,
or be refused with one sentence that names the file; anything else is a failure: another exception,
a warning, more work than `PATIENCE`, memory beyond `ROOM`, a file written outside the folder of the
inputs, a connection, an unpickled class, a process started.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bombs import BOMBS, Bomb, set_off
from damage import NUMBERS, TEXT, VALUES, Random, damaged, damaged_tree
from formats import FORMATS, TOML, Format, toml_bytes
from scipy import sparse
from wire import try_message

from scafflix.core.errors import ScafflixError
from scafflix.data import Federation, load
from scafflix.runs.config import CompareConfig, RunConfig, TuneConfig, plain, read

PATIENCE = 20  # seconds of work for one input
ROOM = 2**30  # bytes beyond what the process has when it begins
LONGEST = 1000  # letters of a sentence


class Trial(NamedTuple):
    """Makes an input from random numbers and reads it; a refusal is raised."""

    run: Callable[[Random, Path], None]
    has_file: bool = True  # for the sentence to name


class Hang(BaseException):
    """An input that takes too long; no `except Exception` may swallow it."""


def check_federation(fed: Federation) -> None:
    """What every federation promises to what comes after it."""
    assert len(set(fed.clients)) == len(fed.clients) >= 1
    for client in fed.clients:
        assert 1 <= len(client) <= 200
        assert client.isprintable()
        assert not set(client) & set("/\\")
        assert client.strip(". ")
    assert (fed.train.counts > 0).all()
    for part in fed.parts.values():
        features, labels = part.features, part.labels
        assert part.offsets.dtype == np.int64
        assert part.offsets[0] == 0
        assert (np.diff(part.offsets) >= 0).all()
        assert part.offsets[-1] == features.shape[0] == len(labels)
        assert len(part.offsets) == len(fed.clients) + 1
        assert features.shape[1:] == fed.train.features.shape[1:]
        assert fed.dim >= 1
        values = features.data if sparse.issparse(features) else features
        assert values.dtype in (np.float64, np.uint8)
        assert np.isfinite(values).all()
        assert labels.dtype.kind in "biufU"
        assert labels.dtype.kind != "f" or np.isfinite(labels).all()


def file_trial(form: Format) -> Trial:
    def run(r: Random, folder: Path) -> None:
        path = folder / form.file
        path.write_bytes(form.broken(r))
        check_federation(load(path, **r.choice(form.options)))

    return Trial(run)


KINDS = (RunConfig, CompareConfig, TuneConfig)


def check_config(config: Any) -> None:
    """A configuration says what it was given, and can be built again from what it says."""
    assert read(type(config), None, plain(config), []) == config or "nan" in repr(config)


def try_toml(r: Random, folder: Path) -> None:
    kind, path = r.choice(KINDS), folder / "run.toml"
    names = {name for name in TOML if name in kind.__dataclass_fields__}
    valid = {name: value for name, value in TOML.items() if name in names}
    content = toml_bytes(valid)
    if r.random() < 0.6:
        try:
            content = toml_bytes(damaged_tree(r, valid))
        except (TypeError, ValueError, OverflowError, RecursionError, AttributeError):
            content = damaged(r, content, TEXT)  # what cannot be written
    else:
        content = damaged(r, content, TEXT)
    path.write_bytes(content)
    check_config(read(kind, path, {}, []))


def try_assignments(r: Random, folder: Path) -> None:
    kind = r.choice(KINDS)
    names = [*kind.__dataclass_fields__, "", "no_such", "__class__", "data "]
    words = ["data=digits"]
    for _ in range(r.choice((1, 1, 3))):
        value = r.choice((r.choice(NUMBERS), str(r.choice(VALUES)), "a,b", ",", "0.1,x", "true"))
        words.append(r.choice((f"{r.choice(names)}={value}",) * 9 + (value,)))
    check_config(read(kind, None, {}, words))


def try_synthetic(r: Random, folder: Path) -> None:
    names = ("clients", "rows", "features", "optima", "conditioning", "task", "noise", "classes")
    options = ",".join(
        f"{r.choice(names)}={r.choice((*NUMBERS, '2', '3', 'linear', 'softmax', 'x'))}"
        for _ in range(r.choice((1, 2, 3)))
    )
    source = f"synthetic:{options}"
    if r.random() < 0.3:
        source = damaged(r, source.encode(), TEXT).decode("utf-8", "replace")
    check_federation(load(source, clients=r.choice((None, 2))))


def subjects() -> dict[str, Trial]:
    """Everything that takes input from outside."""
    return {
        **{name: file_trial(form) for name, form in FORMATS.items()},
        "toml": Trial(try_toml),
        "assignments": Trial(try_assignments, has_file=False),
        "synthetic": Trial(try_synthetic, has_file=False),
        "messages": Trial(try_message, has_file=False),
    }


def explosives() -> dict[str, Trial]:
    """The bombs; what is read after all is a failure."""

    def trial(bomb: Bomb) -> Trial:
        def run(r: Random, folder: Path) -> None:
            set_off(bomb, folder)
            raise AssertionError("it was read")

        return Trial(run, has_file=bomb.content is not None)

    return {name: trial(bomb) for name, bomb in BOMBS.items()}


def check_sentence(sentence: str, folder: Path | None) -> None:
    """One line, short, that names the file and was not caused by the end of memory."""
    assert sentence, "an empty sentence"
    assert sentence.isprintable(), f"more than a line: {sentence!r}"
    assert len(sentence) <= LONGEST, f"a sentence of {len(sentence)} letters"
    assert sentence[-1] in ".?", f"no end: {sentence!r}"
    assert "llocat" not in sentence and "emoryError" not in sentence, sentence  # noqa: PT018
    if folder is not None:
        assert str(folder) in sentence, f"no file is named: {sentence!r}"


def attempt(subject: str, trial: Trial, number: int, folder: Path) -> str:
    """Read, refused, or what went wrong with one input."""
    r = random.Random(f"{subject} {number}")
    try:
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            trial.run(r, folder)
        outcome = "read"
    except ScafflixError as error:
        try:
            check_sentence(str(error), folder if trial.has_file else None)
            outcome = "refused"
        except AssertionError as fault:
            outcome = f"sentence: {fault}"
    except (Exception, Hang) as error:  # a finding
        frames = traceback.extract_tb(error.__traceback__)
        places = [f"{Path(f.filename).name}:{f.lineno}" for f in frames[-4:]]
        outcome = f"{type(error).__name__}: {str(error)[:200]} ({' '.join(places)})"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if TRESPASSES:
        outcome = f"trespass: {TRESPASSES.pop()}"
        TRESPASSES.clear()
    return outcome


TRESPASSES: list[str] = []
FORBIDDEN = ("pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "socket.connect")
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate")


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Note every write outside the folder, every connection, process and unpickled class."""
    watching = True

    def inside(path: object) -> bool:
        return not isinstance(path, str | bytes | os.PathLike) or os.path.realpath(
            os.fsdecode(path)
        ).startswith(str(folder))

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if not watching:
            return
        if event in FORBIDDEN:
            TRESPASSES.append(event)
        elif event == "open":
            writes = isinstance(arguments[2], int) and arguments[2] & (
                os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
            )
            if writes and not inside(arguments[0]):
                TRESPASSES.append(f"wrote {arguments[0]!r}")
        elif event in CHANGES and not inside(arguments[0]):
            TRESPASSES.append(f"{event} {arguments[0]!r}")

    sys.addaudithook(look)
    try:
        yield
    finally:
        watching = False


def limit_memory() -> None:
    """Only so much more than the process has already."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def raise_hang(*_: object) -> None:
    raise Hang(f"more than {PATIENCE} s")


def fuzz(first: int, count: int, chosen: list[str]) -> dict[str, dict[str, Any]]:
    """What came of so many inputs of each subject; of each failure, the number of an input."""
    common, trials = subjects(), subjects() | explosives()
    results: dict[str, dict[str, Any]] = {}
    signal.signal(signal.SIGPROF, raise_hang)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        os.chdir(folder)
        for subject, trial in common.items():
            for number in range(-3, 0):  # what is loaded at first use is no trespass
                attempt(subject, trial, number, folder)
        TRESPASSES.clear()
        limit_memory()
        with watched(folder):
            for subject in chosen or common:
                print(subject, end=" ", file=sys.stderr, flush=True)  # the last one, if it crashes
                results[subject] = tally(subject, trials[subject], range(first, first + count))
                print(results[subject], file=sys.stderr, flush=True)
    return results


def tally(subject: str, trial: Trial, numbers: range) -> dict[str, Any]:
    """The outcomes of some inputs of one subject."""
    found: Counter[str] = Counter()
    failures: dict[str, tuple[int, str]] = {}  # by how they begin: the first input, all of it
    for number in numbers:
        outcome = attempt(subject, trial, number, Path.cwd())
        good = outcome in ("read", "refused")
        found[outcome if good else "failed"] += 1
        if not good:
            failures.setdefault(outcome[:40], (number, outcome))
    return {**found, "failures": failures}


if __name__ == "__main__":
    print(json.dumps(fuzz(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])))
