"""Resuming changes no experiment unseen, runs of the first version continue, broken data are named, bugs reported."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from oneway.runs import checkpoint
from oneway.runs.checkpoint import seal_manifest
from reliability import first_version, guards
from reliability.guards import CHANGES, is_refused, killed, says
from reliability.harness import ITERATIONS, MOONS, done, resume, same, saved, start, undisturbed, wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("change", CHANGES)
def test_another_experiment_is_refused(change, tmp_path, survives):
    """For each setting that decides the result, the difference is shown, and nothing changes."""
    killed(tmp_path)
    flags, shown = CHANGES[change]
    survives("13 resuming another experiment: refused", is_refused(tmp_path, *flags.split(), saying=shown))


def test_changes_that_are_asked_for(tmp_path, tally):
    """`--allow-changes` continues, and the run folder and its summary say what changed and when."""
    run = killed(tmp_path)
    resume(tmp_path, *CHANGES["batch"][0].split(), "--allow-changes", recipe="moons")
    expected = [f"after 12 iterations, {CHANGES['batch'][1]}"]
    assert json.loads((run / "changes.json").read_text())["changes"] == expected
    assert json.loads((run / "summary.json").read_text())["changes"] == expected
    assert "batch_labelled: 3" in (run / "config.yaml").read_text()
    tally("13 changes that are asked for", 1, 1)


def test_a_list_of_labels_that_changes_changes_no_run(tmp_path, tally):
    """A list with other lines, or that is gone: the run keeps its own split."""
    names = json.loads((undisturbed(tuple(MOONS)) / "split.json").read_text())["labelled"]
    listed = [*MOONS, "--labels", "labels.txt"]
    for what, change in {
        "changed": lambda path: path.write_text("\n".join(names[:2])),
        "gone": lambda path: path.unlink(),
    }.items():
        folder = tmp_path / what
        folder.mkdir()
        (folder / "labels.txt").write_text("\n".join(names))
        killed(folder, listed)
        change(folder / "labels.txt")
        resume(folder, recipe="moons")
        final = f"checkpoint/{ITERATIONS:08d}.safetensors"
        survived = (folder / "run" / final).read_bytes() == (undisturbed(tuple(MOONS)) / final).read_bytes()
        tally("13 a list of labels that changes", 1, survived)
        assert survived


@pytest.mark.parametrize(
    ("name", "change", "saying"),
    [
        ("config.yaml", lambda text: text.replace("batch_labelled: 6", "batch_labelled: 5"), "batch_labelled: 6 → 5"),
        ("split.json", lambda text: text.replace("train-000", "train-001", 1), "split.json: damaged"),
        ("split.json", lambda text: "[" + text, "split.json: damaged"),
        ("metrics.jsonl", lambda text: "garbage\n" + text, "metrics.jsonl: damaged; line 1"),
        ("config.yaml", lambda text: text.replace("seed: 0", "seed: [", 1), "config.yaml: not valid YAML"),
    ],
)
def test_a_run_folder_edited_by_hand(name, change, saying, tmp_path, survives):
    """Refused, with the file and what is wrong with it."""
    run = killed(tmp_path)
    (run / name).write_text(change((run / name).read_text()))
    survives("13 a run folder edited by hand: refused", is_refused(tmp_path, saying=saying))


def test_data_of_other_content_are_refused(tmp_path, tally):
    """Images of the same names with other pixels are other data, also when decoding them anew was asked for."""
    data = guards.write_data(tmp_path)
    killed(tmp_path, guards.FOLDER)
    original = (data / "images" / "0.png").read_bytes()
    shutil.copy(data / "images" / "1.png", data / "images" / "0.png")
    survived = is_refused(tmp_path, saying="0.png", recipe="folder")
    survived &= is_refused(tmp_path, "--data.refresh", saying="content of the", recipe="folder")
    (data / "images" / "0.png").write_bytes(original)
    resume(tmp_path, "--data.refresh", recipe="folder")
    tally("9 an image replaced: named and refused", 2, 2 * survived)
    assert survived


def test_a_damaged_image_is_named(tmp_path, tally):
    """Before a run starts and before it continues; once the image is restored, it continues to the byte."""
    data = guards.write_data(tmp_path)
    victim = data / "images" / "2.png"
    original = victim.read_bytes()
    victim.write_bytes(original[:200])
    job = done(tmp_path, *guards.FOLDER, status=1)
    survived = says(job, "2.png") and not (tmp_path / "run").exists()
    victim.write_bytes(original)
    done(tmp_path, *guards.FOLDER)
    (tmp_path / "run").rename(tmp_path / "whole")
    killed(tmp_path, guards.FOLDER)
    victim.write_bytes(original[:200])
    survived &= is_refused(tmp_path, saying="2.png", recipe="folder")
    victim.write_bytes(original)
    resume(tmp_path, recipe="folder")
    survived &= same(tmp_path / "run", tmp_path / "whole")
    tally("9 a damaged image: named, resumable", 2, 2 * survived)
    assert survived


def test_losses_that_are_not_finite_stop_the_run(tmp_path, tally):
    """With the iteration in the message, long before the next line of the log; no checkpoint is made of such losses."""
    words = " ".join(MOONS).replace("checkpoint-every 4", "checkpoint-every 1").replace("log-every 1", "log-every 24")
    job = done(tmp_path, *words.split(), "--optimiser.learning-rate", "1e30", status=1)
    assert says(job, "up to iteration 20 were not finite")
    assert guards.all_finite(tmp_path / "run")
    tally("10 losses that are not finite stop the run", 1, 1)


def test_a_run_that_diverges_can_be_resumed(tmp_path, survives):
    """Images and learning rate are named; resumed from its checkpoint, it ends like an undisturbed run."""
    survives("10 a run that diverges: stopped, resumable", guards.diverges_and_continues(tmp_path))


def test_one_process_at_a_time(tmp_path, survives):
    """The second one is refused with the name of the first; the lock of a killed process locks nothing."""
    job = start(tmp_path, command=[*MOONS], fault={"call": "write", "turn": 4, "seconds": 3.0})
    wait_until(lambda: 8 in saved(tmp_path / "run"))
    message = refusal_of(tmp_path / "run")
    assert f"process {job.process} on " in message
    os.kill(job.process, 9)
    assert job.wait() == -9
    assert (tmp_path / "run" / ".lock").exists()
    resume(tmp_path, recipe="moons")
    survives("13 two processes, one folder", same(tmp_path / "run", undisturbed(tuple(MOONS))))


def refusal_of(run: Path) -> str:
    """The message for a process that wants to train into a locked folder."""
    from oneway.common.errors import UserError
    from oneway.runs import lock

    with pytest.raises(UserError) as error, lock.hold(run):
        pass
    return str(error.value)


def test_a_run_of_the_first_version_continues(tmp_path, survives):
    """Killed after 40 of 80 iterations, it ends like an undisturbed one."""
    survives("13 a run of the first version: continued", first_version.continues_exactly(tmp_path))


def test_a_newer_format_is_refused(tmp_path, survives):
    """And left as it is."""
    run = killed(tmp_path)
    newest = run / "checkpoint" / f"{saved(run)[-1]:08d}.json"
    words = json.loads(newest.read_text())
    del words["seal"]
    newest.write_bytes(seal_manifest({**words, "format": checkpoint.FORMAT + 1, "colour": "blue"}))
    survives(
        "13 a newer format: refused",
        is_refused(tmp_path, saying=f"a checkpoint of format {checkpoint.FORMAT + 1}, and this version"),
    )


def test_a_bug_is_reported_as_one(tmp_path, survives):
    """Three lines, status 70, the traceback in a file; the run can be resumed."""
    job = done(tmp_path, *MOONS, status=70, raise_in_iteration=13)
    assert says(job, "ZeroDivisionError")
    assert "run/traceback.txt and run/environment.json" in job.error
    assert (tmp_path / f"{job.name}.err").read_text().count("\n") <= 3
    assert "Traceback" in (tmp_path / "run" / "traceback.txt").read_text()
    shown = done(tmp_path, *MOONS[:-1], "other", "--traceback", status=70, raise_in_iteration=1)
    assert "Traceback" in shown.error
    (tmp_path / "run" / "traceback.txt").unlink()
    resume(tmp_path, recipe="moons")
    survives("13 a bug: reported, resumable", same(tmp_path / "run", undisturbed(tuple(MOONS))))
