"""The contact sheet: suggested images, and where a model contradicts itself."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image
from torch import Tensor

from oneway.data.check.contact_sheet import CELL, COLUMNS, GAP, MARGIN
from oneway.data.check.typeset import FAINT, PAPER, column, line, row, shortened
from oneway.data.dataset import Bytes
from oneway.explore import heat
from oneway.suggest.scores import DRAWS


def cell(pixels: Bytes, where: Tensor, name: str, found: str) -> Image.Image:
    """An H×W×3 picture, where the model contradicts itself about it, its name, and what was found."""
    image = Image.fromarray(pixels)
    coloured = Image.fromarray(heat.colours()[heat.levels(where).numpy()])
    factor = min(side / there for side, there in zip(CELL, image.size, strict=True))
    width, height = (max(1, round(side * factor)) for side in image.size)
    pictures = [one.resize((width, height), Image.Resampling.LANCZOS) for one in (image, coloured)]
    words = [line(shortened(name, 14, CELL[0]), 14), line(found, 13, FAINT)]
    return column([column(pictures, 3), column(words, 2)], 7)


def contact_sheet(cells: Sequence[Image.Image]) -> bytes:
    """A PNG."""
    title = f"Label these {len(cells)} next" if len(cells) > 1 else "Label this next"
    meaning = f"Bright where the model contradicts itself: KL over {DRAWS} perturbations, from 0 to {heat.TOP:g} nats"
    heading = column([line(title, 34, bold=True), line(meaning, 17, FAINT)], 8)
    rows = [row(cells[start : start + COLUMNS], GAP, pitch=CELL[0]) for start in range(0, len(cells), COLUMNS)]
    page = column([heading, *rows], 2 * GAP)
    sheet = Image.new("RGB", (page.width + 2 * MARGIN, page.height + 2 * MARGIN), PAPER)
    sheet.paste(page, (MARGIN, MARGIN))
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG")
    return buffer.getvalue()
