"""Facts about maps: a mask of a GeoTIFF, or of an image with a world file, lies where its image lies.

Where rasterio is installed, GDAL is asked too; it reads what any GIS reads.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import ExifTags, Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from oneway.data.decode.georeference import Georeference, read_georeference
from oneway.data.decode.images import image_size, read_image
from oneway.data.streets import CLASSES, COLOURS
from oneway.tools.predict import Outputs, Prediction, load, predict_files
from small_runs import QUIET

SCALE, TIEPOINT, TRANSFORMATION, KEYS = 33550, 33922, 34264, 34735
DOUBLE, SHORT = 12, 3
UTM = {SCALE: (0.5, 0.25, 0.0), TIEPOINT: (0.0, 0.0, 0.0, 400_000.0, 5_000_000.0, 0.0)}
"""Pixels of ½ m × ¼ m, from a corner in zone 33 north."""

SHIFTED = {**UTM, TIEPOINT: (2.0, 4.0, 0.0, 400_001.0, 4_999_999.0, 0.0)}  # the same, said of another pixel
ROTATED = {TRANSFORMATION: (3.0, 4.0, 0, 1000.0, 4.0, -3.0, 0, 2000.0, 0, 0, 0, 0, 0, 0, 0, 1.0)}
PLACED = Georeference(0.5 + 0j, -0.25j, 400_000 + 5_000_000j, "EPSG:32633")
HEIGHT, WIDTH = 32, 64
WKT = 'LOCAL_CS["quarry <1> & 2",UNIT["metre",1]]'


def keys(model: int, code: int, raster: int = 1) -> tuple[int, ...]:
    """A directory of three keys: projected or geographic, about corners or centres of pixels, an EPSG code."""
    return (1, 1, 0, 3, 1024, 0, 1, model, 1025, 0, 1, raster, {1: 3072, 2: 2048}[model], 0, 1, code)


def pixels(height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)


def geotiff(path: Path, tags: dict[int, Any], orientation: int = 1, **options: Any) -> Path:
    directory = ImageFileDirectory_v2()
    directory[274] = orientation
    for tag, values in tags.items():
        directory.tagtype[tag] = SHORT if tag == KEYS else DOUBLE
        directory[tag] = values
    Image.fromarray(pixels()).save(path, tiffinfo=directory, **options)
    return path


def located(path: Path) -> Georeference | None:
    return read_georeference(path, *image_size(path))


def results(path: Path, out: Path) -> Path:
    """Masks, overlays and confidence of an image, without a network; returns the folder."""
    image = read_image(path)
    height, width = image.shape[:2]
    labels = np.arange(height * width, dtype=np.uint8).reshape(height, width) % len(CLASSES)
    prediction = Prediction(image, labels, np.ones((height, width), np.float32), CLASSES, COLOURS)
    Outputs(out, confidence=True).write("a.b", path, prediction, read_georeference(path, height, width))
    return out


def test_an_overlay_of_more_pixels_than_a_jpeg_has_is_smaller(tmp_path):
    """And lies where its image lies; the mask has all pixels."""
    place, size = Georeference(0.5, -0.25j, 400_000 + 5_000_000j, "EPSG:32633"), (3, 131_001)
    prediction = Prediction(np.zeros((*size, 3), np.uint8), np.zeros(size, np.uint8), np.ones(0), CLASSES, COLOURS)
    Outputs(tmp_path).write("a", tmp_path / "a.tif", prediction, place)
    assert Image.open(tmp_path / "masks/a.png").size == (131_001, 3)
    assert Image.open(tmp_path / "overlays/a.jpg").size == (43_667, 1)
    assert located(tmp_path / "masks/a.png") == place
    assert located(tmp_path / "overlays/a.jpg") == replace(place, right=1.5, down=-0.75j)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({**UTM, KEYS: keys(1, 32633)}, PLACED),
        ({**SHIFTED, KEYS: keys(1, 32633)}, PLACED),
        ({**UTM, KEYS: keys(1, 32633, raster=2)}, Georeference(0.5, -0.25j, 399_999.75 + 5_000_000.125j, "EPSG:32633")),
        ({**UTM, SCALE: (0.5, -0.25, 0.0)}, Georeference(0.5, -0.25j, 400_000 + 5_000_000j)),
        ({**ROTATED, KEYS: keys(2, 4326)}, Georeference(3 + 4j, 4 - 3j, 1000 + 2000j, "EPSG:4326")),
        ({**ROTATED, KEYS: keys(2, 4326, raster=2)}, Georeference(3 + 4j, 4 - 3j, 996.5 + 1999.5j, "EPSG:4326")),
        ({**UTM, KEYS: keys(1, 32767)}, Georeference(0.5, -0.25j, 400_000 + 5_000_000j)),  # a system of its own
    ],
)
def test_a_geotiff_says_where_it_lies(tmp_path, tags, expected):
    """By scale and tie point or by a matrix, about corners or centres of pixels, as computed by hand; or in BigTIFF."""
    assert located(geotiff(tmp_path / "a.tif", tags)) == expected
    assert located(geotiff(tmp_path / "b.tif", tags, big_tiff=True)) == expected
    assert located(geotiff(tmp_path / "c.tif", tags, compression="tiff_deflate")) == expected


@pytest.mark.parametrize("order", "<>")
def test_so_does_one_of_many_bands_in_tiles(tmp_path, order):
    """Which Pillow does not open, and in either order of bytes."""
    tags = [(tag, DOUBLE, len(values), values, True) for tag, values in UTM.items()]
    tags.append((KEYS, SHORT, 16, keys(1, 32633), True))
    content = np.zeros((HEIGHT, WIDTH, 6), np.uint16)
    path = tmp_path / "a.tif"
    tifffile.imwrite(
        path, content, extratags=tags, tile=(16, 16), planarconfig="contig", photometric="minisblack", byteorder=order
    )
    assert located(path) == PLACED


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {KEYS: keys(1, 32633)},
        {SCALE: UTM[SCALE]},
        {**UTM, SCALE: (0.5,)},
        {**UTM, SCALE: (0.5, 0.0)},
        {**UTM, SCALE: (float("nan"), 1.0, 0.0)},
        {**UTM, TIEPOINT: (0.0, 0.0, 0.0, float("inf"), 5_000_000.0, 0.0)},
        {**UTM, TIEPOINT: (1e300, 0.0, 0.0, 1e300, 0.0, 0.0), SCALE: (1e300, 1e300, 0.0)},
        {**UTM, TIEPOINT: UTM[TIEPOINT][:5]},
        {TRANSFORMATION: ROTATED[TRANSFORMATION][:12]},
        {TRANSFORMATION: (1.0,) * 16},  # right and down are one direction
        {TRANSFORMATION: (float("-inf"),) * 16},
        {**UTM, TIEPOINT: (0.0,) * 100_002},
    ],
)
def test_numbers_without_sense_say_nothing(tmp_path, tags):
    """And nothing fails."""
    assert located(geotiff(tmp_path / "a.tif", tags)) is None


def test_damaged_tags_never_fail(tmp_path):
    """Any byte changed among the tags, which lie in front of the pixels: no error, and at most another place."""
    path = geotiff(tmp_path / "a.tif", {**UTM, KEYS: keys(1, 32633)})
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(2000):
        content = bytearray(whole)
        content[random.integers(8, 420)] = random.integers(256)
        path.write_bytes(content[: random.integers(8, len(content))])
        found = read_georeference(path, HEIGHT, WIDTH)
        assert found is None or abs(found.corner) < 1e13


@pytest.mark.parametrize("name", ["a.pgw", "a.pngw", "a.wld", "a.PGW"])
def test_a_world_file_is_about_the_centre_of_the_first_pixel(tmp_path, name):
    """Its system is in a .prj, if that is there."""
    photo = tmp_path / "a.png"
    Image.fromarray(pixels()).save(photo)
    (tmp_path / name).write_text("0.5\n0\n0\n-0.25\n400000.25\n4999999.875\n")
    assert located(photo) == Georeference(0.5, -0.25j, 400_000 + 5_000_000j)
    (tmp_path / "a.prj").write_text(WKT)
    assert located(photo) == Georeference(0.5, -0.25j, 400_000 + 5_000_000j, WKT)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.pgw", "0.5\n0\n0\n-0.25\n400000.25"),
        ("a.pgw", "0.5\n0\n0\nnan\n400000.25\n4999999.875\n"),
        ("a.pgw", "a\nb\nc\nd\ne\nf\n"),
        ("a.pgw", "\0" * 10_000),
        ("a.png.aux.xml", "<PAMDataset><GeoTransform>1,2,3</GeoTransform></PAMDataset>"),
        ("a.png.aux.xml", "<PAMDataset><SRS>EPSG:32633</SRS></PAMDataset>"),
        ("a.png.aux.xml", "<PAMDataset>"),
        ("a.png.aux.xml", "<a>" * 100_000),
        ("a.png.aux.xml", "<a>" * 100_000 + "</a>" * 100_000),
        ("a.png.aux.xml", '<!DOCTYPE a [<!ENTITY b "c">]><a><GeoTransform>0,1,0,0,0,1</GeoTransform></a>'),
    ],
)
def test_files_without_sense_say_nothing_either(tmp_path, name, content):
    Image.fromarray(pixels()).save(tmp_path / "a.png")
    (tmp_path / name).write_text(content)
    assert located(tmp_path / "a.png") is None


def test_a_link_beside_an_image_is_not_followed(tmp_path):
    """What a stranger lets it lead to would be copied into results; nor is a text that is no system."""
    (tmp_path / "elsewhere").write_text("0.5\n0\n0\n-0.25\n400000.25\n4999999.875\n")
    Image.fromarray(pixels()).save(tmp_path / "a.png")
    (tmp_path / "a.pgw").symlink_to(tmp_path / "elsewhere")
    assert located(tmp_path / "a.png") is None
    path = geotiff(tmp_path / "b.tif", UTM)
    for text in ("https://example.org/crs", "/etc/passwd", "a secret", 'GEOGCS["', "EPSG:1\0"):
        (tmp_path / "b.prj").write_text(text)
        assert located(path) == Georeference(0.5, -0.25j, 400_000 + 5_000_000j)


def test_what_gdal_noted_beside_an_image_counts_most(tmp_path):
    """Then the image's own tags, then a world file."""
    path = geotiff(tmp_path / "a.tif", {**UTM, KEYS: keys(1, 32633)})
    (tmp_path / "a.tfw").write_text("1\n0\n0\n1\n0\n0\n")
    assert located(path) == PLACED
    note = tmp_path / "a.tif.aux.xml"
    note.write_text("<PAMDataset><SRS>EPSG:3857</SRS></PAMDataset>")
    assert located(path) == Georeference(0.5, -0.25j, 400_000 + 5_000_000j, "EPSG:3857")
    note.write_text("<PAMDataset><GeoTransform> 7.0e+00, 2, 0, 8, 0, -2</GeoTransform></PAMDataset>")
    assert located(path) == Georeference(2, -2j, 7 + 8j, "EPSG:32633")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".tif", ".jpg"])
