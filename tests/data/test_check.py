"""Each defect, sown into a clean set, is found with its file and value, alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.defects import (
    DEFECTS,
    DESCRIPTION,
    IMAGE,
    MASK,
    VAL_IMAGE,
    clean_set,
    copy,
    edit_mask,
    findings,
    remove,
    told_to_a_person,
    truncate,
)
from oneway.common.terms import IGNORE


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found_alone_with_file_and_value(tmp_path, capsys, name):
    """Nothing else is reported, so whoever mends it is done."""
    defect = DEFECTS[name]
    root = clean_set(tmp_path / "data")
    defect.sow(root)
    (found,) = findings(root, capsys)
    assert (found.level, found.file) == (defect.level, defect.file), found
    for words in defect.says:
        assert words in found.message


def test_a_clean_set_of_500_raises_no_alarm(tmp_path, capsys):
    """Neither errors nor warnings, whatever image looks most like which."""
    assert findings(clean_set(tmp_path / "data", train=400, val=100), capsys) == []


def test_all_images_of_12_bits_are_to_be_brightened_alike(tmp_path, capsys):
    """As the brightest of them asks for, though one by itself would do with fewer bits."""
    root = clean_set(tmp_path / "data")
    for path in root.glob("*/images/*"):
        shade = 4 if path == root / IMAGE else 16
        Image.fromarray(np.asarray(Image.open(path).convert("L")).astype(np.uint16) * shade).save(path)
    (found,) = findings(root, capsys)
    assert (found.level, found.file) == ("error", ".")
    assert (
        "no value of the 25 images in 16 bits exceeds 4095 of 65535, so that of 256 levels 16 are seen" in found.message
    )
    assert "`bits: 12` in dataset.yaml spreads them over all" in found.message


def test_a_single_labelled_training_image_is_suspicious(tmp_path, capsys):
    """The others serve without labels, as images without a mask do."""
    root = clean_set(tmp_path / "data")
    remove("train/masks/*", spared="003.png")(root)
    (found,) = findings(root, capsys)
    assert (found.level, found.file) == ("warning", IMAGE)


def test_files_are_named_below_the_data_folder_however_that_is_given(tmp_path, capsys, monkeypatch):
    """From the folder above, from inside, and through a link."""
    root = clean_set(tmp_path / "data")
    copy(MASK, "train/masks/700.png")(root)
    truncate(MASK, 0.6)(root)
    (tmp_path / "link").symlink_to(root)
    for folder, given in ((tmp_path, "data"), (root, "."), (tmp_path, "link")):
        monkeypatch.chdir(folder)
        assert {finding.file for finding in findings(Path(given), capsys)} == {MASK, "train/masks/700.png"}
    monkeypatch.chdir(root)
    assert told_to_a_person(Path())[1].startswith("data")


def test_every_mask_counted_from_1_is_named_with_its_value(tmp_path, capsys):
    """Where the last class shows it: four classes end at 3."""
    root = clean_set(tmp_path / "data")
    edit_mask(lambda mask: np.where(mask == IGNORE, mask, mask + 1).astype(np.uint8), "*/masks/*")(root)
    found = findings(root, capsys)
    assert {finding.file for finding in found} == {path.relative_to(root).as_posix() for path in root.glob("*/masks/*")}
    assert all(finding.level == "error" and "value 4" in finding.message for finding in found)


def test_a_split_without_a_labelled_pixel_is_an_error(tmp_path, capsys):
    """One such mask is suspicious; of nothing else, no score can be made."""
    root = clean_set(tmp_path / "data")
    edit_mask(lambda mask: np.full_like(mask, IGNORE), "val/masks/*")(root)
    error, *warnings = findings(root, capsys)
    assert (error.level, error.file, error.message) == ("error", ".", "no validation image has a labelled pixel")
    assert [finding.file for finding in warnings] == [f"val/masks/{number}.png" for number in range(100, 105)]


def test_an_empty_folder_is_refused_by_name(tmp_path):
    """Nothing can be looked at."""
    status, text = told_to_a_person(tmp_path)
    assert status == 1
    assert f"{tmp_path}: no image found." in " ".join(text.split())


def test_a_set_without_masks_is_no_data_set_yet(tmp_path, capsys):
    """An error about the whole of it, and what the listing noticed besides."""
    root = clean_set(tmp_path / "data")
    remove("*/masks/*")(root)
    error, *warnings = findings(root, capsys)
    assert (error.level, error.file) == ("error", ".")
    assert "0 of 20" in error.message
    assert {finding.file for finding in warnings} == {f"val/images/{number}.png" for number in range(100, 105)}


def test_copies_among_unlabelled_images_matter_only_for_validation(tmp_path, capsys):
    """A labelled image may come again without its mask; a validation image should not."""
    root = clean_set(tmp_path / "data")
    (root / "more").mkdir()
    (root / "dataset.yaml").write_text(DESCRIPTION + "unlabelled: [more]\n")
    copy(IMAGE, "more/a.png")(root)
    assert findings(root, capsys) == []
    copy(VAL_IMAGE, "more/b.png")(root)
    (found,) = findings(root, capsys)
    assert (found.level, found.file, found.message) == ("warning", VAL_IMAGE, "the same as more/b.png")
