"""A real server on the loopback address answers; nothing leaves the machine."""

import gc
import socket
import sqlite3
import threading
import warnings
import zlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from hashlib import md5, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

import msgpack
import pytest

from scafflix.core.errors import ScafflixError
from scafflix.data import download, fetch, load, locate
from scafflix.data.catalogue import CATALOGUE, KnownFile

CONTENT = b"+1 1:1 3:2\n-1 2:1\n" * 20_000


FILES = {"a6a": CONTENT}
REDIRECTIONS = {
    "to a file": "file:///etc/hostname",
    "to no host": f"http://{'a' * 70}.example/",
    "to no address": "http://[::1",
}
RANGES: list[str | None] = []
"""What each request asked for."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        behaviour, _, name = unquote(self.path).strip("/").partition("/")
        content = FILES[name]
        asked = self.headers.get("Range")
        RANGES.append(asked)
        if behaviour == "missing":
            self.send_error(404)
            return
        if behaviour in REDIRECTIONS:
            self.send_response(302)
            self.send_header("Location", REDIRECTIONS[behaviour])
            self.end_headers()
            return
        if behaviour == "silent":
            threading.Event().wait(1.0)
            return
        first = 0
        if asked is not None and behaviour != "rangeless":
            first = int(asked.removeprefix("bytes=").removesuffix("-"))
            if first >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            span = f"bytes {first}-{len(content) - 1}/{len(content)}"
            self.send_header("Content-Range", "nonsense" if behaviour == "confused" else span)
        else:
            self.send_response(200)
        if behaviour in ("stated", "misstated"):
            stated = md5(content if behaviour == "stated" else b"other").digest()
            self.send_header("x-goog-hash", f"crc32c=AAAAAA==,md5={b64encode(stated).decode()}")
        if behaviour == "boastful":
            self.send_header("Content-Length", "9" * 5000)
        elif behaviour != "unannounced":
            self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        match behaviour:
            case "wrong":
                self.wfile.write(content[first:-2] + b"9\n")
            case "truncated":
                self.wfile.write(content[first : first + 1000])
            case _:
                self.wfile.write(content[first:])

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test output clean."""


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def small_a6a(monkeypatch: pytest.MonkeyPatch) -> None:
    file = KnownFile("a6a", sha256(CONTENT).hexdigest())
    monkeypatch.setitem(CATALOGUE, "a6a", replace(CATALOGUE["a6a"], files=(file,)))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def files_of(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def assert_cache_is_empty(cache: Path) -> None:
    assert files_of(cache) == []


@pytest.mark.parametrize("behaviour", ["good", "unannounced"])
def test_a_good_file_lands_in_the_cache(server: str, cache: Path, behaviour: str) -> None:
    path = fetch("a6a", address=f"{server}/{behaviour}/")
    assert path == cache / "libsvm" / "a6a"
    assert path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["a6a"]


def test_load_fetches_what_is_not_located(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "ADDRESS", f"{server}/good/")
    assert load("a6a", clients=4).train.features.shape == (40_000, 123)


def test_what_is_cached_is_not_fetched_again(server: str) -> None:
    fetch("a6a", address=f"{server}/good/")
    assert fetch("a6a", address=f"{server}/missing/").read_bytes() == CONTENT


def test_a_corrupt_cached_file_is_replaced(server: str, cache: Path) -> None:
    path = cache / "libsvm" / "a6a"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"corrupt")
    assert fetch("a6a", address=f"{server}/good/").read_bytes() == CONTENT


def test_progress_is_told_the_bytes_received_and_announced(server: str) -> None:
    calls: list[tuple[str, int, int | None]] = []
    fetch("a6a", lambda *call: calls.append(call), address=f"{server}/good/")
    assert calls[-1] == ("a6a", len(CONTENT), len(CONTENT))
    assert [received for _, received, _ in calls] == sorted({received for _, received, _ in calls})


def test_a_wrong_checksum_is_never_used(server: str, cache: Path) -> None:
    with pytest.raises(ScafflixError, match=r"the checksum of what arrived is .* not used"):
        fetch("a6a", address=f"{server}/wrong/")
    assert_cache_is_empty(cache)


def test_a_truncated_body_is_never_used(server: str, cache: Path) -> None:
    with pytest.raises(ScafflixError, match=r"a6a: .*1000.* not used|cannot be fetched"):
        fetch("a6a", address=f"{server}/truncated/")
    assert files_of(cache) == ["a6a.part"]


