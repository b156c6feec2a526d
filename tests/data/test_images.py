"""Facts about reading images of any origin, with Pillow's own conversions and hand-made bytes as oracles."""

from __future__ import annotations

import os
import resource
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import numpy as np
import pytest
import tifffile
from PIL import ExifTags, Image

from data.encoders import png
from forks import run_code
from oneway.common.errors import UserError
from oneway.data.decode.header import read_header
from oneway.data.decode.images import AS_STORED, SUFFIXES, bits_in_use, image_size, read_image
from oneway.data.decode.masks import read_raw
from oneway.data.decode.plausible import MOST_PIXELS

pytestmark = pytest.mark.filterwarnings("ignore")  # Pillow's, about damaged files

PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3) * 3
"""Height 4, width 6, and no two pixels alike."""


def save(path, image, **options):
    image.save(path, **options)
    return path


def refusal(path) -> str:
    """What both the reader of pixels and, where it notices, the reader of sizes say."""
    with pytest.raises(UserError) as error:
        read_image(path)
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif", ".TIFF", ".webp", ".PNG"])
def test_lossless_formats_give_what_was_saved(tmp_path, suffix):
    """Byte for byte, in RGB; the size comes from the header."""
    options = {"lossless": True} if suffix == ".webp" else {}
    path = save(tmp_path / f"a{suffix}", Image.fromarray(PIXELS), **options)
    assert suffix.lower() in SUFFIXES
    assert np.array_equal(read_image(path), PIXELS)
    assert image_size(path) == (4, 6)


def test_a_jpeg_is_what_pillow_decodes(tmp_path):
    """In RGB, and for CMYK what Pillow converts it to."""
    path = save(tmp_path / "a.jpg", Image.fromarray(PIXELS), quality=95)
    assert np.array_equal(read_image(path), np.asarray(Image.open(path)))
    path = save(tmp_path / "b.jpg", Image.fromarray(PIXELS).convert("CMYK"))
    assert np.array_equal(read_image(path), np.asarray(Image.open(path).convert("RGB")))


@pytest.mark.parametrize("files_in_memory", [True, False])
def test_large_images_are_what_pillow_decodes(tmp_path, monkeypatch, files_in_memory):
    """Also where the system has no files in memory; each has memory of its own, and no file stays open."""
    if not files_in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    noise = np.random.default_rng(0).integers(256, size=(700, 801, 3), dtype=np.uint8)
    path = save(tmp_path / "a.jpg", Image.fromarray(noise), quality=95)
    expected = np.array(Image.open(path))
    opened = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    first, second = read_image(path), read_image(path)
    first[:] = 0
    assert np.array_equal(second, expected)
    assert not opened or len(os.listdir("/proc/self/fd")) == opened


def test_grey_palette_and_transparent_images_become_rgb(tmp_path):
    """Grey is repeated, palettes are looked up, one bit is black and white, and alpha is dropped without blending."""
    grey = PIXELS[..., 0]
    repeated = np.repeat(grey[..., None], 3, axis=2)
    assert np.array_equal(read_image(save(tmp_path / "l.png", Image.fromarray(grey))), repeated)
    alpha = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(4, 6))
    transparent_grey = Image.merge("LA", [Image.fromarray(grey), alpha])
    assert np.array_equal(read_image(save(tmp_path / "la.png", transparent_grey)), repeated)
    transparent = Image.fromarray(PIXELS).copy()
    transparent.putalpha(alpha)
    assert np.array_equal(read_image(save(tmp_path / "rgba.png", transparent)), PIXELS)
    palette = Image.fromarray(np.array([[0, 2], [1, 2]], np.uint8), "L").convert("P")
    palette.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    expected = [[[10, 20, 30], [70, 80, 90]], [[40, 50, 60], [70, 80, 90]]]
    assert read_image(save(tmp_path / "p.png", palette)).tolist() == expected
    assert read_image(save(tmp_path / "t.png", palette, transparency=b"\x00\x80\xff")).tolist() == expected
    bits = Image.fromarray(np.array([[True, False]]))
    assert read_image(save(tmp_path / "1.png", bits)).tolist() == [[[255] * 3, [0] * 3]]


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_of_16_bits_the_upper_8_remain(tmp_path, suffix):
    """0, 255, 256 and 65535 become 0, 0, 1 and 255, in grey and in colours."""
    samples = np.array([[0, 255, 256, 65535]], np.uint16)
    grey = save(tmp_path / f"grey{suffix}", Image.fromarray(samples))
    assert Image.open(grey).mode.startswith("I;16")
    assert read_image(grey)[0].tolist() == [[0] * 3, [0] * 3, [1] * 3, [255] * 3]
    assert read_header(grey).deep
    assert not read_header(save(tmp_path / f"8{suffix}", Image.fromarray(PIXELS))).deep


