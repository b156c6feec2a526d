"""Labels that are there and cannot be read: their kinds are known, so that a message can say what to do."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from oneway.common.errors import UserError
from oneway.common.run_files import is_output
from oneway.common.words import counted
from oneway.data.decode.masks import MASK_SUFFIXES
from oneway.data.folder.files import Found
from oneway.data.folder.formats import begins_with
from oneway.data.folder.names import MASKS
from oneway.data.folder.walk import UNSUPPORTED, folders_in, kind_of, require_inside, walk


class Foreign(NamedTuple):
    """Files of labels, one for each image, that are not read as they lie there."""

    tool: str
    sign: re.Pattern[bytes]  # what tells them from other files of their kind
    way_out: str


FOREIGN = {
    ".json": Foreign(
        "Labelme",
        re.compile(rb'"shapes"\s*:'),
        "Say in dataset.yaml that labels come from these, as in `train: {images: images, labelme: images}`.",
    ),
    ".txt": Foreign(
        "YOLO",
        re.compile(rb"\A\d+( -?[\d.]+){4,}\s"),
        "Name the classes in a data.yaml beside the folders: `train: images`, and `names: [crack, …]`.",
    ),
    ".xml": Foreign("Pascal VOC", re.compile(rb"<annotation>"), "Export these labels as PNG masks, or as COCO."),
}
"""By their suffix."""

MOST_READ = 2**20  # bytes of such a file that are looked at

BRUSHED = re.compile(r"task-\d+-annotation-\d+-by-\d+-tag-.+-\d+\.(png|npy)")
"""The names that Label Studio gives to masks of brush strokes."""


def unsupported_labels(found: Found) -> Iterator[str]:
    """Remarks on files that have the names of images without labels, and seem to hold these."""
    bare = {item.image.stem for item in found.train if not item.labelled}
    for suffix, paths in _foreign_files(found.root, bare).items() if bare else ():
        kind, first = FOREIGN[suffix], paths[0].relative_to(found.root).as_posix()
        if _leads_inside(paths[0], found.root) and begins_with(kind.sign, paths[0], MOST_READ):
            files = f"{kind.tool} files with the names of images"
            yield f"{files} are not read ({len(paths)}; {first} is the first). {kind.way_out}"


def _foreign_files(root: Path, stems: set[str]) -> dict[str, list[Path]]:
    """Files of these names with a suffix of `FOREIGN`, by that suffix."""
    found: dict[str, list[Path]] = defaultdict(list)
    for folder, inner, files in os.walk(root):
        inner[:] = sorted(name for name in inner if not is_output(Path(folder, name)))
        for path in (Path(folder, name) for name in sorted(files)):
            if path.suffix.lower() in FOREIGN and path.stem in stems:
                found[path.suffix.lower()].append(path)
    return found


def _leads_inside(path: Path, root: Path) -> bool:
    try:
        require_inside(path, root)
    except UserError:
        return False
    return True


def masks_of_other_kinds(found: Found) -> Iterator[str]:
    """What folders that are called as those of masks hold instead, where labels are missing."""
    part = found.description.train
    if part is None or part.is_labelled:
        return
    for place in PurePosixPath(part.images, "x").parents:
        for name in folders_in(found.root / place):
            if name.lower() not in MASKS:
                continue
            files = walk(found.root / place / name, found.root, [])
            kinds = Counter(kind for file in files if (kind := kind_of(file)) in UNSUPPORTED - MASK_SUFFIXES)
            for suffix, count in kinds.most_common(1):
                folder = (place / name).as_posix()
                yield f"{folder} holds {counted(count, 'file')} of kind {suffix}, not read: save masks as PNG."


def brushed_masks(found: Found) -> Iterator[str]:
    """Masks of Label Studio that cannot be paired, where labels are missing."""
    files = [file for file in walk(found.root, found.root, []) if BRUSHED.fullmatch(file.name)]
    if files:
        first, are = files[0].relative_to(found.root).as_posix(), "is" if len(files) == 1 else "are"
        yield (
            f"{counted(len(files), 'mask')} of Label Studio ({first} is the first) {are} not read, since the names do "
            "not say of which images: export as JSON, which has brush strokes too."
        )
