"""Pictures made of words and pictures, on white; and sheets of them, for `oneway check` and `oneway suggest`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

from oneway.data.dataset import Colour

PAPER: Colour = (255, 255, 255)
INK: Colour = (28, 30, 33)
FAINT: Colour = (112, 117, 123)
ALERT: Colour = (186, 26, 26)

COLUMNS = 6
"""Cells side by side on a sheet."""

CELL = (300, 225)
"""What a picture in a cell may take, in width and height."""

GAP = 16
MARGIN = 44
SHEET_WIDTH = COLUMNS * (CELL[0] + GAP) - GAP
"""Of a full row, within the margins."""


@lru_cache
def font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which comes with Matplotlib, so that a sheet looks the same everywhere."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", name)), size)


def line(text: str, size: int, colour: Colour = INK, *, bold: bool = False) -> Image.Image:
    """A line of text."""
    face = font(size, bold=bold)
    ascent, descent = face.getmetrics()
    picture = Image.new("RGB", (round(face.getlength(text)) + 1, ascent + descent), PAPER)
    ImageDraw.Draw(picture).text((0, 0), text, colour, face)
    return picture


def shortened(text: str, size: int, width: int, *, keep_end: bool = False) -> str:
    """As much of a text as fits into a width, with an ellipsis for the rest."""
    face = font(size)
    if face.getlength(text) <= width:
        return text
    length = len(text)
    while length and face.getlength(kept := "…" + text[-length:] if keep_end else text[:length] + "…") > width:
        length -= 1
    return kept if length else "…"


def column(pictures: Sequence[Image.Image], gap: int) -> Image.Image:
    """Pictures one below the other, flush left."""
    height = sum(picture.height for picture in pictures) + gap * (len(pictures) - 1)
    page = Image.new("RGB", (max(picture.width for picture in pictures), height), PAPER)
    top = 0
    for picture in pictures:
        page.paste(picture, (0, top))
        top += picture.height + gap
    return page


def row(pictures: Sequence[Image.Image], gap: int, *, pitch: int = 0, centred: bool = False) -> Image.Image:
    """Pictures side by side, each at least `pitch` wide; flush at the top, or centred."""
    widths = [max(picture.width, pitch) for picture in pictures]
    page = Image.new("RGB", (sum(widths) + gap * (len(pictures) - 1), max(one.height for one in pictures)), PAPER)
    left = 0
    for picture, width in zip(pictures, widths, strict=True):
        page.paste(picture, (left, (page.height - picture.height) // 2 if centred else 0))
        left += width + gap
    return page


def wrapped(pictures: Sequence[Image.Image], gap: int, width: int) -> Image.Image:
    """Pictures side by side in as many rows as it takes to stay within a width."""
    rows: list[list[Image.Image]] = [[]]
    for picture in pictures:
        if rows[-1] and sum(one.width + gap for one in rows[-1]) + picture.width > width:
            rows.append([])
        rows[-1].append(picture)
    return column([row(pictures, gap, centred=True) for pictures in rows], gap // 2)


def heading(title: str, facts: str) -> Image.Image:
    """The top of a sheet."""
    return column([line(title, 34, bold=True), line(facts, 17, FAINT)], 8)


def fitted(width: int, height: int) -> tuple[int, int]:
    """Width and height that a picture has in a cell: as large as it may be, and at least a pixel each way."""
    factor = min(CELL[0] / width, CELL[1] / height)
    return max(1, round(width * factor)), max(1, round(height * factor))


def cell(pictures: Sequence[Image.Image], words: Sequence[Image.Image]) -> Image.Image:
    """Pictures that are `fitted`, one below the other, with lines of text beneath."""
    return column([column(pictures, 3), column(words, 2)], 7)


def rows_of(cells: Sequence[Image.Image]) -> list[Image.Image]:
    """Cells in order, COLUMNS to a row."""
    return [row(cells[start : start + COLUMNS], GAP, pitch=CELL[0]) for start in range(0, len(cells), COLUMNS)]


def sheet(parts: Sequence[Image.Image], width: int = 0) -> Image.Image:
    """Parts one below the other, with margins; at least `width` wide within them."""
    page = column(parts, 2 * GAP)
    whole = Image.new("RGB", (max(page.width, width) + 2 * MARGIN, page.height + 2 * MARGIN), PAPER)
    whole.paste(page, (MARGIN, MARGIN))
    return whole
