"""Masks in files of MATLAB: read as SciPy writes them; what is no mask is named."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from scipy.io import savemat

from data.folders import SCENE, labelled, listing, photo, refusal
from oneway.common.errors import UserError
from oneway.data.decode.masks import read_raw

CONTENTS = {
    "a matrix": {"labels": SCENE},
    "floating point": {"labels": SCENE.astype(float), "classes": 3.0},
    "SBD": {"GTcls": {"Boundaries": np.zeros((2, 1), object), "Segmentation": SCENE, "CategoriesPresent": [1, 2]}},
    "Pascal Context": {"LabelMap": SCENE.astype(np.uint16), "other": SCENE + 1},
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_index_maps_are_read(tmp_path, content, packed):
    """In a folder of SBD's names, beside photographs."""
    for index in range(4):
        photo(tmp_path / "img" / f"{index}.jpg", index)
    (tmp_path / "cls").mkdir()
    for index in range(3):
        savemat(tmp_path / "cls" / f"{index}.mat", content, do_compression=packed)
    found = listing(tmp_path)
    assert len(labelled((*found.train, *found.val))) == 3
    assert found.classes == ("class 0", "class 1", "class 2")
    assert np.array_equal(found.read_labels(found.val[0]), SCENE)
    assert found.masks is not None
    assert found.masks.mode == "L"


WRONG = {
    "several matrices (one, other)": {"one": SCENE, "other": SCENE},
    "no matrix of whole numbers": {"soft": SCENE / 2, "name": "x"},
}


@pytest.mark.parametrize(("words", "content"), WRONG.items())
def test_what_is_no_index_map_is_named(tmp_path, words, content):
    savemat(tmp_path / "a.mat", content)
    with pytest.raises(UserError) as error:
        read_raw(tmp_path / "a.mat")
    assert words in str(error.value)
    assert str(tmp_path / "a.mat") in str(error.value)


def bomb(size: int) -> bytes:
    """A packed element of very many zeros."""
    packer = zlib.compressobj()
    packed = b"".join(packer.compress(bytes(2**20)) for _ in range(size)) + packer.flush()
    return b" " * 124 + b"\x00\x01IM" + struct.pack("<II", 15, len(packed)) + packed


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"MATLAB 7.3".ljust(512) + b"\x89HDF\r\n", "of MATLAB 7.3"),
        (b"no such file", "cannot be read as a file of MATLAB"),
        (bomb(20), "too much for a mask"),
    ],
    ids=["7.3", "damaged", "bomb"],
)
def test_other_files_are_refused(tmp_path, monkeypatch, content, words):
    """Before they fill the memory."""
    monkeypatch.setattr("oneway.data.decode.matlab.MOST_BYTES", 2**24)
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(UserError, match=words):
        read_raw(tmp_path / "a.mat")


def test_the_command_that_installs_what_is_missing(tmp_path):
    """Where SciPy is not there."""
    photo(tmp_path / "images" / "a.jpg")
    (tmp_path / "masks").mkdir()
    savemat(tmp_path / "masks" / "a.mat", {"labels": SCENE})
    script = (
        "import sys; sys.modules['scipy'] = None; sys.modules['scipy.io'] = None\n"
        "from pathlib import Path; from oneway.data.decode.masks import read_raw\n"
        f"read_raw(Path({str(tmp_path / 'masks' / 'a.mat')!r}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'oneway[matlab]'" in done.stderr


def test_a_mat_file_among_images_is_no_image(tmp_path):
    """It is named as before."""
    photo(tmp_path / "images" / "a.jpg")
    savemat(tmp_path / "images" / "b.mat", {"labels": SCENE})
    assert "b.mat: left out: not read" in refusal(tmp_path)