def test_of_16_bits_in_colours_the_upper_8_remain(tmp_path):
    """A PNG of one pixel, red 65535, green 256 and blue 255, made by hand."""
    (tmp_path / "a.png").write_bytes(png(1, 1, 16, 2, b"\x00" + struct.pack(">3H", 65535, 256, 255)))
    assert read_image(tmp_path / "a.png").tolist() == [[[255, 1, 0]]]
    assert read_header(tmp_path / "a.png").deep


@pytest.mark.parametrize("bits", [8, 9, 10, 12, 14, 16])
def test_bits_are_those_of_the_largest_sample(bits):
    """That a camera of so many can store; 9 are the fewest of which one is left out."""
    assert bits_in_use(2**bits - 1 >> 8) == max(bits, 9)


@pytest.mark.parametrize(
    ("suffix", "options"), [(".tif", {}), (".tiff", {"compression": "tiff_lzw"}), (".png", {}), (".webp", {})]
)
def test_pages_are_counted_and_the_first_is_read(tmp_path, suffix, options):
    """One or three, in every format that can hold several."""
    first, *others = (Image.fromarray(np.roll(PIXELS, shift)) for shift in range(3))
    one = save(tmp_path / f"one{suffix}", first, **options)
    three = save(tmp_path / f"three{suffix}", first, save_all=True, append_images=others, **options)
    assert (read_header(one).pages, read_header(three).pages) == (1, 3)
    assert np.abs(read_image(three).astype(int) - read_image(one)).max() <= 8  # WebP loses some


def test_previews_are_no_pages(tmp_path):
    """Smaller copies in a TIFF, as maps have; and what phones put behind a JPEG."""
    first, other = Image.fromarray(PIXELS), Image.fromarray(PIXELS[::2, ::2])
    other.encoderinfo = {"tiffinfo": {254: 1}}
    tiff = save(tmp_path / "a.tif", first, save_all=True, append_images=[other])
    assert Image.open(tiff).n_frames == 2
    jpeg = save(tmp_path / "a.jpg", first, format="MPO", save_all=True, append_images=[other])
    assert Image.open(jpeg).n_frames == 2
    assert (read_header(tiff).pages, read_header(jpeg).pages) == (1, 1)


