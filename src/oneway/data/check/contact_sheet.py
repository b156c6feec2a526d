"""A data set on one page: images, and below each what its mask says.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from oneway.common.terms import IGNORE
from oneway.data.check.defects import Surveys, every_item
from oneway.data.check.naming import files_of
from oneway.data.check.result import Check
from oneway.data.check.survey import decode
from oneway.data.check.typeset import (
    ALERT,
    CELL,
    COLUMNS,
    FAINT,
    GAP,
    SHEET_WIDTH,
    cell,
    column,
    fitted,
    heading,
    line,
    row,
    rows_of,
    sheet,
    shortened,
    wrapped,
)
from oneway.data.dataset import Bytes, Colour, Item
from oneway.data.pictures import GROUND, hatched, palette

CHIP = (30, 20)

OPACITY = 0.6
"""How much of an overlay is the mask's colours; the rest is the image."""


def write_contact_sheet(check: Check, path: Path) -> None:
    """Draws a few images of each kind as a PNG: suspicious ones first, and every class among the rest if it can be."""
    parts = [_title(check), _legend(check)]
    for title, items in items_by_heading(check).items():
        rows = rows_of([_cell(check, item) for item in items])
        parts.append(column([line(title, 20, bold=True), *rows], GAP))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet(parts, SHEET_WIDTH).save(path, format="PNG")


def items_by_heading(check: Check) -> dict[str, list[Item]]:
    """The items that are shown, by heading: one row each, two rows of training images; only images that can be read.

    Images with findings come first, before them those whose mask cannot be used.
    """
    named = {finding.file for finding in check.findings}
    train, val, test = (
        [item for item in items if not check.surveys[item.name].problem] for items in check.listing.splits.values()
    )
    surveys = check.surveys
    broken = [item for item in every_item(check.listing) if surveys[item.name].problem and surveys[item.name].digest]
    suspicious = [*broken, *(item for item in (*train, *val, *test) if named & files_of(item, check.listing))][:COLUMNS]
    rest = {
        "Training": ([item for item in train if item.mask], 2 * COLUMNS),
        "Validation": (val, COLUMNS),
        "Test": (test, COLUMNS),
        "Unlabelled": ([item for item in train if not item.mask], COLUMNS),
    }
    shown = {"Worth a look": suspicious}
    for title, (items, count) in rest.items():
        shown[title] = choose([item for item in items if item not in suspicious], check.surveys, count)
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
    unmasked = check.surveys[item.name].problem is not None
    image, labels = decode(check.listing, replace(item, mask=None) if unmasked else item)
    height, width = image.shape[:2]
    size = fitted(width, height)
    pictures = [Image.fromarray(image).resize(size, Image.Resampling.LANCZOS)]
    if labels is not None:
        pictures.append(overlay(image, labels, check.listing.colours, size))
    words = [line(shortened(item.name, 14, CELL[0], keep_end=True), 14)]
    for finding in check.findings:
        if finding.file in files_of(item, check.listing):
            words.append(line(shortened(finding.message, 13, CELL[0]), 13, ALERT))
    return cell(pictures, words[:3])


def _title(check: Check) -> Image.Image:
    counts = check.counts | {"classes": len(check.listing.classes)}
    facts = "   ·   ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return heading(check.name, facts)


def _legend(check: Check) -> Image.Image:
    """Colour, name and share of each class, and of what is ignored."""
    entries = [_entry(Image.new("RGB", CHIP, count.colour), count.name, count.share) for count in check.classes()]
    if check.ignored:
        white = np.full((*CHIP[::-1], 3), 255, dtype=np.uint8)
        chip = overlay(white, np.full(CHIP[::-1], IGNORE, dtype=np.uint8), check.listing.colours, CHIP)
        entries.append(_entry(chip, "ignored", check.ignored))
    return wrapped(entries, 2 * GAP, SHEET_WIDTH)


def _entry(chip: Image.Image, name: str, share: float) -> Image.Image:
    ImageDraw.Draw(chip).rectangle((0, 0, chip.width - 1, chip.height - 1), outline=FAINT)
    return row([chip, line(name, 16), line(percentage(share), 16, FAINT)], 8, centred=True)


def percentage(share: float) -> str:
    """A share of pixels as text: about two digits, and never 0 % of what is there."""
    return "absent" if share == 0 else "< 0.01 %" if share < 1e-4 else f"{100 * share:.{1 if share >= 0.01 else 2}f} %"
