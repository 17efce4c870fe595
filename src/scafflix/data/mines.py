"""The published LandmineData.mat: 29 fields, 9 features of a radar image; a label is 1 for a mine
and 0 for clutter.

Only this very file is read, told by its checksum: SciPy's reader of MATLAB files crashes on damaged
ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scafflix.core.errors import ScafflixError
from scafflix.data.catalogue import digest
from scafflix.data.parts import Parts

SHA256 = "2163ab20a80e33a8b65593c48cf283c540599dcb291105e63fa4af2ce24c2bea"


def read_mines(path: Path) -> Parts:
    """The fields of the file, ``field-1`` and so on; it has no test part."""
    if digest(path) != SHA256:
        raise ScafflixError(
            f"{path}: is not the published LandmineData.mat, the only MATLAB file that is read; "
            "convert yours to .npz or .csv."
        )
    from scipy.io import loadmat

    found = loadmat(path, variable_names=("feature", "label"))
    pairs = zip(found["feature"].ravel(), found["label"].ravel(), strict=True)
    return Parts(
        {
            f"field-{number}": (features.astype(np.float64), labels.ravel().astype(int))
            for number, (features, labels) in enumerate(pairs, start=1)
        }
    )