def test_damage_behind_the_first_page_does_no_harm(tmp_path):
    """It is read, wherever the file ends behind it."""
    first, other = Image.fromarray(PIXELS), Image.fromarray(PIXELS[::-1])
    path = save(tmp_path / "a.tif", first, save_all=True, append_images=[other])
    content = path.read_bytes()
    for cut in (10, 100, len(content) // 2 - 20):
        path.write_bytes(content[:-cut])
        assert read_header(path).pages in (1, 2)
        assert np.array_equal(read_image(path), PIXELS)


def test_samples_without_a_known_range_are_refused(tmp_path):
    """Floating point, and whole numbers beyond 16 bits; within, they are read."""
    floats = save(tmp_path / "f.tif", Image.fromarray(np.ones((2, 2), np.float32)))
    assert "floating-point" in refusal(floats)
    for dtype, shape in ((np.float32, (4, 4, 3)), (np.float64, (4, 4)), (np.float16, (4, 4, 3))):
        tifffile.imwrite(tmp_path / "c.tif", np.ones(shape, dtype))
        assert refusal(tmp_path / "c.tif") == refusal(floats).replace("f.tif", "c.tif")
    assert "0 to 70000" in refusal(save(tmp_path / "i.tif", Image.fromarray(np.array([[0, 70000]], np.int32))))
    assert "-1 to 0" in refusal(save(tmp_path / "n.tif", Image.fromarray(np.array([[0, -1]], np.int32))))
    fitting = save(tmp_path / "s.tif", Image.fromarray(np.array([[0, 65535]], np.int32)))
    assert read_image(fitting)[0, :, 0].tolist() == [0, 255]


@pytest.mark.parametrize("flag", range(1, 9))
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif"])
def test_exif_orientation_is_applied(tmp_path, flag, suffix):
    """The stored rows and columns are those of the EXIF table: flag 6 has the top of the scene on the right side."""
    scene = np.zeros((32, 48, 3), np.uint8)
    scene[:16, :16] = 255  # bright in the upper left corner
    stored = {
        1: scene,
        2: scene[:, ::-1],
        3: scene[::-1, ::-1],
        4: scene[::-1],
        5: scene.swapaxes(0, 1),
        6: scene.swapaxes(0, 1)[::-1],
        7: scene.swapaxes(0, 1)[::-1, ::-1],
        8: scene.swapaxes(0, 1)[:, ::-1],
    }[flag]
    exif = Image.Exif()
    exif[0x0112] = flag
    path = save(tmp_path / f"a{suffix}", Image.fromarray(np.ascontiguousarray(stored)), exif=exif)
    assert image_size(path) == (32, 48)
    assert np.abs(read_image(path).astype(int) - scene).max() < 32
    assert read_header(path).orientation == (1 if suffix == ".tif" else flag)  # Pillow itself turns TIFF


def test_damaged_exif_data_do_no_harm(tmp_path):
    """The image is read as it is stored, as viewers show it; a flag beyond the table is none."""
    path = save(tmp_path / "a.png", Image.fromarray(PIXELS), exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")
    assert np.array_equal(read_image(path), PIXELS)
    exif = Image.Exif()
    exif[0x0112] = 9
    path = save(tmp_path / "b.png", Image.fromarray(PIXELS), exif=exif)
    assert image_size(path) == (4, 6)
    assert 9 not in AS_STORED


def test_other_kinds_of_files_are_refused(tmp_path):
    """An icon by another name, text, nothing, a folder, a pipe, no file: each named, none waited for."""
    icon = tmp_path / "icon.png"
    Image.fromarray(PIXELS[..., 0]).save(icon, format="ICO")
    assert "another kind than JPEG, PNG" in refusal(icon)
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "empty.jpg").touch()
    for name in ("text.jpg", "empty.jpg"):
        assert "damaged, or of another kind" in refusal(tmp_path / name)
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    for name in ("folder.jpg", "pipe.jpg"):
        assert "not a file" in refusal(tmp_path / name)
    assert "no such file" in refusal(tmp_path / "none.jpg")


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif", ".bmp"])
def test_a_truncated_file_is_refused(tmp_path, suffix):
    """Wherever it ends; never half an image."""
    noise = np.random.default_rng(0).integers(256, size=(32, 32, 3), dtype=np.uint8)
    content = save(tmp_path / f"a{suffix}", Image.fromarray(noise)).read_bytes()
    for kept in (1, 20, len(content) // 2, len(content) - 40):
        path = tmp_path / f"b{suffix}"
        path.write_bytes(content[:kept])
        refusal(path)


def test_huge_images_are_refused_from_the_header(tmp_path):
    """Beyond the bound in words, whether Pillow would warn or refuse; nothing is decoded."""
    for width, height in [(2**14, 2**14 + 1), (2**15, 2**15), (2**31 - 1, 2**31 - 1)]:
        path = tmp_path / "a.png"
        path.write_bytes(png(width, height, 8, 2, b""))
        with pytest.raises(UserError, match="pixels"):
            image_size(path)
    assert MOST_PIXELS == 2**28


def test_images_beyond_the_limit_of_pillow_are_read(tmp_path, monkeypatch):
    """Up to ours: what Pillow refuses by default, and what a program that uses us has told it to refuse."""
    Image.new("1", (14_000, 14_000)).save(tmp_path / "large.png", compress_level=0)
    with pytest.raises(Image.DecompressionBombError):
        Image.open(tmp_path / "large.png")
    assert image_size(tmp_path / "large.png") == (14_000, 14_000)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    for suffix in (".png", ".webp", ".tif"):
        path = save(tmp_path / f"a{suffix}", Image.fromarray(PIXELS))
        assert read_image(path).shape == PIXELS.shape
    assert Image.MAX_IMAGE_PIXELS == 10


def test_importing_changes_no_setting_of_other_libraries():
    """Neither Pillow's limit nor anybody's warnings."""
    code = """
import warnings
import numpy, torch, pydantic, cyclopts, rich, matplotlib
from PIL import ExifTags, Image
before = Image.MAX_IMAGE_PIXELS, list(warnings.filters)
import oneway.data, oneway.ops, oneway.models, oneway.runs, oneway.tools.train, oneway.tools.predict
assert (Image.MAX_IMAGE_PIXELS, list(warnings.filters)) == before
"""
    run_code(code)


def test_decoding_in_threads_restores_settings(tmp_path):
    """Whichever thread begins and ends; damaged files give no warnings of Pillow's, which would not name them."""
    good = save(tmp_path / "a.png", Image.fromarray(PIXELS))
    exif = Image.Exif()
    exif[ExifTags.Base.ImageDescription] = "a long text, cut off"
    damaged = save(tmp_path / "b.jpg", Image.fromarray(PIXELS), exif=exif.tobytes()[:-12])
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with pytest.warns(UserWarning, match="Truncated"), Image.open(damaged) as image:
            image.getexif()
        before = Image.MAX_IMAGE_PIXELS, list(warnings.filters)
        with ThreadPoolExecutor(8) as threads:
            assert all(pixels.shape == PIXELS.shape for pixels in threads.map(read_image, [good, damaged] * 50))
        assert (Image.MAX_IMAGE_PIXELS, list(warnings.filters)) == before
    assert not shown


def test_a_header_that_the_file_cannot_fill_is_refused(tmp_path):
    """A file of a hundred bytes is no image of 2**28 pixels, in any format; a long black PNG is one."""
    for suffix in (".png", ".jpg", ".bmp"):
        path = save(tmp_path / f"a{suffix}", Image.new("RGB", (8, 8)))
        content = bytearray(path.read_bytes())
        if suffix == ".png":
            content = bytearray(png(2**14, 2**14, 8, 2, b""))
        elif suffix == ".jpg":
            frame = content.index(b"\xff\xc0")
            content[frame + 5 : frame + 9] = struct.pack(">HH", 2**14, 2**14)
        else:
            content[18:26] = struct.pack("<ii", 2**14, 2**14)
        path.write_bytes(content)
        assert "16384×16384 pixels, in a file of" in refusal(path)
    black = tmp_path / "black.png"
    black.write_bytes(png(2**12, 2**12 + 8, 1, 0, bytes((2**9 + 1) * (2**12 + 8))))
    assert image_size(black) == (2**12 + 8, 2**12)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif", ".bmp"])
def test_mutated_files_give_an_image_or_our_error(tmp_path, suffix):
    """200 of each format with some bytes changed: nothing else is raised, and memory stays."""
    rng = np.random.default_rng(0)
    buffer = BytesIO()
    kind = {".jpg": "JPEG", ".tif": "TIFF"}.get(suffix, suffix[1:].upper())
    Image.fromarray(rng.integers(256, size=(24, 40, 3), dtype=np.uint8)).save(buffer, kind, exif=Image.Exif())
    original = np.frombuffer(buffer.getvalue(), np.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read = 0
    for index in range(200):
        content = original.copy()
        places = rng.integers(min(len(content), 200 if index % 2 else len(content)), size=rng.integers(1, 9))
        content[places] = rng.integers(256, size=len(places))
        path = tmp_path / f"a{suffix}"
        path.write_bytes(content.tobytes())
        try:
            image = read_image(path)
        except UserError as error:
            assert str(path) in str(error)  # noqa: PT017
        else:
            read += 1
            assert image.shape == (*image_size(path), 3)
    assert read < 200
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


@pytest.mark.parametrize(("suffix", "options"), [("gif", {}), ("avif", {"quality": 100}), ("jp2", {})])
def test_kinds_that_some_versions_of_pillow_read(tmp_path, suffix, options):
    """Where they are read, it is as Pillow does; as masks, those with losses are refused."""
    path = tmp_path / f"image.{suffix}"
    if path.suffix not in SUFFIXES:
        pytest.skip("not by this one")
    Image.fromarray(PIXELS).save(path, **options)
    assert np.array_equal(read_image(path), np.asarray(Image.open(path).convert("RGB")))
    if suffix != "gif":
        with pytest.raises(UserError, match="changes values"):
            read_raw(path)


def test_further_bands_and_frames_are_noticed(tmp_path):
    """Alpha, the fourth band of a TIFF, and an animated GIF."""
    four = np.dstack([PIXELS, PIXELS[..., 0]])
    for name in ("alpha.png", "infrared.tif"):
        Image.fromarray(four).save(tmp_path / name)
        assert read_header(tmp_path / name).further_band
    Image.fromarray(PIXELS).save(tmp_path / "three.png")
    assert not read_header(tmp_path / "three.png").further_band
    frames = [Image.fromarray(PIXELS), Image.fromarray(PIXELS[::-1].copy())]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert read_header(tmp_path / "moving.gif").pages > 1
