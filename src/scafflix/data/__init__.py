"""From files and arrays to a Federation: who has what.

>>> import scafflix.data
>>> fed = scafflix.data.load("iris", clients=3, split="dirichlet:0.5")
>>> fed.train.features.shape, len(fed.clients)
((150, 4), 3)
"""

from typing import TYPE_CHECKING

from scafflix.core.lazy import lazily

if TYPE_CHECKING:
    from scafflix.data.arrays import from_arrays, from_clients
    from scafflix.data.catalogue import Entry, known, locate
    from scafflix.data.description import Description, describe
    from scafflix.data.download import fetch
    from scafflix.data.federation import Examples, Federation
    from scafflix.data.huggingface import from_huggingface
    from scafflix.data.loading import load
    from scafflix.data.pytorch import from_torch
    from scafflix.data.synthesis import synthetic
    from scafflix.data.tables import from_table
else:
    __getattr__ = lazily(
        __name__,
        {
            "arrays": ["from_arrays", "from_clients"],
            "catalogue": ["Entry", "known", "locate"],
            "description": ["Description", "describe"],
            "download": ["fetch"],
            "federation": ["Examples", "Federation"],
            "huggingface": ["from_huggingface"],
            "loading": ["load"],
            "pytorch": ["from_torch"],
            "synthesis": ["synthetic"],
            "tables": ["from_table"],
        },
    )

__all__ = [
    "Description",
    "Entry",
    "Examples",
    "Federation",
    "describe",
    "fetch",
    "from_arrays",
    "from_clients",
    "from_huggingface",
    "from_table",
    "from_torch",
    "known",
    "load",
    "locate",
    "synthetic",
]


def __dir__() -> list[str]:
    return [*globals(), *__all__]
