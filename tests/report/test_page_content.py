"""The page is made of the records' own numbers, and of few enough."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
import typer.testing
from scipy.stats import t as student

from scafflix.cli import app
from scafflix.record import Record
from scafflix.report import page, worth
from scafflix.report.command import command
from scafflix.report.content import content, thin
from scafflix.report.curves import families
from scafflix.report.headline import headline
from scafflix.report.tables import KINDS, to_target
from scafflix.runs import runner
from scafflix.runs.config import RunConfig, plain

MEGABYTES = 1_000_000


def written(records: list[Record], folder: Path, **options: Any) -> str:
    page.write(records, folder / "report.html", "Title", **options)
    return (folder / "report.html").read_text()


def numbers_in(text: str) -> Any:
    packed = re.search(r'<script id="numbers" type="text/plain">([^<]*)</script>', text)
    assert packed
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))


def test_a_thinned_curve_keeps_its_ends_its_spikes_and_no_more_points_than_asked() -> None:
    values = np.exp(-np.arange(10_001) / 500)
    values[[7321, 404]] = 50.0, 1e-9
    kept = thin(values, 400)
    assert {0, 404, 7321, 10_000} <= set(kept.tolist())
    assert len(kept) <= 402
    assert (np.diff(kept) > 0).all()


def test_the_page_counts_rounds_to_a_target_as_the_records_do() -> None:
    found = families(made.convex())
    shown = content(found, 1e-2)
    (problem,) = shown["problems"]
    place = problem["levels"].index(1e-2)
    assert problem["level"] == place
    for family, line in zip(found, shown["lines"], strict=True):
        counts = [record.rounds_to(1e-2) for record in family.records]
        expected = None if None in counts else np.median(counts)
        assert line["to"]["rounds"][place] == expected
        assert line["alpha"] == f"{family.alpha:g}"


def test_curves_end_where_the_runs_ended() -> None:
    for record, line in zip(
        [one for one in made.convex() if one.config["seed"] == 0],
        content(families(made.convex()), None)["lines"],
        strict=True,
    ):
        assert line["x"]["rounds"][-1] == record.metrics["round"][-1]
        bits = record.metrics["bits_up"][-1] + record.metrics["bits_down"][-1]
        assert line["x"]["megabytes"][-1] == pytest.approx(bits / 8e6, rel=1e-4)
        assert line["x"]["seconds"][-1] == pytest.approx(record.summary["seconds"], rel=1e-4)
        assert ("lyapunov_bound" in line["y"]) == (record.config["method"] != "fedavg")


def test_the_rounds_of_a_network_are_those_that_were_looked_at() -> None:
    shown = content(families([made.network()]), None)
    (line,), (problem,) = shown["lines"], shown["problems"]
    assert line["x"]["rounds"] == [0, 2, 4, 6]
    assert None not in line["y"]["test_personal"][0]
    assert problem["judged"] == "test_personal"


def test_runs_that_differ_in_more_than_the_seed_are_different_lines() -> None:
    records = [made.numbers(seed=seed, p=p) for seed in (0, 1) for p in (0.1, 0.3)]
    found = families(records)
    assert [(family.method, len(family.records)) for family in found] == [
        ("scafflix, p 0.1", 2),
        ("scafflix, p 0.3", 2),
    ]


def test_problems_that_share_their_data_are_told_apart() -> None:
    found = families([made.numbers(l2=0.1), made.numbers(l2=0.2), made.numbers(data="others")])
    assert [family.data for family in found] == ["writers, l2 0.1", "writers, l2 0.2", "others"]


def test_seeds_of_unequal_length_are_compared_as_far_as_both_go() -> None:
    long, short = made.numbers(seed=0), made.numbers(seed=1)
    short = replace(short, metrics={k: v[:21] for k, v in short.metrics.items()})
    (family,) = families([long, short])
    assert family.band("objective_gap")[0].shape == (21,)


def test_what_all_lines_know_of_the_clients_is_written_once() -> None:
    records = [made.numbers(alpha=alpha) for alpha in (0.2, 0.7)]
    shown = content(families(records), None)
    assert {"client", "L", "test_local"} <= shown["problems"][0]["clients"].keys()
    for line in shown["lines"]:
        assert line["clients"].keys() == {"alpha", "gamma", "test_global", "test_personal"}


def test_a_page_of_many_clients_and_rounds_stays_small(tmp_path: Path) -> None:
    methods = ("scafflix", "gd", "fedavg", "nesterov")
    records = [
        made.numbers(method, alpha, clients=3400, rounds=10_000)
        for method in methods
        for alpha in (1.0, 0.5, 0.1)
    ]
    text = written(records, tmp_path, target=1e-3)
    assert len(text) < 5 * MEGABYTES
    assert len(numbers_in(text)["lines"][0]["clients"]["gamma"]) == 3400


def test_a_page_of_very_many_lines_leaves_out_clients_before_it_grows(tmp_path: Path) -> None:
    records = [
        made.numbers(alpha=alpha, clients=3400, rounds=200) for alpha in np.linspace(0.01, 1, 80)
    ]
    text = written(records, tmp_path)
    assert len(text) < 8 * MEGABYTES
    lines = numbers_in(text)["lines"]
    assert lines[0]["clients"] is not None
    assert lines[-1]["clients"] is None


def test_the_page_holds_the_curves_that_clients_chose_alpha_by() -> None:
    record = made.chosen()
    (line,) = content(families([record]), None)["lines"]
    curves = line["curves"]
    assert curves["own"][0] == [None] * len(curves["alpha"])
    n, gains = record.clients["train_examples"], record.clients["expected_gain"]
    for k in range(1, len(gains)):
        own, error, expected = (curves[name][k] for name in ("own", "error", "expected"))
        assert own[0] == expected[0] == 0
        # the least of the blended curve where its own evidence is sure of no harm
        sure = student(n[k] - 1).ppf(0.95)
        cells = zip(own, error, expected, strict=True)
        harmless = [e for o, wide, e in cells if o <= sure * wide]
        assert min(harmless) == pytest.approx(-gains[k], rel=1e-4)
    assert curves["error"][0] == [None] * len(curves["alpha"])
    assert line["chosen"]["rule"] == "loo"
    assert line["alone"]["personal"]["hurt"] == record.summary["taking_part"]["personal"]["hurt"]


def test_a_page_keeps_the_curves_of_the_first_few_hundred_clients(tmp_path: Path) -> None:
    text = written([made.chosen(clients=3400)], tmp_path)
    (line,) = numbers_in(text)["lines"]
    assert len(line["curves"]["own"]) == len(line["curves"]["expected"]) == 300
    without = written([made.numbers(clients=3400)], tmp_path)
    assert len(text) - len(without) < 0.3 * MEGABYTES


def test_a_run_whose_alpha_was_given_has_no_curves(tmp_path: Path) -> None:
    record = made.numbers()
    (line,) = content(families([record]), None)["lines"]
    assert line["curves"] is line["chosen"] is line["alone"] is None
    assert worth.chosen([record]) is worth.worse_off([record]) is None
    assert not [card for card in headline(families([record])) if "loss" in card.title]


def test_those_worse_off_than_alone_are_counted_by_their_loss() -> None:
    for record in (made.chosen(), made.convex()[0]):
        losses = {kind: record.clients[f"test_loss_{kind}"] for kind in KINDS}
        worse = {kind: losses[kind] > losses["local"] for kind in ("personal", "global")}
        table = worth.worse_off([record])
        assert table is not None
        for cell, kind in zip(table.rows[0][2:], worse, strict=True):
            assert cell.startswith(f"{worse[kind].sum()} of {len(worse[kind])} (")
            if worse[kind].any():
                harm = (losses[kind] - losses["local"])[worse[kind]].mean()
                assert cell.endswith(f"{100 * worse[kind].mean():.0f} %), by {harm:.3g}")
        cards = {card.title: card.value for card in headline(families([record]))}
        count = f"{worse['personal'].sum()} of {len(losses['local'])}"
        assert cards["Worse off than alone, by test loss"] == count


class Addresses(HTMLParser):
    """Every attribute that could make a browser fetch something, and every element."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "data")]


