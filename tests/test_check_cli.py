"""Facts about a user's own folder on the command line, from the first look to a trained model, as real processes.

The first look begins from nothing once, as training and evaluation do in `test_cli`; all else is tried in forks.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
import yaml
from PIL import Image

from oneway.data import streets
from processes import forked, oneway

SIZES = [(48, 64), (40, 72), (64, 48)]
LABELLED, UNLABELLED = 8, 6
PALETTE = [channel for colour in streets.COLOURS for channel in colour]
TINY = (
    "--jitter.crop 32 32 --model.width 0.125 --model.weights none --train.batch-labelled 2 --train.batch-unlabelled 2 "
    "--train.iterations"
).split()


def write_folder(root: Path) -> Path:
    """Photographs of three sizes, as JPEG and PNG, and palette masks for some of them."""
    for kind in ("images", "masks"):
        (root / kind).mkdir(parents=True)
    for number in range(LABELLED + UNLABELLED):
        image, labels = streets.render(6, number, *SIZES[number % 3])
        Image.fromarray(image).save(root / "images" / f"{number:02d}.{('jpg', 'png')[number % 2]}")
        if number < LABELLED:
            mask = Image.fromarray(labels).convert("P")
            mask.putpalette([*PALETTE, *[0] * (768 - len(PALETTE))])  # with fewer than 256, Pillow cuts 255 short
            mask.save(root / "masks" / f"{number:02d}.png")
    return root


def spoil(mask: Path) -> None:
    """Gives one pixel a number that the others do not explain."""
    with Image.open(mask) as image:
        image.putpixel((3, 1), 200)
        image.save(mask)


def call(*arguments: object, cwd: Path, run: Callable[..., CompletedProcess[str]] = forked) -> CompletedProcess[str]:
    """With the cache beside the data, and lines long enough to look for words in."""
    return run(*arguments, cwd=cwd, XDG_CACHE_HOME=str(cwd / "cache"), COLUMNS="200")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with photographs in it."""
    write_folder(tmp_path / "photos")
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photographs, described, and a finished run."""
    place = tmp_path_factory.mktemp("trained")
    write_folder(place / "photos")
    assert call("check", "photos", "--save", cwd=place, run=oneway).returncode == 0
    done = call(
        "train", "folder", "--data", "photos", *TINY, 4, "--out", "run", cwd=place, run=partial(forked, report=False)
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if "% mIoU on validation with 6 labels" in line)
    assert "has the lowest IoU" in lines[first + 1]
    assert lines[first + 2].startswith("Every number here rests on 2 validation images")
    return place


def test_check_tells_what_is_there(place):
    """How many images of which sizes, every class, what was decided, the verdict, the sheet and a description."""
    done = call("check", "photos", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "6 labelled   6 unlabelled   2 for validation" in done.stdout
    for size in ("64×48 (5)", "72×40 (5)", "48×64 (4)"):
        assert size in done.stdout
    for label in range(len(streets.CLASSES)):
        assert f"■ class {label} " in done.stdout
    assert "2 of the 8 images with a mask are held out to validate" in done.stdout
    assert "it can be trained on" in done.stdout
    assert "Contact sheet: check-photos.png" in done.stdout
    assert sorted(path.name for path in place.iterdir()) == ["check-photos.png", "photos"]
    described = done.stdout.partition("which you can edit:\n")[2]
    assert yaml.safe_load(described)["classes"] == [f"class {label}" for label in range(9)]


def test_a_contact_sheet_replaces_nothing_but_its_like(place):
    """A file of the user's stays, and so does the number of files when check is run again."""
    notes = place / "check-photos.png"
    notes.write_text("notes")
    for _ in range(2):
        assert "Contact sheet: check-photos-2.png" in call("check", "photos", cwd=place).stdout
    assert notes.read_text() == "notes"
    notes.unlink()
    for _ in range(2):
        assert "Contact sheet: check-photos.png" in call("check", "photos", cwd=place).stdout
    assert not (place / "check-photos-3.png").exists()


def test_a_screen_that_matplotlib_does_not_know_is_not_asked_for(place):
    """As a profile may still name it for an older version; the sheet is a file, whatever screen there is."""
    done = oneway("check", "photos", cwd=place, MPLBACKEND="Qt4Agg")
    assert "Contact sheet: check-photos.png" in done.stdout, done.stderr


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder where nobody may write")
def test_a_folder_where_no_sheet_can_be_written_does_not_spoil_the_verdict(place):
    """As a container may start in; a sheet that was asked for is another matter."""
    cache = {"XDG_CACHE_HOME": str(place / "cache")}
    done = forked("check", place / "photos", cwd=Path("/proc"), **cache)
    assert done.returncode == 0, done.stderr
    assert "Contact sheet: none here (check-photos.png: cannot be written" in " ".join(done.stdout.split())
    asked = forked("check", place / "photos", "--out", "sheet.png", cwd=Path("/proc"), **cache)
    assert (asked.returncode, "sheet.png: cannot be written" in asked.stderr) == (1, True)


