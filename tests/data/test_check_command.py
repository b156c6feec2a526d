"""Where training refuses files, or leaves some out, the command that it names shows them."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from rich.console import Console

from data.small_sets import camvid, cityscapes, folder, save
from oneway.cli import app
from oneway.common.errors import UserError
from oneway.config import Data
from oneway.data import load

TRUNCATED = 60
"""Bytes that are left of a broken file."""


FINE, COARSE = "leftImg8bit/train/ulm/1_leftImg8bit.png", "leftImg8bit/train_extra/ulm/3_leftImg8bit.png"
SETS = {
    "folder": (folder, "train/images/1.jpg", {"name": "folder"}),
    "camvid": (camvid, "trainannot/a.png", {"name": "camvid"}),
    "cityscapes": (cityscapes, FINE, {"name": "cityscapes"}),
    "cityscapes-half": (cityscapes, FINE, {"name": "cityscapes", "resolution": "half"}),
    "cityscapes-coarse": (cityscapes, COARSE, {"name": "cityscapes", "coarse": "images"}),
}
"""How a set is made, one of its files, and its settings."""


def looked_at(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a machine is told by a command, as it was printed."""
    words = shlex.split(command)
    assert words[:2] == ["oneway", "check"]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        app([*words[1:], "--json"], print_error=False, exit_on_error=False)
    return json.dumps(json.loads(capsys.readouterr().out)["findings"])


@pytest.mark.parametrize("recipe", SETS)
@pytest.mark.parametrize("place", ["among the data", "in another folder"])
def test_the_command_that_a_refusal_names_shows_the_broken_file(tmp_path, capsys, recipe, place):
    """Of whatever kind the data set is, and whichever folder the file lies in; spaces in names are quoted."""
    make, file, settings = SETS[recipe]
    root = make(tmp_path / "my data")
    further = None if place == "among the data" else tmp_path / "more images"
    broken = save(further / "further.png", 77, mask=False) if further else root / file
    broken.write_bytes(broken.read_bytes()[:TRUNCATED])
    config = Data.model_validate({**settings, "path": root, "unlabelled": further, "cache": tmp_path / "cache"})
    with pytest.raises(UserError) as error:
        load(config).read("train")
    assert broken.name in str(error.value)
    (command,) = re.findall("`(oneway check .*?)`", str(error.value))
    assert ("--unlabelled" in command) == (further is not None)
    assert broken.name in looked_at(command, capsys)


def test_what_is_left_out_is_shown_by_the_command_of_the_remark(tmp_path, capsys):
    """One of a hundred, in another folder."""
    root, further = camvid(tmp_path / "camvid"), tmp_path / "more"
    for seed in range(100):
        save(further / f"{seed:02}.png", seed, mask=False)
    broken = further / "33.png"
    broken.write_bytes(broken.read_bytes()[:TRUNCATED])
    settings = {"name": "camvid", "path": root, "unlabelled": further, "cache": tmp_path / "cache"}
    console = Console(width=500, color_system=None)
    with console.capture() as capture:
        load(Data.model_validate({**settings, "skip_unreadable": True}), console).read("train")
    (command,) = re.findall("`(oneway check .*?)`", capture.get())
    assert "33.png" in looked_at(command, capsys)
