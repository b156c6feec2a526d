"""A file beside the images that names the classes is read as people write it, or refused with what can be read."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from data.defects import told_to_a_person
from data.folders import PALETTE, SCENE, listing, pairs, photo, refusal, write
from oneway.common.terms import IGNORE

FORMS = {
    "with colons": "sky: 0,0,0\nroad: 128,64,128\ncar: 0,0,142\n",
    "with spaces": "sky 0 0 0\n\nroad\t128 64 128\n car   0 0 142 ",
    "in hexadecimal": "sky #000000\nroad: #804080\ncar = #00008E\n",
    "in brackets": "\ufeffsky: [0, 0, 0]\r\nroad: (128, 64, 128)\r\ncar [0 0 142]\r\n",
    "with commas": "# name,red,green,blue\nsky,0,0,0\nroad,128,64,128\ncar,0,0,142\n",
    "of CVAT": "# label:color_rgb\nsky:0,0,0::\nroad:128,64,128:lane,kerb:\ncar:0,0,142:wheel:turn,stop\n",
}
NAMES = ("sky", "road", "car")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["classes.txt", "class_names.txt", "labelmap.txt", "Classes.TXT"])
def test_colours_are_named_by_a_table_in_any_form(tmp_path, form, name):
    """The classes are its names, in its order; which file was read is said."""
    write(pairs(tmp_path, kind="RGB") / name, FORMS[form])
    found = listing(tmp_path)
    assert (found.classes, found.colours) == (NAMES, PALETTE)
    assert np.array_equal(found.read_labels(found.val[0]), SCENE)
    assert f"Classes are those of {name}." in found.remarks


def test_check_says_which_file_was_read(tmp_path):
    """To a person, above what was found."""
    write(pairs(tmp_path / "data") / "classes.txt", "sky\nroad\ncar")
    _, text = told_to_a_person(tmp_path / "data", out=tmp_path / "sheet.png")
    assert "Classes are those of classes.txt." in text
    assert "class 0" not in text


@pytest.mark.parametrize(
    ("values", "lines", "labels"),
    [
        ((0, 1, 2), "sky road car", (0, 1, 2)),
        ((0, 128, 255), "sky road car", (0, 1, 2)),
        ((0, 0, 255), "sky road", (0, 0, 1)),
        ((0, 1, 255), "sky road", (0, 1, IGNORE)),
        ((0, 1, 1), "sky road car tree", (0, 1, 1)),
    ],
)
def test_numbers_are_named_in_their_order(tmp_path, values, lines, labels):
    """One name for each class; names of numbers that no mask holds may follow."""
    write(pairs(tmp_path, values=np.array(values)[SCENE]) / "classes.txt", lines.replace(" ", "\n"))
    found = listing(tmp_path)
    assert found.classes == tuple(lines.split())
    assert np.array_equal(found.read_labels(found.val[0]), np.array(labels)[SCENE])


@pytest.mark.parametrize("bits", [1, 8])
def test_black_and_white_are_colours_of_greyscale_masks_too(tmp_path, bits):
    """Where a table lists no other; its order is that of the classes."""
    for index in range(2):
        photo(tmp_path / "images" / f"{index}.jpg", index)
        image = Image.fromarray(SCENE == 1)
        (tmp_path / "masks").mkdir(exist_ok=True)
        (image if bits == 1 else image.convert("L")).save(tmp_path / "masks" / f"{index}.png")
    write(tmp_path / "classes.txt", "crack: 255,255,255\nwall: 0,0,0\n")
    found = listing(tmp_path)
    assert found.classes == ("crack", "wall")
    assert np.array_equal(found.read_labels(found.val[0]), SCENE != 1)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("L", "sky\nroad", "number of names in it, 2, is not that of classes in the masks, 3: 0, 1 and 2."),
        ("L", "sky\nsky\nroad", "'sky' appears twice"),
        ("RGB", "sky: 0,0,0\nroad: 128,64\ncar: 0,0,142", "line 2 has no colour, as others have: 'road: 128,64'"),
        ("RGB", "sky: 0,0,0\nroad: 128,64,300", "0 to 255"),
        ("RGB", "sky: 0,0,0\nroad: 0,0,0", "same colour"),
        ("RGB", "sky\nroad\ncar", "classes.txt names classes without colours: write each as `name: red,green,blue`."),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_the_form_that_would(tmp_path, kind, text, words):
    """Too few names, one of them twice, a line unlike the others, and names where masks have colours."""
    write(pairs(tmp_path, kind=kind) / "classes.txt", text)
    message = refusal(tmp_path)
    assert words in message
    assert "rite " in message or "lines `name: red,green,blue`" in message


def test_a_description_outranks_a_table(tmp_path):
    """Even one that cannot be read."""
    write(pairs(tmp_path) / "classes.txt", "only one")
    write(tmp_path / "dataset.yaml", "classes: [a, b, c]")
    assert listing(tmp_path).classes == ("a", "b", "c")