def test_check_answers_without_torch(place):
    """It decodes images and knows no model."""
    script = (
        "import sys; sys.argv = ['oneway', 'check', 'photos']\n"
        "from oneway.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=place, stdout=subprocess.DEVNULL)


def test_check_saves_a_description_once(place):
    """What was printed is what is written; it is never written over, and then followed."""
    printed = call("check", "photos", cwd=place).stdout.partition("which you can edit:\n")[2]
    saved = call("check", "photos", "--save", cwd=place)
    file = place / "photos" / "dataset.yaml"
    assert saved.returncode == 0, saved.stderr
    assert "Written: photos/dataset.yaml" in saved.stdout
    assert yaml.safe_load(file.read_text()) == yaml.safe_load(printed)
    file.write_text(file.read_text().replace("class 5", "lorry"))
    before = file.read_bytes()
    again = call("check", "photos", "--save", cwd=place)
    assert again.returncode == 1
    assert "photos/dataset.yaml: exists already" in again.stderr
    assert file.read_bytes() == before
    assert "■ lorry " in call("check", "photos", cwd=place).stdout


def test_check_tells_machines_the_same(place):
    """One JSON object and nothing else, and no picture that nobody asked for."""
    done = call("check", "photos", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["labelled"], told["unlabelled"], told["validation"]) == (6, 6, 2)
    assert told["sheet"] is None
    assert [path.name for path in place.iterdir()] == ["photos"]
    drawn = call("check", "photos", "--json", "--out", "sheet.png", cwd=place)
    assert json.loads(drawn.stdout)["sheet"] == "sheet.png"
    assert (place / "sheet.png").is_file()


def test_check_holds_out_what_training_would(place):
    """As many, or none."""
    told = [forked("check", "photos", "--data.holdout", share, cwd=place).stdout for share in ("0.5", "0")]
    assert "4 of the 8 images with a mask are held out" in told[0]
    assert "No image validates: all that are labelled train (--data.holdout 0)" in told[1]


def test_check_takes_further_images_from_elsewhere(place):
    """They are counted, and stay where they are."""
    shutil.copytree(place / "photos" / "images", place / "more")
    done = call("check", "photos", "--unlabelled", "more", "--json", cwd=place)
    assert json.loads(done.stdout)["unlabelled"] == UNLABELLED + LABELLED + UNLABELLED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("check photos --out sheet.jpg", "sheet.jpg: the contact sheet is a PNG"),
        ("check photos --recipe camvid --save", "camvid is read as it comes, without a dataset.yaml"),
        ("check photos --recipe streets", "streets"),
        ("check photos --holdout 0.1 --recipe camvid", "--holdout: camvid has a validation set of its own"),
        ("check photos --holdout 1", "--holdout. Must be < 1"),
        ("check", "is missing; `oneway check --help`"),
        ("train folder --model.weights none", "--data DIR"),
        ("train folder --model.weights none --data nowhere", "nowhere: no such file or folder"),
        ("train folder --model.weights none --data photos --labels 7", "asks for 7 labelled images, there are 6"),
    ],
)
def test_bad_input_is_answered_with_a_way_out(place, arguments, message):
    """One readable message, a status of failure, no traceback, and nothing left behind but decoded images."""
    done = call(*arguments.split(), cwd=place)
    assert done.returncode in (1, 2)
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert {path.name for path in place.iterdir()} <= {"photos", "cache"}


def test_a_mask_with_an_error_is_found_by_check_and_stops_training(trained, tmp_path):
    """With its file, value and place, before there is a run folder."""
    shutil.copytree(trained / "photos", tmp_path / "photos")
    spoil(tmp_path / "photos" / "masks" / "03.png")
    expected = "masks/03.png: 1 pixels have value 200, which stands for no class, the first at row 1, column 3"
    checked = call("check", "photos", cwd=tmp_path)
    assert checked.returncode == 1
    assert expected in " ".join(checked.stdout.split())
    assert json.loads(call("check", "photos", "--json", cwd=tmp_path).stdout)["findings"][0]["file"] == "masks/03.png"
    stopped = call("train", "folder", "--data", "photos", *TINY, 4, "--out", "run", cwd=tmp_path)
    assert stopped.returncode == 1
    assert expected in " ".join(stopped.stderr.split())
    assert re.search("Run `oneway check .*photos` to see", stopped.stderr)
    assert "Traceback" not in stopped.stderr
    assert not (tmp_path / "run").exists()


