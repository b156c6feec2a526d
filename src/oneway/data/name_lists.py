"""Files that list images by name, as users write them and other projects publish them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from oneway.common.bounded import read_bounded
from oneway.common.errors import UserError
from oneway.common.words import composed, listed
from oneway.data.decode.images import SUFFIXES

MOST_BYTES = 16 * 2**20
"""The most bytes of a list file; one of all 23,000 training images of Cityscapes, with their masks, has 4 MiB."""

FIRST_PATH = re.compile(rf".+?(?:{'|'.join(map(re.escape, SUFFIXES))})(?=[\s,;]|$)", re.IGNORECASE)
"""The first path on a line: it ends with an image's extension, since names have spaces and commas in them too."""

PART = re.compile(r'[,;\t]\s*"?(train|training|val|valid|validation|test)"?\s*(?=[,;\t]|$)', re.IGNORECASE)
"""A column that says of which part an image is."""


def images_in_list(
    path: Path, candidates: tuple[str, ...], names: tuple[str, ...], validation: tuple[str, ...]
) -> tuple[str, ...]:
    """The `candidates` that a file lists, in their order; entries are compared with names and never opened.

    A line has the path of an image, and may have that of a mask behind it, as lists of other projects do.
    """
    meant_by, without_labels = _matcher(candidates), set(names) - set(candidates)
    entries: dict[str, str] = {}
    for number, line in _lines(path):
        first_path = FIRST_PATH.match(line)
        entry = first_path[0] if first_path and meant_by(line) != [line] else line
        place, shown = f"{path}:{number}", repr(entry[:200])
        match meant_by(entry):
            case _ if entry in without_labels:
                raise UserError(f"{place}: {shown} has no labels. List images that have a mask.")
            case [image]:
                if (earlier := entries.setdefault(image, entry)) != entry:
                    raise UserError(
                        f"{place}: {shown} and, before it, {earlier[:200]!r} both mean '{image}'. "
                        "Write names as the data set has them."
                    )
            case [one, other, *_]:
                raise UserError(f"{place}: {shown} could mean '{one}' or '{other}'. Write more of its path.")
            case _ if validation and len(_matcher(validation)(entry)) == 1:
                raise UserError(
                    f"{place}: {shown} validates, and cannot train. Leave it out; or name the images that validate in "
                    "dataset.yaml, with `val`: where nothing names them, they are drawn."
                )
            case _:
                raise UserError(
                    f"{place}: there is no training image {shown}. "
                    f"Write one per line, by its path below the data folder, such as '{candidates[0]}'."
                )
    if not entries:
        raise UserError(f"{path}: lists no image. Give a file with one image name per line.")
    return tuple(name for name in candidates if name in entries)


def names_in_list(path: Path, names: Sequence[str]) -> tuple[set[str], list[str]]:
    """The names that a file lists, and the entries that mean none of them, or several."""
    meant_by = _matcher(tuple(names)) if names else lambda entry: []
    found, unknown = set[str](), list[str]()
    for _, line in _lines(path):
        first_path = FIRST_PATH.match(line)
        meant = meant_by(line) or meant_by(first_path[0] if first_path else line.split()[0])
        if len(meant) == 1:
            found.add(meant[0])
        else:
            unknown.append(line)
    return found, unknown


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without comments and blank ones."""
    try:
        text = read_bounded(path, MOST_BYTES).decode("utf-8-sig")  # with or without the mark that some editors write
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file in UTF-8. Give one with an image name per line.") from None
    lines = re.split(r"\r\n?|\n", text)
    parts = {found[1].lower(): None for line in lines if (found := PART.search(line))}
    if len(parts) > 1:  # or images meant to validate would train
        raise UserError(
            f"{path}: a table of images for {listed(parts)}, which would all be read as one list. Write those of each "
            "into a file of their own, and name it as `list` of `train` or of `val` in dataset.yaml."
        )
    for number, line in enumerate(lines, start=1):
        if (stripped := line.strip()) and not stripped.startswith("#"):
            yield number, stripped


def _matcher(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """A function from an entry to the names it can mean.

    Those are the name itself; else the names whose last folders and file name agree with the entry's in most places;
    else the same without regard to extensions, since sets get converted and lists leave them out.
    """
    whole, stems = defaultdict(list), defaultdict(list)
    for name in names:
        path = PurePosixPath(composed(name))
        for start in range(len(path.parts)):
            whole[path.parts[start:]].append(name)
            stems[(*path.parts[start:-1], path.stem)].append(name)
    deepest = max(len(ending) for ending in whole)
    known = set(names)

    def meant_by(entry: str) -> list[str]:
        if entry in known:
            return [entry]
        path = PurePosixPath(composed(entry).replace("\\", "/"))
        parts = path.parts[-deepest:]
        for endings, sought in ((whole, parts), (stems, parts), (stems, (*parts[:-1], path.stem))):
            for start in range(len(sought)):
                if found := endings.get(sought[start:]):
                    return found
        return []

    return meant_by
