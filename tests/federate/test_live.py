"""What is told of a run while it goes on: the file, the page, the figures; and to whom."""

from __future__ import annotations

import base64
import json
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hospitals import (
    LEARNERS,
    Direct,
    Hospital,
    fresh_roster,
    make_server,
    quadratic_hospitals,
    quick_folder,
)

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from prometheus_client.parser import text_string_to_metric_families

from scafflix import ScafflixError
from scafflix.federate.certificates import make_certificates
from scafflix.federate.connection import Link
from scafflix.federate.live import FILE, Live, read_live
from scafflix.federate.page import Address, Page, token_in
from scafflix.federate.server import ServerCore
from scafflix.federate.serving import Failure, serve


class Absent(Direct):
    """One client's node is gone, and another sends what is no upload."""

    def exchange(self, requests: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        for name, reply in super().exchange(requests):
            if name == "clinic-1":
                yield name, Failure("its node is <b>gone</b>.")
            elif name == "clinic-2" and hasattr(reply, "weight"):
                yield name, reply._replace(weight=-1.0)
            else:
                yield name, reply


def server(folder: Path, hospitals: Mapping[str, Hospital], **keys: Any) -> ServerCore:
    return make_server(folder, fresh_roster(hospitals), LEARNERS[0].start(), **keys)


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, Any]]:
    """What is told in the end of a run with troubles; its folder is `folder`."""
    with quick_folder() as folder:
        hospitals = quadratic_hospitals(folder)
        core = server(folder, hospitals, rounds=6, minimum=2)
        with Live(Absent(hospitals), core, "job-1", pause=0.0) as live:
            serve(core, live, live.noting(None))
        yield read_live(folder / "server") | {"folder": folder, "core": core}


def test_who_answered_and_what_was_refused_is_told(told: dict[str, Any]) -> None:
    clients = {one["name"]: one for one in told["clients"]}
    assert told["phase"] == "finished"
    assert told["round"] == told["rounds"] == 6
    assert told["replies"] == 18
    assert clients["clinic-0"]["rounds"] == 6
    assert clients["clinic-0"]["answered"] >= clients["clinic-0"]["asked"] > told["began"] - 1
    assert clients["clinic-1"]["answered"] is None
    assert clients["clinic-1"]["said"].startswith("failed: its node")
    assert clients["clinic-2"]["refused"] == 6
    assert told["refusals"] == {"weight": 6}
    assert told["bytes_up"] * 8 == told["core"].tally.bits_up > 0
    assert [row[0] for row in told["loss"]] == [1, 2, 3, 4, 5, 6]
    assert told["loss"][-1][1] == pytest.approx(told["core"].rows()[-1]["loss"])
    assert sum(told["seconds"]["counts"]) == 6
    assert told["seconds_left"] == 0


def test_the_file_is_for_its_owner_alone(told: dict[str, Any]) -> None:
    assert stat.S_IMODE((told["folder"] / "server" / FILE).stat().st_mode) == 0o600


def test_a_run_does_not_notice_that_nobody_can_be_told(tmp_path: Path) -> None:
    hospitals = quadratic_hospitals(tmp_path)
    core = server(tmp_path, hospitals, rounds=3)
    live = Live(Direct(hospitals), core)
    live.path = tmp_path / "absent" / FILE  # as on a full disk
    with live:
        serve(core, live, live.noting(None))
    assert core.round == 3
    assert read_live(tmp_path / "server") == {}


def test_rounds_of_before_a_restart_are_told_too(tmp_path: Path) -> None:
    hospitals = quadratic_hospitals(tmp_path)
    roster = fresh_roster(hospitals)
    for rounds in (2, 5):
        core = make_server(tmp_path, roster, LEARNERS[0].start(), rounds=rounds)
        with Live(Direct(hospitals), core) as live:
            serve(core, live, live.noting(None))
    found = read_live(tmp_path / "server")
    assert [row[0] for row in found["loss"]] == [1, 2, 3, 4, 5]
    assert found["replies"] == 25
    assert sum(found["seconds"]["counts"]) == 3  # those that this process saw


@contextmanager
def page(folder: Path, health: Callable[[], str] = lambda: "") -> Iterator[Page]:
    with Page(folder, Address("127.0.0.1", 0), None, health) as made:
        yield made


def get(made: Page, path: str, **headers: str) -> tuple[int, str]:
    asked = urllib.request.Request(made.url + path, headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=30) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_figures_are_what_prometheus_reads(told: dict[str, Any]) -> None:
    with page(told["folder"]) as made:
        made.follow("job-1", 5)
        status, text = get(made, "metrics")
    assert status == 200
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["scafflix_rounds_total",] == 6
    assert samples["scafflix_replies_total",] == 18
    assert samples["scafflix_refusals_total", "weight"] == 6
    assert samples["scafflix_failures_total",] >= 6
    assert samples["scafflix_bytes_total", "up"] == told["bytes_up"]
    assert samples["scafflix_bytes_total", "down"] == told["bytes_down"]
    assert samples["scafflix_clients",] == 5
    assert samples["scafflix_clients_answering",] == 4
    assert samples["scafflix_round_seconds_count",] == 6
    assert samples["scafflix_round_seconds_bucket", "+Inf"] == 6
    assert samples["scafflix_phase", "finished"] == 1
    assert ("scafflix_epsilon",) not in samples


