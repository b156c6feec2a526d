"""JPEG files by torchvision, for those who decode many at once: Pillow copies pixels while other threads wait for it.

Both have libjpeg-turbo inside, and give the same pixels.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from oneway.data.dataset import Bytes

Box = tuple[int, int, int, int]


def decode_part(content: bytes, size: tuple[int, int], box: Box) -> Bytes | None:
    """The pixels in a box of a JPEG of three colours; None where only Pillow can say what is wrong with it.

    The structure of the file has been checked. A box is the first row and column, and those behind the last.
    """
    decode = _decoder()
    if decode is None:
        return None
    try:
        planes = decode(content)
    except RuntimeError:
        return None
    if planes.shape != (3, *size):
        return None
    top, left, bottom, right = box
    return np.ascontiguousarray(planes.transpose(1, 2, 0)[top:bottom, left:right])  # colours lie together there too


@cache
def _decoder() -> Callable[[bytes], Any] | None:
    """A function from a file to its three planes of bytes; None where torchvision is missing, or cannot decode.

    PyTorch takes longer to import than Pillow to decode hundreds: it is used where it is there already.
    """
    if "torch" not in sys.modules:
        return None
    try:
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg

        with warnings.catch_warnings(action="ignore"):  # said once: nobody may write into the buffer
            torch.frombuffer(b"read only", dtype=torch.uint8)
    except (ImportError, OSError, RuntimeError):
        return None

    def decode(content: bytes) -> Any:
        return decode_jpeg(torch.frombuffer(content, dtype=torch.uint8), ImageReadMode.RGB).numpy()

    return decode
