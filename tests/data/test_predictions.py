"""Masks that `oneway predict` wrote, among those that were drawn: they may teach, and judge no model."""

from __future__ import annotations

import pytest
from PIL import Image
from rich.console import Console

from data.folders import labelled, listing, mask, names, pairs, photo, prediction, refusal
from oneway.common.errors import UserError
from oneway.config import Data
from oneway.data import Known, list_files, load
from oneway.data.check.inspection import check_folder
from oneway.data.folder import find, list_folder


def with_drafts(root, drawn: int = 6, drafts: int = 20):
    """Pairs of which the masks of the first were drawn, and the others predicted."""
    pairs(root, drawn)
    for index in range(drawn, drawn + drafts):
        photo(root / "images" / f"{index}.jpg", index)
        prediction(root / "masks" / f"{index}.png")
    return root


@pytest.mark.parametrize("seed", range(5))
def test_a_prediction_is_never_held_out(tmp_path, seed):
    """They train; what is held out is what would be without them."""
    alone, both = pairs(tmp_path / "alone", 6), with_drafts(tmp_path / "both")
    found = listing(both, seed=seed)
    assert names(found.val) == names(listing(alone, seed=seed).val)
    assert len(labelled(found.train)) == 26 - len(found.val)
    everything = list_folder(both, None, 0.25, seed, all_validate=True)
    assert names(everything.val) == names(find(alone).train)


def test_what_validated_a_run_still_does(tmp_path):
    """An earlier version may have held out a prediction."""
    root = with_drafts(tmp_path)
    found = list_folder(root, None, 0.25, 0, known=Known(("images/2.jpg", "images/9.jpg")))
    assert names(found.val) == ["images/2.jpg", "images/9.jpg"]


def test_a_prediction_that_was_saved_anew_is_a_mask_like_others(tmp_path):
    """By any program, once it has been corrected."""
    root = with_drafts(tmp_path, 2, 1)
    assert labelled(item for item in find(root).train if item.predicted) == ["images/2.jpg"]
    Image.open(root / "masks/2.png").save(root / "masks/2.png")
    assert not labelled(item for item in find(root).train if item.predicted)


def test_too_few_masks_that_were_drawn_are_refused(tmp_path):
    """However many were predicted; without a hold-out, they all train."""
    root = with_drafts(tmp_path, 1, 5)
    assert "1 of 6 training images have labels that nobody predicted, which is too few" in refusal(root)
    assert len(labelled(listing(root, holdout=0).train)) == 6


def test_a_prediction_in_a_validation_set_is_an_error(tmp_path, capsys):
    """`check` names it, and nothing is trained."""
    for part in ("train", "val"):
        pairs(tmp_path / part)
    prediction(tmp_path / "val/masks/1.png")
    assert check_folder(tmp_path, Console(width=1000), out=tmp_path.parent / "sheet.png") == 1
    said = capsys.readouterr().out
    assert "error  Masks that are predictions cannot validate" in said
    assert "val/masks/1.png: a score by it would compare two models" in said
    with pytest.raises(UserError, match=r"val/masks/1.png: a score by it"):
        load(Data(name="folder", path=tmp_path, cache=tmp_path.parent / "cache")).review()


def test_the_images_of_predictions_are_known(tmp_path):
    """By name, whatever part they play."""
    config = Data(name="folder", path=with_drafts(tmp_path, 3, 2))
    assert load(config).predicted == {"images/3.jpg", "images/4.jpg"}
    assert {item.name for item in list_files(config).train if item.predicted} == load(config).predicted


@pytest.mark.parametrize("drawn", ["0_mask.png", "0.tif", "mask_0.png", "0_label.png"])
def test_a_prediction_does_not_displace_a_mask(tmp_path, drawn):
    """Copied beside it, under the name that a mask may have as well; the others keep theirs, and it is said."""
    for index in range(4):
        photo(tmp_path / "images" / f"{index}.jpg", index)
        mask(tmp_path / "masks" / drawn.replace("0", str(index)))
        prediction(tmp_path / "masks" / f"{index}.png")
    prediction(tmp_path / "masks" / "5.png")
    photo(tmp_path / "images" / "5.jpg")
    found = find(tmp_path)
    masks = {item.image.name: item.mask.name for item in found.train}
    assert masks == {f"{index}.jpg": drawn.replace("0", str(index)) for index in range(4)} | {"5.jpg": "5.png"}
    said = [problem.message for problem in found.problems if problem.file.name == "0.png"]
    assert said == [f"left out: a prediction, and {drawn} is the mask of the same image. Remove one of them."]


def test_a_prediction_beside_an_image_does_not_displace_its_mask(tmp_path):
    """Where all lie in one folder."""
    for index in range(3):
        photo(tmp_path / f"{index}.jpg", index)
        mask(tmp_path / f"{index}_mask.png")
    prediction(tmp_path / "0.png")
    assert [item.mask.name for item in find(tmp_path).train] == [f"{index}_mask.png" for index in range(3)]
