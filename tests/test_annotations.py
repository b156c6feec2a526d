"""Predictions for annotation tools: outlines that enclose what was predicted, in files that tools read.

SciPy, Matplotlib, pycocotools and Pillow say what is right; so do our own readers of the same formats.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib.path import Path as Outline
from PIL import Image
from pycocotools import mask as coco_masks
from pycocotools.coco import COCO
from rich.console import Console
from scipy import ndimage

from oneway.common.errors import UserError
from oneway.data.folder import list_folder
from oneway.data.streets import render
from oneway.tools.annotations import FORMATS, AnnotationSettings, Export
from oneway.tools.annotations.export import BACKGROUND
from oneway.tools.annotations.interface import Scheme
from oneway.tools.annotations.polygons import keyhole
from oneway.tools.annotations.regions import find_regions
from oneway.tools.annotations.rle import compress, runs
from oneway.tools.predict import Outputs, Prediction, load, predict_files
from oneway.tools.suggest import suggest
from small_runs import QUIET

CLASSES = ("background", "wall & door", "window", "träger <5>")
COLOURS = ((0, 0, 0), (200, 30, 30), (30, 200, 30), (30, 30, 200))
HEIGHT, WIDTH = 97, 150


def facade() -> np.ndarray:
    """A wall with windows and a gap that shows the background, a slanted beam, a disc, and a speck."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    labels = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    labels[10:90, 12:120] = 1
    labels[20:50, 30:60] = 2
    labels[27:43, 38:52] = 0
    labels[60:80, 70:100] = 2
    labels[70:84, 20:50] = 0
    labels[np.abs(rows - 0.37 * columns - 20) < 4] = 3
    labels[(rows - 50) ** 2 + (columns - 132) ** 2 < 16**2] = 2
    labels[3, 140:142] = 3
    return labels


def confident(labels: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).random(labels.shape, dtype=np.float32)


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


def paint(labels, tolerance, inside=lambda region, size: fill(region.rings, size)) -> np.ndarray:
    """Labels from the outlines of all regions."""
    painted = np.full(labels.shape, 255, dtype=np.uint8)
    for region in find_regions(labels, confident(labels), range(256), tolerance, 1)[0]:
        painted[inside(region, labels.shape)] = region.label
    return painted


def iou(one: np.ndarray, other: np.ndarray) -> float:
    return float((one & other).sum() / (one | other).sum())


