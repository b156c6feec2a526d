"""The labelling loop on public layouts, by commands alone: check, train, evaluate, predict, put back, check again.

Folders are as the tools and data sets named here have them. With ONEWAY_PHOTOGRAPHS, a folder with `images`, `masks`
and `classes.txt`, its first photographs are in them instead of street scenes.
"""

from __future__ import annotations

import json
import os
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from contourpy import contour_generator
from PIL import Image

from oneway.cli import app
from oneway.common.terms import IGNORE
from oneway.config import Data
from oneway.data import list_files
from oneway.data.streets import CLASSES, render
from oneway.tools.predict import load

PHOTOGRAPHS = os.environ.get("ONEWAY_PHOTOGRAPHS")
TRAIN, VAL, WITHOUT = range(6), range(6, 8), range(8, 10)
"""Numbers of the images that train, that validate, and that have no labels."""


@dataclass(frozen=True)
class Photograph:
    """With labels, whether they are shown or not."""

    name: str
    image: Image.Image
    labels: np.ndarray

    @property
    def classes(self) -> list[int]:
        """Those that it shows."""
        return [int(label) for label in np.unique(self.labels) if label != IGNORE]

    @property
    def shapes(self) -> Iterator[tuple[int, np.ndarray]]:
        """Class and outline (N×2, x and y) of every area, the largest first, as someone draws who leaves no holes."""
        found = []
        for label in self.classes:
            padded = np.pad((self.labels == label).astype(float), 1)
            for line in contour_generator(z=padded).lines(0.5):
                x, y = (line - 0.5).T
                area = abs(np.sum(x * np.roll(y, 1) - y * np.roll(x, 1))) / 2
                if area >= 20:
                    found.append((area, label, (line - 0.5).clip(0, self.image.size)))
        return ((label, line) for _, label, line in sorted(found, key=lambda shape: -shape[0]))


def photographs() -> tuple[list[str], list[Photograph]]:
    """Names of classes, and ten photographs."""
    numbers = range(len(TRAIN) + len(VAL) + len(WITHOUT))
    if PHOTOGRAPHS is None:
        scenes = [render(5, number, 48, 96) for number in numbers]
        return list(CLASSES), [
            Photograph(f"scene{number:02d}", Image.fromarray(image), labels)
            for number, (image, labels) in enumerate(scenes)
        ]
    root = Path(PHOTOGRAPHS)
    files = sorted((root / "images").iterdir())[: len(numbers)]
    masks = {file.stem: file for file in (root / "masks").iterdir()}
    names = (root / "classes.txt").read_text().split("\n")
    return [name.split(":")[0].strip() for name in names if name.strip()], [
        Photograph(file.stem, Image.open(file).convert("RGB"), np.array(Image.open(masks[file.stem]))) for file in files
    ]


def save(photograph: Photograph, folder: Path, kind: str = "jpg") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    photograph.image.save(folder / f"{photograph.name}.{kind}", **({"quality": 95} if kind == "jpg" else {}))
    return folder / f"{photograph.name}.{kind}"


def write_voc(root: Path, classes: Sequence[str], found: Sequence[Photograph]) -> None:
    """Pascal VOC 2012: palettes, borders of 255, lists."""
    palette = np.zeros((256, 3), dtype=np.uint8)
    for index in range(256):
        for bit in range(8):
            palette[index] |= np.array([(index >> (3 * bit + channel) & 1) << (7 - bit) for channel in range(3)], "u1")
    lists = root / "ImageSets/Segmentation"
    for folder in (root / "SegmentationClass", lists):
        folder.mkdir(parents=True)
    for number, photograph in enumerate(found):
        save(photograph, root / "JPEGImages")
        if number in WITHOUT:
            continue
        labels = photograph.labels.copy()
        border = np.zeros(labels.shape, dtype=bool)
        border[:, 1:] |= labels[:, 1:] != labels[:, :-1]
        border[1:] |= labels[1:] != labels[:-1]
        labels[border] = 255
        mask = Image.fromarray(labels)
        mask.putpalette(palette.tobytes())
        mask.save(root / "SegmentationClass" / f"{photograph.name}.png")
    for name, numbers in {"train": TRAIN, "val": VAL, "trainval": (*TRAIN, *VAL)}.items():
        (lists / f"{name}.txt").write_text("".join(f"{found[number].name}\n" for number in numbers))


