"""Masks as GIS programs save them: with a negative number where there are no data, and in floating point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile

from data.folders import SCENE, listing, photo, refusal, write
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE


def saved(root: Path, values: np.ndarray, dtype: type) -> Path:
    """Four images, and masks of these values."""
    for index in range(4):
        photo(root / "images" / f"{index}.jpg", index)
        (root / "masks").mkdir(parents=True, exist_ok=True)
        tifffile.imwrite(root / "masks" / f"{index}.tif", values.astype(dtype))
    return root


def bordered(*outside: float) -> np.ndarray:
    """The scene, whose first columns have no data."""
    values = SCENE.astype(float)
    values[:, : len(outside)] = outside
    return values


EXPECTED = np.where(np.arange(8) < 1, IGNORE, SCENE)


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.float32])
@pytest.mark.parametrize("nodata", [-9999, -1, -32768])
def test_a_single_negative_number_has_no_class(tmp_path, dtype, nodata):
    """What was decided is said and saved, and read the same."""
    root = saved(tmp_path, bordered(nodata), dtype)
    found = listing(root)
    assert found.classes == ("class 0", "class 1", "class 2")
    assert np.array_equal(found.read_labels(found.val[0]), EXPECTED)
    assert any(f"Masks hold {nodata} as well" in remark for remark in found.remarks)
    write(root / "dataset.yaml", f"classes: [a, b, c]\nignore: [{nodata}, 255]")
    found = listing(root)
    assert np.array_equal(found.read_labels(found.val[0]), EXPECTED)


@pytest.mark.parametrize(
    ("dtype", "why"),
    [
        (np.int64, "samples of 64 bits"),
        (np.uint64, "samples of 64 bits"),
        (np.float64, "floating-point samples have no agreed range"),
        (np.float16, "floating-point samples have no agreed range"),
    ],
)
def test_numbers_that_are_not_read_are_named(tmp_path, dtype, why):
    """NumPy's usual types among them: such a file is not damaged, and saved otherwise it serves."""
    root = saved(tmp_path, SCENE, dtype)
    assert f"{why}. Save it with 8 or 16 bits per sample." in refusal(root)


@pytest.mark.parametrize("nothing", [np.nan, -3.4028235e38, -np.inf])
@pytest.mark.parametrize("described", [True, False])
def test_what_is_no_number_never_has_a_class(tmp_path, nothing, described):
    """Nor what is below all that masks can hold; a negative number may be there as well."""
    root = saved(tmp_path, bordered(nothing), np.float32)
    if described:
        write(root / "dataset.yaml", "classes: [a, b, c]")
    found = listing(root)
    assert np.array_equal(found.read_labels(found.val[0]), EXPECTED)
    saved(root, bordered(nothing, -9999), np.float32)
    write(root / "dataset.yaml", "ignore: [-9999]")
    found = listing(root)
    assert np.array_equal(found.read_labels(found.val[0]), np.where(np.arange(8) < 2, IGNORE, SCENE))


def test_a_described_set_names_the_line_that_helps(tmp_path):
    root = saved(tmp_path, bordered(-9999), np.int16)
    write(root / "dataset.yaml", "classes: [a, b, c]")
    with pytest.raises(UserError, match=r"6 pixels have value -9999, .*write `ignore: \[-9999, 255\]` there"):
        listing(root).read_labels(listing(root).val[0])
    write(root / "dataset.yaml", "classes: {-9999: nothing, 0: a, 1: b, 2: c}")
    assert "numbers from 0 on, and not -9999; `ignore: [-9999]`" in refusal(root)


def test_several_negative_numbers_are_asked_about(tmp_path):
    root = saved(tmp_path, bordered(-9999, -1), np.int16)
    said = refusal(root)
    assert "The masks hold -9999, -1, 0, 1 and 2" in said
    write(root / "dataset.yaml", said.split("`")[1])
    found = listing(root)
    assert np.array_equal(found.read_labels(found.val[0]), np.where(np.arange(8) < 2, IGNORE, SCENE))


@pytest.mark.parametrize(("odd", "shown"), [(0.5, "0.5"), (2.0**31, "2.14748e+09"), (np.inf, "inf")])
def test_samples_that_are_not_whole_are_named(tmp_path, odd, shown):
    """Probabilities are no masks."""
    said = refusal(saved(tmp_path, np.where(SCENE == 2, odd, SCENE), np.float32))
    assert f"0.tif: has the value {shown} at row 4, column 0, and the number of a class is whole" in said
    assert "Byte or Int16" in said
