"""Facts about reading masks: what is stored is what is read, and what stands for nothing is said with its place."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from data.encoders import png
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.decode.masks import Coding, pack, read_mask, read_raw, unpack
from oneway.data.folder.classes import default_colours
from oneway.data.folder.description import Description

VALUES = np.array([[0, 1, 2, 255], [2, 2, 0, 1]], np.uint8)
EXPECTED = [[0, 1, 2, IGNORE], [2, 2, 0, 1]]
INDICES = Description(classes=["sky", "road", "car"]).coding()
COLOURS = {0: (0, 0, 0), 1: (128, 64, 128), 2: (0, 0, 142), 255: (255, 255, 255)}
PAINTED = Description(
    classes={"sky": [0, 0, 0], "road": [128, 64, 128], "car": "#00008e"}, ignore=[[255, 255, 255]]
).coding()


def save(path, image, **options):
    image.save(path, **options)
    return path


def in_colours(values: np.ndarray = VALUES) -> Image.Image:
    return Image.fromarray(np.array([[COLOURS[value] for value in row] for row in values.tolist()], np.uint8))


def in_palette(values: np.ndarray = VALUES) -> Image.Image:
    """Shown in colours that have nothing to do with the numbers."""
    image = Image.fromarray(values).convert("P")
    image.putpalette([channel for index in range(256) for channel in COLOURS.get(index, (9, 9, 9))])
    assert np.array_equal(np.asarray(image), values)
    return image


def refusal(path, coding) -> str:
    with pytest.raises(UserError) as error:
        read_mask(path, coding)
    assert str(error.value).startswith(f"{path}: ")
    return str(error.value)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".bmp"])
def test_grey_and_palette_masks_hold_class_indices(tmp_path, suffix):
    """The number stored is the class; a palette is how it is shown."""
    assert read_mask(save(tmp_path / f"l{suffix}", Image.fromarray(VALUES)), INDICES).tolist() == EXPECTED
    labels = read_mask(save(tmp_path / f"p{suffix}", in_palette()), INDICES)
    assert labels.tolist() == EXPECTED
    assert labels.dtype == np.uint8


def test_short_palettes_and_transparency_change_nothing(tmp_path):
    """Pillow stores three colours in two bits; a transparent entry stays the number it is."""
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8)).convert("P")
    image.putpalette([0, 0, 0, 10, 10, 10, 20, 20, 20])
    path = save(tmp_path / "a.png", image, transparency=1, bits=2)
    assert read_mask(path, INDICES).tolist() == [[0, 1, 2]]
    assert read_raw(path).palette[:4] == ((0, 0, 0), (10, 10, 10), (20, 20, 20), (0, 0, 0))


def test_masks_of_16_bits_are_read_in_full(tmp_path):
    """Not their upper half, as photographs are: 2 stays 2, and 256 stands for nothing."""
    path = save(tmp_path / "a.png", Image.fromarray(VALUES.astype(np.uint16)))
    assert Image.open(path).mode == "I;16"
    assert read_mask(path, INDICES).tolist() == EXPECTED
    assert read_mask(save(tmp_path / "a.tif", Image.fromarray(VALUES.astype(np.int32))), INDICES).tolist() == EXPECTED
    assert "value 256" in refusal(save(tmp_path / "b.png", Image.fromarray(np.array([[256]], np.uint16))), INDICES)


def test_alpha_is_dropped(tmp_path):
    """Of grey and of colours."""
    alpha = Image.fromarray(np.full(VALUES.shape, 7, np.uint8))
    transparent = Image.merge("LA", [Image.fromarray(VALUES), alpha])
    assert read_mask(save(tmp_path / "la.png", transparent), INDICES).tolist() == EXPECTED
    coloured = in_colours()
    coloured.putalpha(alpha)
    assert read_mask(save(tmp_path / "rgba.png", coloured), PAINTED).tolist() == EXPECTED


def test_colours_are_looked_up(tmp_path):
    """In RGB, and in the palette of a palette mask; all black, which could be grey, is black."""
    assert read_mask(save(tmp_path / "rgb.png", in_colours()), PAINTED).tolist() == EXPECTED
    assert read_mask(save(tmp_path / "p.png", in_palette()), PAINTED).tolist() == EXPECTED
    black = save(tmp_path / "black.png", Image.new("RGB", (3, 2)))
    assert read_mask(black, PAINTED).tolist() == [[0] * 3] * 2


def test_grey_stored_in_three_channels_counts_as_grey(tmp_path):
    """Where numbers are expected."""
    path = save(tmp_path / "a.png", Image.fromarray(VALUES).convert("RGB"))
    assert not read_raw(path).coloured
    assert read_mask(path, INDICES).tolist() == EXPECTED


def test_a_table_of_values_is_looked_up(tmp_path):
    """0 and 255 as two classes, and several numbers as one."""
    binary = Description(classes={0: "background", 255: "crack"}).coding()
    path = save(tmp_path / "a.png", Image.fromarray(np.array([[0, 255, 255]], np.uint8)))
    assert read_mask(path, binary).tolist() == [[0, 1, 1]]
    merged = Description(classes={7: "flat", 8: "flat", 11: "thing"}, ignore=[0]).coding()
    path = save(tmp_path / "b.png", Image.fromarray(np.array([[0, 7, 8, 11]], np.uint8)))
    assert read_mask(path, merged).tolist() == [[IGNORE, 0, 0, 1]]


def test_white_of_one_bit_is_255_where_that_is_a_class_and_else_1(tmp_path):
    """Programs mean either; both tables read it."""
    path = save(tmp_path / "a.png", Image.fromarray(np.array([[False, True]])))
    assert Image.open(path).mode == "1"
    assert read_mask(path, Description(classes={0: "background", 255: "crack"}).coding()).tolist() == [[0, 1]]
    assert read_mask(path, Description(classes=["background", "crack"]).coding()).tolist() == [[0, 1]]


def test_an_unknown_value_is_named_with_count_and_place(tmp_path):
    """Value 7 twice, first in row 1, column 2, and 9 once; what is known is listed."""
    values = np.array([[0, 1, 2, 0], [0, 0, 7, 9], [7, 0, 0, 255]], np.uint8)
    message = refusal(save(tmp_path / "a.png", Image.fromarray(values)), INDICES)
    assert "2 pixels have value 7" in message
    assert "row 1, column 2" in message
    assert "1 more" in message
    assert "0 to 2, 255 (ignored)" in message
    assert "dataset.yaml" in message
    table = Coding({0: 0, 5: 1}, coloured=False, names=("a", "b"))
    assert "0 (a), 5 (b)" in refusal(tmp_path / "a.png", table)


def test_an_unknown_colour_is_named_with_the_nearest_known_one(tmp_path):
    """One pixel of a road whose blue is off by two."""
    pixels = np.asarray(in_colours()).copy()
    pixels[1, 3] = (128, 64, 130)
    message = refusal(save(tmp_path / "a.png", Image.fromarray(pixels)), PAINTED)
    assert "1 pixels have colour [128, 64, 130]" in message
    assert "row 1, column 3" in message
    assert "[128, 64, 128] (road)" in message


def test_the_wrong_kind_of_mask_is_named_with_the_way_out(tmp_path):
    """Colours for numbers, and numbers for colours."""
    message = refusal(save(tmp_path / "a.png", in_colours()), INDICES)
    assert "a mask of colours (RGB)" in message
    assert "dataset.yaml" in message
    message = refusal(save(tmp_path / "b.png", Image.fromarray(VALUES)), PAINTED)
    assert "a greyscale mask (L)" in message


def test_lossy_masks_are_refused_with_the_reason(tmp_path):
    """JPEG, WebP, and JPEG inside TIFF."""
    grey = Image.fromarray(np.zeros((16, 16), np.uint8))
    for name, options in [("a.jpg", {}), ("a.webp", {}), ("a.tif", {"compression": "jpeg"})]:
        message = refusal(save(tmp_path / name, grey, **options), INDICES)
        assert "compression changes values" in message
        assert "PNG" in message


def test_what_could_only_be_read_in_part_is_refused(tmp_path):
    """Colours of 16 bits, of which Pillow keeps 8, and fractions."""
    (tmp_path / "a.png").write_bytes(png(1, 1, 16, 2, b"\x00" + struct.pack(">3H", 1, 1, 1)))
    assert "16 bits" in refusal(tmp_path / "a.png", INDICES)
    half = Image.fromarray(np.full((2, 2), 0.5, np.float32))
    assert "has the value 0.5" in refusal(save(tmp_path / "a.tif", half), INDICES)


def test_exif_orientation_is_not_applied(tmp_path):
    """A mask is no photograph: rows stay rows."""
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(tmp_path / "a.png", Image.fromarray(VALUES), exif=exif)
    assert read_mask(path, INDICES).tolist() == EXPECTED


def test_damaged_masks_are_our_error(tmp_path):
    """As damaged images are."""
    path = save(tmp_path / "a.png", Image.fromarray(VALUES))
    path.write_bytes(path.read_bytes()[:50])
    assert "cannot be read" in refusal(path, INDICES)


def test_large_masks_are_read_in_blocks(tmp_path):
    """Of more pixels than a block has, with the last one of another class."""
    values = np.zeros((2**11 + 1, 2**10), np.uint8)
    values[-1, -1] = 2
    labels = read_mask(save(tmp_path / "a.png", Image.fromarray(values)), INDICES)
    assert np.array_equal(labels, values)


def test_packing_colours_goes_both_ways():
    """0xRRGGBB."""
    assert pack((1, 2, 3)) == 0x010203
    assert unpack(0x010203) == (1, 2, 3)


def test_default_colours_are_distinct():
    """For as many classes as there can be; the background is black."""
    colours = default_colours(("background", *(f"class {index}" for index in range(254))))
    assert len(set(colours)) == 255
    assert colours[0] == (0, 0, 0)
