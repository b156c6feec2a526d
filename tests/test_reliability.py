"""A fixed sample of each proof of `make test-reliability`, small enough for every day."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
import safetensors.torch

from forks import called
from oneway.common.errors import UserError
from oneway.runs import open_run
from oneway.tools.export.card import quality
from reliability import breaks, disks, guards, kills, order, stops
from reliability.harness import ITERATIONS, MOONS, done, resume, same, undisturbed

POINTS = kills.points()
SAMPLE = ["step 10", "within write 6", "before rename 7"]
"""Of the points at which a run is killed: behind a checkpoint, in tensors, and at the name of a manifest."""


@pytest.mark.parametrize("point", SAMPLE)
def test_killed(point, tmp_path):
    """In a step, within a write and before a rename: the run comes back byte for byte."""
    assert kills.comes_back(tmp_path, POINTS[point])


def test_stopped(tmp_path):
    """SIGTERM: a checkpoint, status 143, and the same run."""
    assert stops.comes_back(tmp_path, signal.SIGTERM, 4)


def test_every_rename_is_in_order(tmp_path):
    """Content to disk, then the name, then the folder: configuration, split, tensors, manifests, model, summary."""
    done(tmp_path, *MOONS, fault={"trace": str(tmp_path / "trace")})
    count, wrong = order.renames(order.from_trace(tmp_path / "trace"), tmp_path / "run")
    assert count > 12
    assert not wrong


def test_order_would_be_noticed():
    """The test above is one that can fail: for each of the three in the wrong place."""
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
def test_disk_full_or_closed(point, tmp_path):
    """The run stops with path and bytes, leaves nothing half-written, and goes on later."""
    assert disks.stops_well(tmp_path, disks.POINTS[point])


def test_no_room_from_the_start(tmp_path):
    """Refused before the first step, and nothing is left behind."""
    assert disks.TOO_SMALL["a limit on files"](tmp_path)


def test_damaged_checkpoints(tmp_path):
    """Flipped bits and lost ends: none is accepted, and the previous checkpoint is used."""
    result = called(tmp_path, "reliability.damage:damage", folder=str(tmp_path), flips=80, truncations=20, seed=9)
    assert not result["accepted"]


@pytest.mark.parametrize(
    ("kind", "count"), [("images", 150), ("masks", 150), ("checkpoints", 100), ("configurations", 150), ("lists", 50)]
)
def test_mutated_files(kind, count, tmp_path):
    """Read, or refused by name: no crash, no 2 s, no 300 MiB."""
    result = called(tmp_path, f"reliability.fuzz:{kind}", folder=str(tmp_path), count=count, seed=9)
    assert result["tried"] == count
    assert not result["failures"]


def test_hostile_files(tmp_path):
    """Nothing is run, nothing outside the folder is opened or changed."""
    result = called(tmp_path, "reliability.hostile:hostile", folder=str(tmp_path))
    assert result["tried"] > 100
    assert not result["wrong"]


def test_another_experiment_is_refused(tmp_path):
    """Another batch size, another split: the difference is shown, nothing happens, and the run can still go on."""
    guards.killed(tmp_path)
    for change in ("batch", "split"):
        flags, shown = guards.CHANGES[change]
        assert guards.is_refused(tmp_path, *flags.split(), saying=shown)
    resume(tmp_path, recipe="moons")
    assert same(tmp_path / "run", undisturbed(tuple(MOONS)))


def test_files_that_cannot_be_read_are_left_out(tmp_path):
    """Two of 300, named when training starts; after a kill, the run goes on without the same two."""
    assert breaks.are_left_out(tmp_path)


def test_a_cache_that_is_cut_short_mid_run(tmp_path):
    """The path, status 1 and no signal; then the same run."""
    assert breaks.is_named(tmp_path, breaks.CUTS["training pixels, streamed"])


def test_a_run_of_the_first_release_goes_on(tmp_path):
    """Its checkpoint, its configuration and its split are of formats that had no checksums."""
    shutil.copytree(Path(__file__).parent / "reliability" / "format-1" / "run", tmp_path / "run")
    resume(tmp_path, recipe="moons")
    assert safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")


def test_a_summary_of_the_first_release_is_whole(tmp_path):
    """It does not say how many images validated, and nothing is said about them; what must be there still must."""
    run = tmp_path / "run"
    shutil.copytree(undisturbed(tuple(MOONS)), run)
    summary = json.loads((run / "summary.json").read_text())
    del summary["validation_samples"]
    (run / "summary.json").write_text(json.dumps(summary))
    assert open_run(run).summary == summary
    assert "% accuracy on validation images" in quality(open_run(run).summary, tuple(summary["per_class"]))
    for wrong in ({"validation_samples": "many"}, {"value": None}):
        (run / "summary.json").write_text(json.dumps(summary | wrong))
        with pytest.raises(UserError, match=f"damaged; {next(iter(wrong))} is"):
            assert open_run(run).summary


def test_a_bug_is_told_apart(tmp_path):
    """Three lines, status 70, the traceback in a file."""
    job = done(tmp_path, *MOONS, status=70, raise_in_iteration=ITERATIONS // 2)
    assert guards.says(job, "ZeroDivisionError")
    assert "run/traceback.txt and run/environment.json" in job.error
    assert "Traceback" in (tmp_path / "run" / "traceback.txt").read_text()
