"""Masks that MATLAB wrote: a matrix of numbers in a `.mat` file, by itself or inside a structure.

Shapes: a mask has H×W pixels.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oneway.common.bounded import open_regular
from oneway.common.errors import UserError
from oneway.common.extras import import_extra
from oneway.data.decode.plausible import MOST_PIXELS, Unreadable

SUFFIX = ".mat"
MOST_BYTES = 2**29  # of a file, and of all that is packed in it
HEADER = 128  # bytes; `MI` or `IM` at the end of it is the order of bytes
PACKED = 15  # the kind of an element that zlib has packed
HDF5 = b"\x89HDF"  # or behind a header of MATLAB 7.3
PREFERRED = ("labelmap", "segmentation")  # of several matrices: Pascal Context's, and SBD's


def read_index_map(path: Path) -> npt.NDArray[np.int32]:
    """H×W numbers: the one matrix of whole numbers in a file, or the one that is called as label maps are.

    Raises:
        UserError: There is none, or there are several; or the file is damaged, or of MATLAB 7.3.
    """
    loadmat = import_extra("scipy.io", "matlab", f"Reading {path.name}").loadmat
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read ({error.strerror or error}).") from None
    if HDF5 in content[:1024]:
        raise UserError(f"{path}: of MATLAB 7.3, which is not read. Save it again with save(…, '-v7'), or as PNG.")
    if _unpacked(content) > MOST_BYTES:
        raise UserError(f"{path}: holds more than {MOST_BYTES >> 20} MiB, which is too much for a mask.")
    try:
        tree = loadmat(BytesIO(content), squeeze_me=True, struct_as_record=True)
    except Exception as error:  # SciPy has no error of its own for what is damaged
        raise Unreadable(f"{path}: cannot be read as a file of MATLAB ({str(error)[:100]}).") from None
    found = {name: matrix for key, value in tree.items() if key[:2] != "__" for name, matrix in _matrices(key, value)}
    named = {name: matrix for name, matrix in found.items() if name.rpartition(".")[2].lower() in PREFERRED}
    chosen = list((named if len(named) == 1 else found).values())
    if len(chosen) != 1:
        reason = f"several matrices ({', '.join(found)})" if found else "no matrix of whole numbers"
        raise UserError(f"{path}: has {reason}, where a mask is one, with a number for each pixel. Save it as PNG.")
    return chosen[0].astype(np.int32)


def _unpacked(content: bytes) -> int:
    """How many bytes the elements of a file have once they are unpacked; no more are counted than may be."""
    order, total, at = ("<" if content[HEADER - 2 : HEADER] == b"IM" else ">"), len(content), HEADER
    while at + 8 <= len(content) and total <= MOST_BYTES:
        kind, size = struct.unpack_from(f"{order}II", content, at)
        if kind == PACKED:
            total += _length(content[at + 8 : at + 8 + size], MOST_BYTES - total)
        at += 8 + size
    return total


def _length(packed: bytes, most: int) -> int:
    """The length of what zlib has packed, or a little more than the most."""
    unpack, length = zlib.decompressobj(), 0
    try:
        while packed and length <= most:
            length += len(unpack.decompress(packed, 2**20))
            packed = unpack.unconsumed_tail
    except zlib.error:
        return length  # SciPy will say so
    return length


def _matrices(name: str, value: Any) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Matrices of whole numbers in a value, by name; those in structures too."""
    if not isinstance(value, np.ndarray | np.void):
        return
    if value.dtype.names:
        for field in value.dtype.names if value.ndim == 0 else ():
            inner = value[field]
            yield from _matrices(
                f"{name}.{field}", inner.item() if inner.ndim == 0 and inner.dtype == object else inner
            )
    elif isinstance(value, np.ndarray) and value.ndim == 2 and 0 < value.size <= MOST_PIXELS and _is_whole(value):
        yield name, value


def _is_whole(matrix: npt.NDArray[Any]) -> bool:
    """Whether all are numbers that a mask can hold; MATLAB stores those as floating-point numbers unless told."""
    if matrix.dtype.kind not in "uibf":
        return False
    return bool(np.all((matrix >= 0) & (matrix < 2**31) & (matrix == np.floor(matrix))))
