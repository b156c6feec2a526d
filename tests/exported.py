"""Readers of the formats that annotation tools take, as those tools read them: each gives the labels of one image."""

from __future__ import annotations

import base64
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import yaml
from matplotlib.path import Path as Outline
from PIL import Image
from pycocotools import mask as coco_masks
from pycocotools.coco import COCO

CLASSES = ("background", "wall & door", "window", "träger <5>")
COLOURS = ((0, 0, 0), (200, 30, 30), (30, 200, 30), (30, 30, 200))
HEIGHT, WIDTH = 97, 150


def fill(rings, size) -> np.ndarray:
    """The pixels whose centres are inside an odd number of rings, by Matplotlib."""
    rows, columns = np.mgrid[: size[0], : size[1]]
    centres = np.stack([columns.ravel() + 0.5, rows.ravel() + 0.5], axis=1)
    inside = np.zeros(size[0] * size[1], dtype=bool)
    for ring in rings:
        inside ^= Outline(np.vstack([ring, ring[:1]])).contains_points(centres)
    return inside.reshape(size)


def fill_one(ring, size) -> np.ndarray:
    """The pixels inside a ring, by pycocotools, which goes there and back again along the same pixels."""
    (lengths,) = coco_masks.frPyObjects([np.asarray(ring).reshape(-1).tolist()], *size)
    return coco_masks.decode(lengths).astype(bool)


def coco_labels(folder: Path, name: str) -> np.ndarray:
    coco = COCO(str(folder / "annotations/instances_default.json"))
    (image,) = [entry for entry in coco.dataset["images"] if entry["file_name"] == name]
    labels = np.zeros((image["height"], image["width"]), dtype=np.uint8)
    for entry in coco.loadAnns(coco.getAnnIds(image["id"])):
        mask = coco.annToMask(entry).astype(bool)
        assert entry["iscrowd"] == 0
        assert 0 < entry["score"] < 1
        left, top, _, height = entry["bbox"]
        assert not mask[:, : max(0, left - 1)].any()
        assert not mask[top + height + 1 :].any()
        assert abs(int(mask.sum()) - entry["area"]) <= 0.05 * entry["area"]
        labels[mask] = CLASSES.index(coco.cats[entry["category_id"]]["name"])
    return labels


def cvat_labels(folder: Path, name: str) -> np.ndarray:
    tree = ET.parse(folder / "annotations.xml").getroot()
    assert [label.findtext("name") for label in tree.iter("label")] == list(CLASSES[1:])
    (image,) = [entry for entry in tree.iter("image") if entry.get("name") == name]
    labels = np.zeros((int(image.get("height")), int(image.get("width"))), dtype=np.uint8)
    for shape in image:
        if shape.tag == "polygon":
            ring = [[float(number) for number in point.split(",")] for point in shape.get("points").split(";")]
            mask = fill([ring], labels.shape)
        else:
            left, top, width, height = (int(shape.get(key)) for key in ("left", "top", "width", "height"))
            counts = [int(count) for count in shape.get("rle").split(",")]
            mask = np.zeros(labels.shape, dtype=bool)
            inside = np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(height, width)
            mask[top : top + height, left : left + width] = inside
        labels[mask] = CLASSES.index(shape.get("label"))
    return labels


def brush_mask(content: list[int], size) -> np.ndarray:
    """What Label Studio's page makes of a stroke, bit by bit."""
    bits = "".join(f"{byte:08b}" for byte in content)
    at = 0

    def read(count: int) -> int:
        nonlocal at
        at += count
        return int(bits[at - count : at], 2)

    total, word = read(32), read(5) + 1
    sizes = [read(4) + 1 for _ in range(4)]
    values: list[int] = []
    while len(values) < total:
        repeated = read(1)
        count = read(sizes[read(2)]) + 1
        values += [read(word)] * count if repeated else [read(word) for _ in range(count)]
    return np.array(values).reshape(*size, 4)[..., 3] > 0


def label_studio_labels(folder: Path, name: str) -> np.ndarray:
    tasks = json.loads((folder / "tasks.json").read_text())
    place = {"a.png": "images/a.png", "sub/b ü.png": "images/sub/b%20%C3%BC.png"}[name]
    (task,) = [entry for entry in tasks if entry["data"]["image"] == f"/data/local-files/?d={place}"]
    (prediction,) = task["predictions"]
    interface = ET.parse(folder / "labelling-interface.xml").getroot()
    assert [label.get("value") for label in interface.iter("Label")] == list(CLASSES[1:])
    size = prediction["result"][0]["original_height"], prediction["result"][0]["original_width"]
    labels = np.zeros(size, dtype=np.uint8)
    for result in prediction["result"]:
        value = result["value"]
        assert interface.find(f"*[@name='{result['from_name']}']").tag.lower() == result["type"]
        assert 0 < result["score"] < 1
        if result["type"] == "brushlabels":
            mask = brush_mask(value["rle"], size)
        else:
            mask = fill([np.array(value["points"]) * [size[1] / 100, size[0] / 100]], size)
        labels[mask] = CLASSES.index(value[result["type"]][0])
    return labels


def labelme_labels(folder: Path, name: str) -> np.ndarray:
    file = (folder / name).with_suffix(".json")
    content = json.loads(file.read_text())
    assert (file.parent / content["imagePath"]).read_bytes() == (folder / name).read_bytes()
    assert content["imageData"] is None
    labels = np.zeros((content["imageHeight"], content["imageWidth"]), dtype=np.uint8)
    for shape in content["shapes"]:
        if shape["shape_type"] == "polygon":
            mask = fill([shape["points"]], labels.shape)
        else:
            (left, top), (right, bottom) = shape["points"]
            mask = np.zeros(labels.shape, dtype=bool)
            picture = Image.open(io.BytesIO(base64.b64decode(shape["mask"])))
            mask[top : bottom + 1, left : right + 1] = np.asarray(picture).astype(bool)
        labels[mask] = CLASSES.index(shape["label"])
    return labels


def yolo_labels(folder: Path, name: str) -> np.ndarray:
    about = yaml.safe_load((folder / "data.yaml").read_text())
    assert about["names"] == dict(enumerate(CLASSES[1:]))
    assert (folder / about["train"] / name).is_file()
    labels = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    for line in (folder / "labels/train" / name).with_suffix(".txt").read_text().splitlines():
        number, *shares = line.split()
        ring = np.array(shares, dtype=float).reshape(-1, 2) * (WIDTH, HEIGHT)
        labels[fill_one(ring, labels.shape)] = CLASSES.index(about["names"][int(number)])
    return labels


def voc_labels(folder: Path, name: str) -> np.ndarray:
    stem = name.removesuffix(".png")
    assert stem in (folder / "ImageSets/Segmentation/train.txt").read_text().splitlines()
    lines = [line.split(":") for line in (folder / "labelmap.txt").read_text().splitlines()[1:]]
    colours = {tuple(map(int, colour.split(","))): label for label, colour, _, _ in lines}
    pixels = np.asarray(Image.open(folder / "SegmentationClass" / f"{stem}.png").convert("RGB"))
    return np.array([[CLASSES.index(colours[tuple(pixel)]) for pixel in row] for row in pixels.tolist()])


READ = {
    "cvat": cvat_labels,
    "label-studio": label_studio_labels,
    "labelme": labelme_labels,
    "coco": coco_labels,
    "yolo": yolo_labels,
    "voc": voc_labels,
}