def test_a_page_fetches_nothing_and_reads_no_name_as_html(tmp_path: Path) -> None:
    record = made.numbers(data="<img src=http://evil>", split="</script><b>")
    names = np.array(["</script><script>alert(1)</script>"] * 30)
    record = replace(record, clients={**record.clients, "client": names})
    text = written([record], tmp_path)
    parser = Addresses()
    parser.feed(text)
    assert all(address.startswith(("#", "data:")) for address in parser.found)
    assert "img" not in parser.tags
    assert parser.tags.count("script") == 3
    assert numbers_in(text)["problems"][0]["clients"]["client"][0] == names[0]


def test_the_same_records_make_the_same_page(tmp_path: Path) -> None:
    assert written([made.numbers()], tmp_path) == written([made.numbers()], tmp_path)


def test_headlines_are_counted_from_the_records() -> None:
    found = families(made.convex())
    cards = {card.title: card for card in headline(found, 1e-2)}
    counts = [family.rounds_to(1e-2) for family in found]
    least = min(count for count in counts if count is not None)
    assert cards["Fewest rounds to a gap of 0.01"].value == f"{least:g}"
    assert cards["Theorem’s bound held in"].value.endswith("of 4 runs")
    best = max(found, key=lambda family: family.scores("test", "personal").mean())
    gain = best.scores("test", "personal") - best.scores("test", "local")
    assert cards["Clients that gain by taking part"].value == f"{(gain > 0).sum()} of {len(gain)}"


