"""Facts about COCO annotations: rasters computed by hand, by Matplotlib and from the published form of run lengths."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.path import Path as Outline

from data.encoders import compress
from data.folders import coco, labelled, photo
from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.data.decode.outlines import decompress, outline_mask, polygon_mask, runs_mask
from oneway.data.decode.regions import paint
from oneway.data.folder import find
from oneway.data.folder.formats import Annotations, AnnotationSource
from oneway.data.folder.formats.coco import read


def tree(*annotations: dict, size: tuple[int, int] = (4, 5)) -> dict:
    """A file with one image, and categories out of order."""
    return {
        "images": [{"id": 3, "file_name": "a.jpg", "height": size[0], "width": size[1]}],
        "annotations": [{"id": index, "image_id": 3, "category_id": 9} | one for index, one in enumerate(annotations)],
        "categories": [{"id": 20, "name": "car"}, {"id": 9, "name": "road"}],
    }


def box(left: float, top: float, right: float, bottom: float) -> dict:
    return {"segmentation": [[left, top, right, top, right, bottom, left, bottom]]}


def written(tmp_path, content) -> Path:
    path = tmp_path / "instances.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def read_coco(path: Path, ignore_crowds: bool = False) -> Annotations:
    """What a file says about the image beside it."""
    folder = path.parent
    return read(AnnotationSource(folder, folder, [folder / "a.jpg"], path, [], ignore_crowds))


def label_map(found: Annotations) -> np.ndarray:
    regions = found.regions(next(iter(found.files)))
    return paint(regions, ("background", *found.names), regions.size)


def labels(tmp_path, *annotations: dict, size: tuple[int, int] = (4, 5)) -> list:
    return label_map(read_coco(written(tmp_path, tree(*annotations, size=size)))).tolist()


def refusal(tmp_path, content) -> str:
    path = written(tmp_path, content)
    with pytest.raises(UserError) as error:
        label_map(read_coco(path))
    assert str(error.value).startswith(f"{path}: ")
    return str(error.value)


def test_classes_are_the_background_and_the_categories_by_id(tmp_path):
    """Whatever their order in the file; a category of that name is the background."""
    content = tree(box(0, 0, 1, 1) | {"category_id": 20})
    assert read_coco(written(tmp_path, content)).names == ("road", "car")
    content["categories"].append({"id": 0, "name": "Background"})
    coco = read_coco(written(tmp_path, content))
    assert coco.names == ("road", "car")
    assert label_map(coco)[0].tolist() == [2, 0, 0, 0, 0]


def test_a_box_covers_its_pixels(tmp_path):
    """From column 1 up to 4 and from row 2 up to 3; what reaches beyond the image is cut off."""
    assert labels(tmp_path, box(1, 2, 4, 3)) == [[0] * 5, [0] * 5, [0, 1, 1, 1, 0], [0] * 5]
    assert labels(tmp_path, box(3, -7, 99, 1)) == [[0, 0, 0, 1, 1], [0] * 5, [0] * 5, [0] * 5]
    assert labels(tmp_path, box(6, 6, 9, 9)) == [[0] * 5] * 4


def test_a_triangle_covers_the_pixels_whose_centres_are_inside(tmp_path):
    """Corners (0, 0), (4, 0) and (0, 4): centres with x + y < 4; those on the slope are on a right border."""
    expected = [[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert labels(tmp_path, {"segmentation": [[0, 0, 4, 0, 0, 4]]}) == expected
    assert labels(tmp_path, {"segmentation": [[0, 4, 4, 0, 0, 0]]}) == expected  # the other way round


def test_neighbours_share_no_pixel_and_leave_none_out():
    """A square cut along lines through pixel centres: its two halves make up the whole."""
    for cut in ([0, 0, 8, 8], [0, 8, 8, 0], [2.5, 0, 2.5, 8], [1, 0, 6, 8]):
        x, y, other_x, other_y = cut
        corners = {"left": [[0, 0], [0, 8]], "right": [[8, 0], [8, 8]]}
        halves = [
            polygon_mask(np.array([side[0], [x, y], [other_x, other_y], side[1]], float), (8, 8))
            if y < other_y
            else polygon_mask(np.array([side[0], [other_x, other_y], [x, y], side[1]], float), (8, 8))
            for side in corners.values()
        ]
        assert np.array_equal(halves[0], ~halves[1])


def test_polygons_are_those_of_matplotlib():
    """100 that do not cross themselves, of 3 to 7 vertices, partly outside, with centres on no border."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:20, :30] + 0.5
    centres = np.stack([columns.ravel(), rows.ravel()], axis=1)
    for _ in range(100):
        angles = np.sort(rng.uniform(0, 2 * np.pi, rng.integers(3, 8)))
        radii = rng.uniform(2, 18, len(angles))
        vertices = np.stack([15 + radii * np.cos(angles), 10 + radii * np.sin(angles)], axis=1)
        expected = Outline(vertices).contains_points(centres).reshape(20, 30)
        assert np.array_equal(polygon_mask(vertices, (20, 30)), expected)