def write_camvid(root: Path, classes: Sequence[str], found: Sequence[Photograph]) -> None:
    """CamVid as SegNet's authors share it: indices in folders beside those of images."""
    for number, photograph in enumerate(found):
        part = "val" if number in VAL else "train"
        save(photograph, root / part, "png")
        (root / f"{part}annot").mkdir(exist_ok=True)
        if number not in WITHOUT:
            Image.fromarray(photograph.labels).save(root / f"{part}annot" / f"{photograph.name}.png")


def write_coco(root: Path, classes: Sequence[str], found: Sequence[Photograph]) -> None:
    """CVAT's COCO 1.0, of what was painted with its brush: uncompressed run lengths, marked as crowds."""
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, photograph in enumerate(found):
        save(photograph, root / "images/default")
        height, width = photograph.labels.shape
        images.append({"id": number + 1, "width": width, "height": height, "file_name": f"{photograph.name}.jpg"})
        images[-1] |= {"license": 0, "flickr_url": "", "coco_url": "", "date_captured": 0}
        for label in photograph.classes if number not in WITHOUT else ():
            mask = photograph.labels == label
            flat = np.concatenate([[False], mask.T.ravel(), [False]])
            changes = np.flatnonzero(flat[1:] != flat[:-1])
            counts = np.diff([0, *changes.tolist(), mask.size]).tolist()
            rows, columns = np.nonzero(mask)
            corner, size = (columns.min(), rows.min()), (np.ptp(columns) + 1, np.ptp(rows) + 1)
            annotations.append({"id": len(annotations) + 1, "image_id": number + 1, "category_id": label + 1})
            annotations[-1]["segmentation"] = {"counts": counts, "size": [height, width]}
            annotations[-1] |= {"area": float(mask.sum()), "bbox": [float(value) for value in (*corner, *size)]}
            annotations[-1] |= {"iscrowd": 1, "attributes": {"occluded": False}}
    categories = [{"id": index + 1, "name": name, "supercategory": ""} for index, name in enumerate(classes)]
    head = {"licenses": [{"name": "", "id": 0, "url": ""}], "info": {"contributor": "", "description": ""}}
    (root / "annotations").mkdir()
    content = {**head, "categories": categories, "images": images, "annotations": annotations}
    (root / "annotations/instances_default.json").write_text(json.dumps(content))


def write_yolo(root: Path, classes: Sequence[str], found: Sequence[Photograph]) -> None:
    """Roboflow's YOLOv8 segmentation: polygons in shares of the image, paths that begin outside."""
    for number, photograph in enumerate(found):
        part = root / ("valid" if number in VAL else "train")
        save(photograph, part / "images")
        (part / "labels").mkdir(exist_ok=True)
        if number in WITHOUT:
            continue
        lines = []
        for label, line in photograph.shapes:
            lines.append(" ".join([str(label), *(f"{value:.6f}" for value in (line / photograph.image.size).ravel())]))
        (part / "labels" / f"{photograph.name}.txt").write_text("\n".join(lines))
    about = {"train": "../train/images", "val": "../valid/images", "test": "../test/images"}
    link = {"workspace": "w", "project": "p", "version": 1, "license": "CC BY 4.0", "url": "https://example.org"}
    content = {**about, "nc": len(classes), "names": list(classes), "roboflow": link}
    (root / "data.yaml").write_text(yaml.safe_dump(content, sort_keys=False))


