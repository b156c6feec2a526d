"""A name that a model file would refuse is refused before anything trains, wherever names come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from data.folders import coco, listing, pairs, photo, refusal, write
from oneway.config import Model
from oneway.data.folder.described import describe
from oneway.data.folder.yaml_text import to_flow, to_yaml
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


def spelt(root: Path, *spellings: str) -> Path:
    """An image for each spelling of a class, drawn in the same place."""
    for index, name in enumerate(spellings):
        photo(root / f"{index}.jpg")
        box = {"label": name, "points": [[2, 1], [7, 1], [7, 4], [2, 4]], "shape_type": "polygon"}
        other = {"label": "car", "points": [[0, 4], [3, 4], [3, 6], [0, 6]], "shape_type": "polygon"}
        write(root / f"{index}.json", json.dumps({"shapes": [box, other], "imagePath": f"{index}.jpg"}))
    return root


def test_blanks_around_a_name_are_none_of_it(tmp_path):
    """Which nobody sees."""
    found = listing(spelt(tmp_path, "road", "road ", "\troad", " road"))
    assert found.classes == ("background", "car", "road")
    assert not found.warnings


def test_names_in_two_cases_are_doubted_and_a_list_decides(tmp_path):
    """By the line that is proposed, or by any other with one of them."""
    root = spelt(tmp_path, "road", "Road", "ROAD", "road")
    found = listing(root)
    assert len(found.classes) == 5
    ((_, message),) = found.warnings
    assert "'ROAD', 'Road' and 'road' are different classes" in message
    assert message.endswith("dataset.yaml: `classes: [background, road, car]`")
    for line in (message.split("`")[1], "classes: [background, Road, car]"):
        write(root / "dataset.yaml", line)
        found = listing(root)
        assert not found.warnings
        assert all((found.read_labels(item) == 1).sum() == 15 for item in (*found.train, *found.val))


@pytest.mark.parametrize(
    ("one", "other", "doubted"),
    [
        ("Straße", "Strase", True),
        ("pavement", "Pavment", True),
        ("cobblestone", "cobblestones", True),
        ("building", "bulding", True),
        ("window", "vindow", True),
        ("house", "horse", False),  # short ones are often two words
        ("zone 1 left", "zone 2 left", False),
        ("kidney l", "kidney r", False),
        ("defect", "defects on edges", False),
    ],
)
def test_names_that_are_a_letter_apart_are_doubted(tmp_path, one, other, doubted):
    """One of them may be misspelt, and would be a class of its own; a list of classes says that it is meant."""
    root = spelt(tmp_path, one, one, other)
    warnings = listing(root).warnings
    assert [heading for heading, _ in warnings] == ["Classes whose names are a letter apart"] * doubted
    for _, message in warnings:
        write(root / "dataset.yaml", message.split("`")[1])
        assert len(listing(root).classes) == 3
        assert not listing(root).warnings
    write(root / "dataset.yaml", json.dumps({"classes": ["background", "car", one, other]}))
    assert not listing(root).warnings


def test_a_list_with_two_cases_tells_them_apart(tmp_path):
    """And one that neither has is asked for, since it could be either."""
    root = spelt(tmp_path, "road", "Road", "ROAD", "road ")
    write(root / "dataset.yaml", "classes: [background, road, Road, car]")
    assert "`classes` lacks 'ROAD', which is drawn (2.jpg is the first). Add it, or correct the labels." in refusal(
        root
    )
    write(root / "dataset.yaml", "classes: [background, road, Road, ROAD, car]")
    found = listing(root)
    drawn = [found.read_labels(item)[2, 3] for item in sorted((*found.train, *found.val), key=lambda item: item.name)]
    assert drawn == [1, 2, 3, 1]


def test_a_label_that_is_listed_and_never_drawn_may_be_left_out(tmp_path):
    """COCO lists a category that no region has; one that a region has is asked for, with its image."""
    with_coco(tmp_path, "car")
    tree = json.loads((tmp_path / "instances.json").read_text())
    tree["categories"].append({"id": 3, "name": "pond"})
    write(tmp_path / "instances.json", json.dumps(tree))
    assert listing(tmp_path).classes == ("background", "road", "car", "pond")
    write(tmp_path / "dataset.yaml", "classes: [background, road, car]")
    assert listing(tmp_path).classes == ("background", "road", "car")
    write(tmp_path / "dataset.yaml", "classes: [background, road]")
    assert "`classes` lacks 'car', which is drawn (images/0.jpg is the first)." in refusal(tmp_path)


def test_what_a_message_quotes_ends_with_a_word(tmp_path):
    """The field cannot be meant, and is long."""
    tree = {0: "background", "wall": ["wall", "Wall", "wall of a house"], "window": ["window", "Window"], 1: "plant"}
    write(pairs(tmp_path) / "dataset.yaml", to_flow({"classes": tree})[1:-1])
    quoted = refusal(tmp_path).partition("…}; ")[2].removesuffix(" is none of these.")
    assert repr(tree).startswith(quoted.removesuffix(" …"))
    assert quoted.endswith("'window': …")


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
    assert "in which they have the names of legend.csv, which lists all of these colours" in refusal(tmp_path)
    write(tmp_path / "dataset.yaml", to_yaml(describe(tmp_path).description))
    assert listing(tmp_path).classes == ("other", "road", "car")
    (tmp_path / "dataset.yaml").unlink()
    (tmp_path / "legend.csv").rename(tmp_path / "classes.txt")
    assert listing(tmp_path).classes == ("other", "road", "car")
