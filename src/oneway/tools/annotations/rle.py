"""Masks as the lengths of their runs, in the writings of three tools.

Shapes: a mask has H×W pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

BRUSH_BITS = (3, 4, 8, 16)
"""How long a length may be in a brush of Label Studio."""


def runs(mask: npt.NDArray[np.bool_]) -> list[int]:
    """Lengths of runs along a flat mask, outside first: that one may be 0."""
    changes = np.flatnonzero(np.diff(mask, prepend=False))
    return np.diff(changes, prepend=0, append=len(mask)).tolist()


def compress(counts: Iterable[int]) -> str:
    """COCO's text form of run lengths.

    A number becomes characters of five bits, lowest first, and a sixth says whether more follow; from the fourth
    number on it is the difference to the number two before.
    """
    known = list(counts)
    text: list[str] = []
    for index, count in enumerate(known):
        number = count - known[index - 2] if index > 2 else count
        while True:
            bits, number = number & 31, number >> 5
            done = number == (-1 if bits & 16 else 0)
            text.append(chr(48 + bits + (0 if done else 32)))
            if done:
                break
    return "".join(text)


def brush(mask: npt.NDArray[np.bool_]) -> list[int]:
    """Bytes of a brush stroke in Label Studio: the runs of an H×W×4 picture, 255 inside, behind a short header."""
    header = f"{4 * mask.size:032b}{8 - 1:05b}" + "".join(f"{bits - 1:04b}" for bits in BRUSH_BITS)
    text = header + "".join(_brush_runs(runs(mask.reshape(-1))))
    text += "0" * (-len(text) % 8)
    return list(int(text, 2).to_bytes(len(text) // 8, "big"))


def _brush_runs(counts: list[int]) -> Iterator[str]:
    for index, count in enumerate(counts):
        rest, value = 4 * count, 255 * (index % 2)
        while rest:
            part = min(rest, 2 ** BRUSH_BITS[-1])
            size = next(size for size, bits in enumerate(BRUSH_BITS) if part <= 2**bits)
            yield f"1{size:02b}{part - 1:0{BRUSH_BITS[size]}b}{value:08b}"
            rest -= part