@pytest.mark.parametrize("seed", range(12))
def test_regions_are_what_SciPy_finds(seed):
    """Connected through sides; each with its pixels, area, box, and mean confidence. Noise touches at corners a lot."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, random.integers(1, 16, 2), dtype=np.uint8)
    confidence = confident(labels)
    regions, left_out = find_regions(labels, confidence, range(3), 0, 1)
    assert left_out == 0
    assert len(regions) == sum(ndimage.label(labels == label)[1] for label in range(3))
    seen = np.zeros(labels.shape, dtype=int)
    for region in regions:
        left, top, width, height = region.box
        whole = np.zeros(labels.shape, dtype=bool)
        whole[top : top + height, left : left + width] = region.mask()
        part, _ = ndimage.label(labels == region.label)
        number = part[whole][0]
        assert (whole == (part == number)).all()
        assert region.area == whole.sum()
        assert region.confidence == pytest.approx(confidence[whole].mean(dtype=float), abs=1e-6)
        seen += whole
    assert (seen == 1).all()


@pytest.mark.parametrize("seed", range(6))
def test_outlines_without_tolerance_are_exact(seed):
    """Also of noise, with holes in holes; and as one ring with keyholes."""
    random = np.random.default_rng(seed)
    labels = facade() if seed == 0 else random.integers(0, 2, (14, 17), dtype=np.uint8)
    assert (paint(labels, 0) == labels).all()
    assert (paint(labels, 0, lambda region, size: fill_one(keyhole(region.rings), size)) == labels).all()


def test_simplified_outlines_stay_within_the_tolerance():
    """Every corner of the exact outline is that near, and nearly all pixels are in their region."""
    labels = facade()
    exact = sum(
        len(ring) for region in find_regions(labels, confident(labels), range(4), 0, 1)[0] for ring in region.rings
    )
    regions = find_regions(labels, confident(labels), range(4), 1.0, 16)[0]
    assert sum(len(ring) for region in regions for ring in region.rings) < exact / 3
    for region in regions:
        for corners, ring in zip(region.exact, region.rings, strict=True):
            ends = np.roll(ring, -1, axis=0)
            for x, y in corners[:, ::-1]:
                along, towards = ends - ring, (x, y) - ring
                share = np.clip((towards * along).sum(1) / (along**2).sum(1), 0, 1)
                assert np.linalg.norm(towards - share[:, None] * along, axis=1).min() <= 1 + 1e-9
    painted = paint(labels, 1.0)
    for label, least in enumerate((0.99, 0.985, 0.97, 0.95)):  # the beam is only 8 pixels wide
        assert iou(painted == label, labels == label) >= least
    assert (painted == labels).mean() > 0.994


def test_neighbours_share_their_border():
    """Whatever is simplified: no gap opens between regions, and none overlaps another."""
    labels = facade()
    labels[60, 119] = 3  # alone, it would stay as it is: too little would be left of it
    lines: Counter[tuple[tuple[float, float], ...]] = Counter()
    for region in find_regions(labels, confident(labels), range(4), 1.0, 1)[0]:
        for ring in region.rings:
            lines.update(zip(map(tuple, ring), map(tuple, np.roll(ring, -1, axis=0)), strict=True))
    assert set(lines.values()) == {1}
    for start, end in lines:
        at_the_border = any(start[axis] == end[axis] in (0, (WIDTH, HEIGHT)[axis]) for axis in (0, 1))
        assert at_the_border != ((end, start) in lines)


def test_specks_are_left_out_and_counted():
    """And a hole as small as that is filled."""
    labels = facade()
    before, left_out = find_regions(labels, confident(labels), (1, 2, 3), 1.0, 16)
    assert left_out == 2
    assert min(region.area for region in before) >= 16
    labels[85, 110] = 2
    after, left_out = find_regions(labels, confident(labels), (1, 2, 3), 1.0, 16)
    assert left_out == 3
    assert [region.area for region in after] == [region.area for region in before]
    assert len(find_regions(labels, confident(labels), (1, 2, 3), 1.0, 1)[0]) == len(before) + 3


def test_runs_are_COCO_s():
    """Compressed as pycocotools compresses them."""
    random = np.random.default_rng(0)
    for density in (0.0, 0.02, 0.5, 1.0):
        mask = random.random((71, 93)) < density
        theirs = coco_masks.encode(np.asfortranarray(mask.astype(np.uint8)))
        assert compress(runs(mask.T.reshape(-1))) == theirs["counts"].decode()


def write(to, folder: Path, tolerance: float, least: int = 1, labels: np.ndarray | None = None) -> Path:
    """Two images, of which one is in a folder, with annotations; and a third to validate with."""
    settings = AnnotationSettings(to, tolerance, least)
    export = Export(settings, Scheme(CLASSES, COLOURS, (1, 2, 3), tolerance, least), folder)
    labels = facade() if labels is None else labels
    for name in ("a.png", "sub/b ü.png", "c.png"):
        path = export.place(f"{export.writer.images}/{name}".lstrip("/"))
        pixels = render(0, len(name), *labels.shape)[0]
        Image.fromarray(pixels).save(path)
        prediction = Prediction(pixels, labels, confident(labels), CLASSES, COLOURS)
        export.add(path, name, name.removesuffix(".png"), prediction)
    assert ("exact" in export.finish()) == (tolerance == 0 and to != "voc")
    return folder


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


@pytest.mark.parametrize("to", FORMATS)
def test_what_is_written_is_what_was_predicted(to, tmp_path):
    """Without a tolerance in every pixel; with one pixel of it, at a border here and there."""
    for tolerance, least, agreement in ((0.0, 1, 1.0), (1.0, 16, 0.994)):
        folder = write(to, tmp_path / f"{tolerance}" / "data", tolerance, least)
        for name in ("a.png", "sub/b ü.png"):
            assert (READ[to](folder, name) == facade()).mean() >= agreement


@pytest.mark.parametrize("to", [name for name in FORMATS if name != "label-studio"])
def test_our_own_readers_read_it(to, tmp_path):
    """The folder is a data set; but for Label Studio's, where predictions become labels once someone accepts them."""
    labels = facade()
    listing = list_folder(write(to, tmp_path / "data", 0.0), None, 0.34, 0)
    items = {item.image.name: item for item in (*listing.train, *listing.val)}
    assert set(items) == {"a.png", "b ü.png", "c.png"}
    names = np.array(listing.classes)[listing.read_labels(items["a.png"])]
    assert (names == np.array(CLASSES)[labels]).all()


@pytest.mark.parametrize("to", FORMATS)
def test_an_image_without_a_region(to, tmp_path):
    """Is written all the same: nothing was found there."""
    folder = write(to, tmp_path / "data", 1.0, labels=np.zeros((HEIGHT, WIDTH), dtype=np.uint8))
    if to != "label-studio":  # where the size stands in the regions only
        assert not READ[to](folder, "a.png").any()


