"""TIFFs of more than four bands, written by tifffile as cameras and GDAL store them: three bands are read."""

from __future__ import annotations

import struct
import sys

import numpy as np
import pytest
import tifffile
from PIL import Image

from data.folders import write
from oneway.common.errors import UserError
from oneway.config import Data
from oneway.data import load
from oneway.data.check import apply_rules
from oneway.data.check.survey import survey_all
from oneway.data.decode.header import read_header
from oneway.data.decode.images import image_size, read_image
from oneway.data.decode.masks import read_raw
from oneway.data.decode.plausible import Unreadable
from oneway.data.folder import list_folder
from oneway.data.image_style import ImageStyle
from oneway.tools.predict import Outputs, predict_files
from oneway.tools.predict import load as load_model
from oneway.tools.train import train
from small_runs import QUIET, small_streets


def noise(bands: int, kind: type = np.uint8, seed: int = 0) -> np.ndarray:
    most = np.iinfo(kind).max + 1
    return np.random.default_rng(seed).integers(most, size=(32, 64, bands), dtype=kind)


def save(path, pixels: np.ndarray, **options) -> None:
    layout = {"photometric": "minisblack", "planarconfig": "contig"} | options
    stored = np.moveaxis(pixels, 2, 0) if layout["planarconfig"] == "separate" else pixels
    tifffile.imwrite(path, stored, **layout)


@pytest.mark.parametrize("bands", [5, 6, 8, 13])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "lzw", "predictor": True},
        {"compression": "zlib", "tile": (16, 16)},
        {"planarconfig": "separate"},
        {"planarconfig": "separate", "compression": "zlib"},
        {"planarconfig": "separate", "photometric": "rgb", "compression": "packbits"},
        {"photometric": "rgb"},
        {"byteorder": ">", "bigtiff": True},
    ],
    ids=str,
)
def test_chosen_bands_are_read(tmp_path, capfd, bands, kind, options):
    """However they are stored; of 16 bits the upper 8. By default the first three."""
    pixels = noise(bands, kind)
    save(tmp_path / "a.tif", pixels, **options)
    upper = pixels if kind is np.uint8 else (pixels >> 8).astype(np.uint8)
    assert np.array_equal(
        read_image(tmp_path / "a.tif", style=ImageStyle((bands, 2, 4))), upper[..., [bands - 1, 1, 3]]
    )
    assert np.array_equal(read_image(tmp_path / "a.tif"), upper[..., :3])
    assert image_size(tmp_path / "a.tif") == (32, 64)
    header = read_header(tmp_path / "a.tif")
    assert (header.orientation, header.deep, header.further_band) == (1, kind is np.uint16, True)
    assert capfd.readouterr() == ("", "")  # of Pillow's own words


@pytest.mark.parametrize("bands", [3, 4])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("photometric", ["minisblack", "rgb"])
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("planes", ["contig", "separate"])
def test_three_and_four_bands_however_they_lie(tmp_path, bands, kind, photometric, compression, planes):
    """Pillow takes other samples for colours, or the first band for all, where bands lie apart from one another."""
    pixels = noise(bands, kind)
    save(tmp_path / "a.tif", pixels, photometric=photometric, compression=compression, planarconfig=planes)
    upper = pixels if kind is np.uint8 else (pixels >> 8).astype(np.uint8)
    assert np.array_equal(read_image(tmp_path / "a.tif"), upper[..., :3])
    assert np.array_equal(
        read_image(tmp_path / "a.tif", style=ImageStyle((bands, 2, 1))), upper[..., [bands - 1, 1, 0]]
    )
    header = read_header(tmp_path / "a.tif")
    assert (header.deep, header.pages, header.further_band) == (kind is np.uint16, 1, bands > 3)


def test_further_pages_are_counted(tmp_path):
    """As of any other TIFF: `oneway check` says that the first is used."""
    tifffile.imwrite(tmp_path / "a.tif", np.stack([noise(8)] * 3), photometric="minisblack", planarconfig="contig")
    assert read_header(tmp_path / "a.tif").pages == 3


@pytest.mark.parametrize("tag", [322, 32997])
def test_a_header_whose_parts_are_larger_than_the_image(tmp_path, tag):
    """Is refused before memory is taken: a tile is unpacked as a whole, and depth multiplies pixels."""
    options = {"tile": (16, 16), "compression": "zlib"} if tag == 322 else {"extratags": [(65000, 4, 1, 1, False)]}
    save(tmp_path / "a.tif", noise(8), **options)
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+") as file:
        if tag == 322:
            file.pages[0].tags[tag].overwrite(2**20)
    content = (tmp_path / "a.tif").read_bytes()
    deep = content.replace(struct.pack("<HHII", 65000, 4, 1, 1), struct.pack("<HHII", 32997, 4, 1, 2**20))
    with pytest.raises(Unreadable, match="announces other pixels, or larger tiles, than it can have"):
        read_image(tmp_path / "a.tif", deep)


