"""Files and folders of any name that a file system takes: they work, or are named readably."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oneway.common.errors import UserError
from oneway.config import Data, build
from oneway.data import load
from oneway.tools.export.card import _table
from oneway.tools.suggest.candidates import Candidate
from oneway.tools.suggest.command import to_csv
from oneway.tools.suggest.scores import Score
from processes import forked

NAMES = {
    "a line break": "a\nb",
    "an escape": "a\x1b[2Jb",
    "markup": "[bold] [link=x] :smile:",
    "a formula": "=1+1",
    "a flag": "--out",
    "249 bytes": "x" * 245,
    "not UTF-8": os.fsdecode(b"caf\xe9"),
    "quotes": 'it\'s "so" $HOME `x`',
}


def draw(path: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 255, (32, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, format="PNG")


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """One image of each name."""
    folder = tmp_path_factory.mktemp("odd") / "photos"
    folder.mkdir()
    for seed, name in enumerate(NAMES.values()):
        draw(folder / f"{name}.png", seed)
    return folder


def test_images_of_any_name_are_predicted(photos, trained_run, tmp_path):
    """Their masks bear the same names; a name that is too long for that is an error about this one alone."""
    done = forked("predict", trained_run, photos, "--out", "found", "--json", "--facts", cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    assert "\x1b" not in done.stderr
    found = json.loads(done.stdout)
    assert found["images"] + len(found["errors"]) == len(NAMES)
    assert found["images"] >= len(NAMES) - 1, found["errors"]


def test_images_of_any_name_are_suggested(photos, trained_run, tmp_path):
    """In a table that a spreadsheet may open."""
    done = forked("suggest", trained_run, "--data", photos, "--out", "next.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "next.csv").open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        images = [row["image"] for row in csv.DictReader(file)]
    assert "'=1+1.png" in images
    assert not [name for name in images if name.startswith(("=", "-"))]


def test_a_data_set_of_any_name_is_checked_and_trained_on(tmp_path):
    """Folder, images and masks; what is printed has no control character."""
    data = tmp_path / "my\ndata \x1b[2J[foo]"
    for part in ("images", "masks"):
        (data / part).mkdir(parents=True)
    for seed, name in enumerate(NAMES.values()):
        draw(data / "images" / f"{name}.png", seed)
        mask = np.zeros((32, 64), dtype=np.uint8)
        mask[:, 32:] = 1
        Image.fromarray(mask).save(data / "masks" / f"{name}.png", format="PNG")
    checked = forked("check", data, cwd=tmp_path)
    assert checked.returncode in (0, 1), checked.stderr
    small = "--jitter.crop 32 64 --model.width 0.125 --model.backbone resnet18 --model.weights none --labels all"
    short = "--train.batch-labelled 2 --train.iterations 2 --train.device cpu --method supervised --data.cache cache"
    trained = forked("train", "folder", "--data", data, *small.split(), *short.split(), "--out", "r\nun", cwd=tmp_path)
    assert trained.returncode in (0, 1), trained.stderr
    for done in (checked, trained):
        assert "This is a bug" not in done.stderr
        assert "\x1b[2J" not in done.stdout + done.stderr


def labelled_folder(data: Path) -> Path:
    for part in ("images", "masks"):
        (data / part).mkdir(parents=True)
    for seed in range(3):
        draw(data / "images" / f"{seed}.png", seed)
        Image.fromarray(np.eye(32, 64, dtype=np.uint8)).save(data / "masks" / f"{seed}.png")
    return data


@pytest.mark.parametrize("name", ["a" * 255, "画" * 85])
def test_a_data_folder_has_the_longest_name_that_a_disk_takes(tmp_path, name):
    """That of its decoded images has a key behind it."""
    config = Data(name="folder", path=labelled_folder(tmp_path / name), cache=tmp_path / "cache")
    assert len(load(config).read("train")) == 2


def test_a_data_folder_whose_name_is_not_utf_8_is_refused(tmp_path):
    """It could not be written into the files about a run."""
    with pytest.raises(UserError, match=r"data\.path: has a name that is not in UTF-8.*rename it"):
        build({"data": {"path": labelled_folder(tmp_path / NAMES["not UTF-8"])}}, "test")


def test_a_cell_of_a_model_card_is_text():
    """No HTML, no link, no code; and it stays in its row."""
    text = _table({"<script>x</script>": "[a](http://b) `c` *d* | e\nf"})
    assert "| &lt;script&gt;x&lt;/script&gt; | \\[a\\](http://b) \\`c\\` \\*d\\* \\| e f |" in text


def test_a_table_of_suggestions_computes_nothing():
    name = "=HYPERLINK(1).png"
    text = to_csv([Score(name, 1.0, 1.0, b"")], [Candidate(name, read=bytes)], [0.5])
    assert text.splitlines()[1].startswith("1,'=HYPERLINK(1).png,")