def test_crossing_edges_follow_the_even_odd_rule_and_polygons_unite(tmp_path):
    """A bow tie has two halves; a box inside a box, as two polygons of one annotation, leaves no hole."""
    bow_tie = {"segmentation": [[0, 0, 4, 4, 4, 0, 0, 4]]}
    assert labels(tmp_path, bow_tie, size=(4, 4)) == [[0, 0, 0, 1], [1, 0, 1, 1], [1, 0, 1, 1], [0, 0, 0, 1]]
    mask = outline_mask([[0, 0, 4, 0, 4, 4, 0, 4], [1, 1, 3, 1, 3, 3, 1, 3]], (4, 4))
    assert mask.all()


def test_later_annotations_win_and_crowds_are_labels_or_lie_beneath(tmp_path):
    """A car over a road over a crowd; that is a label like another, unless crowds are to be ignored."""
    road, car = box(0, 0, 3, 1), box(2, 0, 4, 1) | {"category_id": 20}
    crowd = {"segmentation": {"counts": [12, 4, 4], "size": [4, 5]}, "iscrowd": 1}
    assert labels(tmp_path, car, road)[0] == [1, 1, 1, 2, 0]
    assert labels(tmp_path, road, car, crowd)[0] == [1, 1, 2, 1, 0]
    content = tree(road, car, {"segmentation": {"counts": [0, 20], "size": [4, 5]}, "iscrowd": 1})
    ignoring = read_coco(written(tmp_path, content), ignore_crowds=True)
    assert label_map(ignoring)[0].tolist() == [1, 1, 2, 2, IGNORE]
    assert ignoring.remarks == ("1 of 3 annotations are marked as crowds and ignored, as dataset.yaml says.",)


def test_roboflow_categories(tmp_path):
    """A category that stands above others and has no annotation is no class; two of one name are one."""
    content = tree(box(0, 0, 1, 1) | {"category_id": 2}, box(1, 0, 2, 1) | {"category_id": 3})
    names = [(0, "cracks", "none"), (1, "hole", "cracks"), (2, "crack", "cracks"), (3, "crack", "cracks")]
    content["categories"] = [{"id": number, "name": name, "supercategory": above} for number, name, above in names]
    found = read_coco(written(tmp_path, content))
    assert found.names == ("hole", "crack")
    assert label_map(found)[0].tolist() == [2, 2, 0, 0, 0]
    assert len(found.remarks) == 2


def test_runs_go_down_columns_outside_first():
    """2×3 pixels: one outside, two inside, three outside."""
    assert runs_mask([1, 2, 3], (2, 3)).tolist() == [[False, True, False], [True, False, False]]
    assert runs_mask([0, 6], (2, 3)).all()


def test_compressed_runs_are_decoded():
    """By hand: '0' to '?' are 0 to 15, '@' to 'O' are −16 to −1, and from 'P' on more follows."""
    assert decompress("123") == [1, 2, 3]
    assert decompress("1234") == [1, 2, 3, 6]  # from the fourth on, the difference to two before
    assert decompress("555N") == [5, 5, 5, 3]  # N: −2
    assert decompress("P1") == [32]  # five zero bits, then 1
    assert decompress("_1") == [47]  # 15, then 1
    assert decompress("o0") == [31]  # alone, its upper bit would be a sign
    assert decompress("") == []