def test_a_run_in_a_federation_has_its_own_headlines(tmp_path: Path) -> None:
    record = made.deployment()
    titles = [card.title for card in headline(families([record]))]
    assert titles == ["Communication", "Computing", "Objective at the end"]
    assert "21.5 s" in written([record], tmp_path)


@pytest.mark.parametrize(
    "asked",
    [
        {"alpha": 0.25, "p": 0.5, "intercept": True, "l2": 0.0, "method": "gd", "seed": 7},
        {"split": "column:who is it", "clients": 3, "stepsize": "common", "noise": 0.5},
    ],
)
def test_the_command_of_a_run_asks_for_the_same_again(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[RunConfig] = []

    def execute(config: RunConfig, *_: Any, **__: Any) -> Record:
        seen.append(config)
        return made.numbers()

    monkeypatch.setattr(runner, "execute", execute)
    monkeypatch.chdir(tmp_path)
    config = RunConfig(**{"data": "some where.csv", **asked})
    words = command(plain(config))
    assert words is not None
    done = typer.testing.CliRunner().invoke(app, shlex.split(words)[1:])
    assert seen == [config], done.exception


def test_a_run_from_python_has_no_command() -> None:
    assert command({"data": "arrays", "method": "gd", "alpha": 1.0, "seed": 0}) is None
    assert command(made.deployment().config) == "scafflix deploy local --config config.toml"
    per_client = {**made.numbers().config, "alpha": [0.1, 0.2]}
    assert command(per_client) == "scafflix run config.toml"


def test_a_gap_is_not_held_against_methods_whose_clients_have_models_of_their_own() -> None:
    records = made.own_models()
    found = families(records)
    label = content(found, None)["problems"][0]["metrics"]["objective_gap"]
    assert label == "objective gap of the global model"
    assert [card.note.split(",")[0] for card in headline(found, None)[:1]] == ["fedavg"]
    assert [row[2] for row in to_target(records, 1e-9).rows] == ["own models", "not reached"]
    assert "models of their own" in records[0].summary["no_certificate"]
