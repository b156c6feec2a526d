"""How the masks of a data set are stored, so that predictions can be stored the same way and be put among them.

Shapes: a mask has H×W pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.dataset import Bytes, Colour
from oneway.data.decode import matlab
from oneway.data.decode.images import open_image
from oneway.data.decode.masks import pack, palette_of, unpack

Byte = Annotated[int, Field(ge=0, le=255)]
Mode = Literal["L", "I;16", "P", "RGB"]
LARGEST: dict[Mode, int] = {"L": 0xFF, "I;16": 0xFFFF, "P": 0xFF, "RGB": 0xFFFFFF}
GREY = 0x010101  # times a number, it is that number in each of three channels


class MaskStyle(BaseModel):
    """What stands for each class in masks, and the kind of their pixels."""

    model_config = ConfigDict(frozen=True)

    mode: Mode
    """Pillow's name for it: greyscale of 8 or 16 bits, palette, or three channels."""

    values: tuple[Annotated[int, Field(ge=0, le=0xFFFFFF)], ...] = Field(min_length=1, max_length=IGNORE)
    """What stands for each class, in order: numbers, indices into the palette, or colours as 0xRRGGBB."""

    palette: tuple[tuple[Byte, Byte, Byte], ...] = Field(default=(), max_length=256)

    @property
    def fits(self) -> bool:
        """Whether pixels of this kind hold all these values."""
        return max(self.values) <= LARGEST[self.mode]

    def table(self, coloured: bool) -> dict[int | Colour, int]:
        """The class index of each number in such masks, or of each colour; empty where they have none."""
        found: Sequence[int | Colour] = () if coloured else self.values
        if self.mode == "RGB":
            grey = all(value % GREY == 0 for value in self.values)
            found = [*map(unpack, self.values)] if coloured else [value // GREY for value in self.values if grey]
        elif self.mode == "P" and coloured:
            found = self.palette and [self.palette[value] for value in self.values if value < len(self.palette)]
        return {value: label for label, value in enumerate(found)}

    def stands_for(self, label: int) -> set[int | Colour]:
        """The numbers and the colours by which a class is known in such masks."""
        tables = (self.table(coloured) for coloured in (False, True))
        return {value for table in tables for value, index in table.items() if index == label}

    def picture(self, labels: Bytes) -> Image.Image:
        """The mask of H×W class indices."""
        table = np.zeros(256, dtype=np.int32)
        table[: len(self.values)] = self.values
        match self.mode:
            case "RGB":
                channels = np.stack([table >> 16, table >> 8 & 0xFF, table & 0xFF], axis=1)
                return Image.fromarray(channels.astype(np.uint8)[labels])
            case "I;16":
                return Image.fromarray(table.astype(np.uint16)[labels])
        picture = Image.fromarray(table.astype(np.uint8)[labels])
        if self.mode == "P":
            picture.putpalette(np.array(self.palette, dtype=np.uint8).tobytes())
        return picture


def style_of(masks: Iterable[Path], table: Mapping[int | Colour, int]) -> MaskStyle | None:
    """The style of masks, going by the first that can be read; None where there is none, or its pixels hold too little.

    The table has the class index of each number or colour in them; of several for one class, the first is taken.
    """
    first: dict[int, int | Colour] = {}
    for value, label in table.items():
        first.setdefault(label, value)
    values = [first[label] for label in sorted(first)]
    for path in masks:
        try:
            if path.suffix.lower() == matlab.SUFFIX:
                style = _style(Image.new("L", (1, 1)), values)
            else:
                with open_image(path) as image:
                    style = _style(image, values)
        except UserError:
            continue
        return style if style.fits else None
    return None


def _style(image: Image.Image, values: Sequence[int | Colour]) -> MaskStyle:
    colours = [value for value in values if isinstance(value, tuple)]
    palette = palette_of(image)
    if colours:
        if palette is not None and {*colours} <= {*palette}:
            return MaskStyle(mode="P", values=tuple(palette.index(colour) for colour in colours), palette=palette)
        return MaskStyle(mode="RGB", values=tuple(map(pack, colours)))
    numbers = [value for value in values if isinstance(value, int)]
    if image.mode.startswith("RGB") and max(numbers) <= 0xFF:
        return MaskStyle(mode="RGB", values=tuple(number * GREY for number in numbers))
    if palette is not None and max(numbers) <= 0xFF:
        return MaskStyle(mode="P", values=tuple(numbers), palette=palette)
    deep = image.mode.startswith("I") or max(numbers) > 0xFF
    return MaskStyle.model_construct(mode="I;16" if deep else "L", values=tuple(numbers))  # they may be too large
