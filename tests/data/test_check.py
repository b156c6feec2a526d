"""Facts about the look at a data set: each defect, sown into a clean set, is found with its file and value, alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from oneway.data.check import Finding, refuse
from oneway.data.check.contact_sheet import choose, overlay
from oneway.data.check.inspection import check_folder
from oneway.data.check.survey import Survey
from oneway.data.dataset import IGNORE, Item
from oneway.errors import UserError

HEIGHT, WIDTH = 48, 64
DESCRIPTION = """\
classes: [ground, road, car, tree]
train: {images: train/images, masks: train/masks}
val: {images: val/images, masks: val/masks}
"""
IMAGE, MASK = "train/images/003.png", "train/masks/003.png"
VAL_IMAGE = "val/images/102.png"
ORIENTATION = 0x0112


def pixels(seed: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Soft blobs of colour, others for each seed."""
    blobs = np.random.default_rng(seed).integers(256, size=(6, 8, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(blobs).resize((width, height), Image.Resampling.BICUBIC))


def labels(seed: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Patches of all four classes, with a few ignored pixels."""
    patches = np.random.default_rng(seed).permutation(np.arange(48, dtype=np.uint8) % 4).reshape(6, 8)
    mask = np.asarray(Image.fromarray(patches).resize((width, height), Image.Resampling.NEAREST)).copy()
    mask[0, :5] = IGNORE
    return mask


def clean_set(root: Path, train: int = 20, val: int = 5) -> Path:
    """Pairs that nothing is wrong with, in folders that `dataset.yaml` names."""
    root.mkdir(exist_ok=True)
    (root / "dataset.yaml").write_text(DESCRIPTION)
    for split, seeds in (("train", range(train)), ("val", range(100_000, 100_000 + val))):
        for kind in ("images", "masks"):
            (root / split / kind).mkdir(parents=True)
        for number, seed in enumerate(seeds, start=0 if split == "train" else 100):
            Image.fromarray(pixels(seed)).save(root / split / "images" / f"{number:03d}.png")
            Image.fromarray(labels(seed)).save(root / split / "masks" / f"{number:03d}.png")
    return root


def contents(root: Path) -> dict[str, tuple[str, int]]:
    """A hash and the time of the last change of every file."""
    return {
        str(path.relative_to(root)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def findings(root: Path, capsys: pytest.CaptureFixture[str]) -> list[Finding]:
    """What `oneway check --json` tells, having made sure that it touched nothing and exits as it should."""
    before = contents(root)
    capsys.readouterr()
    status = check_folder(root, Console(), as_json=True)
    assert contents(root) == before
    found = [Finding(**entry) for entry in json.loads(capsys.readouterr().out)["findings"]]
    assert status == any(finding.level == "error" for finding in found)
    return found


def edit_mask(change: Callable[[np.ndarray], np.ndarray], pattern: str = MASK) -> Callable[[Path], None]:
    """Rewrites all masks that match."""

    def sow(root: Path) -> None:
        for path in root.glob(pattern):
            Image.fromarray(change(np.asarray(Image.open(path)).copy())).save(path)

    return sow


def first_pixel(value: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(mask: np.ndarray) -> np.ndarray:
        mask[0, 0] = value
        return mask

    return change


def truncate(file: str, kept: float) -> Callable[[Path], None]:
    def sow(root: Path) -> None:
        content = (root / file).read_bytes()
        (root / file).write_bytes(content[: int(kept * len(content))])

    return sow


def with_orientation(value: int) -> Callable[[Path], None]:
    def sow(root: Path) -> None:
        exif = Image.Exif()
        exif[ORIENTATION] = value
        Image.fromarray(pixels(3)).save(root / IMAGE, exif=exif)

    return sow


def palette_mask(root: Path) -> None:
    mask = Image.fromarray(labels(3) % 4 + 40).convert("P")
    mask.putpalette(list(range(256)) * 3)
    mask.save(root / MASK)


def camera_of_12_bits(root: Path) -> None:
    Image.fromarray(pixels(3)[..., 0].astype(np.uint16) * 16).save(root / IMAGE)


def jpeg_mask(root: Path) -> None:
    Image.fromarray(labels(3)).save((root / MASK).with_suffix(".jpg"))
    (root / MASK).unlink()


def slightly_changed_copy(root: Path) -> None:
    changed = pixels(3).astype(int) + 6
    changed[20:28, 30:40] -= 30
    Image.fromarray(changed.clip(0, 255).astype(np.uint8)).save(root / VAL_IMAGE)


def second_image_of_the_name(root: Path) -> None:
    Image.fromarray(pixels(77)).save((root / IMAGE).with_suffix(".bmp"))


def tiny_pair(root: Path) -> None:
    Image.fromarray(pixels(3, 18, 24)).save(root / IMAGE)
    Image.fromarray(labels(3, 18, 24)).save(root / MASK)


def copy(source: str, target: str) -> Callable[[Path], None]:
    return lambda root: (root / target).write_bytes((root / source).read_bytes())


def remove(pattern: str, spared: str = "") -> Callable[[Path], None]:
    def sow(root: Path) -> None:
        for path in root.glob(pattern):
            if path.name != spared:
                path.unlink()

    return sow


def without_class(label: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda mask: np.where(mask == label, np.uint8(1), mask)


@dataclass(frozen=True)
class Defect:
    """What is done to a clean set, and the finding it must lead to."""

    sow: Callable[[Path], None]
    level: Literal["error", "warning"]
    file: str
    says: tuple[str, ...]


DEFECTS = {
    "value out of range": Defect(edit_mask(first_pixel(9)), "error", MASK, ("value 9", "row 0, column 0")),
    "RGB mask": Defect(edit_mask(lambda mask: np.stack([mask, mask, 0 * mask], -1)), "error", MASK, ("colours", "RGB")),
    "palette mask of other indices": Defect(palette_mask, "error", MASK, ("value 4",)),
    "mask of 16 bits": Defect(
        edit_mask(lambda mask: mask.astype(np.uint16) + 300), "error", MASK, ("value", "no class")
    ),
    "mask as JPEG": Defect(jpeg_mask, "error", "train/masks/003.jpg", ("JPEG",)),
    "truncated mask": Defect(truncate(MASK, 0.6), "error", MASK, ("truncated",)),
    "size mismatch": Defect(edit_mask(lambda mask: mask[:40]), "error", MASK, ("64×40", "64×48")),
    "rotation flag": Defect(with_orientation(6), "error", MASK, ("64×48", "48×64", "EXIF orientation 6")),
    "rotation flag that sizes do not show": Defect(with_orientation(3), "warning", IMAGE, ("EXIF orientation 3",)),
    "unreadable image": Defect(lambda root: (root / IMAGE).write_bytes(b"text") and None, "error", IMAGE, ("damaged",)),
    "empty file": Defect(truncate(IMAGE, 0), "error", IMAGE, ("damaged",)),
    "truncated image": Defect(truncate(IMAGE, 0.6), "error", IMAGE, ("truncated",)),
    "image of 12 bits in 16": Defect(camera_of_12_bits, "warning", IMAGE, ("of 255",)),
    "blank image": Defect(
        lambda root: Image.new("RGB", (WIDTH, HEIGHT), (90, 90, 90)).save(root / IMAGE),
        "warning",
        IMAGE,
        ("grey value 90",),
    ),
    "tiny image": Defect(tiny_pair, "warning", IMAGE, ("24×18",)),
    "masks of 0 and 255": Defect(
        edit_mask(lambda mask: np.uint8(255) * (mask > 1), "*/masks/*"), "error", ".", ("class 0 (ground)", "255")
    ),
    "labels counted from 1": Defect(
        edit_mask(lambda mask: np.where(mask == 0, np.uint8(1), mask), "*/masks/*"),
        "warning",
        ".",
        ("never 0 (ground)",),
    ),
    "missing mask": Defect(remove(MASK), "warning", IMAGE, ("19 of the 20",)),
    "missing validation mask": Defect(remove("val/masks/102.png"), "warning", VAL_IMAGE, ("cannot validate",)),
    "extra mask": Defect(copy(MASK, "train/masks/700.png"), "warning", "train/masks/700.png", ("image",)),
    "duplicate stem": Defect(second_image_of_the_name, "warning", IMAGE, ("003.bmp",)),
    "class absent from training": Defect(
        edit_mask(without_class(3), "train/masks/*"), "warning", ".", ("class 3 (tree)", "training")
    ),
    "class absent from validation": Defect(
        edit_mask(without_class(3), "val/masks/*"), "warning", ".", ("class 3 (tree)", "validation")
    ),
    "same image in training and validation": Defect(copy(IMAGE, VAL_IMAGE), "error", VAL_IMAGE, (IMAGE,)),
    "nearly the same image": Defect(slightly_changed_copy, "warning", VAL_IMAGE, (IMAGE, "similarity 0.9")),
    "same image twice": Defect(copy(IMAGE, "train/images/005.png"), "warning", "train/images/005.png", (IMAGE,)),
    "mask without labels": Defect(
        edit_mask(lambda mask: np.full_like(mask, IGNORE)), "warning", MASK, (f"{HEIGHT * WIDTH:,} pixels",)
    ),
}


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
    with pytest.raises(UserError, match=str(tmp_path)):
        check_folder(tmp_path, Console())


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


def told_to_a_person(root: Path, **options: object) -> tuple[int, str]:
    """The exit status, and the words on a terminal without colours."""
    console = Console(width=120, color_system=None, record=True, quiet=False)
    with console.capture() as capture:
        status = check_folder(root, console, **options)
    return status, capture.get()


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
    assert "11 errors: mend the errors before training" in text


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
    assert "128, 64, 128" in text or "#804080" in text
    told_to_a_person(root, save=True)
    assert findings(root, capsys) == []
    with pytest.raises(UserError, match="exists already"):
        check_folder(root, Console(), save=True)


def test_training_refuses_errors_and_tells_the_first_five(tmp_path):
    """Warnings do not stop it."""
    warning = Finding("warning", "Suspicious", "a.png", "looks like b.png")
    refuse([warning], tmp_path)
    with pytest.raises(UserError) as error:
        refuse([Finding("error", "Bad", f"{number}.png", "is bad") for number in range(7)] + [warning], tmp_path)
    message = str(error.value)
    assert "7 errors" in message
    assert [f"{number}.png: is bad" in message for number in range(7)] == [True] * 5 + [False] * 2
    assert "… and 2 more" in message
    assert f"`oneway check {tmp_path}`" in message


def test_the_sheet_shows_every_class_and_then_an_even_spread():
    """Class 2 is in item 41 alone, and class 1 in 10 and, most of it, in 77."""
    items = [Item(f"{number:02d}", Path()) for number in range(100)]
    surveys = {item.name: Survey(item.name, labels={0: 50, IGNORE: 9}) for item in items}
    surveys["41"] = Survey("41", labels={0: 50, 2: 1})
    surveys["10"], surveys["77"] = Survey("10", labels={1: 3}), Survey("77", labels={1: 30})
    names = [item.name for item in choose(items, surveys, 6)]
    assert names == sorted(names)
    assert {"41", "77"} <= set(names)
    assert len(names) == 6
    assert len(choose(items[:3], surveys, 6)) == 3


def test_an_overlay_has_the_colours_of_classes_and_hatches_what_is_ignored():
    """Over a black image, 60 % of a class's colour; strokes and gaps of two greys where nothing counts."""
    mask = np.zeros((32, 32), dtype=np.uint8)
    mask[:, 16:] = IGNORE
    picture = np.asarray(overlay(np.zeros((32, 32, 3), dtype=np.uint8), mask, [(100, 50, 200)], (32, 32)))
    assert np.abs(picture[:, :16].astype(int) - (60, 30, 120)).max() <= 1
    ignored = picture[:, 16:]
    assert np.ptp(ignored, axis=-1).max() == 0
    assert len(np.unique(ignored)) == 2
