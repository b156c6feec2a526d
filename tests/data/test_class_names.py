"""A name that a model file would refuse is refused before anything trains, wherever names come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from data.folders import coco, listing, pairs, photo, refusal, write
from oneway.config import Model
from oneway.models import build
from oneway.runs import TrainedModel, load_model, save_model

NO_BREAK_SPACE = "traffic\u00a0light"
UNUSABLE = {
    NO_BREAK_SPACE: r"'traffic\xa0light' has characters that cannot be shown",
    "\x1b[2J": "cannot be shown",
    "x" * 201: "201 characters",
    " ": "blank",
}


def with_coco(root: Path, name: str) -> Path:
    """Two images whose second category is called so."""
    for index in range(2):
        photo(root / "images" / f"{index}.jpg")
    file = coco(root / "instances.json", ["0.jpg", "1.jpg"])
    tree = json.loads(file.read_text())
    tree["categories"][1]["name"] = name
    write(file, json.dumps(tree))
    return root


def with_labelmap(root: Path, name: str) -> Path:
    """CVAT's table for masks in colours, with such a name in it."""
    write(root / "labelmap.txt", f"a:0,0,0::\n{name}:128,64,128::\nc:0,0,142::\n")
    return pairs(root, kind="RGB")


def with_list(root: Path, name: str) -> Path:
    """A list of names, in order of number."""
    write(root / "dataset.yaml", json.dumps({"classes": ["a", name, "c"]}))
    return pairs(root)


def with_colours(root: Path, name: str) -> Path:
    """Names with their colours."""
    write(root / "dataset.yaml", json.dumps({"classes": {"a": [0, 0, 0], name: [128, 64, 128], "c": [0, 0, 142]}}))
    return pairs(root, kind="RGB")


SOURCES = {
    with_coco: "instances.json: categories[1].name: ",
    with_labelmap: "labelmap.txt: ",
    with_list: "dataset.yaml: classes: ",
    with_colours: "dataset.yaml: classes: ",
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", UNUSABLE)
def test_a_name_that_no_model_can_have_is_refused_with_its_file(tmp_path, source, name):
    """With characters that a terminal would obey or not show, endless, or blank."""
    message = refusal(source(tmp_path, name))
    assert f"{tmp_path}/{SOURCES[source]}" in message
    assert UNUSABLE[name] in message
    assert message.isprintable()
    assert len(message) < 300 + len(str(tmp_path))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["Ampel (grün), 信号灯 №1", "x" * 200])
def test_any_other_name_is_kept_in_the_model_file(tmp_path, source, name):
    """Listed, and read again from the file that a run leaves."""
    classes = listing(source(tmp_path / "data", name)).classes
    assert name in classes
    config, path = Model(name="mlp"), tmp_path / "model.safetensors"
    save_model(path, TrainedModel(build(config, len(classes), seed=0), classes, ()), config)
    assert load_model(path, torch.device("cpu")).classes == classes


@pytest.mark.parametrize("file", ["classes.txt", "_classes.csv"])
def test_a_line_that_names_the_columns(tmp_path, file):
    """It is no class, in either kind of table."""
    pairs(tmp_path, kind="RGB")
    write(tmp_path / file, "name,r,g,b\nother,0,0,0\nroad,128,64,128\ncar,0,0,142\n")
    assert listing(tmp_path).classes == ("other", "road", "car")


def test_a_legend_of_another_name_is_pointed_at(tmp_path):
    """If it has the colours of the masks."""
    pairs(tmp_path, kind="RGB")
    write(tmp_path / "notes.txt", "road 1 2 3")
    assert "notes.txt" not in refusal(tmp_path)
    write(tmp_path / "legend.csv", "name,r,g,b\nother,0,0,0\nroad,128,64,128\ncar,0,0,142\n")
    assert "call legend.csv, which has all of these colours, classes.txt" in refusal(tmp_path)
    (tmp_path / "legend.csv").rename(tmp_path / "classes.txt")
    assert listing(tmp_path).classes == ("other", "road", "car")