def test_a_pixel_stays_where_it_is_when_an_image_is_turned_upright(tmp_path, orientation, suffix):
    """Tags and world files are about pixels as they are stored: one that is marked is found at its place on the map."""
    path, column, row = tmp_path / f"a{suffix}", 40, 8
    stored = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    stored[row : row + 8, column : column + 8] = 255
    options: dict[str, Any] = {}
    if suffix == ".tif":
        directory = ImageFileDirectory_v2()
        directory[274] = orientation
        directory.tagtype[TRANSFORMATION] = DOUBLE
        directory[TRANSFORMATION] = ROTATED[TRANSFORMATION]
        options["tiffinfo"] = directory
    else:
        options["exif"] = Image.Exif()
        options["exif"][ExifTags.Base.Orientation] = orientation
        path.with_suffix(".jgw").write_text("3\n4\n4\n-3\n1003.5\n2000.5\n")
    Image.fromarray(stored).save(path, **options)
    image = read_image(path)
    rows, columns = np.nonzero(image[..., 0] > 128)
    place = read_georeference(path, *image.shape[:2])
    assert place is not None
    middle = place.corner + (columns.mean() + 0.5) * place.right + (rows.mean() + 0.5) * place.down
    assert middle == pytest.approx((1000 + 2000j) + (column + 4) * (3 + 4j) + (row + 4) * (4 - 3j))


