"""Text files, perhaps compressed, whose size is known to be bounded before it is taken."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import IO, Any

from scafflix.core.errors import ScafflixError, reason_of

LINE_LIMIT = 2**26
"""The most bytes of one line."""

FREE = 2**25
"""What any compressed file may grow to, in bytes."""

GROWTH = 100
"""How many times its own size a compressed file may grow to beyond that; real text: 5 to 50."""

UNREADABLE = (OSError, EOFError, MemoryError, lzma.LZMAError, zlib.error)
"""What reading raises; `unreadable` makes a sentence of it."""


def open_text(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed as its suffix says; a bomb or an endless line is an OSError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "small.gz")
    ...     _ = path.write_bytes(gzip.compress(b"two\\nlines\\n"))
    ...     with open_text(path) as file:
    ...         file.readlines()
    [b'two\\n', b'lines\\n']
    """
    openers: dict[str, Any] = {".bz2": bz2.open, ".xz": lzma.open, ".gz": gzip.open}
    if path.suffix not in openers:
        return io.BufferedReader(Bounded(path.open("rb", buffering=0), None))
    most = max(FREE, GROWTH * path.stat().st_size)
    return io.BufferedReader(Bounded(openers[path.suffix](path), most))


class Bounded(io.RawIOBase):
    """A stream that ends with an OSError behind so many bytes, or so many without a newline."""

    def __init__(self, stream: Any, most: int | None) -> None:
        self.stream, self.most = stream, most
        self.total = self.line = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content: bytes = self.stream.read(len(buffer))
        self.total += len(content)
        newline = content.rfind(b"\n")
        self.line = self.line + len(content) if newline < 0 else len(content) - newline - 1
        if self.most is not None and self.total > self.most:
            raise OSError(f"decompressed it has more than {self.most} bytes, too many for its size")
        if self.line > LINE_LIMIT:
            raise OSError(f"a line has more than {LINE_LIMIT} bytes")
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self.stream.close()
        super().close()


def unreadable(path: Path, error: Exception) -> ScafflixError:
    """The error for a file that cannot be opened or decompressed."""
    if isinstance(error, FileNotFoundError):
        return ScafflixError(f"{path}: there is no such file.")
    reason = getattr(error, "strerror", None) or reason_of(error)
    return ScafflixError(f"{path}: cannot be read ({reason}).")
