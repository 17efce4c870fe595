"""What clients tell of their columns, one by one or together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scafflix.core.errors import ScafflixError
from scafflix.data.arrays import from_arrays
from scafflix.data.summaries import Summary, decide, merge, summary_from
from scafflix.data.table import as_table
from scafflix.data.tabular import TableOptions, read_columns

RANDOM = np.random.default_rng(3)
SITES = {
    name: {
        "age": np.where(RANDOM.random(n) < 0.3, np.nan, RANDOM.normal(50 + 5 * k, 9, n)),
        "kind": RANDOM.choice(["u", "v", "w"][: k + 1], n),
        "flag": RANDOM.random(n) < 0.5,
        "y": RANDOM.integers(0, 2, n),
    }
    for k, (name, n) in enumerate({"a": 40, "b": 25, "c": 3}.items())
}


def told(columns: dict[str, np.ndarray], owners: list[str] | None = None) -> Summary:
    found, rows = read_columns(as_table(columns), TableOptions(label="y"))
    owned = from_arrays(rows.features, rows.labels, 1 if owners is None else owners)
    return found.summary(owned, "standard")


def made_of(summary: Summary, scale: str = "standard") -> dict[str, object]:
    made = decide(
        summary, scale=scale, intercept=True, label="y", missing="fill", missing_as=(),
        unknown="other",
    )  # fmt: skip
    return made.as_dict()


def test_sites_that_tell_alone_decide_as_the_joined_table() -> None:
    joined = {name: np.concatenate([one[name] for one in SITES.values()]) for name in SITES["a"]}
    owners = [name for name, one in SITES.items() for _ in one["y"]]
    together, alone = (
        made_of(told(joined, owners)),
        made_of(merge({n: told(c) for n, c in SITES.items()})),
    )
    for name in ("shift", "divisor"):
        np.testing.assert_allclose(together.pop(name), alone.pop(name), rtol=1e-12)
    assert together == alone


def test_what_is_told_survives_json() -> None:
    summary = told(SITES["a"])
    assert summary_from(json.loads(json.dumps(summary.as_dict()))) == summary


def test_scales_are_those_of_the_rows_after_filling_in() -> None:
    ages = np.array([1.0, 2.0, np.nan, 6.0, np.nan])
    made = made_of(told({"age": ages, "y": np.arange(5)}))
    filled = np.where(np.isnan(ages), 2.0, ages)
    np.testing.assert_allclose(made["shift"], [filled.mean(), 0.4])
    np.testing.assert_allclose(made["divisor"], [filled.std(), np.std([0, 0, 1, 0, 1])])


def test_a_site_without_a_column_is_named() -> None:
    short = {name: values for name, values in SITES["b"].items() if name != "age"}
    with pytest.raises(ScafflixError, match="Client 'b' has no column 'age', which 'a' has"):
        merge({"a": told(SITES["a"]), "b": told(short)})


def test_a_site_with_another_type_is_named() -> None:
    other = {**SITES["b"], "age": np.array(["old"] * 25)}
    with pytest.raises(ScafflixError, match=r"'age' holds numbers at client 'a' and text at .*'b'"):
        merge({"a": told(SITES["a"]), "b": told(other)})


def test_a_site_that_lacks_every_value_fits_any_type() -> None:
    empty = {**SITES["b"], "kind": np.array([None] * 25, object)}
    assert merge({"a": told(SITES["a"]), "b": told(empty)}).columns["kind"].kind == "text"


def test_booleans_at_one_site_are_numbers_at_another() -> None:
    other = {**SITES["b"], "flag": SITES["b"]["flag"].astype(float)}
    assert merge({"a": told(SITES["a"]), "b": told(other)}).columns["flag"].kind == "number"


def test_too_many_texts_look_like_an_identifier() -> None:
    names = np.array([f"n{i}" for i in range(101)])
    with pytest.raises(ScafflixError, match=r"'who' has 101 distinct values, .*an identifier"):
        made_of(told({"who": names, "y": np.arange(101)}))


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 0},
        {"columns": []},
        {"columns": [{"name": "a", "kind": "picture", "present": 1, "counts": {},
                      "quantiles": [], "weights": []}]},
        {"columns": [{"name": "a", "kind": "number", "present": 1, "counts": {},
                      "quantiles": [1.0], "weights": []}]},
        {"columns": [{"name": "a", "kind": "text", "present": 1, "counts": {"x": -1},
                      "quantiles": [], "weights": []}]},
    ],
)  # fmt: skip
def test_unfit_words_are_refused(change: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        summary_from({**told(SITES["a"]).as_dict(), **change})


def test_the_median_is_within_a_quantile_of_the_exact_one(tmp_path: Path) -> None:
    values = {name: RANDOM.gamma(1 + k, 5, 200) for k, name in enumerate("abcd")}
    sites = {n: told({"v": np.append(v, np.nan), "y": np.arange(201)}) for n, v in values.items()}
    fill = made_of(merge(sites))["columns"][0]["fill"]  # type: ignore[index]
    together = np.concatenate(list(values.values()))
    assert abs(np.mean(together < fill) - 0.5) < 1 / 33
