"""ADE20K with the 150 classes of its scene parsing challenge, listed from its official layout.

images/{training,validation}/NAME.jpg
annotations/{training,validation}/NAME.png
objectInfo150.txt
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from oneway.common.bounded import read_bounded
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.dataset import Listing
from oneway.data.folder.class_table import MOST_BYTES, ade20k_names
from oneway.data.folder.classes import default_colours
from oneway.data.published.shared import first_with, incomplete, pairs, read_ids, require_folder

COUNT = 150
IDS = {0: IGNORE} | {number: number - 1 for number in range(1, COUNT + 1)}
EXPECTED = f"Masks of ADE20K hold 1 to {COUNT}, and 0 for what is none of these."
OFFICIAL_COUNTS = {"training": 20_210, "validation": 2_000}
TABLE = "objectInfo150.txt"


def list_ade20k(root: Path | None) -> Listing:
    """Training and validation images; what is none of the 150 classes is ignored. `root` may be the folder above."""
    root = require_folder(root, "ADE20K")
    root = first_with("images", root, root / "ADEChallengeData2016")
    train, val = (pairs(root, root / "images" / split, root / "annotations" / split) for split in OFFICIAL_COUNTS)
    names = _names(root / TABLE)
    return Listing(
        root=root,
        classes=names,
        colours=default_colours(names),
        train=train,
        val=val,
        read_labels=partial(read_ids, IDS, EXPECTED),
        remarks=incomplete("ADE20K", OFFICIAL_COUNTS, train, val),
        label_coding=f"ADE20K, {COUNT} classes",
        recipe="ade20k",
    )


def _names(path: Path) -> tuple[str, ...]:
    """The name of each class, in order of number."""
    lines = read_bounded(path, MOST_BYTES).decode("utf-8-sig", errors="replace").splitlines()
    try:
        numbered = ade20k_names([line.strip() for line in lines])
    except ValueError as error:
        raise UserError(f"{path}: not the table of ADE20K ({str(error)[:100]}). Unpack its archive again.") from None
    if sorted(numbered) != list(range(1, COUNT + 1)):
        raise UserError(f"{path}: lists {len(numbered)} classes, and not 1 to {COUNT}. Unpack the archive again.")
    return tuple(numbered[number] for number in range(1, COUNT + 1))
