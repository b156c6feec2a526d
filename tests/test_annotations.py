"""Predictions for annotation tools: outlines that enclose what was predicted, in files that tools read.

SciPy, Matplotlib, pycocotools and Pillow say what is right; so do our own readers of the same formats.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_masks
from pycocotools.coco import COCO
from rich.console import Console
from scipy import ndimage

from exported import CLASSES, COLOURS, HEIGHT, READ, WIDTH, fill, fill_one
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.decode.images import read_image
from oneway.data.folder import find, list_folder
from oneway.data.streets import render
from oneway.runs.atomic import place_below
from oneway.tools.annotations import FORMATS, AnnotationSettings, Export
from oneway.tools.annotations.coco import compress
from oneway.tools.annotations.interface import Scheme
from oneway.tools.annotations.polygons import keyhole
from oneway.tools.annotations.regions import find_regions, runs
from oneway.tools.predict import Outputs, Prediction, load, predict_files
from oneway.tools.predict.sources import find_sources
from oneway.tools.suggest import suggest
from small_runs import QUIET


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
        path = place_below(export.folder, f"{export.writer.images}/{name}".lstrip("/"))
        pixels = render(0, len(name), *labels.shape)[0]
        Image.fromarray(pixels).save(path)
        prediction = Prediction(pixels, labels, confident(labels), CLASSES, COLOURS)
        export.add(path, name, name.removesuffix(".png"), prediction)
    assert ("exact" in export.finish()) == (tolerance == 0 and to != "voc")
    return folder


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
        assert "\nIds of categories are 1 " in said.file.getvalue()
        assert "within 1 pixel:" in AnnotationSettings("coco").export(model, out / "none").finish()
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
    """Copies of those that it names, and paths in its table that exist; corrected ones are never overwritten.

    A file without compression has thousands of zero bytes where an image is black.
    """
    photos, out = tmp_path / "photos", tmp_path / "next"
    (photos / "more").mkdir(parents=True)
    for index, name in enumerate(("x.png", "w.jpg", "more/y.bmp", "z.bmp")):
        pixels = render(1, index, 64, 96)[0].copy()
        pixels[:20] = 0
        Image.fromarray(pixels).save(photos / name)
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


@pytest.mark.parametrize("to", [name for name in FORMATS if name != "label-studio"])
def test_suggestions_are_read_with_the_classes_of_the_model(trained_run, tmp_path, to):
    """All of them, in their order, though some have no region; what no region covers is ignored without a background.

    The contact sheet is none of the images, neither to learn from nor to predict.
    """
    photos, out = tmp_path / "photos", tmp_path / "next"
    photos.mkdir()
    for index in range(3):
        Image.fromarray(render(1, index, 64, 96)[0]).save(photos / f"{index}.png")
    suggest(trained_run, QUIET, folder=photos, out=out, to=AnnotationSettings(to, least=2000))
    listing, model = list_folder(out, None, 0.34, 0), load(trained_run, "cpu")
    assert listing.classes == model.classes
    assert len(listing.train) + len(listing.val) == 3
    for item in (*listing.train, *listing.val):
        expected, found = model.predict(read_image(item.image)).labels, listing.read_labels(item)
        covered = found != IGNORE
        assert covered.all() if to == "voc" else 0.2 < covered.mean() < 1
        assert (found == expected)[covered].mean() > 0.9
    assert {source.path.name for source in find_sources([str(out)], tmp_path / "out")} == {f"{n}.png" for n in range(3)}
    assert not any("suggest" in problem.file.name for problem in find(out).problems)


@pytest.mark.parametrize(("to", "images"), [("labelme", "."), ("coco", "images/default"), ("voc", "JPEGImages")])
def test_what_predict_writes_is_a_data_set_once_its_images_are_there(trained_run, tmp_path, to, images):
    """With the model's classes, in its order: none that was not drawn is missing, and no background is added."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(3):
        Image.fromarray(render(0, number, 32, 64)[0]).save(photos / f"{number}.png")
    model, out = load(trained_run, "cpu"), tmp_path / "out"
    export = AnnotationSettings(to, 0.0, 1).export(model, out / to)
    assert predict_files(model, [str(photos)], Outputs(out), QUIET, export=export) == 0
    shutil.copytree(photos, out / to / images, dirs_exist_ok=True)
    listing = list_folder(out / to, None, 0.34, 0)
    assert listing.classes == model.classes
    for item in (*listing.train, *listing.val):
        assert (listing.read_labels(item) == model.predict(read_image(item.image)).labels).all()


@pytest.mark.parametrize("to", ["labelme", "voc"])
def test_a_background_of_any_name_and_place_is_read_where_nothing_is_drawn(tmp_path, to):
    """Also where it is not called so: it is what was not drawn."""
    folder = write(to, tmp_path / "data", 0.0)
    classes = ("roof", "void", *CLASSES[2:])
    scheme = Scheme(classes, COLOURS, (0, 2, 3), 0.0, 1)
    labels = facade()
    swapped = np.array([1, 0, 2, 3], dtype=np.uint8)[labels]
    export = Export(AnnotationSettings(to, 0.0, 1), scheme, folder)
    for name in ("a.png", "sub/b ü.png", "c.png"):
        path = folder / export.writer.images / name
        prediction = Prediction(np.asarray(Image.open(path)), swapped, confident(labels), classes, COLOURS)
        export.add(path, name, name.removesuffix(".png"), prediction)
    export.finish()
    listing = list_folder(folder, None, 0.34, 0)
    assert listing.classes == classes
    assert (listing.read_labels(listing.train[0]) == swapped).all()


def test_a_class_that_the_list_lacks_is_named(tmp_path):
    """Before anything is decoded: someone drew a new one in the annotation tool."""
    folder = write("labelme", tmp_path / "data", 0.0)
    (folder / "dataset.yaml").write_text("classes: [background, roof]")
    with pytest.raises(UserError, match=r"dataset.yaml: `classes` lacks"):
        list_folder(folder, None, 0.34, 0)


def test_scenes_made_by_code_have_no_files(trained_run, tmp_path):
    """Which is said before anything is scored."""
    with pytest.raises(UserError, match="made by code"):
        suggest(trained_run, QUIET, out=tmp_path / "next", to=AnnotationSettings("cvat"))
    assert not (tmp_path / "next").exists()