def test_masks_that_are_predictions_are_counted(trained, tmp_path):
    """Until a program saves them anew; those that were drawn are none."""
    place = shutil.copytree(trained, tmp_path / "place")
    call("predict", "run", "photos", "--unlabelled", cwd=place)
    assert "Masks that are predictions" not in call("check", "photos", cwd=place).stdout
    made = sorted((place / "predictions/masks").rglob("*.png"))
    assert len(made) == UNLABELLED
    for mask in made:
        shutil.copy(mask, place / "photos/masks")
    assert "6 of 14 masks are as `oneway predict` wrote them" in call("check", "photos", cwd=place).stdout
    corrected = place / "photos/masks" / made[0].name
    Image.open(corrected).save(corrected)
    assert "5 of 14 masks are as `oneway predict` wrote them" in call("check", "photos", cwd=place).stdout


def test_a_model_is_trained_on_a_folder_and_evaluated(trained):
    """Its score is of the images held out, by the names that the description gives the classes."""
    summary = json.loads((trained / "run/summary.json").read_text())
    split = json.loads((trained / "run/split.json").read_text())
    assert (len(split["labelled"]), len(split["unlabelled"])) == (6, 12)
    assert list(summary["per_class"]) == [f"class {label}" for label in range(9)]
    result = json.loads(call("eval", "run", "--json", cwd=trained).stdout)
    assert result["samples"] == summary["validation_samples"] == 2
    assert result["value"] == pytest.approx(summary["value"], abs=1e-6)
    table = call("eval", "run", cwd=trained)
    assert "class 8" in table.stdout
    assert f"{summary['value']:.1f}" in table.stdout
    assert "No interval: with 2 images, fewer than 10, others could change every number here" in table.stdout


def test_a_run_on_a_folder_that_has_ended_is_not_trained_again(trained):
    """`--resume` needs no other flag to say so."""
    done = call("train", "folder", "--out", "run", "--resume", cwd=trained)
    assert done.returncode == 0, done.stderr
    assert "has ended; nothing to do" in done.stdout


def test_other_classes_are_refused_and_the_same_elsewhere_are_evaluated(trained, tmp_path):
    """A renamed class is another: what the columns of the model mean must not be guessed."""
    shutil.copytree(trained / "photos", tmp_path / "photos")
    same = call("eval", trained / "run", "--data", "photos", "--json", cwd=tmp_path)
    assert json.loads(same.stdout)["samples"] == 2
    shutil.copytree(trained / "photos", tmp_path / "fewer")
    (validating, *_) = json.loads((trained / "run/split.json").read_text())["validating"]
    (tmp_path / "fewer" / "masks" / Path(validating).name).with_suffix(".png").unlink()
    fewer = call("eval", trained / "run", "--data", "fewer", cwd=tmp_path)
    assert fewer.stdout.splitlines()[0].endswith(" on 1 val sample")
    description = tmp_path / "photos" / "dataset.yaml"
    description.write_text(description.read_text().replace("class 5", "lorry"))
    other = call("eval", trained / "run", "--data", "photos", cwd=tmp_path)
    assert other.returncode == 1
    assert "photos: has lorry, which " in other.stderr
    assert "lacks class 5, which " in other.stderr
    assert "Traceback" not in other.stderr


def test_an_image_that_changes_after_decoding_stops_training_until_it_is_accepted(place):
    """The file is named, until `--data.refresh`; that more labels are asked for than there are is said after that."""
    begin = "train folder --data photos --model.weights none --labels 99 --out run".split()
    decoded, too_many = call(*begin, cwd=place), "asks for 99 labelled images"
    assert too_many in decoded.stderr
    image = place / "photos" / "images" / "09.png"
    Image.fromarray(np.full((48, 64, 3), 90, np.uint8)).save(image)
    refused = call(*begin, cwd=place)
    assert refused.returncode == 1
    assert f"{image} has other content" in refused.stderr
    assert too_many not in refused.stderr
    accepted = call(*begin, "--data.refresh", cwd=place)
    assert too_many in accepted.stderr
    assert not (place / "run").exists()
