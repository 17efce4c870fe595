"""Models that leave the run: files for other programs, and coefficients for people."""

from typing import TYPE_CHECKING

from scafflix.core.lazy import lazily

if TYPE_CHECKING:
    from scafflix.export.sklearn_json import sklearn_pipeline
else:
    __getattr__ = lazily(__name__, {"sklearn_json": ["sklearn_pipeline"]})

__all__ = ["sklearn_pipeline"]


def __dir__() -> list[str]:
    return [*globals(), *__all__]
