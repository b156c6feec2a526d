"""Which files a folder holds; nothing outside it is read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from oneway.common.errors import UserError
from oneway.common.run_files import is_contact_sheet, is_output
from oneway.common.words import command, composed
from oneway.data.cache.archives import ZIP, unzip_command
from oneway.data.decode.images import SUFFIXES, hidden
from oneway.data.decode.masks import MASK_SUFFIXES
from oneway.data.decode.video import VIDEO_SUFFIXES

VOLUME = ".nii.gz"  # of NIfTI, whose last suffix alone would be that of an archive
VOLUMES = frozenset(f".dcm .nii {VOLUME} .nrrd .mha .mhd".split())
PICTURES = frozenset(".heic .heif .avif .jp2 .j2k .jxl .svg .psd .dng .nef .cr2 .arw .raw".split()) - SUFFIXES | VOLUMES
"""Suffixes of pictures that are not read, though a user may expect it."""

MOST_BELOW = 32  # subfolders that are looked at

UNSUPPORTED = PICTURES | VIDEO_SUFFIXES | frozenset((".npy", ".npz", ".mat", ZIP))
"""Suffixes of all files that are not read, though a user may expect it."""


@dataclass(frozen=True)
class Problem:
    """What is wrong with one file, though the others can be used."""

    file: Path
    message: str


def kind_of(file: Path) -> str:
    """The suffix of a file, in lower case."""
    return VOLUME if file.name.lower().endswith(VOLUME) else file.suffix.lower()


def walk(folder: Path, home: Path, problems: list[Problem]) -> Iterator[Path]:
    """Files in a folder and its subfolders, in order of name; a link that leads out of `home` is a UserError.

    Subfolders that oneway wrote are passed over, and so is a contact sheet beside its table.
    """
    waiting = [(folder, entry) for entry in reversed(entries_of(folder))]
    while waiting:
        parent, entry = waiting.pop()
        path = parent / entry.name
        if entry.is_dir(follow_symlinks=False):
            waiting += [] if is_output(path) else [(path, inner) for inner in reversed(entries_of(path))]
        elif is_contact_sheet(path):
            continue
        elif not entry.name.isprintable():  # nor can it be stored in a list of names
            named = f"the file {entry.name!a} in it has a name that cannot be shown; rename it."
            problems.append(Problem(parent, named))
        elif entry.is_file(follow_symlinks=False) or (entry.is_symlink() and require_inside(path, home).is_file()):
            yield path
        elif entry.is_symlink():  # followed, links among folders could go round in circles
            problems.append(Problem(path, _about_link(path, home)))


def images_in(folder: Path, home: Path, problems: list[Problem], masks: bool = False) -> list[Path]:
    """Image files in a folder and its subfolders, in order of name; with `masks`, files of other kinds that may be."""
    suffixes = MASK_SUFFIXES if masks else SUFFIXES
    files = list(walk(folder, home, problems))
    for path in files:
        if path.suffix.lower() in VIDEO_SUFFIXES:
            frames = command("--data.unlabelled", path)
            problems.append(Problem(path, f"left out: a video. `{frames}` trains on its frames, without labels."))
        elif kind_of(path) == ZIP:
            problems.append(
                Problem(path, f"left out: an archive. Unpack it if it is to be used: {unzip_command(path)}")
            )
        elif kind_of(path) in UNSUPPORTED - suffixes:
            problems.append(Problem(path, "left out: not read. Convert it to JPEG or PNG if it is to be used."))
    return [path for path in files if path.suffix.lower() in suffixes]


def stem_below(path: Path, folder: Path) -> str:
    """The path of a file below a folder, without its suffix and composed: what an image and its labels share."""
    return composed(path.relative_to(folder).with_suffix("").as_posix())


def _about_link(path: Path, home: Path) -> str:
    """What is said of a link to a folder in the data folder, or to nothing."""
    if not path.is_dir():
        return "a link to nothing."
    target = path.resolve().relative_to(home.resolve()).as_posix()
    return f"a link to the folder {target}, which is not followed: files count once, where they lie."


def require_inside(path: Path, home: Path) -> Path:
    """Return the path if it leads to something inside `home`; raises a UserError if not."""
    try:
        target = path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle; a name with a zero byte
        raise UserError(f"{path}: leads nowhere ({error}).") from None
    if not target.is_relative_to(home.resolve()):
        copy = f"Copy what is needed into the folder{_how(path, home)}."
        raise UserError(f"{path}: leads out of {home}, to {target}. {copy}")
    return path


def _how(path: Path, home: Path) -> str:
    """How a folder is made whole, where a link leads out of it, and not a path that somebody wrote."""
    here = Path(os.path.abspath(home))
    if not Path(os.path.abspath(path)).is_relative_to(here):
        return ""
    copy = command("cp", "-RLl", home, here.with_name(f"{here.name}-whole"))
    return f": `{copy}` makes a folder without links, and takes no room (without the l, also from one disk to another)"


def entries_of(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, in order of name, without hidden entries."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise UserError(f"{folder}: cannot be listed ({error.strerror}).") from None
    return [entry for entry in entries if not hidden(PurePosixPath(entry.name))]


def folders_in(folder: Path, most: int | None = None) -> list[str]:
    """The names of the folders in a folder, in order and at most so many, without hidden ones and links."""
    return [entry.name for entry in entries_of(folder) if entry.is_dir(follow_symlinks=False)][:most]


def choose_folder(root: Path, folder: str, names: tuple[str, ...], with_images: bool = False) -> str | None:
    """The subfolder with the first of these names, in upper or lower case; with images or masks in it, if asked for."""
    called_so = {entry.name.lower(): entry.name for entry in entries_of(root / folder) if entry.name.lower() in names}
    present = {lower: name for lower, name in called_so.items() if (root / folder / name).is_dir()}
    for name in names:
        if name in present:
            path = PurePosixPath(folder, present[name]).as_posix()
            files = walk(require_inside(root / path, root), root, [])
            if not with_images or any(file.suffix.lower() in MASK_SUFFIXES for file in files):
                return path
    return None


def unsupported_images(problems: Iterable[Problem]) -> str:
    """A phrase that counts files of unsupported kinds, with what to do about them; empty where there are none."""
    files = [problem.file for problem in problems if kind_of(problem.file) in UNSUPPORTED]
    kinds = Counter(map(kind_of, files))
    counts = " and ".join(f"{count} of kind {suffix}" for suffix, count in sorted(kinds.items()))
    if kinds and kinds.keys() <= VIDEO_SUFFIXES:
        read = command("--data.unlabelled", os.path.commonpath(files))
        way_out = f"`{read}` trains on their frames, without labels. To label some, save them as images"
        return f", but videos: {counts}. {way_out}"
    if kinds.keys() == {ZIP}:
        return f", but archives: {counts}. Name the archive instead of the folder ({files[0]}), or unpack it"
    return f", but files that are not read: {counts}. Convert them to JPEG or PNG" if kinds else ""
