"""What every format of annotations is to the rest: where its files are, and what they say about images."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from oneway.common.bounded import open_regular
from oneway.common.errors import UserError
from oneway.common.words import composed, listed
from oneway.data.decode.regions import Regions
from oneway.data.folder.description import DatasetPart, Description
from oneway.data.folder.names import IMAGES
from oneway.data.folder.walk import Problem, choose_folder, entries_of, stem_below

MOST_READ = 2**16  # bytes of a file that are looked at to tell its format
SPLITS = {
    "train": re.compile(r"(?<![a-z])train(ing)?(?![a-z])"),
    "val": re.compile(r"(?<![a-z])val(id|idation)?(?![a-z])"),
}
"""Words in the names of two files, of which one has the annotations of training and the other those of validation."""


@dataclass(frozen=True)
class AnnotationSource:
    """Images, and where their annotations are."""

    root: Path  # the data folder
    folder: Path  # of the images
    images: list[Path]
    labels: Path  # the file or the folder of annotations
    problems: list[Problem]  # what is found wrong with single files is added
    ignore_crowds: bool = False

    @cached_property
    def _by_path(self) -> dict[str, Path]:
        starts = (self.root, self.folder)
        paths = {path.relative_to(start).as_posix(): path for start in starts for path in self.images}
        return {composed(path): image for path, image in paths.items()} | paths

    @cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        return _grouped(self.images, lambda path: path.name)

    @cached_property
    def by_stem(self) -> dict[str, Path]:
        """The images by their paths below the folder, without suffixes."""
        return {stem_below(path, self.folder): path for path in self.images}

    @cached_property
    def _by_alike_name(self) -> dict[str, list[Path]]:
        return _grouped(self.images, lambda path: _alike(path.name))

    def named(self, name: str) -> Path | None:
        """The image that alone has this name, or else alone has it in upper or lower case, composed or not."""
        found = self._by_name.get(name) or self._by_alike_name.get(_alike(name), [])
        return found[0] if len(found) == 1 else None

    def match(self, file: Path, entries: Iterable[str]) -> dict[Path, str]:
        """The images that a file lists by path, or else by a name that no other has; those not found are problems.

        Where no image has the name, upper and lower case do not matter; those with exact names come first.
        """
        found: dict[Path, str] = {}
        for entry in sorted(
            entries, key=lambda entry: PurePosixPath(entry.replace("\\", "/")).name not in self._by_name
        ):
            wanted = PurePosixPath(entry.replace("\\", "/"))
            path = wanted.as_posix()
            image = self._by_path.get(path) or self._by_path.get(composed(path)) or self.named(wanted.name)
            if image is None:
                reason = "several have this name" if _alike(wanted.name) in self._by_alike_name else "it is not there"
                message = f"lists {entry!r:.200}, which is not found in {self.folder}: {reason}."
                self.problems.append(Problem(file, message))
            elif image in found:
                message = f"lists {image.name} as {found[image]!r:.200} and as {entry!r:.200}."
                self.problems.append(Problem(file, message))
            else:
                found[image] = entry
        return found


def _grouped(paths: Iterable[Path], key: Callable[[Path], str]) -> dict[str, list[Path]]:
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        groups[key(path)].append(path)
    return groups


def _alike(name: str) -> str:
    return composed(name).lower()


@dataclass(frozen=True)
class Annotations:
    """What is annotated on images; outlines are read when they are asked for."""

    names: tuple[str, ...]  # of the classes, without the background
    files: Mapping[Path, Path]  # by image: the file that has its annotations
    empty: frozenset[Path]  # images among these on which nothing is annotated
    regions: Callable[[Path], Regions]  # of an image among these
    listed: bool = True  # whether `names` is a list of all classes, and not only of those that occur
    remarks: tuple[str, ...] = ()  # what was decided for the user
    further: Mapping[Path, tuple[Path, ...]] = field(default_factory=dict)  # by image: more files of its annotations
    pictures: frozenset[Path] = frozenset()  # image files that are annotations, and no images
    coding: str = ""  # what a file says that is none of an image, and that decides its labels


def renamed(annotations: Annotations, names: Mapping[str, str]) -> Annotations:
    """Annotations in which some classes have other names."""

    def regions(image: Path) -> Regions:
        found = annotations.regions(image)
        return replace(
            found,
            regions=tuple(replace(one, name=one.name and names.get(one.name, one.name)) for one in found.regions),
        )

    distinct = tuple(dict.fromkeys(names.get(name, name) for name in annotations.names))
    return replace(annotations, names=distinct, regions=regions)


def of_one_file(
    path: Path, found: Mapping[Path, Regions], names: Iterable[str], listed: bool, remarks: tuple[str, ...]
) -> Annotations:
    """What a single file says about images, in the words of `Annotations`."""
    empty = frozenset(image for image, regions in found.items() if not regions.regions)
    return Annotations(tuple(names), dict.fromkeys(found, path), empty, found.__getitem__, listed, remarks)


def files_with(suffix: str, root: Path, folder: str) -> list[str]:
    """Files with a suffix in a folder, and in `annotations` within, by their paths below the root."""
    return [
        PurePosixPath(place, entry.name).as_posix()
        for place in filter(None, (folder, choose_folder(root, folder, ("annotations",))))
        for entry in entries_of(root / place)
        if entry.name.lower().endswith(suffix) and (root / place / entry.name).is_file()
    ]


def begins_with(sign: re.Pattern[bytes], path: Path, most: int = MOST_READ) -> bool:
    """Whether the first bytes of a file, at most so many, hold the sign of a format; what cannot be read does not."""
    try:
        with open_regular(path) as file:
            return sign.search(file.read(most)) is not None
    except (OSError, UserError):
        return False


def without_area(kinds: Counter[str]) -> tuple[str, ...]:
    """A remark on shapes that cannot be painted, by their kind; or none."""
    if not kinds:
        return ()
    count = listed(f"{count} of kind {kind!r:.40}" for kind, count in sorted(kinds.items()))
    return (f"Shapes without an area are left out: {count}.",)


def two_files(root: Path, key: str, files: Sequence[str]) -> Description | None:
    """The parts of which one file each has the annotations of a format (`key`), if there is one for either."""
    stems = {file: PurePosixPath(file).stem.lower() for file in files}
    chosen = {word: [file for file in files if sign.search(stems[file])] for word, sign in SPLITS.items()}
    if [len(found) for found in chosen.values()] != [1, 1]:
        return None
    (train,), (val,) = chosen.values()
    whole = choose_folder(root, ".", IMAGES) or "."
    places = [_folder(root, whole, stems[file], word) for file, word in ((train, "train"), (val, "val"))]
    images = places if all(places) else [whole, whole]
    parts = [DatasetPart(images=str(place), **{key: file}) for place, file in zip(images, (train, val), strict=True)]
    return Description(train=parts[0], val=parts[1])


def _folder(root: Path, whole: str, stem: str, word: str) -> str | None:
    """The folder of images that is called as the file is, or as the split."""
    names = (*(stem[start:] for start in range(len(stem)) if stem.startswith(word, start)), word, f"{word}id")
    return choose_folder(root, whole, names) or choose_folder(root, ".", names)
