"""TIFFs of more bands than colours have, as multispectral cameras and satellites make them: three of them are read.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

import logging
import math
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from oneway.common.errors import UserError
from oneway.common.extras import import_extra
from oneway.data.dataset import Bytes
from oneway.data.decode.structure import ManyBands
from oneway.data.image_style import ImageStyle

LOSSLESS = (1, 5, 8, 32773, 32946, 50000)  # by TIFF's numbers: not at all, LZW, deflate, PackBits, deflate, Zstandard
MOST_OF_A_TILE = 2**26  # samples, where an image has fewer: a tile is unpacked as a whole
FIRST = (1, 2, 3)
"""The bands that are used where none are chosen."""


def read_bands(path: Path, file: BinaryIO, found: ManyBands, style: ImageStyle) -> Bytes:
    """H×W×3, as stored: three bands of a file, by default the first; of samples with 16 bits the upper 8 in use."""
    chosen = style.bands or FIRST
    if max(chosen) > found.bands:
        raise UserError(
            f"{path}: has {found.bands} bands, and band {max(chosen)} is asked for (`bands` in dataset.yaml)."
        )
    tifffile = import_extra("tifffile", "bands", f"Reading {path.name}, a TIFF of {found.bands} bands,")
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # what fails is an error of ours, which names the file
    with tifffile.TiffFile(BytesIO(file.read())) as content:
        page = content.pages[0]
        if page.compression not in LOSSLESS:
            raise UserError(f"{path}: compressed by a way that is not read here. Save it with LZW or deflate.")
        if page.dtype not in (np.uint8, np.uint16):
            raise UserError(
                f"{path}: samples of kind {page.dtype} have no agreed range. Save it with 8 or 16 bits per sample."
            )
        announced = found.height * found.width * found.bands
        if page.size != announced or math.prod(page.chunks) > max(announced, MOST_OF_A_TILE):
            raise ValueError("its header announces other pixels, or larger tiles, than it can have")
        samples = page.asarray(maxworkers=1)  # images are decoded side by side already
        samples = samples if page.axes.endswith("S") else np.moveaxis(samples, page.axes.index("S"), -1)
    picked = samples.reshape(found.height, found.width, found.bands)[..., [band - 1 for band in chosen]]
    return np.ascontiguousarray(picked if picked.dtype == np.uint8 else upper_bits(path, picked, style.bits))


def upper_bits(path: Path, samples: npt.NDArray[Any], bits: int) -> Bytes:
    """The upper 8 of the lower `bits` of samples; refuses samples that have more."""
    if (high := int(samples.max())) >= 2**bits:
        raise UserError(
            f"{path}: a sample of {high} needs {high.bit_length()} bits, and `bits: {bits}` in the dataset.yaml of the "
            "images that were learnt from says that fewer are in use."
        )
    return (samples >> (bits - 8)).astype(np.uint8)
