"""A data set on one page: images, and below each what its mask says.

Shapes: an image has H×W pixels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from oneway.data.check import Check
from oneway.data.check.defects import Surveys, files_of
from oneway.data.check.survey import decode
from oneway.data.check.typeset import ALERT, FAINT, INK, PAPER, column, line, row, shortened, wrapped
from oneway.data.dataset import IGNORE, Bytes, Colour, Item

COLUMNS = 6
CELL = (300, 225)  # what a picture may take, in width and height
GAP = 16
MARGIN = 44
CHIP = (30, 20)

OPACITY = 0.6
"""Of the mask's colours, over the image."""

HATCH: tuple[Colour, Colour] = ((140, 140, 140), (215, 215, 215))
"""Stroke and ground where a pixel belongs to no class: a plain grey could be taken for one."""
HATCH_PERIOD = 8


def write_contact_sheet(check: Check, path: Path) -> None:
    """Draws a few images of each kind as a PNG: suspicious ones first, and every class among the rest if it can be."""
    parts = [_title(check), _legend(check)]
    for title, items in chosen(check).items():
        cells = [_cell(check, item) for item in items]
        rows = [row(cells[start : start + COLUMNS], GAP, pitch=CELL[0]) for start in range(0, len(cells), COLUMNS)]
        parts.append(column([line(title, 20, bold=True), *rows], GAP))
    page = column(parts, 2 * GAP)
    width = COLUMNS * (CELL[0] + GAP) - GAP
    sheet = Image.new("RGB", (max(page.width, width) + 2 * MARGIN, page.height + 2 * MARGIN), PAPER)
    sheet.paste(page, (MARGIN, MARGIN))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, format="PNG")


def chosen(check: Check) -> dict[str, list[Item]]:
    """What is shown, by heading: a row each, and two of images to train on; of those that can be read."""
    named = {finding.file for finding in check.findings}
    train, val, test = (
        [item for item in items if not check.surveys[item.name].problem]
        for items in (check.listing.train, check.listing.val, check.listing.test)
    )
    suspicious = [item for item in (*train, *val, *test) if named & files_of(item, check.listing)][:COLUMNS]
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
    palette = np.full((256, 3), HATCH[1], dtype=np.uint8)
    palette[: len(colours)] = colours
    grey = Image.fromarray(image).convert("L").convert("RGB").resize(size, Image.Resampling.LANCZOS)
    colour = Image.fromarray(palette[labels]).resize(size, Image.Resampling.BOX)
    blended = np.asarray(Image.blend(grey, colour, OPACITY)).copy()
    ignored = np.asarray(Image.fromarray(labels).resize(size, Image.Resampling.NEAREST)) == IGNORE
    stroke = np.indices(ignored.shape).sum(axis=0) % HATCH_PERIOD < HATCH_PERIOD // 4
    blended[ignored & stroke] = HATCH[0]
    return Image.fromarray(blended)


def _cell(check: Check, item: Item) -> Image.Image:
    """A picture, its overlay, its name, and what was found about it."""
    image, labels = decode(check.listing, item)
    height, width = image.shape[:2]
    factor = min(CELL[0] / width, CELL[1] / height)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    pictures = [Image.fromarray(image).resize(size, Image.Resampling.LANCZOS)]
    if labels is not None:
        pictures.append(overlay(image, labels, check.listing.colours, size))
    words = [line(shortened(item.name, 14, CELL[0], keep_end=True), 14)]
    for finding in check.findings:
        if finding.file in files_of(item, check.listing):
            words.append(line(shortened(finding.message, 13, CELL[0]), 13, ALERT))
    return column([column(pictures, 3), column(words[:3], 2)], 7)


def _title(check: Check) -> Image.Image:
    counts = {
        "labelled": len(check.labelled),
        "unlabelled": len(check.unlabelled),
        "for validation": len(check.listing.val),
        "for testing": len(check.listing.test),
        "classes": len(check.listing.classes),
    }
    facts = "   ·   ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return column([line(check.name, 34, bold=True), line(facts, 17, FAINT)], 8)


def _legend(check: Check) -> Image.Image:
    """Colour, name and share of each class, and of what is ignored."""
    entries = [_entry(Image.new("RGB", CHIP, count.colour), count.name, count.share) for count in check.classes()]
    if check.ignored:
        white = np.full((*CHIP[::-1], 3), 255, dtype=np.uint8)
        chip = overlay(white, np.full(CHIP[::-1], IGNORE, dtype=np.uint8), check.listing.colours, CHIP)
        entries.append(_entry(chip, "ignored", check.ignored))
    return wrapped(entries, 2 * GAP, COLUMNS * (CELL[0] + GAP) - GAP)


def _entry(chip: Image.Image, name: str, share: float) -> Image.Image:
    ImageDraw.Draw(chip).rectangle((0, 0, chip.width - 1, chip.height - 1), outline=FAINT)
    return row([chip, line(name, 16, INK), line(percentage(share), 16, FAINT)], 8, centred=True)


def percentage(share: float) -> str:
    """With as many digits as tell."""
    return "absent" if share == 0 else "< 0.01 %" if share < 1e-4 else f"{100 * share:.{1 if share >= 0.01 else 2}f} %"
