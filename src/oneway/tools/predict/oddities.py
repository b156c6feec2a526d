"""What is odd about images though nothing fails: nearly black ones look like a bad model, further pages get lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from oneway.data.dataset import Bytes
from oneway.data.decode.header import read_header
from oneway.data.decode.images import DARK, FEW_LEVELS, bits_in_use
from oneway.data.image_style import COLOURS, MOST_BITS, ImageStyle


@dataclass
class Oddities:
    """What has been found in the images so far."""

    style: ImageStyle = COLOURS
    """What of images the model sees: other bands than those it names are left out on purpose."""

    images: int = 0
    dark: list[int] = field(default_factory=list)
    """The largest value of each that is nearly black."""

    deep: list[int] = field(default_factory=list)
    """The largest value of each of which only the upper 8 bits are seen."""

    pages: dict[Path, int] = field(default_factory=dict)
    """How many pictures are in each file that has several."""

    further_band: list[Path] = field(default_factory=list)
    """Images with a band besides their colours."""

    def inspect(self, path: Path, pixels: Bytes) -> None:
        """Count what is odd about an image that was read."""
        self.images += 1
        header, some = read_header(path), pixels[::16]
        if header.deep or some.max() < DARK:
            brightest = int(pixels.max())
            self.dark += [brightest] * (brightest < DARK)
            self.deep += [brightest] * header.deep
        if header.pages > 1:
            self.pages[path] = header.pages
        if header.further_band and self.style.bands is None:
            self.further_band.append(path)

    def messages(self) -> Iterator[str]:
        """A line for each kind, with the way out."""
        if self.dark:
            bits = bits_in_use(max(self.dark))
            yield (
                f"{len(self.dark)} of {self.images} images are nearly black: no value exceeds {max(self.dark)} of 255. "
                f"If {bits} bits were saved in 16, let the model learn from such images, with `bits: {bits}` in their "
                f"dataset.yaml; or multiply the values by {2 ** (16 - bits)} and save them again."
            )
        elif self.deep and max(self.deep) < FEW_LEVELS and self.style.bits == MOST_BITS:
            bits = bits_in_use(max(self.deep))
            yield (
                f"Of the {len(self.deep)} images in 16 bits, no value exceeds {max(self.deep)} of 255: they are dark. "
                f"If they use {bits} bits, let the model learn from such, with `bits: {bits}` in their dataset.yaml."
            )
        if self.further_band:
            yield (
                f"{len(self.further_band)} of {self.images} images have a band besides their colours, such as alpha or "
                f"infra-red, which is not used ({self.further_band[0]} is the first)."
            )
        if self.pages:
            path, pages = next(iter(self.pages.items()))
            more = " or more" if path.suffix.lower() == ".gif" else ""  # they are not counted to the end
            yield (
                f"{len(self.pages)} of {self.images} files have several pages, of which only the first is used "
                f"({path} has {pages}{more}). Save the others as files of their own."
            )
