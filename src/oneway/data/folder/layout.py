"""Which files a folder holds, and which of the common layouts they follow; nothing outside the folder is read.

Labels in formats that are not supported are recognised, so that a message can say what to do.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from oneway.common.bounded import open_regular
from oneway.common.errors import UserError
from oneway.common.run_files import is_output
from oneway.data.dataset import Item
from oneway.data.decode.coco import is_coco, read_json
from oneway.data.decode.images import SUFFIXES, hidden
from oneway.data.folder.description import FILE, Description, Part

IMAGES = ("images", "jpegimages")
MASKS = ("masks", "labels", "annotations", "segmentationclass")
TRAIN = ("train", "training")
VAL = ("val", "valid", "validation")
UNLABELLED = ("unlabelled", "unlabeled")
"""Names of folders, in lower case, the preferred ones first."""

CAMVID = "annot"  # appended to the name of an image folder, the folder of its masks

UNSUPPORTED = frozenset(
    ".gif .heic .heif .avif .jp2 .jxl .svg .psd .dcm .npy .npz .mat .dng .nef .cr2 .mp4 .mov .avi .mkv .zip".split()
)
"""Suffixes of kinds that are not read, though a user may expect it."""

FOREIGN = {
    ".json": ("Labelme", rb'"shapes"\s*:'),
    ".txt": ("YOLO", rb"\A\d+( -?[\d.]+){4,}\s"),
    ".xml": ("Pascal VOC", rb"<annotation>"),
}
"""Whose labels of single images have this suffix, and the content that tells these files from others."""

MOST_READ = 2**20  # bytes of such a file that are looked at
MOST_JSON_FILES = 8  # with more of them in a folder, each belongs to a single image, and they are not COCO


@dataclass(frozen=True)
class Problem:
    """What is wrong with one file, though the others can be used."""

    file: Path
    message: str


def recognise(root: Path) -> Description:
    """Finds the training, validation and unlabelled images of a folder by the names of its subfolders."""
    unlabelled = _images_of(root, _choose(root, ".", UNLABELLED))
    whole = _part(root, ".")
    labelled_here = whole.images != "." and (whole.masks or whole.coco)
    if labelled_here and (split := _split(root, whole)):
        unlabelled += _images_of(root, _choose(root, whole.images, UNLABELLED))
        return Description(train=split[0], val=split[1], unlabelled=unlabelled)
    train = None if labelled_here else _choose(root, ".", TRAIN)
    val = _choose(root, ".", VAL)
    return Description(
        train=_part(root, train) if train else whole, val=_part(root, val) if val else None, unlabelled=unlabelled
    )


def _part(root: Path, folder: str) -> Part:
    """Images in a folder called so, or right here; masks in another, or in CamVid's, or else COCO's annotations."""
    images = _choose(root, folder, IMAGES) or folder
    masks = _choose(root, folder, MASKS, with_images=True)
    if masks is None and folder != ".":
        parent, name = PurePosixPath(folder).parent.as_posix(), PurePosixPath(folder).name
        masks = _choose(root, parent, (f"{name}{CAMVID}".lower(),), with_images=True)
    return Part(images=images, masks=masks, coco=None if masks else _coco_in(root, folder))


def _split(root: Path, whole: Part) -> tuple[Part, Part] | None:
    """The parts of `images/train`, `images/val`, `masks/train` and `masks/val`."""
    if whole.masks is None:
        return None
    chosen = [_choose(root, side, names) for names in (TRAIN, VAL) for side in (whole.images, whole.masks)]
    match chosen:
        case [str(images), str(masks), str(val_images), str(val_masks)]:
            return Part(images=images, masks=masks), Part(images=val_images, masks=val_masks)
    return None


def _images_of(root: Path, folder: str | None) -> tuple[str, ...]:
    return () if folder is None else (_choose(root, folder, IMAGES) or folder,)


def _choose(root: Path, folder: str, names: tuple[str, ...], with_images: bool = False) -> str | None:
    """The subfolder with the first of these names, in upper or lower case; with images in it, if that is asked for."""
    called_so = {entry.name.lower(): entry.name for entry in _entries(root / folder) if entry.name.lower() in names}
    present = {lower: name for lower, name in called_so.items() if (root / folder / name).is_dir()}
    for name in names:
        if name in present:
            path = PurePosixPath(folder, present[name]).as_posix()
            files = walk(require_inside(root / path, root), root, [])
            if not with_images or any(file.suffix.lower() in SUFFIXES for file in files):
                return path
    return None


def _coco_in(root: Path, folder: str) -> str | None:
    """The one file of COCO annotations in a folder, or in `annotations` within."""
    folders = [folder, *filter(None, [_choose(root, folder, ("annotations",))])]
    files = [
        PurePosixPath(place, entry.name).as_posix()
        for place in folders
        for entry in _entries(root / place)
        if entry.name.lower().endswith(".json") and (root / place / entry.name).is_file()
    ]
    if len(files) > MOST_JSON_FILES:
        return None
    found = [file for file in files if is_coco(read_json(require_inside(root / file, root)))]
    if len(found) > 1:
        raise UserError(
            f"{root / folder}: {', '.join(found)} all hold annotations. Say in {FILE} which belongs to which images, "
            f"as in `train: {{images: images, coco: {found[0]}}}`."
        )
    return found[0] if found else None


def walk(folder: Path, home: Path, problems: list[Problem]) -> Iterator[Path]:
    """Files in a folder and its subfolders, in order of name; a link that leads out of `home` is a UserError.

    Subfolders that oneway wrote are passed over.
    """
    waiting = [(folder, entry) for entry in reversed(_entries(folder))]
    while waiting:
        parent, entry = waiting.pop()
        path = parent / entry.name
        if entry.is_dir(follow_symlinks=False):
            waiting += [] if is_output(path) else [(path, inner) for inner in reversed(_entries(path))]
        elif not entry.name.isprintable():  # nor can it be stored in a list of names
            named = f"the file {entry.name!a} in it has a name that cannot be shown; rename it."
            problems.append(Problem(parent, named))
        elif entry.is_file(follow_symlinks=False) or (entry.is_symlink() and require_inside(path, home).is_file()):
            yield path
        elif entry.is_symlink():  # followed, links among folders could go round in circles
            target = "another folder" if path.is_dir() else "nothing"
            problems.append(Problem(path, f"a link to {target}, which is not followed."))


def images_in(folder: Path, home: Path, problems: list[Problem]) -> list[Path]:
    """Image files in a folder and its subfolders, in order of name."""
    files = list(walk(folder, home, problems))
    for path in files:
        if path.suffix.lower() in UNSUPPORTED:
            problems.append(Problem(path, "left out: no JPEG, PNG, WebP, TIFF or BMP. Convert it if it is to be used."))
    return [path for path in files if path.suffix.lower() in SUFFIXES]


def require_inside(path: Path, home: Path) -> Path:
    """Returns the path if it leads to something inside `home`; raises a UserError if not."""
    try:
        target = path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle; a name with a zero byte
        raise UserError(f"{path}: leads nowhere ({error}).") from None
    if not target.is_relative_to(home.resolve()):
        raise UserError(f"{path}: leads out of {home}, to {target}. Copy what is needed into the folder.")
    return path


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, in order of name, without hidden entries."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise UserError(f"{folder}: cannot be listed ({error.strerror}).") from None
    return [entry for entry in entries if not hidden(PurePosixPath(entry.name))]


def unsupported_labels(root: Path, items: Sequence[Item]) -> list[str]:
    """Remarks on files that have the names of images without a mask, and seem to hold their labels."""
    bare = {item.image.stem for item in items if item.mask is None}
    found: dict[str, list[Path]] = defaultdict(list)
    for folder, inner, files in os.walk(root) if bare else ():
        inner[:] = sorted(name for name in inner if not is_output(Path(folder, name)))
        for path in (Path(folder, name) for name in sorted(files)):
            if path.suffix.lower() in FOREIGN and path.stem in bare:
                found[path.suffix.lower()].append(path)
    remarks = []
    for suffix, paths in found.items():
        kind, sign = FOREIGN[suffix]
        try:
            with open_regular(require_inside(paths[0], root)) as file:
                start = file.read(MOST_READ)
        except (OSError, UserError):
            continue
        if re.search(sign, start):
            first = paths[0].relative_to(root).as_posix()
            remarks.append(
                f"{kind} files with the names of images are not read ({len(paths)}; {first} is the first). "
                "Export these labels as PNG masks, or as COCO."
            )
    return remarks


def unsupported_images(problems: Iterable[Problem]) -> str:
    """A phrase that counts files of unsupported kinds; empty where there are none."""
    suffixes = (problem.file.suffix.lower() for problem in problems)
    kinds = Counter(suffix for suffix in suffixes if suffix in UNSUPPORTED)
    counts = " and ".join(f"{count} of kind {suffix}" for suffix, count in sorted(kinds.items()))
    return f", but files that are not read: {counts}. Convert them to JPEG or PNG" if kinds else ""
