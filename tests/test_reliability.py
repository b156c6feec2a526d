"""A fixed sample of `make test-reliability`, small enough for every day."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

import preload
from forks import called
from oneway.common.errors import UserError
from oneway.runs import open_run
from reliability import (
    breaks,
    disks,
    faults,
    guards,
    kills,
    lost,
    order,
    stops,
    surroundings,
    wrong_caches,
    wrong_models,
)
from reliability.harness import ITERATIONS, MOONS, done, resume, same, undisturbed
from reliability.test_strangers import folder_runs, run_records

POINTS = kills.points()
SAMPLE = ["step 10", "within write 6", "before rename 7"]
"""Of the points at which a run is killed: after a checkpoint, within its tensors, before its manifest is renamed."""


@pytest.mark.parametrize("point", SAMPLE)
def test_killed(point, tmp_path):
    """In a step, within a write and before a rename: the resumed run is the same byte for byte."""
    assert kills.resumes_exactly(tmp_path, POINTS[point])


def test_stopped(tmp_path):
    """SIGTERM: a checkpoint, status 143, and the same run."""
    assert stops.resumes_exactly(tmp_path, signal.SIGTERM, 4)


@pytest.mark.parametrize("how", ["reader", "ascii"])
def test_output_that_nobody_can_read(how, tmp_path):
    """It goes away while the run trains, or lacks characters: the same files, and status 0."""
    assert surroundings.trains_unread(tmp_path, how)


def test_every_rename_comes_between_two_syncs(tmp_path):
    """First of the content, then of the folder: for settings, split, tensors, manifests, model and summary."""
    done(tmp_path, *MOONS, fault={"trace": str(tmp_path / "trace")})
    count, wrong = order.renames(order.from_trace(tmp_path / "trace"), tmp_path / "run")
    assert count > 12
    assert not wrong


def test_a_wrong_order_would_be_noticed():
    """The test above can fail: for each of the three in the wrong place."""
    good = [
        ("open", "run/.a.tmp"),
        ("write", "run/.a.tmp"),
        ("fsync", "run/.a.tmp"),
        ("replace", "run/.a.tmp", "run/a"),
    ]
    below = Path("/x/run")
    assert order.renames([*good, ("fsync", "run")], below) == (1, [])
    assert "never reached" in order.renames(good, below)[1][0]
    assert "before its content" in order.renames([*good[:2], good[3], ("fsync", "run")], below)[1][0]
    late = [good[0], good[2], good[1], good[3], ("fsync", "run")]
    assert "before its content" in order.renames(late, below)[1][0]


@pytest.mark.parametrize("point", ["full in a file of tensors", "no permission to rename"])
def test_disk_full_or_not_writable(point, tmp_path):
    """The run stops with path and bytes, leaves no incomplete file, and continues later."""
    assert disks.stops_with_the_reason(tmp_path, disks.POINTS[point])


def test_no_room_from_the_start(tmp_path):
    """Refused before the first step, and nothing is left behind."""
    assert disks.TOO_SMALL["a limit on files"](tmp_path)


def test_damaged_checkpoints(tmp_path):
    """Flipped bits and missing ends: none is accepted, and the previous checkpoint is used."""
    result = called(tmp_path, "reliability.damage:damage", folder=str(tmp_path), flips=80, truncations=20, seed=9)
    assert not result["accepted"]


@pytest.mark.parametrize(
    ("kind", "count"), [("images", 150), ("masks", 150), ("checkpoints", 100), ("configurations", 150), ("lists", 50)]
)
def test_mutated_files(kind, count, tmp_path):
    """Each is read, or refused by name: no crash, at most 2 s and 300 MiB."""
    result = called(tmp_path, f"reliability.fuzz:{kind}", folder=str(tmp_path), count=count, seed=9)
    assert result["tried"] == count
    assert not result["failures"]


def test_hostile_files(tmp_path):
    """Nothing is run, nothing outside the folder is opened or changed."""
    result = called(tmp_path, "reliability.hostile:hostile", folder=str(tmp_path))
    assert result["tried"] > 100
    assert not result["wrong"]


def test_folders_of_strangers(tmp_path):
    """Nothing outside is read or changed, nothing is written but where the user said, nothing is started."""
    runs = folder_runs(tmp_path / "runs")
    result = called(tmp_path, "reliability.strangers:strangers", folder=str(tmp_path), every=8, **runs)
    assert result["tried"] == 10
    assert not result["wrong"]


def test_records_with_other_values(tmp_path):
    """Every verb works or refuses the file by name."""
    runs = run_records(tmp_path)
    result = called(tmp_path, "reliability.records:records", folder=str(tmp_path), count=1, seed=9, **runs)
    assert not result["wrong"]


def test_a_budget_for_hostile_files(tmp_path):
    """Each ends within 2 s and 300 MiB, by being read or with our own error."""
    result = called(tmp_path, "reliability.budget:budget", folder=str(tmp_path / "files"), part=0, parts=13)
    assert result["tried"] > 15
    assert not result["wrong"]


def test_another_experiment_is_refused(tmp_path):
    """Another batch size, another split: the difference is shown, nothing changes, and the run can still be resumed."""
    guards.killed(tmp_path)
    for change in ("batch", "split"):
        flags, shown = guards.CHANGES[change]
        assert guards.is_refused(tmp_path, *flags.split(), saying=shown)
    resume(tmp_path, recipe="moons")
    assert same(tmp_path / "run", undisturbed(tuple(MOONS)))


@pytest.mark.skipif(not preload.library(), reason=faults.NO_COMPILER)
@pytest.mark.parametrize(("name", "count"), [("resume points", 6), ("train points", 4)])
def test_system_calls_that_fail_once(name, count, tmp_path):
    """Nothing is lost, and the same command comes to the same end afterwards."""
    turns = faults.random_turns(name, count, seed=9)
    wrong = [faults.survives(tmp_path / f"{turn}", name, turn, number) for turn, number in turns]
    assert not list(filter(None, wrong))


def test_a_folder_that_is_renamed_and_replaced(tmp_path):
    """The run stops, with the new name; what is under its old name is untouched."""
    assert lost.renamed_and_replaced(tmp_path)


def test_checkpoints_that_are_missing(tmp_path):
    """Nothing starts over, and no metrics are dropped."""
    assert lost.without_checkpoints(tmp_path, shutil.rmtree)


def test_stretches_of_a_run_are_recorded(tmp_path):
    """With threads and versions; what changed is said."""
    assert lost.stretches_are_recorded(tmp_path)


def test_files_that_cannot_be_read_are_left_out(tmp_path):
    """Two of 300, named when training starts; after a kill, the run continues without the same two."""
    assert breaks.few_are_left_out(tmp_path)


def test_a_cache_that_is_truncated_while_a_run_trains(tmp_path):
    """The path, status 1 and no signal; then the same run."""
    assert breaks.truncation_is_named(tmp_path, breaks.CUTS["training pixels, streamed"])


def test_weights_that_compute_nonsense(tmp_path):
    """Refused by the name of the tensor."""
    assert wrong_models.value_is_refused(tmp_path, "a negative variance", "predict")


def test_decoded_images_that_are_altered(tmp_path):
    """Noticed, said, decoded again: the same model, to the byte."""
    assert wrong_caches.altered_cache_changes_nothing(tmp_path, "training labels beyond the classes")
    assert not wrong_caches.malformed_indexes(tmp_path, 25, seed=9)


def test_a_summary_with_a_value_of_another_type_is_refused(tmp_path):
    """With the file, the key and the value."""
    run = Path(shutil.copytree(undisturbed(tuple(MOONS)), tmp_path / "run"))
    summary = json.loads((run / "summary.json").read_text())
    for wrong in ({"validation_samples": "many"}, {"value": None}):
        (run / "summary.json").write_text(json.dumps(summary | wrong))
        with pytest.raises(UserError, match=rf"summary.json: damaged; {next(iter(wrong))} is"):
            assert open_run(run).summary


def test_a_bug_is_reported_as_one(tmp_path):
    """Three lines, status 70, the traceback in a file."""
    job = done(tmp_path, *MOONS, status=70, raise_in_iteration=ITERATIONS // 2)
    assert guards.says(job, "ZeroDivisionError")
    assert "run/traceback.txt and run/environment.json" in job.error
    assert "Traceback" in (tmp_path / "run" / "traceback.txt").read_text()
