"""JPEG files are decoded by torchvision where many are: what comes out is what Pillow gives, or its error."""

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from forks import called
from oneway.common.errors import UserError
from oneway.data.decode import images
from oneway.data.decode.jpeg import decode_part
from oneway.data.streets import render

BOX = (3, 5, 61, 90)


def jpeg(seed=0, size=(77, 131), **options):
    file = io.BytesIO()
    Image.fromarray(render(0, seed, *size)[0]).save(file, "JPEG", **options)
    return file.getvalue()


def part_of(content):
    return images.read_part(Path("photograph.jpg"), content, lambda size: BOX)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("options", [{"quality": 50}, {"quality": 95, "progressive": True}], ids=str)
def test_pixels_are_those_of_pillow(subsampling, options):
    content = jpeg(subsampling=subsampling, **options)
    top, left, bottom, right = BOX
    expected = np.asarray(Image.open(io.BytesIO(content)))[top:bottom, left:right]
    assert np.array_equal(decode_part(content, (77, 131), BOX), expected)
    size, box, found = part_of(content)
    assert (size, box) == ((77, 131), BOX)
    assert np.array_equal(found, expected)


def test_other_kinds_are_left_to_pillow(monkeypatch):
    grey = io.BytesIO()
    Image.fromarray(render(0, 0, 77, 131)[0]).convert("L").save(grey, "JPEG")
    turned = jpeg(exif=Image.Exif())
    for content in (grey.getvalue(), turned):
        found = part_of(content)[2]
        monkeypatch.setattr(images, "decode_part", lambda *arguments: None)
        assert np.array_equal(part_of(content)[2], found)


def test_damage_is_met_as_pillow_meets_it(monkeypatch):
    """Cut short, or with a byte changed: the same pixels, or the same words; never others."""
    whole, random = jpeg(quality=90), np.random.default_rng(0)
    damaged = [whole[:end] for end in random.integers(2, len(whole) - 1, 40)]
    for place in random.integers(0, len(whole), 160):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(random.integers(8))
        damaged.append(bytes(changed))
    ours = [_outcome(content) for content in damaged]
    monkeypatch.setattr(images, "decode_part", lambda *arguments: None)
    theirs = [_outcome(content) for content in damaged]
    assert ours == theirs
    assert len({outcome for outcome in ours if isinstance(outcome, str)}) > 1  # some are refused, some are not


def test_nothing_is_said_of_buffers(tmp_path):
    """PyTorch warns of buffers that it may not write to, once in a process."""
    assert called(tmp_path, "test_decode_jpeg:warnings_of_decoding") == []


def warnings_of_decoding() -> list[str]:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always", UserWarning)
        assert decode_part(jpeg(), (77, 131), BOX) is not None
    return [str(warning.message) for warning in shown]


def _outcome(content):
    try:
        return part_of(content)[2].tobytes()
    except UserError as error:
        return str(error)
