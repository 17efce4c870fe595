"""The page in a real browser: it opens in silence, its switches switch, its table filters."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from scafflix.record import Record
from scafflix.report import page
from scafflix.report.recommendation import recommendation

SECTIONS = (
    "convergence", "acceleration", "theory", "clients", "alone", "calibration", "alpha",
    "constants", "cost", "optima",
)  # fmt: skip
LOSSES = {"alone", "alpha"}  # shown for records that know the clients' held-out losses
FORECASTS = {"calibration"}  # and for those that know their forecasts


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium: `make browser` installs Debian's")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found)
        yield opened
        opened.close()


class Visit:
    """A page that is open, and everything it complained of or asked the network for."""

    def __init__(self, browser: Browser, file: Path, **options: Any) -> None:
        self.context = browser.new_context(
            **{"viewport": {"width": 1200, "height": 900}, **options}
        )
        self.tab: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(file.as_uri())
        self.tab.wait_for_selector("body[data-ready=true]", timeout=120_000)

    def shown(self) -> list[str]:
        return [name for name in SECTIONS if self.tab.locator(f"#{name}").is_visible()]

    def axis(self, chart: str, which: str) -> dict[str, Any]:
        found = self.tab.evaluate(
            f"(() => {{ const axis = document.getElementById('{chart}').layout.{which};"
            " return { title: axis.title.text, type: axis.type }; })()"
        )
        assert isinstance(found, dict)
        return found

    def curves(self, chart: str) -> Any:
        return self.tab.evaluate(f"document.getElementById('{chart}').data.map((c) => c.y)")

    def rows(self) -> list[str]:
        return self.tab.locator("#client-table tbody tr").all_inner_texts()

    def picture(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        taken = Image.open(io.BytesIO(self.tab.screenshot(full_page=True)))
        return np.asarray(taken.convert("RGB"))


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two problems, three methods, three alphas, two seeds."""
    records = [
        made.numbers(method, alpha, seed, data=data, clients=260)
        for data in ("writers", "speakers")
        for method in ("scafflix", "gd", "own:0.1")
        for alpha in (1.0, 0.5, 0.1)
        for seed in (0, 1)
    ]
    return written(records, tmp_path_factory.mktemp("page"))


def written(records: list[Record], folder: Path) -> Path:
    page.write(records, folder / "report.html", "A comparison", 1e-3)
    return folder / "report.html"


@pytest.fixture(scope="module")
def opened(browser: Browser, comparison: Path) -> Visit:
    return Visit(browser, comparison)


@pytest.fixture
def visit(opened: Visit) -> Iterator[Visit]:
    """One page for all tests that play with it: each sets what it needs, none may cause a word."""
    yield opened
    assert opened.complaints == []


def test_a_comparison_opens_in_silence_with_every_section(visit: Visit) -> None:
    assert visit.shown() == [name for name in SECTIONS if name not in LOSSES | FORECASTS]
    assert all(url.startswith(("file:", "data:")) for url in visit.requests)
    assert visit.tab.locator(".chart .main-svg").count() >= 2 * 11  # two drawings a chart


def test_the_horizontal_axis_switches_between_four_quantities(visit: Visit) -> None:
    titles = set()
    for value in ("rounds", "megabytes", "steps", "seconds"):
        visit.tab.locator(f"#axis label:has(input[value={value}])").click()
        titles.add(visit.axis("convergence-chart", "xaxis")["title"])
    assert len(titles) == 4


def test_both_axes_switch_between_linear_and_logarithmic(visit: Visit) -> None:
    for control, which in (("xscale", "xaxis"), ("yscale", "yaxis")):
        for value in ("linear", "log"):
            visit.tab.locator(f"#{control} label:has(input[value={value}])").click()
            assert visit.axis("convergence-chart", which)["type"] == value


def test_the_target_and_its_unit_change_the_double_acceleration_chart(visit: Visit) -> None:
    before = visit.curves("acceleration-chart")
    visit.tab.select_option("#level", index=0)
    easier = visit.curves("acceleration-chart")
    assert before != easier
    visit.tab.locator("#unit label:has(input[value=megabytes])").click()
    assert visit.axis("acceleration-chart", "yaxis")["title"] == "megabytes to the target"
    assert visit.curves("acceleration-chart") != easier


