"""Coefficients in the units of the columns: whoever adds them up by hand finds our answers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from exported import FRAME, of_arrays, of_table
from scipy.special import expit, softmax

from scafflix.core.errors import ScafflixError
from scafflix.export.coefficients import coefficients
from scafflix.export.made_up import made_up_rows

DAYS = (FRAME.seen - pd.Timestamp(0)).dt.total_seconds() / 86400
BY_HAND = pd.DataFrame(  # numbers as numbers, dates in days, codes as text, NaN where missing
    {
        "age": FRAME.age.replace(-9, np.nan),
        "smokes": FRAME.smokes.map({True: 1.0, False: 0.0}),
        "seen": DAYS,
        "kind of pain": FRAME["kind of pain"].replace("?", None),
        "ward": FRAME.ward.map(lambda one: None if one != one else f"{one:g}"),
    }
)


def added_up(table: pd.DataFrame, coefficient: str) -> list[float]:
    """As a reader of the table does it: row by row, with its words."""
    sums = []
    for _, patient in BY_HAND.iterrows():
        total = 0.0
        for _, row in table.iterrows():
            if row.column == "intercept":
                total += row[coefficient]
                continue
            given = patient[row.column.removesuffix(" is missing")]
            lacks = pd.isna(given)
            if row.column.endswith(" is missing"):
                total += row[coefficient] * lacks
            elif row["value"] in ("", "per day", "true"):
                total += row[coefficient] * float(row["if missing"] if lacks else given)
            else:
                total += row[coefficient] * (
                    (row["if missing"] if lacks else given) == row["value"]
                )
        sums.append(total)
    return sums


def test_log_odds_add_up_by_hand() -> None:
    predictor = of_table("logistic")
    table = coefficients(predictor).to_pandas()
    found = expit(added_up(table, "coefficient of yes"))
    probabilities = predictor(FRAME).probabilities
    assert probabilities is not None
    np.testing.assert_allclose(found, probabilities[:, 1], rtol=1e-9)
    np.testing.assert_allclose(
        np.log(table["odds ratio of yes"][1:]), table["coefficient of yes"][1:], atol=1e-12
    )


def test_numbers_add_up_by_hand() -> None:
    predictor = of_table("linear")
    table = coefficients(predictor).to_pandas()
    np.testing.assert_allclose(added_up(table, "coefficient"), predictor(FRAME).values, rtol=1e-9)


def test_several_classes_add_up_by_hand() -> None:
    predictor = of_table("softmax", intercept=False)
    table = coefficients(predictor).to_pandas()
    z = np.stack([added_up(table, f"coefficient of {name}") for name in "345"], axis=1)
    np.testing.assert_allclose(softmax(z, axis=1), predictor(FRAME).probabilities, rtol=1e-9)


@pytest.mark.parametrize("scaled", [True, False])
def test_features_without_names_are_numbered(scaled: bool) -> None:
    predictor = of_arrays("linear", scaled)
    table = coefficients(predictor).to_pandas()
    assert table.column.tolist() == ["intercept", *(f"feature {k}" for k in range(1, 5))]
    rows = made_up_rows(predictor)
    found = table.coefficient[0] + rows @ table.coefficient[1:].to_numpy()
    np.testing.assert_allclose(found, predictor(rows).values, rtol=1e-9)


def test_a_network_has_no_coefficients() -> None:
    with pytest.raises(ScafflixError, match="The model dense is not linear"):
        coefficients(of_table("dense"))