def write_labelme(root: Path, classes: Sequence[str], found: Sequence[Photograph]) -> None:
    """Files of its own beside the images."""
    for number, photograph in enumerate(found):
        file = save(photograph, root)
        if number in WITHOUT:
            continue
        fixed = {"group_id": None, "description": "", "shape_type": "polygon", "flags": {}, "mask": None}
        shapes = [{"label": classes[label], "points": line.tolist(), **fixed} for label, line in photograph.shapes]
        width, height = photograph.image.size
        about = {"imagePath": file.name, "imageData": None, "imageHeight": height, "imageWidth": width}
        file.with_suffix(".json").write_text(json.dumps({"version": "5.5.0", "flags": {}, "shapes": shapes, **about}))


def write_cvat(root: Path, classes: Sequence[str], found: Sequence[Photograph]) -> None:
    """CVAT for images 1.1: all images in one file, those too on which nothing is drawn yet."""
    tree = ET.Element("annotations")
    ET.SubElement(tree, "version").text = "1.1"
    labels = ET.SubElement(ET.SubElement(ET.SubElement(tree, "meta"), "job"), "labels")
    for name in classes:
        ET.SubElement(ET.SubElement(labels, "label"), "name").text = name
    for number, photograph in enumerate(found):
        save(photograph, root / "images")
        width, height = photograph.image.size
        about = {"id": str(number), "name": f"{photograph.name}.jpg", "width": str(width), "height": str(height)}
        image = ET.SubElement(tree, "image", about)
        for label, line in photograph.shapes if number not in WITHOUT else ():
            points = ";".join(f"{x:.2f},{y:.2f}" for x, y in line)
            drawn = {"label": classes[label], "source": "manual", "occluded": "0", "points": points, "z_order": "0"}
            ET.SubElement(image, "polygon", drawn)
    ET.ElementTree(tree).write(root / "annotations.xml", encoding="utf-8", xml_declaration=True)


def copy_into(folder: Path, files: Iterator[Path]) -> None:
    for file in files:
        shutil.copy(file, folder)


def put_back_voc(drafts: Path, root: Path) -> None:
    copy_into(root / "SegmentationClass", (drafts / "masks").glob("*.png"))
    with (root / "ImageSets/Segmentation/train.txt").open("a") as listed:
        listed.write((drafts / "voc/ImageSets/Segmentation/train.txt").read_text())


def put_back_coco(drafts: Path, root: Path) -> None:
    """What CVAT does when such a file is uploaded, and all is exported again."""
    file, added = root / "annotations/instances_default.json", drafts / "coco/annotations/instances_default.json"
    known, new = json.loads(file.read_text()), json.loads(added.read_text())
    names = {entry["name"]: entry["id"] for entry in known["categories"]}
    images = {entry["file_name"]: entry["id"] for entry in known["images"]}
    by_id = {entry["id"]: Path(entry["file_name"]).name for entry in new["images"]}
    categories = {entry["id"]: names[entry["name"]] for entry in new["categories"] if entry["name"] in names}
    for entry in new["annotations"]:
        about = {"image_id": images[by_id[entry["image_id"]]], "category_id": categories[entry["category_id"]]}
        known["annotations"].append(entry | about | {"id": len(known["annotations"]) + 1})
    file.write_text(json.dumps(known))


def put_back_cvat(drafts: Path, root: Path) -> None:
    """What CVAT does when such a file is uploaded, and all is exported again."""
    file = root / "annotations.xml"
    tree, added = ET.parse(file), ET.parse(drafts / "cvat/annotations.xml")
    shapes = {Path(image.get("name", "")).name: list(image) for image in added.getroot().iter("image")}
    for image in tree.getroot().iter("image"):
        image.extend(shapes.get(image.get("name", ""), []))
    tree.write(file, encoding="utf-8", xml_declaration=True)


