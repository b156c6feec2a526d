"""`--data.holdout 0`: everything labelled trains, nothing validates, and no number pretends otherwise."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from oneway.common.errors import UserError
from oneway.config import Data
from oneway.data.folder import list_folder
from oneway.tools.export.card import quality
from oneway.tools.reproduce.jobs import require_validation
from processes import forked
from test_check_cli import TINY, write_folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Photographs, and a run that was trained on all of their labels."""
    place = tmp_path_factory.mktemp("no-holdout")
    write_folder(place / "photos")
    done = call("train folder --data photos --data.holdout 0 --out run".split(), [*TINY, 4], place)
    assert done.returncode == 0, done.stderr
    assert "8 labels; no image validates, and no score is known" in done.stdout
    assert "validation mIoU" not in done.stdout
    return place


def call(*arguments):
    """A command in lists of words, and the folder to run it in."""
    *lists, cwd = arguments
    return forked(*(word for one in lists for word in one), cwd=cwd, XDG_CACHE_HOME=str(cwd / "cache"), COLUMNS="200")


def test_all_labels_train_and_the_summary_has_no_score(place):
    """Its value is null, no image validated, and no line of the metrics is a validation."""
    summary = json.loads((place / "run" / "summary.json").read_text())
    split = json.loads((place / "run" / "split.json").read_text())
    assert (summary["value"], summary["validation_samples"], summary["labels"]) == (None, 0, 8)
    assert {*summary["per_class"].values()} == {None}
    assert split["validating"] == []
    assert len(split["labelled"]) == 8
    lines = [json.loads(line) for line in (place / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines
    assert not any("miou" in line for line in lines)


def test_eval_says_that_nothing_validates(place):
    """On the images that it has learnt from, it answers."""
    done = call(["eval", "run"], place)
    assert done.returncode == 1
    assert "run: no image validates" in done.stderr
    done = call(["eval", "run", "--split", "train", "--mirror"], place)
    assert done.returncode == 0
    assert "train samples, from which it has learnt, averaged with mirror images" in done.stdout


def test_int8_wants_images_that_validate(place):
    """In words about INT8, and not about another command."""
    pytest.importorskip("onnxruntime")
    done = call(["export", "run", "--to", "model.onnx", "--int8"], place)
    assert done.returncode == 1
    assert "run: INT8 is judged on validation images, and there are none. Give some" in " ".join(done.stderr.split())
    assert "eval" not in done.stderr


def test_the_report_and_the_model_card_say_so(place):
    """And have neither a score, nor a table of classes, nor a comparison."""
    page = (place / "run" / "report.html").read_text()
    assert "8 labels: no score" in page.partition("</title>")[0]
    assert "No image was held out (--data.holdout 0)" in page
    assert "Class by class" not in page
    assert "nan" not in page.partition("<h2>How it was made")[0].lower()
    summary = json.loads((place / "run" / "summary.json").read_text())
    assert quality(summary, tuple(summary["per_class"])) == "Not measured: no image was held out to validate."
    done = call(["report", "run", "run"], place)
    assert "of which neither has any" in done.stderr


def test_a_comparison_is_refused_before_it_trains(place):
    """It would have nothing to compare by."""
    done = call("train folder --data photos --data.holdout 0 --compare --out both".split(), [*TINY, 4], place)
    assert done.returncode == 1
    assert "no image validates" in done.stderr
    assert not (place / "both").exists()


def test_a_table_is_refused_before_it_trains(place):
    """Unless the folder has a validation set, of which the setting takes nothing."""
    (place / "settings.yaml").write_text(yaml.safe_dump({"data": {"holdout": 0}}))
    asked = "reproduce facade --methods supervised --labels all --config settings.yaml --weights none --out table"
    done = call(asked.split(), ["--data", "photos", "--iterations", "1"], place)
    assert done.returncode == 1
    assert "photos: no image validates (data.holdout 0), and runs could not be compared." in done.stderr
    assert not (place / "table" / "facade").exists()
    require_validation(Data(name="folder", path=place / "photos"))
    for part in ("train", "val"):
        shutil.copytree(place / "photos", place / "split" / part)
    require_validation(Data(name="folder", path=place / "split", holdout=0))


def test_it_continues_where_it_was_stopped(place):
    """The absence of a validation set is no change of the data."""
    shutil.copytree(place / "run", place / "stopped")
    (place / "stopped" / "summary.json").unlink()
    done = call("train folder --resume --out stopped".split(), place)
    assert done.returncode == 0, done.stderr
    assert json.loads((place / "stopped" / "summary.json").read_text())["value"] is None


def test_a_single_label_is_enough(place):
    """With a hold-out, at least two are needed."""
    shutil.copytree(place / "photos", place / "one")
    for mask in sorted((place / "one" / "masks").iterdir())[1:]:
        mask.unlink()
    needed = r"1 of \d+ training images has labels, .*: one has to train and one to validate .*--data\.holdout 0.*`val`"
    with pytest.raises(UserError, match=needed):
        list_folder(place / "one", None, 0.2, 0)
    listing = list_folder(place / "one", None, 0, 0)
    assert [item.name for item in listing.train if item.mask] == ["images/00.jpg"]
    assert not listing.val