def test_the_background_is_written_when_asked_for(trained_run):
    """What is called so, in any case of letters; all other classes always are."""
    model = load(trained_run, "cpu")
    renamed = type(model)(**{**vars(model), "classes": ("Void", *model.classes[1:])})
    assert "void" in BACKGROUND
    folder = Path("unused")
    assert AnnotationSettings("coco").export(renamed, folder).scheme.wanted == tuple(range(1, len(model.classes)))
    assert 0 in AnnotationSettings("coco", background=True).export(renamed, folder).scheme.wanted
    assert 0 in AnnotationSettings("coco").export(model, folder).scheme.wanted
    with pytest.raises(UserError, match="--tolerance -1"):
        AnnotationSettings("coco", -1.0).export(model, folder)
    alone = type(model)(**{**vars(model), "classes": ("background",)})
    with pytest.raises(UserError, match="no class but background"):
        AnnotationSettings("coco").export(alone, folder)


def test_predict_writes_them_beside_its_masks(trained_run, tmp_path):
    """For the images as they are named below the folder; the file is the same whatever was ready first."""
    model, photos = load(trained_run, "cpu"), tmp_path / "photos"
    (photos / "more").mkdir(parents=True)
    for index, name in enumerate(("x.png", "x.jpg", "more/y.png")):
        Image.fromarray(render(0, index, 64, 96)[0]).save(photos / name)
    contents = []
    for out in (tmp_path / "one", tmp_path / "two"):
        export = AnnotationSettings("coco", 0.0, 1).export(model, out / "coco")
        said = Console(file=io.StringIO(), width=200)
        assert predict_files(model, [str(photos)], Outputs(out, indices=True), said, export=export) == 0
        assert "Annotations for coco" in said.file.getvalue()
        contents.append((out / "coco/annotations/instances_default.json").read_bytes())
    assert contents[0] == contents[1]
    coco = COCO(str(tmp_path / "one/coco/annotations/instances_default.json"))
    assert {image["file_name"] for image in coco.dataset["images"]} == {"x.png", "x.jpg", "more/y.png"}
    (image,) = [entry for entry in coco.dataset["images"] if entry["file_name"] == "more/y.png"]
    labels = np.full((64, 96), 255)
    for entry in coco.loadAnns(coco.getAnnIds(image["id"])):
        labels[coco.annToMask(entry).astype(bool)] = entry["category_id"] - 1
    assert (labels == np.asarray(Image.open(tmp_path / "one/masks/more/y.png"))).all()
    export = AnnotationSettings("labelme").export(model, tmp_path / "three/labelme")
    predict_files(model, [str(photos)], Outputs(tmp_path / "three"), QUIET, export=export)
    for name in ("x.png", "x.jpg", "more/y"):
        file = tmp_path / "three/labelme" / f"{name}.json"
        assert (file.parent / json.loads(file.read_text())["imagePath"]).resolve().is_relative_to(photos)


@pytest.mark.parametrize("to", ["cvat", "labelme", "yolo"])
def test_suggest_writes_the_images_and_what_is_predicted(trained_run, tmp_path, to):
    """Copies of those that it names, and paths in its table that exist; corrected ones are never overwritten."""
    photos, out = tmp_path / "photos", tmp_path / "next"
    (photos / "more").mkdir(parents=True)
    for index, name in enumerate(("x.png", "w.jpg", "more/y.png", "z.png")):
        Image.fromarray(render(1, index, 64, 96)[0]).save(photos / name)
    found = suggest(trained_run, QUIET, folder=photos, count=3, out=out, to=AnnotationSettings(to))
    assert (found.table, found.sheet) == (out / "suggest.csv", out / "suggest.png")
    rows = list(csv.DictReader(found.table.read_text().splitlines()))
    assert len(rows) == 3
    for row in rows:
        assert Path(row["path"]) == photos / row["image"]
        copy = out / FORMATS[to].images / row["image"]
        assert copy.read_bytes() == Path(row["path"]).read_bytes()
    match to:
        case "cvat":
            names = [image.get("name") for image in ET.parse(out / "annotations.xml").iter("image")]
            assert names == sorted(row["image"] for row in rows)
        case "labelme":
            assert len([*out.rglob("*.json")]) == 3
        case "yolo":
            assert len([*out.rglob("labels/train/**/*.txt")]) == 3
    with pytest.raises(UserError, match="perhaps corrected"):
        suggest(trained_run, QUIET, folder=photos, count=3, out=out, to=AnnotationSettings(to))


def test_scenes_made_by_code_have_no_files(trained_run, tmp_path):
    """Which is said before anything is scored."""
    with pytest.raises(UserError, match="made by code"):
        suggest(trained_run, QUIET, out=tmp_path / "next", to=AnnotationSettings("cvat"))
    assert not (tmp_path / "next").exists()
