"""The preprocessing of a table as a fitted scikit-learn `ColumnTransformer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.extras import library
from scafflix.data.identity import client_name
from scafflix.data.preprocessing import LACKED, Column, Preprocessing
from scafflix.data.values import MILLISECONDS, missing_marks
from scafflix.export.made_up import made_up_table


def column_encoder(made: Preprocessing) -> Any:
    """From the columns of a pandas frame to features that are not yet scaled, in their order."""
    from sklearn.compose import ColumnTransformer

    library("pandas", "pandas")
    steps = []
    for number, column in enumerate(made.columns, start=1):
        title = f"column {number}"
        steps.append((title, _encoder(column, made), [column.name]))
        if column.flagged:
            steps.append((f"{title}{LACKED}", _indicator(column, made), [column.name]))
    encoder = ColumnTransformer(steps, sparse_threshold=0, verbose_feature_names_out=False)
    # everything that could be learned is given; this only makes it count as fitted
    return encoder.fit(made_up_table(made).to_pandas())


def numbers(frame: Any, marks: Sequence[float] = ()) -> NDArray[np.float64]:
    """Numbers and booleans of a frame's columns, NaN where they are missing."""
    values = np.array(frame.to_numpy(np.float64, na_value=np.nan))
    values[np.isin(values, marks)] = np.nan
    return values


def days(frame: Any, marks: Sequence[float] = ()) -> NDArray[np.float64]:
    """Days since 1970, NaN where they are missing."""
    import pandas

    found = [pandas.to_datetime(frame[name], utc=True) for name in frame]
    since = [one.dt.tz_localize(None).to_numpy("datetime64[ms]") for one in found]
    values = np.stack(since, axis=1)
    made = np.where(np.isnat(values), np.nan, values.astype(np.float64) / MILLISECONDS)
    made[np.isin(made, marks)] = np.nan
    return made


def texts(frame: Any, marks: Sequence[str] = (), refuse: bool = False) -> NDArray[np.object_]:
    """Texts, or codes as texts; NaN where they are missing, which may be refused."""
    missing = frame.isna().to_numpy()
    values = np.array(frame.to_numpy(object))
    for place in np.ndindex(values.shape):
        word = "" if missing[place] else client_name(values[place])
        lacks = word in ("", *marks)
        values[place] = np.nan if lacks else word
        if refuse and lacks:
            raise ValueError(f"column {frame.columns[place[1]]!r} has a missing value")
    return values


def _reader(column: Column, made: Preprocessing) -> Any:
    from sklearn.preprocessing import FunctionTransformer

    read = {"date": days, "text": texts, "code": texts}.get(column.kind, numbers)
    options: dict[str, Any] = {"marks": missing_marks(column.kind, made.missing_as)}
    if read is texts and column.fill is None:
        options["refuse"] = True
    return FunctionTransformer(read, kw_args=options, feature_names_out="one-to-one")


def _encoder(column: Column, made: Preprocessing) -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    parts = [_reader(column, made)]
    if column.fill is not None:
        parts.append(SimpleImputer(strategy="constant", fill_value=column.fill))
    if column.kind in ("text", "code"):
        parts.append(
            OneHotEncoder(
                categories=[np.array(column.categories, object)],
                handle_unknown="ignore" if made.unknown == "other" else "error",
                sparse_output=False,
            )
        )
    return make_pipeline(*parts)


def _indicator(column: Column, made: Preprocessing) -> Any:
    from sklearn.impute import MissingIndicator
    from sklearn.pipeline import make_pipeline

    return make_pipeline(_reader(column, made), MissingIndicator(features="all"))