def test_compressing_and_decompressing_are_inverse():
    """On random run lengths, of up to a million pixels each."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        counts = (10 ** rng.uniform(0, 6, rng.integers(1, 40))).astype(int).tolist()
        assert decompress(compress(counts)) == counts


def test_both_forms_of_run_lengths_give_the_same(tmp_path):
    """A column of the image, as a list and as text."""
    counts = [4, 4, 12]
    expected = [[0, 1, 0, 0, 0]] * 4
    assert labels(tmp_path, {"segmentation": {"counts": counts, "size": [4, 5]}}) == expected
    assert labels(tmp_path, {"segmentation": {"counts": compress(counts), "size": [4, 5]}}) == expected


def test_an_image_without_annotations_is_background(tmp_path):
    """COCO lists what was looked at."""
    assert labels(tmp_path) == [[0] * 5] * 4


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "dictionary"),
        ({"images": [], "annotations": []}, "categories"),
        (tree() | {"images": [{"id": 1}]}, "images[0].file_name"),
        (tree() | {"images": {}}, "images"),
        (tree() | {"images": [{"id": 1, "file_name": "a", "height": -4, "width": 5}]}, "images[0].height"),
        (tree() | {"images": [{"id": 1, "file_name": "a", "height": "x", "width": 5}]}, "images[0].height"),
        (tree(size=(2**20, 2**20)), "images[0]"),
        (tree() | {"images": tree()["images"] * 2}, "listed twice"),
        (tree() | {"categories": tree()["categories"] * 2}, "categories"),
        (tree(box(0, 0, 1, 1) | {"image_id": 8}), "annotations[0].image_id: no image has id 8"),
        (tree(box(0, 0, 1, 1) | {"category_id": 8}), "annotations[0].category_id: no category has id 8"),
        (tree({}), "annotations[0].segmentation"),
    ],
)
def test_what_does_not_fit_is_named_by_its_key(tmp_path, content, words):
    """Bad JSON, missing keys, wrong types, sizes beyond reason, entries that refer to nothing."""
    assert words in refusal(tmp_path, content)


def test_all_entries_that_refer_to_nothing_are_named_at_once(tmp_path):
    """Up to five; of more, how many."""
    astray = [box(0, 0, 1, 1) | {key: 80 + index} for index, key in enumerate(("image_id", "category_id") * 4)]
    message = refusal(tmp_path, tree(*astray))
    assert "annotations[0].image_id: no image has id 80, annotations[1].category_id: no category has id 81" in message
    assert message.endswith("and 3 more.")


@pytest.mark.parametrize(
    "segmentation",
    [
        [],
        [[]],
        [[0, 0, 1, 1]],
        [[0, 0, 1, 1, 2, 2, 3]],
        [[0, 0, 1, 1, 2, "x"]],
        [[0, 0, 1, 1, 2, None]],
        [[0, 0, 1, 1, 2, [3]]],
        [[0, 0, 1e300, 1, 2, 2]],
        [[0, 0, 10**400, 1, 2, 2]],
        [[0, 0, float("nan"), 1, 2, 2]],
        [[0, 0, float("inf"), 1, 2, 2]],
        [[0, 0, 4, 0, 4, 4], 7],
        "text",
        None,
        {"counts": [20]},
        {"size": [4, 5]},
        {"counts": [19], "size": [4, 5]},
        {"counts": [21], "size": [4, 5]},
        {"counts": [-1, 21], "size": [4, 5]},
        {"counts": [10.0, 10.0], "size": [4, 5]},
        {"counts": ["20"], "size": [4, 5]},
        {"counts": [20], "size": [5, 4]},
        {"counts": [10**12], "size": [10**6, 10**6]},
        {"counts": "d", "size": [4, 5]},
        {"counts": "\x00", "size": [4, 5]},
        {"counts": "o" * 1000, "size": [4, 5]},
        {"counts": "é1", "size": [4, 5]},
    ],
)
def test_a_bad_outline_is_named_by_its_key(tmp_path, segmentation):
    """Empty, too short, no numbers, out of reach, or not the size of the image: found when it is painted."""
    message = refusal(tmp_path, tree(box(0, 0, 1, 1), {"segmentation": segmentation}))
    assert "annotations[1].segmentation: " in message
    assert len(message) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("outline", [{}, {"segmentation": None}, {"segmentation": []}])
def test_a_box_alone_is_refused_in_words(tmp_path, outline):
    """As tools export it where boxes were drawn."""
    annotation = {key: value for key, value in box(0, 0, 1, 1).items() if key != "segmentation"} | outline
    assert "annotations[0].segmentation: it is empty, and a box alone says" in refusal(tmp_path, tree(annotation))


def test_many_edges_are_computed_in_blocks():
    """A star with 5,000 points, on 2,000 rows, against a loop over its edges."""
    angles = np.arange(5000) * 2 * np.pi * 2377 / 5000
    vertices = np.stack([1000 + 900 * np.cos(angles), 1000 + 900 * np.sin(angles)], axis=1)
    whole = polygon_mask(vertices, (2000, 2000))
    flips = np.zeros((2000, 2001), bool)
    for (x, y), (other_x, other_y) in zip(vertices, np.roll(vertices, -1, axis=0), strict=True):
        rows = np.flatnonzero((np.arange(2000) + 0.5 >= y) != (np.arange(2000) + 0.5 >= other_y))
        columns = np.ceil(x + (rows + 0.5 - y) * (other_x - x) / (other_y - y) - 0.5).astype(int)
        flips[rows, columns] ^= True
    assert (whole != np.logical_xor.accumulate(flips, axis=1)[:, :-1]).mean() < 1e-5


def test_what_would_be_painted_for_hours_is_refused(tmp_path, monkeypatch):
    """Each region is as large as the image, however small its text is."""
    coco = read_coco(written(tmp_path, tree(box(0, 0, 5, 4), box(0, 0, 5, 4))))
    monkeypatch.setattr("oneway.data.decode.regions.MOST_PAINTED", 39)
    with pytest.raises(UserError, match=r"instances\.json: 2 regions on 5×4 pixels would take too long"):
        label_map(coco)
    monkeypatch.setattr("oneway.data.decode.regions.MOST_PAINTED", 40)
    assert (label_map(coco) > 0).all()


def test_names_in_another_case(tmp_path):
    """They are those of images where it is clear which; an exact name is preferred."""
    for name in ("A.JPG", "B.JPG", "c.jpg", "C.jpg", "d.jpg"):
        photo(tmp_path / "images" / name)
    coco(tmp_path / "all.json", ["a.jpg", "b.jpg", "C.JPG", "D.jpg", "d.jpg"])
    found = find(tmp_path)
    assert labelled(found.train) == ["images/A.JPG", "images/B.JPG", "images/d.jpg"]
    assert any("'C.JPG'" in problem.message and "several" in problem.message for problem in found.problems)