@pytest.mark.parametrize("orientation", [1, 2, 3, 4, 5, 6, 7, 8])
def test_images_are_upright(tmp_path, orientation):
    """As Pillow turns the same pixels in three bands."""
    pixels = noise(8)
    tag = [(274, 3, 1, orientation, False)]
    save(tmp_path / "many.tif", pixels, extratags=tag)
    tifffile.imwrite(tmp_path / "three.tif", pixels[..., :3], photometric="rgb", extratags=tag)
    expected = read_image(tmp_path / "three.tif")
    assert np.array_equal(read_image(tmp_path / "many.tif"), expected)
    assert image_size(tmp_path / "many.tif") == expected.shape[:2]


def test_what_cannot_be_used_is_named(tmp_path):
    """A band that is not there, samples without a range, damage, and a mask of many bands."""
    save(tmp_path / "a.tif", noise(8))
    with pytest.raises(UserError, match=r"a\.tif: has 8 bands, and band 9 is asked for"):
        read_image(tmp_path / "a.tif", style=ImageStyle((9, 1, 2)))
    save(tmp_path / "float.tif", noise(8).astype(np.float32))
    with pytest.raises(UserError, match=r"float\.tif: samples of kind float32 have no agreed range"):
        read_image(tmp_path / "float.tif")
    content = (tmp_path / "a.tif").read_bytes()
    (tmp_path / "cut.tif").write_bytes(content[:4000])
    with pytest.raises(Unreadable, match=r"cut\.tif: cannot be read as an image"):
        read_image(tmp_path / "cut.tif")
    with pytest.raises(UserError, match=r"a\.tif: has 8 bands, and a mask has one"):
        read_raw(tmp_path / "a.tif")


def test_a_header_that_announces_too_much(tmp_path):
    """Is refused before anything is decoded."""
    save(tmp_path / "a.tif", noise(8))
    with tifffile.TiffFile(tmp_path / "a.tif", mode="r+") as file:
        for tag in ("ImageWidth", "ImageLength"):
            file.pages[0].tags[tag].overwrite(30_000)
    with pytest.raises(UserError, match=r"30000×30000 pixels of 8 bands, in a file of \d+ bytes, are none, or more"):
        read_image(tmp_path / "a.tif")


@pytest.mark.parametrize("options", [{}, {"compression": "lzw"}, {"compression": "zlib", "tile": (16, 16)}], ids=str)
def test_damaged_files_are_errors(tmp_path, options):
    """Whatever byte of the header or the pixels is another: pixels of the announced size, or an error of ours."""
    save(tmp_path / "a.tif", noise(8), **options)
    content, random = (tmp_path / "a.tif").read_bytes(), np.random.default_rng(0)
    directory = int.from_bytes(content[4:8], "little")
    messages = []
    for _ in range(600):
        damaged = bytearray(content)
        for place in random.integers(0, (directory + 300) % len(content), random.integers(1, 4)):
            damaged[place] = random.integers(256)
        try:
            shape = read_image(tmp_path / "a.tif", bytes(damaged)).shape
            assert shape == (*image_size(tmp_path / "a.tif", bytes(damaged)), 3)
        except UserError as error:
            messages.append(str(error))
    assert len(messages) > 30
    assert all("a.tif" in message for message in messages)


def test_without_tifffile(tmp_path, monkeypatch):
    """The command to install it."""
    save(tmp_path / "a.tif", noise(8))
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(UserError, match=r"a TIFF of 8 bands, needs tifffile .* pip install 'oneway\[bands\]'"):
        read_image(tmp_path / "a.tif")
    assert image_size(tmp_path / "a.tif") == (32, 64)


def test_a_data_set_of_eight_bands(tmp_path, capfd):
    """Checked with a warning, trained on and predicted in the bands that dataset.yaml chooses."""
    for kind in ("images", "masks"):
        (tmp_path / "data" / kind).mkdir(parents=True)
    stripes = (np.add.outer(np.arange(32), np.arange(64)) // 12 % 2).astype(np.uint8)
    for index in range(5):
        save(tmp_path / f"data/images/{index}.tif", noise(8, seed=index))
        Image.fromarray(stripes).save(tmp_path / f"data/masks/{index}.png")

    found = list_folder(tmp_path / "data", None, 0.2, 0)
    told = [one for one in apply_rules(found, survey_all(found, found.items, int)) if "Bands" in one.kind]
    assert "the first three are used" in told[0].message
    write(tmp_path / "data/dataset.yaml", "classes: [a, b]\nbands: [8, 4, 3]\n")
    config = {"name": "folder", "path": tmp_path / "data", "cache": tmp_path / "cache"}
    samples = load(Data(**config)).read("train")
    number = int(samples.names[0].removeprefix("images/")[0])
    assert np.array_equal(samples.image(0), noise(8, seed=number)[..., [7, 3, 2]])
    train(small_streets(recipe="folder", labels="all", data=config), tmp_path / "run", resume=False, console=QUIET)
    model = load_model(tmp_path / "run", "cpu")
    expected = model.predict(noise(8, seed=0)[..., [7, 3, 2]]).labels
    assert np.array_equal(model.predict(tmp_path / "data/images/0.tif").labels, expected)
    capfd.readouterr()
    assert predict_files(model, [str(tmp_path / "data/images/0.tif")], Outputs(tmp_path / "out"), QUIET) == 0
    assert "not used" not in capfd.readouterr().err  # what was chosen is
