"""Annotations of training and of validation in two files, which are called so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from oneway.data.folder.description import Description, Part
from oneway.data.folder.names import IMAGES
from oneway.data.folder.walk import choose_folder

WORDS = {
    "train": re.compile(r"(?<![a-z])train(ing)?(?![a-z])"),
    "val": re.compile(r"(?<![a-z])val(id|idation)?(?![a-z])"),
}


def two_files(root: Path, key: str, files: Sequence[str]) -> Description | None:
    """The parts of which one file each has the annotations, if there is one for either.

    Args:
        root: The data folder.
        key: The format.
        files: Of annotations, below it.
    """
    stems = {file: PurePosixPath(file).stem.lower() for file in files}
    chosen = {word: [file for file in files if sign.search(stems[file])] for word, sign in WORDS.items()}
    if [len(found) for found in chosen.values()] != [1, 1]:
        return None
    (train,), (val,) = chosen.values()
    whole = choose_folder(root, ".", IMAGES) or "."
    places = [_folder(root, whole, stems[file], word) for file, word in ((train, "train"), (val, "val"))]
    images = places if all(places) else [whole, whole]
    parts = [Part(images=str(place), **{key: file}) for place, file in zip(images, (train, val), strict=True)]
    return Description(train=parts[0], val=parts[1])


def _folder(root: Path, whole: str, stem: str, word: str) -> str | None:
    """The folder of images that is called as the file is, or as the split."""
    names = (*(stem[start:] for start in range(len(stem)) if stem.startswith(word, start)), word, f"{word}id")
    return choose_folder(root, whole, names) or choose_folder(root, ".", names)