def test_what_is_written_beside_pictures(tmp_path):
    """Byte for byte; and nothing of an earlier picture of the same name is left where the new one lies nowhere."""
    out = results(geotiff(tmp_path / "a.tif", {**UTM, KEYS: keys(1, 32633)}), tmp_path / "out")
    for folder, kind, world in (("masks", "png", "pgw"), ("overlays", "jpg", "jgw"), ("confidence", "png", "pgw")):
        assert {path.name for path in (out / folder).iterdir()} == {
            f"a.b.{kind}",
            f"a.b.{world}",
            f"a.b.{kind}.aux.xml",
        }
        assert (out / folder / f"a.b.{world}").read_text() == "0.5\n0.0\n0.0\n-0.25\n400000.25\n4999999.875\n"
        note = "<PAMDataset>\n  <SRS>EPSG:32633</SRS>\n</PAMDataset>\n"
        assert (out / folder / f"a.b.{kind}.aux.xml").read_text() == note
    results(geotiff(tmp_path / "a.tif", {SCALE: (1e-7, 1e-7, 0.0), TIEPOINT: (0.0,) * 6}), out)
    assert (out / "masks/a.b.pgw").read_text().splitlines()[::5] == ["0.0000001", "-0.00000005"]
    assert not (out / "masks/a.b.png.aux.xml").exists()
    results(geotiff(tmp_path / "a.tif", {}), out)
    assert {path.name for path in out.rglob("a.b.*")} == {"a.b.png", "a.b.jpg"}


