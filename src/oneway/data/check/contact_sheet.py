"""A data set on one page: images, and below each what its mask says; and sheets of such cells for other verbs.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from oneway.common.links import replace_file
from oneway.common.safe_matplotlib import matplotlib
from oneway.common.terms import IGNORE
from oneway.common.words import visible
from oneway.data.check.result import Check
from oneway.data.check.rules.interface import Surveys, mentioned_as
from oneway.data.check.survey import decode_and_survey
from oneway.data.dataset import Bytes, Colour, Item
from oneway.data.pictures import GROUND, encoded, hatched, mark, palette

PAPER: Colour = (255, 255, 255)
INK: Colour = (28, 30, 33)
FAINT: Colour = (112, 117, 123)
ALERT: Colour = (186, 26, 26)
COLUMNS = 6  # cells side by side on a sheet
CELL = (300, 225)  # what a picture in a cell may take, in width and height
GAP, MARGIN = 16, 44
SHEET_WIDTH = COLUMNS * (CELL[0] + GAP) - GAP  # of a full row, within the margins
CHIP = (30, 20)  # width and height of a colour in the legend
OPACITY = 0.6  # how much of an overlay is the mask's colours; the rest is the image


def write_contact_sheet(check: Check, path: Path) -> None:
    """Draw a few images of each kind as a PNG: suspicious ones first, and every class among the rest if it can be."""
    counts = check.counts | {"classes": len(check.listing.classes)}
    facts = "   ·   ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    parts = [heading(check.name, facts), _legend(check)]
    for title, items in items_by_heading(check).items():
        rows = rows_of([_cell(check, item) for item in items])
        parts.append(column([line(title, 20, bold=True), *rows], GAP))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, encoded(sheet(parts, SHEET_WIDTH), "PNG", pnginfo=mark("check")))


def items_by_heading(check: Check) -> dict[str, list[Item]]:
    """The items that are shown, by heading: one row each, two rows of training images; only images that can be read.

    Images with findings come first, before them those whose mask cannot be used.
    """
    named = {finding.file for finding in check.findings}
    surveys = check.surveys
    train, val, test = (
        [item for item in items if not surveys[item.name].problem] for items in check.listing.splits.values()
    )
    broken = [item for item in check.listing.items if surveys[item.name].problem and surveys[item.name].digest]
    suspicious = [*broken, *(item for item in (*train, *val, *test) if named & mentioned_as(item, check.listing))][
        :COLUMNS
    ]
    rest = {
        "Training": ([item for item in train if item.labelled], 2 * COLUMNS),
        "Validation": (val, COLUMNS),
        "Test": (test, COLUMNS),
        "Unlabelled": ([item for item in train if not item.labelled], COLUMNS),
    }
    shown = {"Worth a look": suspicious}
    for title, (items, count) in rest.items():
        shown[title] = choose([item for item in items if item not in suspicious], surveys, count)
    return {title: items for title, items in shown.items() if items}


def choose(items: Sequence[Item], surveys: Surveys, count: int) -> list[Item]:
    """Up to `count` items in their order: for each class the one that shows most of it, then others evenly spread."""
    labels = {item.name: surveys[item.name].labels or {} for item in items}
    rarity = Counter(label for found in labels.values() for label in found if label != IGNORE)
    names: set[str] = set()
    for label in sorted(rarity, key=lambda label: (rarity[label], label)):
        if len(names) < count and not any(label in labels[name] for name in names):
            names.add(max(labels, key=lambda name: labels[name].get(label, 0)))
    others = [item.name for item in items if item.name not in names]
    wanted = min(count - len(names), len(others))
    names.update(others[index * len(others) // wanted] for index in range(wanted))
    return [item for item in items if item.name in names]


def overlay(image: Bytes, labels: Bytes, colours: Sequence[Colour], size: tuple[int, int]) -> Image.Image:
    """The image in grey under the colours of its classes, at a width and height; hatched where labels are IGNORE."""
    grey = Image.fromarray(image).convert("L").convert("RGB").resize(size, Image.Resampling.LANCZOS)
    painted = Image.fromarray(palette(colours, other=GROUND)[labels]).resize(size, Image.Resampling.BOX)
    ignored = np.asarray(Image.fromarray(labels).resize(size, Image.Resampling.NEAREST)) == IGNORE
    return Image.blend(grey, Image.fromarray(hatched(np.asarray(painted), ignored)), OPACITY)


def _cell(check: Check, item: Item) -> Image.Image:
    """A picture, its overlay if its mask can be used, its name, and what was found about it."""
    _, image, labels = decode_and_survey(check.listing, item)
    assert image is not None  # others are not shown
    size = fitted(image.shape[1], image.shape[0])
    pictures = [Image.fromarray(image).resize(size, Image.Resampling.LANCZOS)]
    if labels is not None:
        pictures.append(overlay(image, labels, check.listing.colours, size))
    files = mentioned_as(item, check.listing)
    found = [shortened(finding.message, 13, CELL[0]) for finding in check.findings if finding.file in files][:2]
    name = line(shortened(item.name, 14, CELL[0], keep_end=True), 14)
    return cell(pictures, [name, *(line(message, 13, ALERT) for message in found)])


def _legend(check: Check) -> Image.Image:
    """Colour, name and share of each class, and of what is ignored."""
    entries = [_entry(Image.new("RGB", CHIP, count.colour), count.name, count.share) for count in check.classes()]
    if check.ignored:
        white = np.full((*CHIP[::-1], 3), 255, dtype=np.uint8)
        chip = overlay(white, np.full(CHIP[::-1], IGNORE, dtype=np.uint8), check.listing.colours, CHIP)
        entries.append(_entry(chip, "ignored", check.ignored))
    rows: list[list[Image.Image]] = [[]]
    for entry in entries:
        if rows[-1] and sum(one.width + 2 * GAP for one in rows[-1]) + entry.width > SHEET_WIDTH:
            rows.append([])
        rows[-1].append(entry)
    return column([row(entries, 2 * GAP, centred=True) for entries in rows], GAP)


def _entry(chip: Image.Image, name: str, share: float) -> Image.Image:
    ImageDraw.Draw(chip).rectangle((0, 0, chip.width - 1, chip.height - 1), outline=FAINT)
    return row([chip, line(name, 16), line(percentage(share), 16, FAINT)], 8, centred=True)


def percentage(share: float) -> str:
    """A share of pixels as text: about two digits, and never 0 % of what is there."""
    return "absent" if share == 0 else "< 0.01 %" if share < 1e-4 else f"{100 * share:.{1 if share >= 0.01 else 2}f} %"


@lru_cache
def font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which comes with Matplotlib, so that a sheet looks the same everywhere."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path(), "fonts", "ttf", name)), size)


def line(text: str, size: int, colour: Colour = INK, *, bold: bool = False) -> Image.Image:
    """A line of text."""
    text = visible(text, lines=False)  # a name can hold what no font can draw
    face = font(size, bold=bold)
    ascent, descent = face.getmetrics()
    picture = Image.new("RGB", (round(face.getlength(text)) + 1, ascent + descent), PAPER)
    ImageDraw.Draw(picture).text((0, 0), text, colour, face)
    return picture


def shortened(text: str, size: int, width: int, *, keep_end: bool = False) -> str:
    """As much of a text as fits into a width, with an ellipsis for the rest."""
    text = visible(text, lines=False)
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
