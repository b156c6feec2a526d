"""What `check` offers to write or to paste can be trained on; and machines are told what keeps a folder from it."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from PIL import Image

from data.folders import SCENE, mask, pairs, photo, write
from oneway.cli import app
from oneway.data.folder import find


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Runs `oneway check` in a folder beside the data; returns its exit status and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")

    def run(*words: object) -> tuple[int, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            app(["check", *map(str, words)], print_error=False, exit_on_error=False)
        return end.value.code, capsys.readouterr().out

    return run


def test_what_fails_is_neither_offered_nor_written(tmp_path, check):
    """Images alone; and masks of other names."""
    photo(tmp_path / "bare" / "a.jpg")
    photo(tmp_path / "strange" / "images" / "a.jpg")
    mask(tmp_path / "strange" / "masks" / "other.png")
    for root in (tmp_path / "bare", tmp_path / "strange"):
        status, text = check(root)
        assert status == 1
        assert "--save" not in text
        status, text = check(root, "--save")
        assert status == 1
        assert f"Not written: {root / 'dataset.yaml'}" in text
        assert not (root / "dataset.yaml").exists()


def test_colours_to_name_are_written(tmp_path, check):
    """They cannot be trained on yet, and can once they are in the description."""
    pairs(tmp_path / "set", kind="RGB")
    status, text = check(tmp_path / "set")
    assert status == 1
    assert "`--save` writes this one" in text
    text = check(tmp_path / "set", "--save")[1]
    assert "Written: " in text
    assert "Not a data set yet" not in text + check(tmp_path / "set")[1]


@pytest.mark.parametrize("kind", ["L", "RGB"])
def test_lines_to_paste(tmp_path, check, kind):
    """Where there is a description already, `--save` is not advised: its lines are printed, and name the classes."""
    root = pairs(tmp_path / "set", kind=kind)
    file = write(root / "dataset.yaml", "train: {images: images, masks: masks}\n")
    text = check(root)[1]
    assert "--save" not in text
    assert f"put these lines into {file}" in text
    lines = text.partition("edit them:\n")[2]
    file.write_text(file.read_text() + "\n".join(line[4:] for line in lines.splitlines()).replace("class 1", "road"))
    assert find(root).description.names == ("class 0", "road", "class 2")
    assert "put these lines" not in check(root)[1]


def test_machines_are_told_why_there_is_no_data_set(tmp_path, check):
    """Masks with losses, a table of too few names, two codings, and a recipe whose files are missing."""
    lossy = pairs(tmp_path / "lossy", 0)
    for index in range(3):
        photo(lossy / "images" / f"{index}.jpg")
        (lossy / "masks").mkdir(exist_ok=True)
        Image.fromarray(SCENE * 100).save(lossy / "masks" / f"{index}.jpg")
    table = write(pairs(tmp_path / "table") / "classes.txt", "a\nb\n").parent
    codings = pairs(tmp_path / "codings", values=(SCENE > 0).astype("uint8"))
    mask(codings / "masks" / "0.png", (SCENE > 0) * 255)
    expected = {lossy: ("masks/0.jpg", "JPEG"), table: ("classes.txt", "names"), codings: (".", "Two kinds of masks")}
    for root, (file, words) in expected.items():
        status, text = check(root, "--json")
        (finding,) = json.loads(text)["findings"]
        assert (status, finding["level"], finding["file"]) == (1, "error", file)
        assert words in finding["message"]
    status, text = check(tmp_path / "lossy", "--recipe", "camvid", "--json")
    assert (status, json.loads(text)["findings"][0]["level"]) == (1, "error")


@pytest.mark.parametrize(
    ("words", "about"),
    [
        ("nowhere", "nowhere: no such file or folder"),
        ("empty", "empty: no image found"),
        ("damaged.zip", "damaged.zip: a damaged archive"),
        ("odd", "dataset.yaml: classes: write [name, …]"),
        ("odd --recipe camvid", "train: no image found"),
        ("set --unlabelled nowhere", "nowhere: no such file or folder"),
        ("set --unlabelled empty", "empty: no image found. Give another folder of unlabelled images."),
        ("set --unlabelled 'nowhere/{0..9}.tar'", "no such file"),
    ],
)
def test_whatever_is_wrong_with_data_is_a_finding(tmp_path, check, words, about):
    """With its kind and a verdict, for people as for machines; what is wrong with a flag is not."""
    (tmp_path / "empty").mkdir()
    write(tmp_path / "damaged.zip", "no archive")
    write(pairs(tmp_path / "odd") / "dataset.yaml", "classes: 7")
    pairs(tmp_path / "set")
    status, text = check(*shlex.split(words))
    assert status == 1
    assert re.search(r"^✗ error  \S.*^✗ \d error.*: correct", text, re.MULTILINE | re.DOTALL)
    assert about in text
    status, text = check(*shlex.split(words), "--json")
    errors = [found for found in json.loads(text)["findings"] if found["level"] == "error"]
    assert status == 1
    assert any(about in f"{error['file']}: {error['message']}" for error in errors)
