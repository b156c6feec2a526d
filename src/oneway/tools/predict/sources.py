"""Which images and videos are meant by what a user types."""

from __future__ import annotations

import glob
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.run_files import is_contact_sheet, is_output
from oneway.common.words import command, listed
from oneway.data.decode.images import SUFFIXES, hidden
from oneway.data.decode.video import VIDEO_SUFFIXES
from oneway.data.folder.walk import PICTURES, kind_of
from oneway.tools.predict.labelled_files import labelled_in, masks_in
from oneway.tools.predict.result_names import shortest_names
from oneway.tools.predict.skipped import ARCHIVES, Skipped, how_to_unpack

KINDS = SUFFIXES | VIDEO_SUFFIXES | PICTURES | ARCHIVES  # of files about which there is something to say


@dataclass(frozen=True)
class Source:
    """An image or a video to predict."""

    path: Path
    """Of the file itself; a link to it may have another name."""

    name: str
    """The name of its results below their folder: no suffix, forward slashes. No two sources share one."""

    file_name: str
    """The name as it was given, below the folder of all: with a suffix. No two sources share one."""

    @property
    def is_video(self) -> bool:
        """Whether it is a video, going by its suffix."""
        return Path(self.file_name).suffix.lower() in VIDEO_SUFFIXES


def find_sources(
    paths: Sequence[str], out: Path, skipped: Skipped | None = None, unlabelled: bool = False
) -> list[Source]:
    """Images and videos among files, folders (with their subfolders) and patterns, each once.

    A link lends its name only where the file that it leads to is not among them itself. Within folders and patterns,
    neither results nor runs of ours count, nor masks of a data set that a folder is; which files of folders are left
    out is added to `skipped`. With `unlabelled`, images that have labels are left out too.

    Raises:
        UserError: A path leads to nothing, or to a result in `out`, which a prediction could overwrite; or `unlabelled`
            is asked of a path that is no folder of a data set, or where every image has labels.
    """
    if not paths:
        raise UserError("No image given. Name files, folders or patterns: oneway predict RUN photos 'more/**/*.jpg'")
    if "" in paths:
        raise UserError("One of the paths is empty, as by a variable that is not set. For all of this folder, write .")
    found: dict[Path, tuple[Path, Path]] = {}
    skipped = skipped or Skipped()
    matches = [(path.resolve(), root, path) for text in paths for root, path in _matches(text, out, skipped)]
    files = {target for target, _, path in matches if not path.is_symlink()}
    for target, root, path in matches:
        if target not in files or not path.is_symlink():
            found.setdefault(target, (root, path.relative_to(root)))
    named = {Path(text).resolve() for text in paths}
    skipped.links = [link for link in skipped.links if not _leads_into(link, named)]
    for labelled in (labelled_in(Path(text)) for text in paths if unlabelled):
        found = {path: name for path, name in found.items() if path not in labelled}
    if not found:
        raise UserError(f"--unlabelled: every image of {listed(paths)} has labels. Leave it out to predict them.")
    return [Source(path, *names) for path, names in zip(found, shortest_names(found), strict=True)]


def _matches(text: str, out: Path, skipped: Skipped) -> list[tuple[Path, Path]]:
    """Pairs of a folder and a file below it; a UserError where there is none, or one lies where results go."""
    path = Path(text)
    if path.is_dir() and not _below(path, out):
        files = _in_folder(path, out, skipped)
    elif path.exists() or not glob.has_magic(text):
        files = [_named_file(text)]
    else:
        files = _by_pattern(text, skipped)
    for _, file in files:
        if _below(file, out):
            raise UserError(f"{file}: lies in {out}, where results go. Choose another folder with --out.")
    return files


def _in_folder(folder: Path, out: Path, skipped: Skipped) -> list[tuple[Path, Path]]:
    """What there is to predict in a folder and its subfolders; neither results nor masks of a data set."""
    is_mask = masks_in(folder)
    inside = [file for file in _wanted(_below_folder(folder, skipped), folder, skipped) if not _below(file, out)]
    masks = {file for file in inside if is_mask(file)}
    files = [(folder, file) for file in inside if file not in masks]
    skipped.masks += sorted(masks)
    if not files and (skipped.kinds or skipped.archives or skipped.links or skipped.unlisted):
        raise UserError(f"{folder}: no image or video in this folder. {next(skipped.messages())}")
    if not files:
        raise UserError(f"{folder}: no image or video in this folder, apart from results and masks.")
    return files


