"""What oneway wrote into a data folder does not become data."""

from __future__ import annotations

import pytest

from data.folders import labelled, listing, mask, names, photo, write
from oneway.common.errors import UserError
from oneway.common.run_files import is_output
from oneway.data.folder import find
from oneway.tools.predict import Outputs
from oneway.tools.predict.sources import find_sources

PREDICTED = '{\n "oneway": "0.1.0"}'
MARKS = {
    "predictions.json": ["predictions.json"],
    "run": ["config.yaml", "split.json"],
    "begun": ["config.yaml", "metrics.jsonl"],
}


@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
def test_folders_of_results_are_passed_over(tmp_path, marks):
    """With all below them, at any depth, beside images and among them; a config.yaml alone is nobody's."""
    for index in range(3):
        photo(tmp_path / f"{index}.jpg", index)
        mask(tmp_path / f"{index}.png")
    before = names(find(tmp_path).train)
    results = tmp_path / "runs" / "a"
    for mark in marks:
        assert not is_output(results)
        write(results / mark, PREDICTED)
    assert is_output(results)
    photo(results / "suggest.png")
    photo(results / "overlays" / "0.jpg")
    mask(results / "masks" / "0.png")
    found = find(tmp_path)
    assert names(found.train) == before
    assert not found.problems


def test_a_file_of_another_program_hides_no_images(tmp_path):
    """Such as the predictions.json that detectors write: its folder is searched like any other."""
    photo(tmp_path / "day" / "0.jpg")
    write(tmp_path / "day" / "predictions.json", '[{"image_id": 0, "category_id": 1}]')
    assert not is_output(tmp_path / "day")
    assert names(find(tmp_path).train) == ["day/0.jpg"]
    assert [source.name for source in find_sources([str(tmp_path)], tmp_path / "out")] == ["day/0"]
    with pytest.raises(UserError, match="exists, and holds no earlier results"):
        Outputs(tmp_path / "day").refuse_occupied()


def test_masks_of_predictions_serve_where_they_are_named(tmp_path):
    """Whoever corrects predictions can train on them: `dataset.yaml` has the last word."""
    for index in range(3):
        photo(tmp_path / "images" / f"{index}.jpg", index)
        mask(tmp_path / "predictions" / "masks" / f"{index}.png")
    write(tmp_path / "predictions" / "predictions.json", PREDICTED)
    assert not labelled(find(tmp_path).train)
    write(tmp_path / "dataset.yaml", "train: {images: images, masks: predictions/masks}")
    assert len(labelled(listing(tmp_path).train)) == 2


def test_another_folder_of_images_is_searched_alike(tmp_path):
    """Results among the images without labels stay results."""
    photo(tmp_path / "data" / "0.jpg")
    photo(tmp_path / "more" / "1.jpg")
    photo(tmp_path / "more" / "predictions" / "overlays" / "1.jpg")
    write(tmp_path / "more" / "predictions" / "predictions.json", PREDICTED)
    assert names(find(tmp_path / "data", tmp_path / "more").train) == ["0.jpg", "unlabelled/1.jpg"]
