"""The contact sheet: suggested images, and where a model contradicts itself."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image
from torch import Tensor

from oneway.data.check import contact_sheet
from oneway.data.check.contact_sheet import CELL, FAINT, fitted, heading, line, rows_of, sheet, shortened
from oneway.data.dataset import Bytes
from oneway.data.pictures import encoded
from oneway.tools.explore import heat
from oneway.tools.suggest.scores import DRAWS


def cell(pixels: Bytes, where: Tensor, name: str, found: str) -> Image.Image:
    """An H×W×3 picture, where the model contradicts itself about it, its name, and what was found."""
    image = Image.fromarray(pixels)
    coloured = Image.fromarray(heat.colours()[heat.levels(where).numpy()])
    pictures = [one.resize(fitted(*image.size), Image.Resampling.LANCZOS) for one in (image, coloured)]
    return contact_sheet.cell(pictures, [line(shortened(name, 14, CELL[0]), 14), line(found, 13, FAINT)])


def draw_sheet(cells: Sequence[Image.Image]) -> bytes:
    """The cells under a heading, as the content of a PNG file."""
    title = f"Label these {len(cells)} next" if len(cells) > 1 else "Label this next"
    meaning = f"Bright where the model contradicts itself: KL over {DRAWS} perturbations, from 0 to {heat.TOP:g} nats"
    return encoded(sheet([heading(title, meaning), *rows_of(cells)]), "PNG")
