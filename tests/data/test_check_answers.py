"""What a look at a data set leads to: words, JSON, a contact sheet, a description, and a refusal to train."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from data.defects import (
    HEIGHT,
    IMAGE,
    MASK,
    WIDTH,
    clean_set,
    edit_mask,
    findings,
    first_pixel,
    told_to_a_person,
    truncate,
    with_orientation,
)
from data.folders import SCENE, listing, pairs, photo
from files import contents
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.check import Finding, check_data, refuse_errors
from oneway.data.check.contact_sheet import choose, fitted, items_by_heading, overlay, write_contact_sheet
from oneway.data.check.findings import summarise
from oneway.data.check.inspection import check_folder
from oneway.data.check.survey import Survey
from oneway.data.dataset import Item


def test_json_tells_what_is_there(tmp_path, capsys):
    """Counts and shares by hand: 48 patches of 64 pixels, a quarter of each class, less 5 ignored pixels per image."""
    root = clean_set(tmp_path / "data")
    check_folder(root, Console(), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["labelled"], told["unlabelled"], told["validation"], told["test"]) == (20, 0, 5, 0)
    assert told["sizes"] == [{"height": HEIGHT, "width": WIDTH, "images": 25}]
    assert [entry["name"] for entry in told["classes"]] == ["ground", "road", "car", "tree"]
    assert all(entry["images"] == {"train": 20, "val": 5} for entry in told["classes"])
    assert sum(entry["pixels"] for entry in told["classes"]) == 25 * (HEIGHT * WIDTH - 5)
    assert sum(entry["share"] for entry in told["classes"]) == pytest.approx(1)
    assert told["ignored"] == pytest.approx(5 / (HEIGHT * WIDTH))
    assert told["sheet"] is None


def test_a_person_is_told_a_few_of_each_kind_and_the_odd_one_among_them(tmp_path, monkeypatch):
    """Nine masks with a wrong value and a truncated one: five are shown, that one too."""
    monkeypatch.chdir(tmp_path)
    root = clean_set(tmp_path / "data")
    edit_mask(first_pixel(9), "train/masks/00*.png")(root)
    truncate("train/masks/012.png", 0.6)(root)
    status, text = told_to_a_person(root)
    assert status == 1
    assert "Masks that cannot be used  (11)" in text
    assert "train/masks/000.png: 1 pixels have value 9" in text
    assert "train/masks/012.png" in text
    assert "… and 6 more" in text
    assert "11 errors: correct the errors before training" in text
    assert "9 labelled   0 unlabelled   5 for validation   11 cannot be used" in text


def test_a_folder_is_named_once_and_files_as_paths_in_it(tmp_path, monkeypatch):
    """A mask and its image, in one sentence, both begin where the data do."""
    monkeypatch.chdir(tmp_path)
    clean_set(tmp_path / "data")
    Image.new("L", (20, 10)).save("data" / Path(MASK))
    _, text = told_to_a_person(Path("data"))
    assert text.splitlines()[0].rstrip() == "data"
    words = " ".join(text.split())
    assert f"{MASK}: 20×10 labels for the {WIDTH}×{HEIGHT} pixels of {IMAGE}. " in words
    _, text = told_to_a_person(tmp_path / "data")
    assert text.split()[:2] == ["data", str(tmp_path / "data")]


def test_a_class_without_a_name_is_its_number(tmp_path, capsys):
    """`class 3 (class 3)` says it twice."""
    root = clean_set(tmp_path / "data")
    (root / "dataset.yaml").write_text((root / "dataset.yaml").read_text().replace("car, tree", "car, class 3, bus"))
    edit_mask(lambda mask: np.where(mask == 3, 0, mask), "val/masks/*.png")(root)
    assert [found.message for found in findings(root, capsys)] == [
        "no training mask has a pixel of class 4 (bus)",
        "no validation mask has a pixel of class 3 or class 4 (bus)",
    ]


def test_the_sheet_goes_where_the_user_says_or_stands_but_not_among_the_data(tmp_path, monkeypatch):
    """Named after the folder; inside the data only when asked for."""
    root = clean_set(tmp_path / "data")
    before = contents(root)
    monkeypatch.chdir(tmp_path)
    _, text = told_to_a_person(root)
    assert "Contact sheet: check-data.png" in text
    monkeypatch.chdir(root / "train")
    _, text = told_to_a_person(root)
    assert "--out" in text
    assert contents(root) == before
    told_to_a_person(root, out=root / "new" / "sheet.png")
    for refused in (root / IMAGE, tmp_path / "sheet.jpg"):
        with pytest.raises(UserError, match=refused.name):
            check_folder(root, Console(), out=refused)
    for sheet in (tmp_path / "check-data.png", root / "new" / "sheet.png"):
        with Image.open(sheet) as picture:
            assert picture.format == "PNG"
            assert picture.width > 6 * 300


def test_saving_writes_a_description_that_is_then_used_and_never_written_over(tmp_path, capsys, monkeypatch):
    """Painted masks without a table are refused with a proposal; saved, it makes the set readable."""
    monkeypatch.chdir(tmp_path)
    root = clean_set(tmp_path / "data")
    (root / "dataset.yaml").unlink()
    colours = np.array([[0, 0, 0], [128, 64, 128], [0, 0, 142], [107, 142, 35]], dtype=np.uint8)
    edit_mask(lambda mask: colours[mask % 4], "*/masks/*")(root)
    (found,) = findings(root, capsys)
    assert found.level == "error"
    status, text = told_to_a_person(root)
    assert status == 1
    assert "[128, 64, 128]" in text
    told_to_a_person(root, save=True)
    assert findings(root, capsys) == []
    with pytest.raises(UserError, match="exists already"):
        check_folder(root, Console(), save=True)


def test_where_no_mask_can_be_used(tmp_path, capsys, monkeypatch):
    """No count contradicts another, and training says what to do about it once, as `check` does."""
    monkeypatch.chdir(tmp_path)
    root = pairs(tmp_path / "data", 8, SCENE + 70)
    (root / "dataset.yaml").write_text("classes: [a, b, c]")
    _, text = told_to_a_person(root)
    assert "0 labelled   0 unlabelled   0 for validation   8 cannot be used" in text
    assert "2 of the 8 images with a mask are held out" in text
    with pytest.raises(UserError) as error:
        refuse_errors(findings(root, capsys), listing(root))
    for told in (text, str(error.value)):
        assert told.count("which stands for no class") == 5
        assert told.count("Correct the mask") == 1


def test_files_that_are_not_used_are_said_under_a_heading_that_fits(tmp_path, capsys):
    """A name that cannot be shown has nothing to do with pairs."""
    root = pairs(tmp_path / "data", 8)
    photo(root / "images" / "a\x1b[2Jb.png")
    found = [one for one in findings(root, capsys) if "cannot be shown" in one.message]
    assert [(one.kind, one.file) for one in found] == [("Files that are not used, or do not pair up", "images")]


def test_training_names_the_command_that_draws_the_sheet_it_speaks_of(tmp_path, capsys):
    """It draws none itself."""
    with_orientation(3)(root := clean_set(tmp_path / "data"))
    assert "the contact sheet of `oneway check`: " in summarise(findings(root, capsys))[0]


def test_an_image_that_exif_turns_is_doubted_beside_a_mask_alone(tmp_path, capsys):
    """Regions are drawn on the image as tools show it, upright; and where there is no label, nothing can be turned."""
    with_orientation(3)(root := clean_set(tmp_path / "data"))
    assert [one.file for one in findings(root, capsys) if "EXIF" in one.message] == ["train/images/003.png"]
    (root / "train/masks/003.png").unlink()
    assert not [one for one in findings(root, capsys) if "EXIF" in one.message]
    (root / "drawn").mkdir()
    (root / "train/images/003.png").rename(root / "drawn/0.png")
    (root / "train/images/004.png").rename(root / "drawn/1.png")
    for number in range(2):
        shape = {"label": "wall", "points": [[0, 0], [20, 10]], "shape_type": "rectangle"}
        (root / f"drawn/{number}.json").write_text(json.dumps({"shapes": [shape], "imagePath": f"{number}.png"}))
    assert not [one for one in findings(root / "drawn", capsys) if "EXIF" in one.message]


def test_annotations_all_over_leave_no_background_and_no_doubt(tmp_path, capsys):
    """Their 0 is what no region covers; no numbers of theirs can have been counted from 1."""
    for number in range(4):
        Image.new("L", (40, 40), 60 * number).save(tmp_path / f"{number}.png")
        halves = {"lawn": [[0, 0], [40, 20]], "path": [[0, 20], [40, 40]]}
        shapes = [{"label": name, "points": ends, "shape_type": "rectangle"} for name, ends in halves.items()]
        (tmp_path / f"{number}.json").write_text(json.dumps({"shapes": shapes, "imagePath": f"{number}.png"}))
    assert not [one for one in findings(tmp_path, capsys) if one.kind.startswith(("Labels that", "Classes that"))]


def test_training_refuses_errors_and_tells_the_first_five(tmp_path):
    """Warnings do not stop it."""
    warning = Finding("warning", "Suspicious", "a.png", "looks like b.png")
    data = listing(clean_set(tmp_path / "data", train=2, val=1))
    refuse_errors([warning], data)
    with pytest.raises(UserError) as error:
        refuse_errors([Finding("error", "Bad", f"{number}.png", "is bad") for number in range(7)] + [warning], data)
    message = str(error.value)
    assert "7 errors" in message
    assert [f"{number}.png: is bad" in message for number in range(7)] == [True] * 5 + [False] * 2
    assert "… and 2 more" in message
    assert f"`oneway check {data.root}`" in message


def test_the_sheet_shows_every_class_and_then_an_even_spread():
    """Class 2 is in item 41 alone, and class 1 in 10 and, most of it, in 77."""
    items = [Item(f"{number:02d}", Path()) for number in range(100)]
    surveys = {item.name: Survey(name=item.name, labels={0: 50, IGNORE: 9}) for item in items}
    surveys["41"] = Survey(name="41", labels={0: 50, 2: 1})
    surveys["10"], surveys["77"] = Survey(name="10", labels={1: 3}), Survey(name="77", labels={1: 30})
    names = [item.name for item in choose(items, surveys, 6)]
    assert names == sorted(names)
    assert {"41", "77"} <= set(names)
    assert len(names) == 6
    assert len(choose(items[:3], surveys, 6)) == 3


def test_masks_that_cannot_be_used_are_worth_a_look(tmp_path):
    """Of another size, or with a value that means nothing: the image is shown with what is wrong, before any other."""
    root = clean_set(tmp_path / "data")
    edit_mask(first_pixel(9), "train/masks/004.png")(root)
    edit_mask(lambda mask: mask[:40], "val/masks/102.png")(root)
    truncate("train/images/007.png", 0.6)(root)
    check = check_data(listing(root), Console(quiet=True))
    shown = items_by_heading(check)
    assert [item.name for item in shown["Worth a look"]] == ["train/images/004.png", "val/images/102.png"]
    write_contact_sheet(check, tmp_path / "sheet.png")
    assert not any(item in shown["Worth a look"] for title in ("Training", "Validation") for item in shown[title])


def test_check_lists_what_does_not_fit_and_does_not_advise_to_run_check(tmp_path):
    """Training names the first, and `oneway check` as what lists all; check itself does not."""
    root = clean_set(tmp_path / "data")
    for number in range(2):
        (root / "train/masks" / f"nobody{number}.png").write_bytes((root / "train/masks/000.png").read_bytes())
    remark = listing(root).remarks[-1]
    assert "2 files do not fit; `oneway check` lists them" in remark
    _, text = told_to_a_person(root, out=tmp_path / "sheet.png")
    assert "nobody0.png" in text
    assert "nobody1.png" in text
    assert "`oneway check` lists" not in text


def test_images_from_elsewhere_are_named_by_where_they_are(tmp_path, capsys):
    """Their name in the set is one that nobody has seen."""
    root, more = clean_set(tmp_path / "data"), tmp_path / "more"
    more.mkdir()
    (more / "broken.jpg").write_bytes(b"text")
    Image.new("RGB", (64, 48)).save(more / "blank.png")
    check_folder(root, Console(), unlabelled=more, as_json=True)
    told = {entry["file"] for entry in json.loads(capsys.readouterr().out)["findings"]}
    assert {str(more / "broken.jpg"), str(more / "blank.png")} <= told


def test_many_absent_classes_take_one_line(tmp_path):
    """What occurs is listed in full."""
    root = clean_set(tmp_path / "data")
    names = ", ".join(["ground", "road", "car", "tree", *(f"rare {number}" for number in range(60))])
    (root / "dataset.yaml").write_text((root / "dataset.yaml").read_text().replace("ground, road, car, tree", names))
    _, text = told_to_a_person(root, out=tmp_path / "sheet.png")
    assert "52 more" in text
    assert len(text.splitlines()) < 60


def test_an_overlay_has_the_colours_of_classes_and_hatches_what_is_ignored():
    """Over a black image, 60 % of a class's colour; strokes and gaps of two greys where nothing counts."""
    mask = np.zeros((32, 32), dtype=np.uint8)
    mask[:, 16:] = IGNORE
    picture = np.asarray(overlay(np.zeros((32, 32, 3), dtype=np.uint8), mask, [(100, 50, 200)], (32, 32)))
    assert np.abs(picture[:, :16].astype(int) - (60, 30, 120)).max() <= 1
    ignored = picture[:, 16:]
    assert np.ptp(ignored, axis=-1).max() == 0
    assert len(np.unique(ignored)) == 2


@pytest.mark.parametrize(
    ("size", "shown"), [((600, 300), (300, 150)), ((30, 45), (150, 225)), ((9000, 2), (300, 1)), ((1, 9000), (1, 225))]
)
def test_a_picture_of_any_shape_fits_its_cell(size, shown):
    """In 300×225 pixels, as large as can be; of the thinnest, a line is left."""
    assert fitted(*size) == shown


def test_training_counts_findings_where_there_are_several():
    """A kind that is found once needs no number beside it."""
    found = [Finding("warning", kind, name, "odd") for kind, name in (("Alone", "a"), ("Both", "b"), ("Both", "c"))]
    alone, both = summarise(found)
    assert alone.startswith("Alone: a")
    assert both.startswith("Both (2): b")
    assert both.endswith(", …")
