"""What of image files is seen, and how: a data set says it, and a model that learnt from it keeps to it."""

from __future__ import annotations

from dataclasses import dataclass

from oneway.common.words import listed

Bands = tuple[int, int, int]
MOST_BITS = 16


@dataclass(frozen=True)
class ImageStyle:
    """How the samples of a file become red, green and blue of 8 bits each."""

    bands: Bands | None = None
    """Taken for red, green and blue, counted from 1; None for the colours of a file."""

    bits: int = MOST_BITS
    """How many bits of 16-bit samples are in use, of which the upper 8 are seen: cameras often fill 12."""

    def __str__(self) -> str:
        seen = f"bands {listed(self.bands)}" if self.bands else "the colours"
        return seen if self.bits == MOST_BITS else f"{seen} ({self.bits} bits of 16)"


COLOURS = ImageStyle()
"""The style of most files."""
