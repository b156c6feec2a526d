"""Crops that fit: no larger than most labelled images, unless a size was asked for."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from data.folders import mask, photo
from oneway.cli.app import app
from oneway.common.run_files import CONFIG
from oneway.config.recipes import configured
from oneway.tools.crops import fit

pytestmark = pytest.mark.usefixtures("no_report")

TINY = "--method supervised --model.width 0.125 --model.weights none --train.batch-labelled 2 --train.iterations 1"


def images(root: Path, *sizes: tuple[int, int]) -> Path:
    """Labelled images of these heights and widths, two classes in each, and two large ones without labels."""
    for number, size in enumerate(sizes):
        photo(root / f"images/{number:02d}.png", number, size)
        mask(root / f"masks/{number:02d}.png", np.indices(size)[0] // 9 % 2)
    for number in range(2):
        photo(root / f"unlabelled/{number}.png", number, (600, 600))
    return root


def run(*words: str) -> None:
    app(list(words), print_error=False, exit_on_error=False, result_action="return_value")


def crop(run: Path) -> list[int]:
    """Height and width of the crops of a run, which are decided."""
    jitter = yaml.safe_load((run / CONFIG).read_text())["jitter"]
    assert jitter["fit"] is False
    return jitter["crop"]


@pytest.mark.parametrize(
    ("sizes", "fitted"),
    [
        ([(352, 352)] * 4, (352, 352)),
        ([(1000, 447)] * 4, (352, 352)),
        ([(192, 256)] * 4, (192, 256)),  # each side by itself
        ([(200, 1000)] * 4, (192, 352)),
        ([(351, 400)] * 4, (320, 352)),  # the largest multiple of 32
        ([(500, 500)] * 3 + [(100, 100)] * 2, (352, 352)),  # few small ones are padded
        ([(500, 500)] * 2 + [(100, 100)] * 3, (96, 96)),
        ([(100, 500)] * 2 + [(500, 100)] * 2, (352, 352)),  # as many high as wide ones
        ([(28, 40)] * 4, (64, 64)),
        ([], (352, 352)),
    ],
)
def test_crops_fit_most_images(sizes, fitted):
    assert fit((352, 352), sizes) == fitted


def test_small_images_have_small_crops(tmp_path, capsys):
    """Labelled ones decide, one line says so, and the run keeps to it though its images change."""
    folder, out = images(tmp_path / "photos", *[(130, 70)] * 4), tmp_path / "run"
    train = ["train", "folder", "--data", str(folder), *TINY.split(), "--out", str(out)]
    run(*train)
    said = " ".join(capsys.readouterr().out.split())
    assert crop(out) == [128, 64]
    assert said.count("Crops have 64×128 pixels, not 352×352") == 1
    run(*train, "--resume")  # has ended: other crops would be refused
    assert crop(out) == [128, 64]


@pytest.mark.parametrize("sizes", [[(130, 70)] * 4, [(400, 360)] * 4], ids=str)
def test_what_is_asked_for_is_kept(tmp_path, capsys, sizes):
    """Also by a file of settings, such as those of an earlier version; and images with room have the recipe's crops."""
    folder = images(tmp_path / "photos", *sizes)
    (tmp_path / "settings.yaml").write_text("jitter: {crop: [96, 96]}")
    train = ["train", "folder", "--data", str(folder), *TINY.split(), "--out"]
    run(*train, str(tmp_path / "flag"), "--jitter.crop", "160", "96")
    run(*train, str(tmp_path / "file"), "--config", str(tmp_path / "settings.yaml"))
    assert (crop(tmp_path / "flag"), crop(tmp_path / "file")) == ([160, 96], [96, 96])
    assert "Crops have" not in capsys.readouterr().out


@pytest.mark.parametrize("preset", ["cpu", "best"])
def test_presets_have_crops_that_fit(tmp_path, capsys, preset):
    folder, out = images(tmp_path / "photos", *[(130, 420)] * 4), tmp_path / "run"
    train = ["train", "folder", "--data", str(folder), *TINY.split(), "--preset", preset, "--out", str(out)]
    run(*train)
    fitted = {"cpu": [128, 160], "best": [128, 416]}[preset]
    assert crop(out) == fitted
    run(*train, "--resume")
    assert crop(out) == fitted
    capsys.readouterr()
    run(*train, "--jitter.crop", "640", "640", "--dry-run")
    assert re.search("crop:\n  - 640\n  - 640\n  fit: false", capsys.readouterr().out)


def test_a_run_of_an_earlier_version_goes_on_with_its_crops(tmp_path, capsys):
    """Its settings do not know of crops that fit."""
    folder, out = images(tmp_path / "photos", *[(70, 70)] * 4), tmp_path / "run"
    train = ["train", "folder", "--data", str(folder), *TINY.split(), "--out", str(out)]
    run(*train, "--jitter.crop", "96", "96")
    settings = yaml.safe_load((out / CONFIG).read_text())
    del settings["jitter"]["fit"]
    (out / CONFIG).write_text(yaml.safe_dump(settings))
    run(*train, "--resume")
    run("train", str(out), "--resume")
    assert yaml.safe_load((out / CONFIG).read_text()) == settings
    assert "has ended" in capsys.readouterr().out


def test_commands_to_copy_name_the_crop_alone():
    from oneway.tools.baseline import train_command

    fitted = configured("folder", {"data": {"path": "photos"}, "jitter": {"crop": (192, 256)}}, "test")
    assert "--jitter.crop 192 256" in train_command(fitted)
    assert "fit" not in train_command(fitted)
