"""Encoded images (PNG, JPEG, ...) as arrays of pixels."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.core.extras import library
from scafflix.data.admission import BYTE_LIMIT
from scafflix.data.arrays import by

GREY = ("1", "L", "LA")
COLOURED = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")


def decoded(images: Iterable[bytes | None], rows: int, where: str) -> NDArray[np.uint8]:
    """The pixels, ``[rows, height, width]`` of grey images, ``[rows, height, width, 3]`` of
    coloured ones; all must be alike."""
    pixels: NDArray[np.uint8] | None = None
    for row, content in enumerate(images):
        one = _pixels(content, f"{where}, image {row} (from 0)")
        if pixels is None:
            if rows * one.size > BYTE_LIMIT:
                raise ScafflixError(
                    f"{where}: {rows} images of {by(one.shape)} take more than {BYTE_LIMIT} bytes; "
                    "use fewer or smaller ones."
                )
            pixels = np.empty((rows, *one.shape), np.uint8)
        if one.shape != pixels.shape[1:]:
            raise ScafflixError(
                f"{where}: image {row} (from 0) is {by(one.shape)}, but image 0 is "
                f"{by(pixels.shape[1:])}; give images of one size, all grey or all coloured."
            )
        pixels[row] = one
    assert pixels is not None
    return pixels


def _pixels(content: bytes | None, where: str) -> NDArray[np.uint8]:
    if content is None:
        raise ScafflixError(
            f"{where}: has no bytes, at most a path; save the data set with save_to_disk, which "
            "puts them in."
        )
    image: Any = library("PIL.Image", "huggingface")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", image.DecompressionBombWarning)
            with image.open(io.BytesIO(content)) as opened:
                if opened.mode not in (*GREY, *COLOURED):
                    raise ScafflixError(
                        f"{where}: has pixels of mode {opened.mode}; give 8 bits, grey or RGB."
                    )
                return np.asarray(opened.convert("L" if opened.mode in GREY else "RGB"))
    except ScafflixError:
        raise
    except Exception as error:  # whatever a decoder says of a broken file
        raise ScafflixError(f"{where}: is no image that Pillow can read.") from error