def _named_file(text: str) -> tuple[Path, Path]:
    """A file that is named by itself, whatever it is but an archive."""
    path = Path(text)
    if "://" in text:
        saved = command("ffmpeg", "-i", text, "-t", 60, "saved.mp4")
        raise UserError(f"{text}: an address, and files are predicted. Save it first; a minute of a stream: {saved}")
    if not path.exists():
        raise UserError(f"{path}: no such file or folder.")
    if kind_of(path) in ARCHIVES and path.is_file():
        raise UserError(f"{path}: shards and archives are not predicted. {how_to_unpack(path)}")
    return path.parent, path


def _by_pattern(text: str, skipped: Skipped) -> list[tuple[Path, Path]]:
    """What there is to predict among the files that a pattern matches."""
    pattern = Path(text)
    root = next(folder for folder in pattern.parents if not glob.has_magic(str(folder)))  # above the first wildcard
    passed = Skipped()
    files = [(root, file) for file in _wanted(_matching(root, *pattern.relative_to(root).parts), root, passed)]
    if not files and passed.archives:
        raise UserError(f"{text}: no image or video matches. {next(passed.messages())}")
    if not files:
        raise UserError(f"{text}: no image or video matches, apart from results.")
    skipped.kinds += passed.kinds
    skipped.archives += passed.archives
    return files


def _below_folder(folder: Path, skipped: Skipped) -> Iterator[Path]:
    """All that is not hidden in a folder and its subfolders. Links to folders are among it, and not followed."""
    for here, folders, files in os.walk(folder, onerror=skipped.unlisted.append):
        folders[:] = [name for name in folders if not hidden(Path(name))]
        yield from (Path(here, name) for name in (*folders, *files))


def _matching(folder: Path, part: str = "", *rest: str) -> Iterator[Path]:
    """What a pattern matches below a folder, as by `glob`, which would follow links in circles for hours."""
    if not part:
        yield folder
    elif part == "**":
        for inner in _folders(folder):
            yield from _matching(inner, *(rest or "*"))
    else:
        for name in glob.glob(part, root_dir=folder):
            yield from _matching(folder / name, *rest)


def _folders(top: Path) -> Iterator[Path]:
    """A folder and all below that are not hidden, each once: by a link only where no other way leads to it."""
    waiting, seen = deque([top]), set()
    while waiting:
        folder = waiting.popleft()
        if (target := folder.resolve()) in seen:
            continue
        seen.add(target)
        yield folder
        with suppress(OSError):  # as `glob` does, of what may not be listed
            for inner in sorted(inner for inner in folder.iterdir() if inner.is_dir() and not hidden(Path(inner.name))):
                (waiting.append if inner.is_symlink() else waiting.appendleft)(inner)


def _leads_into(link: Path, folders: set[Path]) -> bool:
    """Whether a link leads to one of some folders or below it, where its images are found without it."""
    target = Path(os.path.realpath(link))  # `resolve` raises an error where links lead in a circle
    above = next((place for place in (target, *target.parents) if place in folders), None)
    return above is not None and target.is_dir() and not hidden(target.relative_to(above))


def _wanted(paths: Iterable[Path], root: Path, skipped: Skipped) -> list[Path]:
    """Images and videos among paths below a folder, in order of name: for all to see, and nothing we wrote."""
    ours, wanted = cache(is_output), list[Path]()
    for path in sorted(paths):
        is_file, suffix = path.is_file(), kind_of(path)
        leads_nowhere = path.is_symlink() and not is_file
        if not leads_nowhere and not (is_file and suffix in KINDS):
            continue
        if hidden(path.relative_to(root)) or is_contact_sheet(path):
            continue
        if any(ours(folder) for folder in path.parents if folder.is_relative_to(root)):
            continue
        if leads_nowhere:
            skipped.links.append(path)
        elif suffix in ARCHIVES:
            skipped.archives.append(path)
        elif suffix in PICTURES:
            skipped.kinds[suffix] += 1
        else:
            wanted.append(path)
    return wanted


def _below(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