def test_the_lyapunov_function_is_shown_against_its_bound_or_as_a_ratio(visit: Visit) -> None:
    both = visit.curves("theory-chart")
    assert len(both) == 2 * 9
    visit.tab.locator("#psi label:has(input[value=ratio])").click()
    ratios = visit.curves("theory-chart")
    assert len(ratios) == 9
    np.testing.assert_allclose(ratios[0], 0.75, rtol=1e-3)  # as the records were made


def test_a_method_is_hidden_with_the_keyboard(visit: Visit) -> None:
    before = len(visit.curves("convergence-chart"))
    chip = visit.tab.get_by_role("checkbox", name="gd")
    chip.focus()
    visit.tab.keyboard.press("Space")
    assert not chip.is_checked()
    assert len(visit.curves("convergence-chart")) == before * 2 // 3
    visit.tab.keyboard.press("Space")
    assert len(visit.curves("convergence-chart")) == before


def test_every_control_is_reached_with_the_tab_key(visit: Visit) -> None:
    visit.tab.locator(".skip").focus()
    reached = set()
    for _ in range(80):
        visit.tab.keyboard.press("Tab")
        reached.add(visit.tab.evaluate("document.activeElement.id || document.activeElement.name"))
    assert {"problem", "line", "axis", "xscale", "yscale", "metric", "level", "search"} <= reached


def test_the_table_finds_clients_by_name_and_by_what_they_gain(visit: Visit) -> None:
    assert len(visit.rows()) == 200
    assert "200 of 260" in visit.tab.locator("#table-more").inner_text()
    visit.tab.locator("#more").click()
    assert len(visit.rows()) == 260
    visit.tab.locator("#search").fill("WRITER-001")
    assert len(visit.rows()) == 10
    visit.tab.locator("#who label:has(input[value=lose])").click()
    losers = visit.rows()
    assert 0 < len(losers) < 10
    assert all("-" in row.split("\t")[-1] for row in losers)


def test_the_table_sorts_by_a_column_both_ways(visit: Visit) -> None:
    def examples() -> list[int]:
        return [int(row.split("\t")[1]) for row in visit.rows()]

    visit.tab.locator("#search").fill("")
    visit.tab.locator("#who label:has(input[value=all])").click()
    for expected in ("ascending", "descending"):
        visit.tab.get_by_role("button", name="examples", exact=True).click()
        header = visit.tab.locator("th", has_text="examples").last
        assert header.get_attribute("aria-sort") == expected
        assert examples() == sorted(examples(), reverse=expected == "descending")


def test_another_problem_and_another_run_bring_their_own_numbers(visit: Visit) -> None:
    before = visit.curves("distribution-chart"), visit.curves("gain-chart")
    visit.tab.select_option("#line", index=1)
    assert (visit.curves("distribution-chart"), visit.curves("gain-chart")) != before
    visit.tab.select_option("#problem", index=1)
    assert "--data speakers" in visit.tab.locator("#command").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_the_page_is_drawn_in_light_and_dark_on_wide_and_narrow_windows(
    browser: Browser, comparison: Path, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 900}
    visit = Visit(browser, comparison, viewport=size, color_scheme=scheme)
    picture = visit.picture()
    overflow = visit.tab.evaluate("document.documentElement.scrollWidth")
    visit.context.close()
    assert visit.complaints == []
    assert overflow == width
    assert (picture.mean() > 128) == (scheme == "light")
    # not blank: every stretch of the page has ink, and the method's blue is on it
    stretches = np.array_split(picture.astype(int), 8)
    assert all(stretch.std() > 3 for stretch in stretches)
    blue = {"light": (0, 0x72, 0xB2), "dark": (0x56, 0xB0, 0xEC)}[scheme]
    assert (np.abs(picture.astype(int) - blue).sum(axis=2) < 12).sum() > 300


