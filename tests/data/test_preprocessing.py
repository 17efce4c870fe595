"""Columns to features: against scikit-learn's transformers, and rows that nobody expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

import scafflix as sx
from scafflix.data import load
from scafflix.data.preprocessing import Preprocessing, from_dict
from scafflix.data.table import as_table
from scafflix.data.tabular import columns_for

TEXT = """age,colour,constant,when,ok,site,ill
31,red,7,2020-01-01,true,a,no
45,blue,7,2020-01-03,false,b,yes
,red,7,,true,a,yes
?,,7,2020-01-02,true,b,no
52,green,7,2020-02-01,false,a,yes
-9,red,7,2020-01-05,true,b,no
"""


def table(folder: Path, text: str = TEXT) -> Path:
    path = folder / "people.csv"
    path.write_text(text)
    return path


def people(folder: Path, **options: Any) -> sx.data.Federation:
    asked = {"split": "column:site", "label": "ill", "missing_as": ["?", "-9"], **options}
    return load(table(folder), **asked)


def made_by(fed: sx.data.Federation) -> Preprocessing:
    assert fed.preprocessing is not None
    return fed.preprocessing


def test_columns_become_named_features_in_order(tmp_path: Path) -> None:
    assert made_by(people(tmp_path)).names == (
        "age", "age is missing", "colour=blue", "colour=green", "colour=red", "colour is missing",
        "constant", "when", "when is missing", "ok",
    )  # fmt: skip


def test_words_for_missing_values_are_also_found_as_numbers(tmp_path: Path) -> None:
    fed = people(tmp_path, scale="none", intercept=False)
    assert np.sort(fed.train.features[:, 1]).tolist() == [0, 0, 0, 1, 1, 1]


def test_a_missing_number_is_the_median_and_a_missing_text_the_most_frequent(
    tmp_path: Path,
) -> None:
    columns = {column.name: column for column in made_by(people(tmp_path)).columns}
    assert columns["age"].fill == 45
    assert columns["colour"].fill == "red"
    assert columns["constant"].flagged is False


def test_a_date_is_a_number_of_days(tmp_path: Path) -> None:
    fed = people(tmp_path, scale="none", intercept=False)
    days = fed.train.features[:, 7]
    assert days.max() - days.min() == 31


def test_a_constant_column_stays_finite_and_becomes_zero(tmp_path: Path) -> None:
    fed = people(tmp_path)
    place = made_by(fed).names.index("constant")
    assert made_by(fed).divisor[place] == 1
    assert np.abs(fed.train.features[:, place]).max() < 1e-12


@pytest.mark.parametrize("scale", ["standard", "maxabs"])
def test_features_are_those_of_scikit_learn(tmp_path: Path, scale: str) -> None:
    random = np.random.default_rng(0)
    ages = random.normal(50, 10, 200)
    ages[random.random(200) < 0.2] = np.nan
    kinds = random.choice(["u", "v", "w"], 200)
    path = tmp_path / "t.csv"
    lines = [f"{'' if a != a else a},{k},{k2}" for a, k, k2 in zip(ages, kinds, kinds, strict=True)]
    path.write_text("age,kind,y\n" + "\n".join(lines) + "\n")
    fed = load(path, clients=1, scale=scale, intercept=False)
    fill = {column.name: column.fill for column in made_by(fed).columns}["age"]
    imputed = SimpleImputer(strategy="constant", fill_value=fill, add_indicator=True)
    theirs = np.hstack(
        [
            imputed.fit_transform(ages[:, None]),
            OneHotEncoder().fit_transform(kinds[:, None]).todense(),
        ]
    )
    scaler = StandardScaler() if scale == "standard" else MaxAbsScaler()
    np.testing.assert_allclose(fed.train.features, scaler.fit_transform(np.asarray(theirs)))
    share = np.mean(ages[ages == ages] < fill)
    assert abs(share - 0.5) < 0.03  # the median, to the width of a quantile


def test_it_is_made_from_training_rows_alone(tmp_path: Path) -> None:
    rows = [f"{i},{'rare' if i == 0 else 'usual'},{i % 2}" for i in range(40)]
    path = table(tmp_path, "a,c,y\n" + "\n".join(rows) + "\n")
    seeds = {load(path, clients=1, test=0.5, seed=s).dim for s in range(8)}
    assert seeds == {3, 4}  # with and without the rare value among the training rows


def test_an_unknown_text_is_none_of_the_known_or_refused(tmp_path: Path) -> None:
    for unknown in ("other", "refuse"):
        made = made_by(people(tmp_path, unknown=unknown, scale="none", intercept=False))
        new = as_table({"age": [1], "colour": ["pink"], "constant": [7], "when": [None], "ok": [1]})
        if unknown == "other":
            assert made.features(columns_for(made, new))[0, 2:6].tolist() == [0, 0, 0, 0]
        else:
            with pytest.raises(
                sx.ScafflixError, match="row 1: column 'colour' is 'pink', which no"
            ):
                made.features(columns_for(made, new))


def test_missing_values_are_refused_where_so_asked(tmp_path: Path) -> None:
    with pytest.raises(sx.ScafflixError, match="line 4: column 'age' has a missing value"):
        people(tmp_path, missing="refuse")


def test_numbers_that_stand_for_kinds_are_texts(tmp_path: Path) -> None:
    path = table(tmp_path, "a,b,y\n1,2,0\n2.0,3,1\n1,2,0\n")
    fed = load(path, clients=1, categorical=["a"], scale="none", intercept=False)
    assert made_by(fed).names == ("a=1", "a=2", "b")


def test_columns_can_be_dropped(tmp_path: Path) -> None:
    assert "age" not in made_by(people(tmp_path, drop=["age"])).names


def test_a_label_above_a_number_makes_two_classes(tmp_path: Path) -> None:
    fed = load(table(tmp_path, "a,stage\n1,0\n2,1\n3,4\n"), clients=1, label="stage>0")
    assert fed.train.labels.tolist() == ["stage<=0", "stage>0", "stage>0"]


def test_a_folder_of_tables_has_a_client_for_each_file(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "north.csv").write_text("a,y\n1,0\n2,1\n")
    (tmp_path / "sites" / "south.csv").write_text("y,a\n0,1.5\n1,\n")
    fed = load(tmp_path / "sites", scale="none", intercept=False)
    assert fed.clients == ("north", "south")
    assert fed.train.features[:, 0].tolist() == [1, 2, 1.5, 1.5]


def test_a_file_of_a_folder_with_another_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "north.csv").write_text("a,y\n1,0\n")
    (tmp_path / "south.csv").write_text("b,y\n1,0\n")
    with pytest.raises(sx.ScafflixError, match=r"south.csv: there is no column 'a', which .*north"):
        load(tmp_path)


def test_it_survives_json(tmp_path: Path) -> None:
    made = made_by(people(tmp_path))
    again = from_dict(json.loads(json.dumps(made.as_dict())))
    new = as_table(pa.table({"age": [1.5], "colour": ["red"], "constant": [0], "ok": [True],
                             "when": [None]}))  # fmt: skip
    np.testing.assert_array_equal(
        made.features(columns_for(made, new)), again.features(columns_for(again, new))
    )


def _changed(made: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**made, **changes}


def test_damaged_words_are_refused(tmp_path: Path) -> None:
    made = made_by(people(tmp_path)).as_dict()
    for wrong in (
        _changed(made, format=2),
        _changed(made, shift=made["shift"][:-1]),
        _changed(made, divisor=[0.0] * len(made["divisor"])),
        _changed(made, unknown="perhaps"),
        _changed(made, columns=[{**made["columns"][0], "kind": "picture"}, *made["columns"][1:]]),
    ):
        with pytest.raises(ValueError, match="preprocessing"):
            from_dict(wrong)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"drop": ["nothing"]}, "there is no column 'nothing'"),
        ({"categorical": ["nothing"]}, "there is no column 'nothing'"),
        ({"drop": "age"}, "drop is 'age'; give a list"),
        ({"missing": "ignore"}, "missing is 'ignore'"),
        ({"unknown": "ignore"}, "unknown is 'ignore'"),
        ({"label": "ok>1"}, "'ok' holds no numbers"),
    ],
)
def test_an_unfit_option_is_one_sentence(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(sx.ScafflixError, match=says):
        people(tmp_path, **options)


def test_a_column_without_any_value_is_named(tmp_path: Path) -> None:
    with pytest.raises(sx.ScafflixError, match="Column 'a' has no value in any training row"):
        load(table(tmp_path, "a,b,y\n,1,0\n,2,1\n"), clients=1)


def test_options_of_tables_are_refused_for_other_data() -> None:
    with pytest.raises(sx.ScafflixError, match="drop is 'a', but iris is not a table"):
        load("iris", clients=3, drop=["a"])
