"""`--preset best`: larger crops where the images have room for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from data.folders import mask, photo
from oneway.cli.app import app
from oneway.common.run_files import CONFIG
from oneway.config.recipes import configured


def images(root: Path, *sizes: tuple[int, int]) -> Path:
    """A folder of labelled images of these heights and widths, two classes in each."""
    for number, size in enumerate(sizes):
        photo(root / f"images/{number:02d}.png", number, size)
        mask(root / f"masks/{number:02d}.png", np.indices(size)[0] // 9 % 2)
    return root


def crop(folder: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    """The side of the crops that `train --preset best` would use, and what it says about it."""
    words = ["train", "folder", "--data", str(folder), "--preset", "best", *flags, "--dry-run"]
    app(words, print_error=False, exit_on_error=False, result_action="return_value")
    settings, said = capsys.readouterr()
    height, width = yaml.safe_load(settings)["jitter"]["crop"]
    assert height == width
    return height, said


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        ([(448, 512)] * 4, 448),
        ([(1000, 447)] * 4, 416),  # the largest multiple of 32
        ([(360, 480)] * 4, 352),
        ([(500, 500)] * 19 + [(30, 500)], 448),  # a single small one is padded
        ([(500, 500)] * 17 + [(390, 500)] * 3, 384),
        ([(48, 64)] * 4, 352),  # never smaller than without the preset
    ],
)
def test_crops_are_no_larger_than_the_images(tmp_path, capsys, sizes, side):
    """And one line says so."""
    found, said = crop(images(tmp_path, *sizes), capsys)
    assert found == side
    lines = " ".join(said.split()).count(f"takes crops of {side}×{side} here, not 448×448")
    assert lines == (side < 448)


def test_a_size_that_was_asked_for_is_kept(tmp_path, capsys):
    assert crop(images(tmp_path, *[(48, 64)] * 4), capsys, "--jitter.crop", "640", "640") == (640, "")


def test_what_cannot_be_looked_at_decides_nothing(tmp_path, capsys):
    """A folder that is not there, whose absence training itself explains; and an image that is none."""
    assert crop(tmp_path / "nowhere", capsys) == (448, "")
    (images(tmp_path, *[(500, 500)] * 4) / "images/00.png").write_bytes(b"no image")
    assert crop(tmp_path, capsys, "--data.skip-unreadable") == (448, "")


def test_images_that_are_read_smaller_hold_the_crop_still(tmp_path, capsys):
    side, said = crop(images(tmp_path, *[(1100, 1200)] * 4), capsys, "--data.reduction", "2")
    assert side == 448
    assert "preset" not in said


def test_a_run_goes_on_with_crops_that_fitted(tmp_path, capsys):
    """What is taken of the preset again is what the run began with."""
    folder, run = images(tmp_path / "photos", *[(400, 480)] * 4), tmp_path / "run"
    run.mkdir()
    began = configured("folder", {"data": {"path": folder}, "jitter": {"crop": (384, 384)}}, "test")
    (run / CONFIG).write_text(began.to_yaml())
    side, _ = crop(folder, capsys, "--out", str(run), "--resume")
    assert side == 384
