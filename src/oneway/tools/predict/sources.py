"""Which files are meant by what a user types, and under which names their results are kept."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.run_files import is_output
from oneway.data.decode.images import SUFFIXES, hidden
from oneway.data.folder import FILE, find

VIDEO_SUFFIXES = frozenset({".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg"})


@dataclass(frozen=True)
class Source:
    """An image or a video to predict."""

    path: Path
    name: str
    """Of its results, without a suffix; below the folder of results, with forward slashes. No two sources share one."""

    @property
    def is_video(self) -> bool:
        """Whether it is a video, going by its suffix."""
        return self.path.suffix.lower() in VIDEO_SUFFIXES


def find_sources(paths: Sequence[str], out: Path) -> list[Source]:
    """Images and videos among files, folders (with their subfolders) and patterns, each once.

    Within folders and patterns, neither results nor runs of ours count, nor masks of a data set that a folder is.

    Raises:
        UserError: A path leads to nothing, or to a result in `out`, which a prediction could overwrite.
    """
    if not paths:
        raise UserError("No image given. Name files, folders or patterns: oneway predict RUN photos 'more/**/*.jpg'")
    found: dict[Path, Path] = {}
    for text in paths:
        for root, path in _matches(text, out):
            found.setdefault(path.resolve(), path.relative_to(root))
    return [Source(path, name) for path, name in zip(found, _names(found), strict=True)]


def _matches(text: str, out: Path) -> Iterator[tuple[Path, Path]]:
    """Pairs of a folder and a file below it."""
    path = Path(text)
    if path.is_dir() and not _below(path, out):
        masks = _masks(path)
        inside = [file for file in _wanted(path.rglob("*"), path) if not _below(file, out)]
        files = [(path, file) for file in inside if file.resolve() not in masks]
        if not files:
            raise UserError(f"{path}: no image or video in this folder, apart from results and masks.")
    elif path.exists() or not glob.has_magic(text):
        if not path.exists():
            raise UserError(f"{path}: no such file or folder.")
        files = [(path.parent, path)]
    else:
        root = next(folder for folder in path.parents if not glob.has_magic(str(folder)))  # above the first wildcard
        files = [(root, file) for file in _wanted(map(Path, glob.glob(text, recursive=True)), root)]
        if not files:
            raise UserError(f"{text}: no image or video matches, apart from results.")
    for _, file in files:
        if _below(file, out):
            raise UserError(f"{file}: lies in {out}, where results go. Choose another folder with --out.")
    yield from files


def _wanted(paths: Iterable[Path], root: Path) -> list[Path]:
    """Images and videos among paths below a folder, in order of name: for all to see, and nothing we wrote."""
    ours = cache(is_output)

    def wanted(path: Path) -> bool:
        if path.suffix.lower() not in SUFFIXES | VIDEO_SUFFIXES or hidden(path.relative_to(root)) or not path.is_file():
            return False
        return not any(ours(folder) for folder in path.parents if folder.is_relative_to(root))

    return sorted(filter(wanted, paths))


def _masks(folder: Path) -> set[Path]:
    """Files that are the masks of other files, where a folder is a data set."""
    with suppress(UserError):  # one that cannot be trained on may still hold photos
        found, described = find(folder), (folder / FILE).is_file()
        pairs = [(item.image, item.mask) for item in (*found.train, *found.val) if item.mask]
        # Unless someone says so, a.png beside a.jpg may be another photo.
        return {mask.resolve() for image, mask in pairs if described or mask.with_suffix("") != image.with_suffix("")}
    return set()


def _below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _names(found: dict[Path, Path]) -> list[str]:
    """Names as short as can be that still differ, also where a file system takes upper and lower case for the same."""
    choices = [_choices(path, relative) for path, relative in found.items()]
    length = [0] * len(choices)
    while True:
        names = [forms[at] for forms, at in zip(choices, length, strict=True)]
        count = Counter(name.casefold() for name in names)
        clashing = [index for index, name in enumerate(names) if count[name.casefold()] > 1]
        longer = [index for index in clashing if length[index] < len(choices[index]) - 1]
        if not longer:
            # What differs in nothing but case gets a number behind it.
            return [f"{name}-{clashing.index(at) + 1}" if at in clashing else name for at, name in enumerate(names)]
        for index in longer:
            length[index] += 1


def _choices(path: Path, relative: Path) -> tuple[str, ...]:
    """Names of one source, the shortest first."""
    above = path.parents[len(relative.parts) - 1]
    forms = (relative.with_suffix(""), relative, above.name / relative, path.relative_to(path.anchor))
    return tuple(form.as_posix() for form in forms)
