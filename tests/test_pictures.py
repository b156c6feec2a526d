"""Arrays as pictures: what leaves the range of colours, what is hatched, and what an `<img>` is given."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from oneway.data.pictures import GROUND, STROKE, as_pixels, data_uri, hatched, palette


def test_what_leaves_the_range_of_colours_is_cut_off():
    """Perturbed images do; the nearest byte stands for what is within."""
    x = torch.tensor([-0.2, 0.0, 0.499, 1.0, 1.4]).expand(1, 3, 1, 5)
    assert as_pixels(x)[0].tolist() == [[value] * 3 for value in (0, 0, 127, 255, 255)]


def test_only_what_is_asked_for_is_hatched():
    """A quarter of it in strokes; pixels elsewhere, and the picture that was given, stay."""
    pixels = np.random.default_rng(0).integers(256, size=(16, 32, 3), dtype=np.uint8)
    given, where = pixels.copy(), np.arange(32) >= np.full((16, 1), 16)
    found = hatched(pixels, where)
    assert np.array_equal(pixels, given)
    assert np.array_equal(found[:, :16], pixels[:, :16])
    inside = found[:, 16:].reshape(-1, 3).tolist()
    assert (inside.count([*STROKE]), inside.count([*GROUND])) == (64, 192)


def test_a_palette_has_a_colour_for_every_byte():
    """Classes first, and one colour for the rest."""
    table = palette([(1, 2, 3), (4, 5, 6)], other=(7, 8, 9))
    assert table[:3].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert (table[2:] == (7, 8, 9)).all()
    assert table.shape == (256, 3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_data_uri_holds_the_picture_and_its_kind(kind):
    """As browsers expect it."""
    head, content = data_uri(Image.new("RGB", (4, 3), (200, 100, 50)), kind).split(",")
    assert head == f"data:image/{kind.lower()};base64"
    with Image.open(io.BytesIO(base64.b64decode(content))) as picture:
        assert (picture.format, picture.size) == (kind, (4, 3))
