"""Accented letters as one character or as two, as macOS stores them: names pair up, of files and of classes."""

from __future__ import annotations

import json
from unicodedata import normalize

import pytest

from data.folders import coco, labelled, listing, mask, names, photo, write

NAME = "Süd é 1"
FORMS = [("NFC", "NFD"), ("NFD", "NFC"), ("NFD", "NFD")]


@pytest.mark.parametrize(("stored", "given"), FORMS)
@pytest.mark.parametrize("name", ["{}.png", "{}_mask.png", "mask_{}.png"])
def test_masks(tmp_path, stored, given, name):
    """With words such as `_mask`, too; the image keeps its name."""
    for number in range(2):
        photo(tmp_path / "images" / f"{normalize(stored, NAME)}{number}.jpg")
        mask(tmp_path / "masks" / name.format(f"{normalize(given, NAME)}{number}"))
    found = listing(tmp_path)
    assert len(labelled((*found.train, *found.val))) == 2
    assert names(found.val)[0].startswith(f"images/{normalize(stored, NAME)}")


@pytest.mark.parametrize(("stored", "given"), FORMS)
def test_entries_of_annotations(tmp_path, stored, given):
    """By name and, where several have it, by path; in a list of images as well."""
    stored, given = normalize(stored, NAME), normalize(given, NAME)
    for folder in ("a", "b"):
        photo(tmp_path / "images" / folder / f"{stored}.jpg")
    photo(tmp_path / "images" / f"{stored}{stored}.jpg")
    coco(tmp_path / "all.json", [f"a/{given}.jpg", f"b/{given}.jpg", f"{given}{given}.jpg"])
    found = listing(tmp_path)
    assert len(labelled((*found.train, *found.val))) == 3
    write(tmp_path / "list.txt", f"a/{given}\n{given}{given}.jpg\n")
    write(tmp_path / "dataset.yaml", "train: {images: images, coco: all.json, list: list.txt}")
    assert len(labelled((*listing(tmp_path).train, *listing(tmp_path).val))) == 2


@pytest.mark.parametrize(("stored", "given"), FORMS)
def test_files_of_single_images_and_classes(tmp_path, stored, given):
    """A class is the same in either form."""
    box = [[2, 1], [7, 1], [7, 4], [2, 4]]
    for number, form in enumerate((stored, given)):
        photo(tmp_path / f"{normalize(stored, NAME)}{number}.jpg")
        shape = {"label": normalize(form, "Straße é"), "points": box}
        write(tmp_path / f"{normalize(given, NAME)}{number}.json", json.dumps({"shapes": [shape]}))
    found = listing(tmp_path)
    assert len(labelled((*found.train, *found.val))) == 2
    assert found.classes == ("background", normalize("NFC", "Straße é"))
