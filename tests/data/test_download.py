"""A real server on the loopback address answers; nothing leaves the machine."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scafflix.data import download, fetch, load
from scafflix.data.catalogue import CATALOGUE
from scafflix.errors import ScafflixError

CONTENT = b"+1 1:1 3:2\n-1 2:1\n" * 20_000


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        behaviour, _, name = self.path.strip("/").partition("/")
        assert name == "a6a"
        if behaviour == "missing":
            self.send_error(404)
            return
        if behaviour == "silent":
            threading.Event().wait(1.0)
            return
        self.send_response(200)
        if behaviour != "unannounced":
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        match behaviour:
            case "wrong":
                self.wfile.write(CONTENT[:-2] + b"9\n")
            case "truncated":
                self.wfile.write(CONTENT[:1000])
            case _:
                self.wfile.write(CONTENT)

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
    small = replace(CATALOGUE["a6a"], sha256=sha256(CONTENT).hexdigest())
    monkeypatch.setitem(CATALOGUE, "a6a", small)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def assert_cache_is_empty(cache: Path) -> None:
    assert [path for path in cache.rglob("*") if path.is_file()] == []


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
    calls: list[tuple[int, int | None]] = []
    fetch("a6a", lambda *call: calls.append(call), address=f"{server}/good/")
    assert calls[-1] == (len(CONTENT), len(CONTENT))
    assert [received for received, _ in calls] == sorted({received for received, _ in calls})


def test_a_wrong_checksum_is_never_used(server: str, cache: Path) -> None:
    with pytest.raises(ScafflixError, match=r"the checksum of what arrived is .* not used"):
        fetch("a6a", address=f"{server}/wrong/")
    assert_cache_is_empty(cache)


def test_a_truncated_body_is_never_used(server: str, cache: Path) -> None:
    with pytest.raises(ScafflixError, match=r"a6a: .*1000.* not used|cannot be fetched"):
        fetch("a6a", address=f"{server}/truncated/")
    assert_cache_is_empty(cache)


def test_a_refusal_of_the_server_is_reported_with_its_code(server: str, cache: Path) -> None:
    with pytest.raises(ScafflixError, match=r"the server answers 404 .* set SCAFFLIX_DATA"):
        fetch("a6a", address=f"{server}/missing/")
    assert_cache_is_empty(cache)


@pytest.mark.parametrize("behaviour", ["good", "unannounced"])
def test_a_file_that_is_too_large_is_refused(server: str, cache: Path, behaviour: str) -> None:
    with pytest.raises(ScafflixError, match="more than the 1000 bytes allowed"):
        fetch("a6a", address=f"{server}/{behaviour}/", size_limit=1000)
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


def test_an_interrupted_download_leaves_nothing_behind(server: str, cache: Path) -> None:
    def interrupt(received: int, announced: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("a6a", interrupt, address=f"{server}/good/")
    assert_cache_is_empty(cache)


def test_bundled_data_need_no_fetching() -> None:
    with pytest.raises(ScafflixError, match="iris comes with scikit-learn"):
        fetch("iris")
