"""Facts about rows in files: they read like arrays, and what is lost of them is an error with a name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from oneway.common.errors import UserError
from oneway.data.cache.rows import OnDisk
from oneway.engine.refilled_store import copy_region

WHOLE = np.random.default_rng(0).integers(256, size=(1000, 3), dtype=np.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of a thousand pixels."""
    (tmp_path / "pixels").write_bytes(WHOLE.tobytes())
    return tmp_path / "pixels"


@pytest.mark.parametrize("part", [slice(None), slice(0), slice(10, 30), slice(990, 2000), slice(-5, None), slice(7, 3)])
def test_slices_are_those_of_an_array(path, part):
    """Empty ones, and ones that reach beyond the end, too."""
    row = OnDisk(path, WHOLE.shape)
    assert (len(row), row.shape, row.nbytes) == (len(WHOLE), WHOLE.shape, WHOLE.nbytes)
    assert np.array_equal(row[part], WHOLE[part])
    assert row[part].flags.writeable


def test_an_array_is_filled_from_either(path):
    """With a part of an image: whole lines of it, and pieces of lines."""
    image = WHOLE[100:150].reshape(5, 10, 3)
    for row in (OnDisk(path, WHOLE.shape), WHOLE):
        for box in ((0, 0, 5, 10), (1, 0, 4, 10), (1, 2, 4, 9)):
            top, left, bottom, right = box
            part = np.zeros((bottom - top, right - left, 3), np.uint8)
            copy_region(row, 100, 10, box, part.reshape(-1, 3))
            assert np.array_equal(part, image[top:bottom, left:right])


def test_a_row_without_values_is_empty(tmp_path):
    """As the labels of a set without masks."""
    (tmp_path / "labels").touch()
    row = OnDisk(tmp_path / "labels", (0,))
    assert row[:].shape == (0,)
    assert row.nbytes == 0


def test_a_file_that_is_cut_short_is_named_with_what_is_left(path):
    """What lies before the cut can still be read."""
    row = OnDisk(path, WHOLE.shape)
    os.truncate(path, 1500)
    assert np.array_equal(row[:500], WHOLE[:500])
    for part in (slice(499, 501), slice(None), slice(900, 901)):
        with pytest.raises(UserError) as error:
            row[part]
        assert f"{path}: has 1500 of its 3000 bytes left" in str(error.value)
        assert "--resume" in str(error.value)


def test_a_file_that_is_replaced_or_removed_is_still_read(path):
    """The file is the one that was there when it was opened."""
    row = OnDisk(path, WHOLE.shape)
    other = path.with_name("new")
    other.write_bytes(bytes(WHOLE.nbytes))
    other.replace(path)
    assert np.array_equal(row[:], WHOLE)
    path.unlink()
    assert np.array_equal(row[:], WHOLE)


def test_files_are_closed_when_nobody_reads_them_any_more(path):
    """A thousand rows, one after the other, in a process that may have few files open."""
    script = f"""
import resource
from pathlib import Path
from oneway.data.cache.rows import OnDisk
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
for _ in range(1000):
    OnDisk(Path({str(path)!r}), (1000, 3))[:10]
"""
    subprocess.run([sys.executable, "-c", script], check=True)