def test_a_refusal_of_the_server_is_reported_with_its_code(server: str, cache: Path) -> None:
    with pytest.raises(ScafflixError, match=r"the server answers 404 .* set SCAFFLIX_DATA"):
        fetch("a6a", address=f"{server}/missing/")
    assert_cache_is_empty(cache)


@pytest.mark.parametrize("behaviour", ["good", "unannounced"])
def test_a_file_that_is_too_large_is_refused(server: str, cache: Path, behaviour: str) -> None:
    with pytest.raises(ScafflixError, match="more than the 1000 bytes allowed"):
        fetch("a6a", address=f"{server}/{behaviour}/", size_limit=1000)
    assert_cache_is_empty(cache)


@pytest.mark.parametrize("behaviour", REDIRECTIONS)
def test_a_redirection_astray_is_refused(server: str, cache: Path, behaviour: str) -> None:
    with pytest.raises(ScafflixError, match=r"a6a: (the server answers 302|cannot be fetched)"):
        fetch("a6a", address=f"{server}/{quote(behaviour)}/")
    assert_cache_is_empty(cache)
    with warnings.catch_warnings():
        # urllib leaves the connection open on which it was sent to an impossible address
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_a_length_beyond_all_numbers_is_no_announcement(server: str, cache: Path) -> None:
    calls: list[int | None] = []
    path = fetch("a6a", lambda *told: calls.append(told[2]), address=f"{server}/boastful/")
    assert path.read_bytes() == CONTENT
    assert set(calls) == {None}


