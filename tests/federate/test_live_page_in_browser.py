"""The live page in a real browser, while a run goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from hospitals import LEARNERS, Direct, fresh_roster, make_server, quadratic_hospitals
from playwright.sync_api import Browser, expect, sync_playwright

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from scafflix.federate.certificates import make_certificates
from scafflix.federate.live import Live
from scafflix.federate.page import Address, Page
from scafflix.federate.serving import Failure, serve

HOSTILE = "<img src=x onerror=document.title='mine'>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium: `make browser` installs Debian's")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found)
        yield opened
        opened.close()


class Held(Direct):
    """In round 20, a client fails with words that are a script, and the last one takes its time."""

    def __init__(self, hospitals: Mapping[str, Any]) -> None:
        super().__init__(hospitals)
        self.reached, self.released = Event(), Event()

    def exchange(self, requests: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        for name, reply in super().exchange(dict(sorted(requests.items()))):
            late = getattr(reply, "round", 0) == 20 and not self.released.is_set()
            if late and name == "clinic-1":
                yield name, Failure(HOSTILE)
                continue
            if late and name == "clinic-4":
                self.reached.set()
                assert self.released.wait(30)
            yield name, reply


def test_the_page_follows_a_run_and_runs_nothing_that_clients_say(
    browser: Browser, tmp_path: Path
) -> None:
    hospitals = quadratic_hospitals(tmp_path)
    start = LEARNERS[0].start()
    core = make_server(tmp_path, fresh_roster(hospitals), start, rounds=40, minimum=2)
    held = Held(hospitals)

    def work() -> None:
        with Live(held, core, "job", pause=0.1) as live:
            serve(core, live, live.noting(None))

    complaints: list[str] = []
    requests: list[str] = []
    with Page(tmp_path, Address("127.0.0.1", 0), None, lambda: "") as made:
        made.ready = True
        tab = browser.new_page()
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(made.url)
        made.follow("job", 5)
        expect(tab.locator("#title")).to_have_text("Waiting for 5 nodes")
        thread = Thread(target=work)
        thread.start()
        assert held.reached.wait(120)
        expect(tab.locator("#title")).to_have_text("Round 21 of 40", timeout=30_000)
        expect(tab.locator("#line")).to_contain_text("3 of 5 clients have answered")
        expect(tab.locator("#clients tr").nth(0)).to_contain_text("answered")
        expect(tab.locator("#clients tr").nth(1)).to_contain_text(HOSTILE)
        expect(tab.locator("#clients tr").nth(4)).to_contain_text("working for")
        expect(tab.locator("#track")).to_have_attribute("aria-valuenow", "20")
        assert tab.locator("#loss path").count() == 1
        cards = tab.locator("#cards").inner_text()
        assert "Loss" in cards
        assert "Time left" in cards
        for scheme in ("light", "dark"):
            tab.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            tab.screenshot(path=tmp_path / f"{scheme}.png", full_page=True)
        assert (tmp_path / "light.png").read_bytes() != (tmp_path / "dark.png").read_bytes()
        tab.set_viewport_size({"width": 360, "height": 700})
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        held.released.set()
        thread.join()
        expect(tab.locator("#title")).to_have_text("Finished: 40 rounds", timeout=30_000)
        assert tab.title().startswith("Finished")
    expect(tab.locator("#wrong")).to_contain_text("no longer answers", timeout=30_000)
    assert all(url.startswith(made.url) for url in requests), requests
    silence = [text for text in complaints if "ERR_CONNECTION_REFUSED" not in text]
    assert silence == []
    tab.close()


def test_a_browser_is_asked_for_the_token(browser: Browser, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_certificates(keys, ["127.0.0.1"])
    with Page(tmp_path, Address("0.0.0.0", 0), keys, lambda: "") as made:
        assert made.token is not None
        url = f"https://127.0.0.1:{made.address.port}/"
        for password, seen in ((made.token, "Starting"), ("wrong", "Give the token")):
            context = browser.new_context(
                ignore_https_errors=True,
                http_credentials={"username": "operator", "password": password},
            )
            tab = context.new_page()
            tab.goto(url)
            expect(tab.locator("body")).to_contain_text(seen)
            context.close()