def test_epsilon_is_told_where_the_run_counts_it(tmp_path: Path) -> None:
    hospitals = quadratic_hospitals(tmp_path)
    core = server(tmp_path, hospitals, rounds=2)
    with Live(Direct(hospitals), core, "job-2") as live:
        serve(core, live, live.noting(None))
    journal = tmp_path / "server" / "rounds.jsonl"
    rows = [json.loads(line) | {"epsilon": 0.5} for line in journal.read_text().splitlines()]
    journal.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Live(Direct(hospitals), core, "job-2"):
        pass
    with page(tmp_path) as made:
        made.follow("job-2", 5)
        assert "scafflix_epsilon 0.5" in get(made, "metrics")[1]
        assert made.shown()["epsilon"] == 0.5


def test_what_an_earlier_command_left_is_not_shown(told: dict[str, Any]) -> None:
    with page(told["folder"]) as made:
        assert json.loads(get(made, "live.json")[1]).keys() == {"phase", "nodes", "now"}
        made.ready = True
        made.follow("another", 3)
        shown = json.loads(get(made, "live.json")[1])
        assert (shown["phase"], shown["nodes"]) == ("waiting", 3)
        assert "clients" not in shown


def test_health_says_whether_processes_run_and_nodes_can_connect(tmp_path: Path) -> None:
    wrong = ""
    with page(tmp_path, lambda: wrong) as made:
        assert get(made, "healthz") == (200, "ok\n")
        assert get(made, "readyz")[0] == 503
        made.ready = True
        assert get(made, "readyz")[0] == 200
        wrong = "superlink ended"
        assert get(made, "healthz") == (503, "superlink ended\n")
        assert get(made, "readyz")[0] == 503


def test_another_sites_script_does_not_read_the_page_through_a_name_of_its_own(
    tmp_path: Path,
) -> None:
    with page(tmp_path) as made:
        assert get(made, "live.json", Host="evil.example:8080")[0] == 403
        assert get(made, "live.json", Host=f"localhost:{made.address.port}")[0] == 200


def test_nothing_but_these_pages_is_there_and_nothing_can_be_changed(tmp_path: Path) -> None:
    with page(tmp_path) as made:
        assert get(made, "server/live.json")[0] == 404
        assert get(made, "../page-token")[0] == 404
        asked = urllib.request.Request(made.url, data=b"{}", method="POST")
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(asked, timeout=30)


def test_on_another_address_the_page_takes_tls_and_the_token(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_certificates(keys, ["localhost", "127.0.0.1"])
    context = ssl.create_default_context(cafile=keys / "ca.crt")
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    with Page(tmp_path, Address("0.0.0.0", 0), keys, lambda: "") as made:
        assert made.token is not None
        assert stat.S_IMODE(made.token_file.stat().st_mode) == 0o600
        url = f"https://127.0.0.1:{made.address.port}/"

        def asked(path: str, given: str) -> int:
            headers = {"Authorization": given} if given else {}
            request = urllib.request.Request(url + path, headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=30, context=context) as found:
                    return int(found.status)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code

        def basic(password: str) -> str:
            return "Basic " + base64.b64encode(f"me:{password}".encode()).decode()

        for path in ("", "live.json", "metrics"):
            assert asked(path, "") == 401
            assert asked(path, f"Bearer {made.token[:-1]}") == 401
            assert asked(path, basic("wrong")) == 401
            assert asked(path, "Basic !") == 401
            assert asked(path, f"Bearer {made.token}") == 200
            assert asked(path, basic(made.token)) == 200
        assert asked("healthz", "") == 200


def test_a_page_for_others_needs_tls(tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="needs TLS"):
        Link(tmp_path, 1, page="0.0.0.0:8080")
    assert not (tmp_path / "page-token").exists()


@pytest.mark.parametrize("text", ["8080", "127.0.0.1", "127.0.0.1:http", ":1", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_one_sentence(text: str, tmp_path: Path) -> None:
    with pytest.raises(ScafflixError, match="give HOST:PORT"):
        Link(tmp_path / "out", 1, page=text)
    assert not (tmp_path / "out").exists()


def test_an_address_in_use_is_one_sentence(tmp_path: Path) -> None:
    with (
        page(tmp_path) as made,
        pytest.raises(ScafflixError, match="in use"),
        Page(tmp_path, made.address, None, lambda: ""),
    ):
        pass


def test_a_token_that_others_can_read_or_guess_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    assert token_in(path) == token_in(path)
    path.chmod(0o640)
    with pytest.raises(ScafflixError, match="chmod 600"):
        token_in(path)
    path.chmod(0o600)
    path.write_text("secret\n")
    with pytest.raises(ScafflixError, match="at least 16"):
        token_in(path)
