"""A clean data set, what can be wrong with one, and what a look at it tells."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from files import contents
from oneway.common.terms import IGNORE
from oneway.data.check import Finding
from oneway.data.check.inspection import check_folder

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


def camera_of_8_bits(root: Path) -> None:
    Image.fromarray(pixels(3)[..., 0].astype(np.uint16)).save(root / IMAGE)


def several_pages(root: Path) -> None:
    frames = [Image.fromarray(pixels(seed)) for seed in (3, 900, 901)]
    frames[0].save(root / IMAGE, save_all=True, append_images=frames[1:])


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
    "image of 12 bits in 16": Defect(camera_of_12_bits, "warning", IMAGE, ("4095 of 65535", "12 bits", "`bits: 12`")),
    "image of 8 bits in 16": Defect(camera_of_8_bits, "warning", IMAGE, ("255 of 65535", "`bits: 9`")),
    "nearly black image": Defect(
        lambda root: Image.fromarray(pixels(3) // 18).save(root / IMAGE), "warning", IMAGE, ("of 255",)
    ),
    "image of several frames": Defect(several_pages, "warning", IMAGE, ("3 pages",)),
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


def findings(root: Path, capsys: pytest.CaptureFixture[str]) -> list[Finding]:
    """What `oneway check --json` tells, having made sure that it touched nothing and exits as it should."""
    before = contents(root)
    capsys.readouterr()
    status = check_folder(root, Console(), as_json=True)
    assert contents(root) == before
    found = [Finding(**entry) for entry in json.loads(capsys.readouterr().out)["findings"]]
    assert status == any(finding.level == "error" for finding in found)
    return found


def told_to_a_person(root: Path, **options: object) -> tuple[int, str]:
    """The exit status, and the words on a terminal without colours."""
    console = Console(width=120, color_system=None, record=True, quiet=False)
    with console.capture() as capture:
        status = check_folder(root, console, **options)
    return status, capture.get()