def test_a_wrong_file_is_not_even_there_for_a_moment(
    server: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    whole = download.digest

    def look(path: Path) -> str:
        seen.append(files_of(cache))
        return whole(path)

    monkeypatch.setattr(download, "digest", look)
    with pytest.raises(ScafflixError, match="checksum"):
        fetch("a6a", address=f"{server}/wrong/")
    assert seen == [["a6a.part"]]
    assert_cache_is_empty(cache)


def test_a_server_that_says_nothing_is_given_up(server: str, cache: Path) -> None:
    with pytest.raises(ScafflixError, match=r"cannot be fetched \(.*timed out\)"):
        fetch("a6a", address=f"{server}/silent/", timeout=0.1)
    assert_cache_is_empty(cache)


def test_being_offline_says_what_to_do(cache: Path) -> None:
    with socket.socket() as closed:  # a port that nothing listens on
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        with pytest.raises(
            ScafflixError,
            match=r"set SCAFFLIX_DATA .* or run `scafflix data fetch a6a` when online",
        ):
            fetch("a6a", address=address)
    assert_cache_is_empty(cache)


def test_a_cache_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SCAFFLIX_CACHE", str(tmp_path / "file"))
    with pytest.raises(ScafflixError, match=r"cannot be written .*; set SCAFFLIX_CACHE"):
        fetch("a6a", address="http://127.0.0.1:9/")


def test_an_interrupted_download_leaves_what_the_next_one_goes_on_with(
    server: str, cache: Path
) -> None:
    def interrupt(file: str, received: int, announced: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("a6a", interrupt, address=f"{server}/good/")
    assert files_of(cache) == ["a6a.part"]
    start = (cache / "libsvm" / "a6a.part").stat().st_size
    RANGES.clear()
    assert fetch("a6a", address=f"{server}/good/").read_bytes() == CONTENT
    assert [f"bytes={start}-"] == RANGES
    assert files_of(cache) == ["a6a"]


def test_a_cut_connection_is_resumed_again_and_again(server: str) -> None:
    for size in (1000, 2000, 3000):
        with pytest.raises(ScafflixError, match=rf"ended after {size} of {len(CONTENT)} bytes"):
            fetch("a6a", address=f"{server}/truncated/")
    calls: list[int] = []
    fetch("a6a", lambda _, received, total: calls.append(received), address=f"{server}/good/")
    assert (min(calls) > 3000, calls[-1]) == (True, len(CONTENT))


@pytest.mark.parametrize(
    ("behaviour", "part"),
    [
        ("rangeless", b"something else"),
        ("confused", b"something else"),
        ("good", b"x" * len(CONTENT)),
        ("good", b"x" * 20_000_000),
    ],
)
def test_a_part_that_the_server_does_not_continue_is_dropped(
    server: str, cache: Path, behaviour: str, part: bytes
) -> None:
    path = cache / "libsvm" / "a6a.part"
    path.parent.mkdir(parents=True)
    path.write_bytes(part)
    assert fetch("a6a", address=f"{server}/{behaviour}/").read_bytes() == CONTENT
    assert files_of(cache) == ["a6a"]


def test_a_wrong_part_is_found_out_and_dropped(server: str, cache: Path) -> None:
    path = cache / "libsvm" / "a6a.part"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"something else")
    with pytest.raises(ScafflixError, match=r"the checksum of what arrived is .* not used"):
        fetch("a6a", address=f"{server}/good/")
    assert_cache_is_empty(cache)


def test_a_file_that_another_process_fetches_is_left_to_it(server: str, cache: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    path = cache / "libsvm" / "a6a.part"
    path.parent.mkdir(parents=True)
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ScafflixError, match="another process is fetching a6a"):
            fetch("a6a", address=f"{server}/good/")
    assert fetch("a6a", address=f"{server}/good/").read_bytes() == CONTENT


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Shakespeare in two files, each one snippet of one client."""
    contents = {}
    for part in ("train", "test"):
        path = tmp_path / f"shakespeare_{part}.sqlite"
        snippets = msgpack.packb(((1,), [part.encode() * 2000]))
        data = zlib.compress(msgpack.packb({"snippets": msgpack.ExtType(4, snippets)}))
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE federated_data (client_id, data, num_examples)")
            connection.execute("INSERT INTO federated_data VALUES (?, ?, 1)", [b"LEAR", data])
        contents[f"shakespeare/{path.name}"] = path.read_bytes()
    for name, content in contents.items():
        monkeypatch.setitem(FILES, name, content)
    return contents


@pytest.mark.parametrize("behaviour", ["good", "stated", "unannounced"])
def test_both_files_of_a_release_land_in_the_cache(
    server: str, cache: Path, release: dict[str, bytes], behaviour: str
) -> None:
    folder = fetch("shakespeare", address=f"{server}/{behaviour}/")
    assert folder == cache / "shakespeare" == locate("shakespeare")
    for name, content in release.items():
        assert (cache / name).read_bytes() == content
    assert len(files_of(cache)) == 4  # the two files and their checksums
    fed = load("shakespeare")
    assert fed.test is not None
    assert fed.clients == ("LEAR",)
    assert (fed.train.counts.tolist(), fed.test.counts.tolist()) == ([126], [101])


def test_load_fetches_a_release_once(
    server: str, release: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "FEDJAX_ADDRESS", f"{server}/good/")
    RANGES.clear()
    assert load("shakespeare").clients == load("shakespeare").clients
    assert len(RANGES) == 2


def test_only_the_missing_file_of_a_release_is_fetched(
    server: str, cache: Path, release: dict[str, bytes]
) -> None:
    fetch("shakespeare", address=f"{server}/good/")
    (cache / "shakespeare" / "shakespeare_test.sqlite").unlink()
    assert locate("shakespeare") is None
    RANGES.clear()
    fetch("shakespeare", address=f"{server}/good/")
    assert len(RANGES) == 1


def test_a_sum_that_the_server_states_must_be_right(
    server: str, cache: Path, release: dict[str, bytes]
) -> None:
    with pytest.raises(ScafflixError, match=r"the checksum of what arrived is .* not used"):
        fetch("shakespeare", address=f"{server}/misstated/")
    assert_cache_is_empty(cache)


@pytest.mark.parametrize("content", [b"<html>Please log in</html>", b""])
def test_what_is_no_release_is_never_used(
    server: str,
    cache: Path,
    release: dict[str, bytes],
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FILES, "shakespeare/shakespeare_train.sqlite", content)
    with pytest.raises(ScafflixError, match="what arrived is not a SQLite release"):
        fetch("shakespeare", address=f"{server}/good/")
    assert_cache_is_empty(cache)


def test_a_cached_release_that_changed_is_not_used(
    server: str, cache: Path, release: dict[str, bytes]
) -> None:
    fetch("shakespeare", address=f"{server}/good/")
    path = cache / "shakespeare" / "shakespeare_train.sqlite"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ScafflixError, match=r"checksum is wrong, .* fetch shakespeare` replaces"):
        load("shakespeare")
    fetch("shakespeare", address=f"{server}/good/")
    assert path.read_bytes() == release["shakespeare/shakespeare_train.sqlite"]


def test_bundled_data_need_no_fetching() -> None:
    with pytest.raises(ScafflixError, match="iris comes with scikit-learn"):
        fetch("iris")