def test_a_network_shows_what_it_has(browser: Browser, tmp_path: Path) -> None:
    visit = Visit(browser, written([made.network()], tmp_path))
    assert visit.shown() == [
        "convergence",
        "clients",
        "alone",
        "calibration",
        "constants",
        "optima",
    ]
    assert visit.complaints == []
    assert visit.tab.locator("#optima-scores .main-svg").count()
    assert len(visit.rows()) == 5
    visit.context.close()


# made in the test: workers that collect at once would compile the same programs at once
@pytest.mark.parametrize("make", [lambda: made.convex()[0], made.network])
def test_the_page_says_what_the_run_comes_to_and_draws_its_reliability(
    browser: Browser, tmp_path: Path, make: Callable[[], Record]
) -> None:
    record = make()
    visit = Visit(browser, written([record], tmp_path))
    words = visit.tab.locator("#line-words").inner_text()
    for sentence in recommendation(record):
        assert sentence in words
        assert sentence in visit.tab.locator("header").inner_text()
    curves = record.summary["calibration"]
    drawn = visit.curves("calibration-chart")
    for kind, shown in zip(("local", "global", "personal"), drawn, strict=True):
        known = [value for value in curves[kind]["came_true"] if value is not None]
        assert shown == pytest.approx(known, abs=1e-4)
    said = visit.tab.locator("#calibration-words").inner_text()
    errors = [
        float(word) for word in re.findall(r"(?:local|global|personalized) (\S+?)[,.] ", said)
    ]
    known = [curves[kind]["error"] for kind in ("local", "global", "personal")]
    assert errors == pytest.approx(known, rel=1e-3)
    assert visit.complaints == []
    visit.context.close()


def test_a_federation_shows_what_its_server_knows(browser: Browser, tmp_path: Path) -> None:
    visit = Visit(browser, written([made.deployment()], tmp_path))
    assert visit.shown() == ["convergence", "clients", "constants"]
    assert visit.axis("convergence-chart", "yaxis")["title"] == "objective"
    assert "Only the personalized models were scored" in visit.tab.locator("#clients").inner_text()
    assert visit.complaints == []
    visit.context.close()


def test_a_reader_picks_the_client_whose_curve_is_shown(browser: Browser, tmp_path: Path) -> None:
    record = made.chosen(clients=400)
    visit = Visit(browser, written([record, made.numbers(clients=400)], tmp_path))
    visit.tab.select_option("#line", index=0)
    assert set(visit.shown()) >= LOSSES
    assert "the first 300 of 400 clients" in visit.tab.locator("#alpha-controls").inner_text()
    assert "too few examples" in visit.tab.locator("#curve-words").inner_text()
    assert len(visit.curves("curve-chart")) == 2  # no evidence of its own
    visit.tab.select_option("#client", index=7)
    went_by, own, _, (marked,) = visit.curves("curve-chart")
    np.testing.assert_allclose(went_by, record.curves["expected"][7], rtol=1e-4, atol=1e-9)
    assert marked == pytest.approx(-record.clients["expected_gain"][7], rel=1e-3)
    assert own[0] == 0
    assert sum(visit.curves("alphas-chart")[0]) == 400
    assert len(visit.curves("expectations-chart")[0]) == 400
    hurt = sum(value < 0 for value in visit.curves("alone-chart")[0])
    assert hurt == record.summary["taking_part"]["personal"]["hurt"]
    assert f"{hurt} of 400 clients" in visit.tab.locator("#alone-words").inner_text()
    visit.tab.select_option("#line", index=1)
    assert "given, not chosen" in visit.tab.locator("#alpha-words").inner_text()
    assert visit.complaints == []
    visit.context.close()


def test_a_page_of_many_clients_opens(browser: Browser, tmp_path: Path) -> None:
    records = [made.numbers(alpha=a, clients=3400, rounds=10_000) for a in (1.0, 0.5)]
    visit = Visit(browser, written(records, tmp_path))
    assert visit.complaints == []
    assert len(visit.curves("gain-chart")[0]) == 3400
    visit.tab.locator("#search").fill("writer-3399")
    assert len(visit.rows()) == 1
    visit.context.close()
