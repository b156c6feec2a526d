"""Pascal VOC with SBD, ADE20K and COCO-Stuff: files in their official layouts, and lists as others publish them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from data.folders import photo, write
from oneway.cli import app
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.config import Data
from oneway.config.recipes import RECIPES, configured
from oneway.data import list_files, load
from oneway.data.published.ade20k import list_ade20k
from oneway.data.published.coco_stuff import list_coco_stuff
from oneway.data.published.voc import list_voc
from oneway.data.splits import choose

TRAIN, VAL, SBD = ("2007_000032", "2007_000733"), ("2007_000033",), ("2008_000008", "2010_004493")
# The colours of VOC's palette, as its development kit prints them.
PALETTE = {0: (0, 0, 0), 1: (128, 0, 0), 8: (64, 0, 0), 15: (192, 128, 128), 20: (0, 64, 128)}


def labels(path, values):
    """A mask of one row of values over 4 more, as greyscale."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.tile(np.array(values, np.uint8), (4, 1))).save(path)


def noise(path, seed, width):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(256, size=(4, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def voc(tmp_path):
    """Two images to train on, one that validates, two of SBD, and one without labels."""
    root = tmp_path / "VOCdevkit" / "VOC2012"
    for number, name in enumerate((*TRAIN, *VAL, *SBD, "2012_004331")):
        noise(root / "JPEGImages" / f"{name}.jpg", number, 6)
    for name in (*TRAIN, *VAL):
        labels(root / "SegmentationClass" / f"{name}.png", [0, 1, 8, 15, 20, 255])
    for name in (*TRAIN, *VAL, *SBD):
        labels(root / "SegmentationClassAug" / f"{name}.png", [0, 1, 2, 3, 4, 255])
    for split, names in (("train", TRAIN), ("val", VAL)):
        write(root / "ImageSets" / "Segmentation" / f"{split}.txt", "\n".join(names) + "\n")
    return root


def named(items):
    return [item.image.stem for item in items]


@pytest.mark.parametrize("above", [0, 1, 2])
def test_voc_with_sbd(voc, above):
    """Whichever folder is given; official masks where there are some, SBD's for the others, and none that validates."""
    listing = list_voc([voc, *voc.parents][above])
    assert named(listing.train) == sorted((*TRAIN, *SBD))
    assert named(listing.val) == list(VAL)
    assert {item.image.stem: item.mask.parent.name for item in listing.train} == {
        **dict.fromkeys(TRAIN, "SegmentationClass"),
        **dict.fromkeys(SBD, "SegmentationClassAug"),
    }
    assert listing.read_labels(listing.val[0])[0].tolist() == [0, 1, 8, 15, 20, IGNORE]
    assert len(listing.classes) == 21
    assert {index: listing.colours[index] for index in PALETTE} == PALETTE
    assert "4 images train; VOC 2012 with all of SBD has 10582." in listing.remarks


def test_voc_without_sbd_says_what_is_missing(voc):
    for path in (voc / "SegmentationClassAug").iterdir():
        path.unlink()
    (voc / "SegmentationClassAug").rmdir()
    listing = list_voc(voc)
    assert named(listing.train) == sorted(TRAIN)
    assert any("without the masks of SBD, 2 images train" in remark for remark in listing.remarks)


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize(
    ("content", "words"), [(b"", "list is empty"), (b" \n\n", "list is empty"), (b"2007_\xe9\n", r"UTF-8 \(byte 5\)")]
)
def test_a_list_without_names_is_refused(voc, split, content, words):
    """Nothing would be trained on, or no score would ever be known; and what is no text is named."""
    (voc / "ImageSets" / "Segmentation" / f"{split}.txt").write_bytes(content)
    with pytest.raises(UserError, match=rf"{split}\.txt: .*{words}"):
        list_voc(voc)


def test_a_list_may_begin_with_a_byte_order_mark(voc):
    file = voc / "ImageSets" / "Segmentation" / "val.txt"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert named(list_voc(voc).val) == list(VAL)


def test_only_a_folder_may_do_without_validation(voc, monkeypatch):
    """Whichever way a published data set came to have none."""
    listing = replace(list_voc(voc), val=())
    monkeypatch.setattr(sys.modules["oneway.data.load"], "list_voc", lambda *_: listing)
    with pytest.raises(UserError, match="no image validates"):
        list_files(Data(name="voc", path=voc, holdout=0))


LISTS = {
    "UniMatch": "JPEGImages/{0}.jpg SegmentationClass/{0}.png",
    "U2PL and CPS": "{0}",
    "AdvSemiSeg": "/JPEGImages/{0}.jpg /SegmentationClassAug/{0}.png",
}


@pytest.mark.parametrize("line", LISTS.values(), ids=LISTS)
def test_published_lists_are_read_as_they_are(voc, tmp_path, line):
    """The labelled images are those; all others train without labels."""
    chosen = (TRAIN[1], SBD[1])
    write(tmp_path / "labeled.txt", "\n".join(line.format(name) for name in reversed(chosen)) + "\n")
    config = configured("voc", {"data": {"path": voc, "cache": tmp_path / "cache"}}, "test")
    samples = load(config.data).read("train")
    split = choose(samples, str(tmp_path / "labeled.txt"), seed=0)
    assert split.labelled == tuple(f"JPEGImages/{name}.jpg" for name in chosen)
    assert split.further == 2


def test_a_list_that_names_a_validation_image_is_refused(voc, tmp_path):
    write(tmp_path / "labeled.txt", VAL[0])
    dataset = load(configured("voc", {"data": {"path": voc, "cache": tmp_path / "cache"}}, "test").data)
    with pytest.raises(UserError, match="validates, and cannot train"):
        choose(dataset.read("train"), str(tmp_path / "labeled.txt"), 0, dataset.read("val").names)


@pytest.fixture
def ade(tmp_path):
    """Two images to train on and one that validates; a table in which two classes have the same first name."""
    root = tmp_path / "ADEChallengeData2016"
    for number, (part, name) in enumerate((("training", "a"), ("training", "b"), ("validation", "c"))):
        noise(root / "images" / part / f"ADE_{name}.jpg", number, 4)
        labels(root / "annotations" / part / f"ADE_{name}.png", [0, 1, 2, 150])
    rows = [
        f"{number}\t0.1\t1\t1\t{'screen, silver screen' if number > 148 else f'thing {number}, other'}"
        for number in range(1, 151)
    ]
    write(root / "objectInfo150.txt", "Idx\tRatio\tTrain\tVal\tName\n" + "\n".join(rows) + "\n")
    return root


def test_ade20k(ade):
    """Class 1 is the first, and 0 is none."""
    listing = list_ade20k(ade.parent)
    assert (len(listing.train), len(listing.val)) == (2, 1)
    assert listing.classes[:2] == ("thing 1", "thing 2")
    assert listing.classes[-2:] == ("screen", "screen (150)")
    assert listing.read_labels(listing.val[0])[0].tolist() == [IGNORE, 0, 1, 149]
    assert "2 of the 20210 images of ADE20K training are there." in listing.remarks
    write(ade / "objectInfo150.txt", "Idx\tRatio\tTrain\tVal\tName\n1\t0.1\t1\t1\twall\n")
    with pytest.raises(UserError, match="lists 1 classes, and not 1 to 150"):
        list_ade20k(ade)


@pytest.mark.parametrize(("images", "masks"), [("images/", "annotations/"), ("", "stuffthingmaps/")])
def test_coco_stuff(tmp_path, images, masks):
    """Numbers are categories less one; lists of UniMatch name images by `train2017/…`."""
    for number, (part, name) in enumerate(
        (("train2017", "000000000009"), ("train2017", "000000177254"), ("val2017", "1"))
    ):
        noise(tmp_path / f"{images}{part}" / f"{name}.jpg", number, 6)
        labels(tmp_path / f"{masks}{part}" / f"{name}.png", [0, 10, 12, 89, 91, 181])
    listing = list_coco_stuff(tmp_path)
    found = listing.read_labels(listing.val[0])[0].tolist()
    assert [listing.classes[label] for label in found] == [
        *("person", "fire hydrant", "stop sign", "toothbrush", "banner", "wood")
    ]
    write(tmp_path / "labeled.txt", "train2017/000000177254.jpg masks/000000177254.png\n")
    config = configured("coco-stuff", {"data": {"path": tmp_path, "cache": tmp_path / "cache"}}, "test")
    split = choose(load(config.data).read("train"), str(tmp_path / "labeled.txt"), seed=0)
    assert split.labelled == (f"{images}train2017/000000177254.jpg",)
    labels(tmp_path / f"{masks}val2017" / "1.png", [0, 11, 12, 89, 91, 181])  # a category that is used nowhere
    with pytest.raises(UserError, match="the number 11 at row 0, column 1 stands for nothing"):
        listing.read_labels(listing.val[0])


@pytest.mark.parametrize("name", ["voc", "ade20k", "coco-stuff"])
def test_a_folder_of_something_else_is_refused_with_what_was_looked_for(tmp_path, name):
    photo(tmp_path / "x.jpg")
    with pytest.raises(UserError, match=r"ImageSets/Segmentation/train.txt|images/train.*NAME.jpg"):
        list_files(configured(name, {"data": {"path": tmp_path}}, "test").data)


def test_check_knows_them(voc, capsys):
    """As it knows Cityscapes."""
    with pytest.raises(SystemExit):
        app(["check", str(voc), "--recipe", "voc", "--json"])
    assert json.loads(capsys.readouterr().out)["labelled"] == 4


def test_customary_protocols():
    """Crops, networks and rates, typed in from what the authors of UniMatch publish."""
    for name, crop, rate in (("voc", 321, 0.001), ("coco-stuff", 513, 0.004)):
        config = RECIPES[name]()
        assert config.jitter.crop == (crop, crop)
        assert config.jitter.scale == (0.5, 2.0)
        assert config.optimiser.learning_rate_pretrained == rate
        assert config.optimiser.learning_rate == 10 * rate
        assert (config.model.name, config.model.backbone) == ("deeplabv3plus", "resnet101")
