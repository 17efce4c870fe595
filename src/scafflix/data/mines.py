"""Fields of land mines in one MATLAB file, as LandmineData.mat: cell arrays ``feature`` and
``label`` with an entry for each field; a label is 1 for a mine and 0 for clutter."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scafflix.core.errors import ScafflixError
from scafflix.data.admission import admit_features, admit_labels
from scafflix.data.federation import Features, Labels
from scafflix.data.parts import Budget, Parts

SIZE_LIMIT = 2**24
"""The most bytes of such a file; the published one has 1.1 million."""


def read_mines(path: Path) -> Parts:
    """The fields of the file, ``field-1`` and so on; it has no test part."""
    from scipy.io import loadmat

    budget = Budget(path)
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise ScafflixError(f"{path}: has more than {SIZE_LIMIT} bytes; it is another file.")
        found = loadmat(path, variable_names=("feature", "label"))
        features, labels = (np.ravel(found[name]) for name in ("feature", "label"))
    except ScafflixError:
        raise
    except OSError as error:
        raise ScafflixError(f"{path}: cannot be read ({error.strerror}).") from error
    except Exception as error:  # MATLAB's format has many ways to be broken
        raise ScafflixError(
            f"{path}: is no MATLAB file with cell arrays 'feature' and 'label' "
            f"({type(error).__name__})."
        ) from error
    if features.dtype != object or labels.dtype != object or len(features) != len(labels):
        raise ScafflixError(f"{path}: 'feature' and 'label' must be cell arrays of equal length.")
    fields: dict[str, tuple[Features, Labels]] = {}
    for number, (matrix, column) in enumerate(zip(features, labels, strict=True), start=1):
        where = f"{path}, field {number}"
        budget.spend(matrix.nbytes)
        admitted = admit_features(matrix, where)
        fields[f"field-{number}"] = (
            admitted,
            admit_labels(np.ravel(column), admitted.shape[0], where).astype(int),
        )
    return Parts(fields)