@dataclass(frozen=True)
class Layout:
    """A kind of folder, and the way back into it."""

    write: Callable[[Path, Sequence[str], Sequence[Photograph]], None]
    images: str
    """The folder of those without labels."""

    to: str | None
    """The format of `predict --to` that leads back; None where masks do."""

    put_back: Callable[[Path, Path], None]


LAYOUTS = {
    "Pascal VOC": Layout(write_voc, "JPEGImages", "voc", put_back_voc),
    "CamVid": Layout(
        write_camvid,
        "train",
        None,
        lambda drafts, root: copy_into(root / "trainannot", (drafts / "masks").glob("*.png")),
    ),
    "COCO, of CVAT": Layout(write_coco, "images/default", "coco", put_back_coco),
    "YOLO, of Roboflow": Layout(
        write_yolo,
        "train/images",
        "yolo",
        lambda drafts, root: copy_into(root / "train/labels", (drafts / "yolo/labels/train").glob("*.txt")),
    ),
    "labelme": Layout(
        write_labelme, ".", "labelme", lambda drafts, root: copy_into(root, (drafts / "labelme").glob("*.json"))
    ),
    "CVAT for images": Layout(write_cvat, "images", "cvat", put_back_cvat),
}


def run(*words: object) -> int:
    """The exit status of a command."""
    try:
        app([str(word) for word in words], result_action="return_value")
    except SystemExit as error:
        return int(error.code or 0)
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_round_of_labelling(name, tmp_path, capsys, monkeypatch):
    """Nothing is edited by hand, and what was predicted is a label afterwards, pixel by pixel."""
    monkeypatch.chdir(tmp_path)
    layout, (classes, found), root = LAYOUTS[name], photographs(), tmp_path / "data"
    root.mkdir()
    layout.write(root, classes, found)
    assert run("check", root) == 0, capsys.readouterr().out
    before = list_files(Data(name="folder", path=root))
    labelled = sum(item.mask is not None for item in (*before.train, *before.val))
    assert (labelled, len(before.train) + len(before.val)) == (8, 10)
    size = ("--model.width", 0.25, "--model.weights", "none", "--jitter.crop", 48, 64, "--train.device", "cpu")
    length = ("--train.iterations", 60, "--train.batch-labelled", 4, "--train.batch-unlabelled", 4)
    rate = ("--optimiser.learning-rate", 4e-3, "--data.cache", tmp_path / "cache")
    assert run("train", "folder", "--data", root, "--out", "run", *size, *length, *rate) == 0
    capsys.readouterr()
    assert run("eval", "run", "--json", "--data.cache", tmp_path / "cache") == 0
    score = json.loads(capsys.readouterr().out)
    without = [next((root / layout.images).glob(f"{found[number].name}.[jp]*")) for number in WITHOUT]
    back: tuple[object, ...] = ("--to", layout.to, "--tolerance", 0, "--least-area", 1) if layout.to else ()
    if layout.to == "yolo" and "background" in classes:  # which has a number then
        back += ("--background",)
    assert run("predict", "run", *without, "--out", "drafts", *back) == 0
    layout.put_back(tmp_path / "drafts", root)
    capsys.readouterr()
    assert run("check", root) == 0, capsys.readouterr().out
    after = list_files(Data(name="folder", path=root))
    items = {item.image.stem: item for item in (*after.train, *after.val)}
    assert sum(item.mask is not None for item in items.values()) == 10
    model = load("run", "cpu")
    assert after.classes == model.classes
    equal = []
    for file in without:
        predicted = model.predict(np.asarray(Image.open(file))).labels
        assert len(np.unique(predicted)) > 1  # or it would be no test
        equal.append(float((after.read_labels(items[file.stem]) == predicted).mean()))
    with capsys.disabled():
        print(f"\n| {name} | {len(classes)} | {score['value']:.1f} | {100 * min(equal):.2f} % |")
    assert min(equal) > 0.999