def test_results_lie_where_their_images_lie(trained_run, tmp_path):
    """As `predict` writes them. A world file that is newer than the results has an image predicted anew."""
    model, photos, out = load(trained_run, "cpu"), tmp_path / "photos", tmp_path / "out"
    photos.mkdir()
    geotiff(photos / "a.tif", {**UTM, KEYS: keys(1, 32633)})
    Image.fromarray(pixels()).save(photos / "b.png")
    assert predict_files(model, [str(photos)], Outputs(out), QUIET) == 0
    masks = [out / "masks" / name for name in ("a.pgw", "a.png", "a.png.aux.xml", "b.png")]
    assert sorted((out / "masks").iterdir()) == masks
    assert located(out / "masks/a.png") == located(out / "overlays/a.jpg") == PLACED
    (photos / "b.pgw").write_text("1\n0\n0\n-1\n0.5\n-0.5\n")
    os.utime(photos / "b.pgw", (masks[-1].stat().st_mtime + 100,) * 2)
    assert predict_files(model, [str(photos)], Outputs(out), QUIET, resume=True) == 0
    assert located(out / "masks/b.png") == Georeference(1, -1j, 0j)


@pytest.mark.parametrize("epsg", [32633, 32719, 25832, 3857, 2056, 4326, 4258])
@pytest.mark.parametrize("point", [False, True])
@pytest.mark.parametrize("angle", [0, 30])
def test_gdal_finds_a_mask_where_it_finds_its_image(tmp_path, epsg, point, angle):
    """GDAL writes the image, and reads its mask: one system, one place, to a millionth of a pixel."""
    rasterio = pytest.importorskip("rasterio")
    from rasterio.transform import Affine

    size = 1e-5 if epsg in (4326, 4258) else 0.1
    corner = (12.34567, 47.65432) if epsg in (4326, 4258) else (412_345.67, 5_276_543.21)
    transform = Affine.translation(*corner) * Affine.rotation(angle) * Affine.scale(size, -size)
    path = tmp_path / "a.tif"
    options = {"tiled": True, "blockxsize": 16, "blockysize": 16}
    with rasterio.open(
        path, "w", "GTiff", WIDTH, HEIGHT, 3, rasterio.CRS.from_epsg(epsg), transform, "uint8", **options
    ) as file:
        file.write(np.moveaxis(pixels(), 2, 0))
        if point:
            file.update_tags(AREA_OR_POINT="Point")
    out = results(path, tmp_path / "out")
    with rasterio.open(path) as image:
        for picture in (out / "masks/a.b.png", out / "overlays/a.b.jpg", out / "confidence/a.b.png"):
            with rasterio.open(picture) as mask:
                assert mask.crs == image.crs
                assert mask.shape == image.shape
                assert mask.transform.almost_equals(image.transform, size * 1e-6)
                assert np.allclose(mask.bounds, image.bounds, rtol=0, atol=size * 1e-6)


def test_a_photo_that_gdal_has_placed_keeps_its_place(tmp_path):
    """A PNG with what GDAL notes beside it, in a system that has no number."""
    rasterio = pytest.importorskip("rasterio")
    crs = rasterio.CRS.from_proj4("+proj=laea +lat_0=47 +lon_0=8 +ellps=bessel +units=m")
    transform = rasterio.transform.Affine(0.1, 0.02, 1234.5, 0.03, -0.1, 6789.1)
    path = tmp_path / "a.png"
    with rasterio.open(path, "w", "PNG", WIDTH, HEIGHT, 3, crs, transform, "uint8") as file:
        file.write(np.moveaxis(pixels(), 2, 0))
    out = results(path, tmp_path / "out")
    with rasterio.open(path) as image, rasterio.open(out / "masks/a.b.png") as mask:
        assert mask.crs == image.crs
        assert mask.transform.almost_equals(image.transform, 1e-7)
