"""Resuming cannot change the experiment unseen, old formats load, data that break are named, bugs are told apart."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from oneway.runs import checkpoint
from oneway.runs.checkpoint import sealed
from oneway.runs.model_file import load_model
from reliability import guards
from reliability.guards import CHANGES, is_refused, killed, says
from reliability.harness import ITERATIONS, MOONS, done, resume, same, saved, start, undisturbed, wait_until

pytestmark = pytest.mark.slow

FORMAT_1 = Path(__file__).parent / "format-1"


@pytest.mark.parametrize("change", CHANGES)
def test_another_experiment_is_refused(change, tmp_path, tally):
    """Whatever decides the result: the difference is shown, and nothing happens."""
    killed(tmp_path)
    flags, shown = CHANGES[change]
    survived = is_refused(tmp_path, *flags.split(), saying=shown)
    tally("13 resuming another experiment: refused", 1, survived)
    assert survived


def test_changes_that_are_asked_for(tmp_path, tally):
    """`--allow-changes` goes on, and the run folder and its summary say what changed and when."""
    run = killed(tmp_path)
    resume(tmp_path, *CHANGES["batch"][0].split(), "--allow-changes", recipe="moons")
    expected = [f"after 12 iterations, {CHANGES['batch'][1]}"]
    assert json.loads((run / "changes.json").read_text())["changes"] == expected
    assert json.loads((run / "summary.json").read_text())["changes"] == expected
    assert "batch_labelled: 3" in (run / "config.yaml").read_text()
    tally("13 changes that are asked for", 1, 1)


def test_the_split_of_the_run_wins(tmp_path, tally):
    """A list of labels that has other lines by now, or is gone, changes nothing."""
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
def test_a_run_folder_edited_by_hand(name, change, saying, tmp_path, tally):
    """Noticed, and named."""
    run = killed(tmp_path)
    (run / name).write_text(change((run / name).read_text()))
    survived = is_refused(tmp_path, saying=saying)
    tally("13 a run folder edited by hand: refused", 1, survived)
    assert survived


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


def test_an_image_that_breaks_is_named(tmp_path, tally):
    """Before the start and before going on; mended, the run goes on to the byte."""
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
    tally("9 an image that breaks: named, resumable", 2, 2 * survived)
    assert survived


def test_losses_that_are_not_finite_stop_the_run(tmp_path, tally):
    """With the iteration in the message, long before the next line of the log; no checkpoint is made of such losses."""
    words = " ".join(MOONS).replace("checkpoint-every 4", "checkpoint-every 1").replace("log-every 1", "log-every 24")
    job = done(tmp_path, *words.split(), "--optimiser.learning-rate", "1e30", status=1)
    assert says(job, "up to iteration 20 were not finite")
    assert guards.all_finite(tmp_path / "run")
    tally("10 losses that are not finite stop the run", 1, 1)


def test_a_run_that_diverges_is_not_lost(tmp_path, tally):
    """Images and learning rate are named; from the checkpoint of before, the run comes to the end it would have had."""
    survived = guards.diverges_and_goes_on(tmp_path)
    tally("10 a run that diverges: stopped, resumable", 1, survived)
    assert survived


def test_one_process_at_a_time(tmp_path, tally):
    """The second one is told which is the first; the lock of a killed one counts for nothing."""
    job = start(tmp_path, command=[*MOONS], fault={"call": "write", "turn": 4, "seconds": 3.0})
    wait_until(lambda: 8 in saved(tmp_path / "run"))
    message = called_in_this_process(tmp_path / "run")
    assert f"process {job.process} on " in message
    os.kill(job.process, 9)
    assert job.wait() == -9
    assert (tmp_path / "run" / ".lock").exists()
    resume(tmp_path, recipe="moons")
    survived = same(tmp_path / "run", undisturbed(tuple(MOONS)))
    tally("13 two processes, one folder", 1, survived)
    assert survived


def called_in_this_process(run: Path) -> str:
    """What a process is told that wants to train into a folder."""
    from oneway.common.errors import UserError
    from oneway.runs import lock

    with pytest.raises(UserError) as error, lock.held(run):
        pass
    return str(error.value)


def test_format_1_goes_on(tmp_path, tally):
    """A run in the first format, killed after 40 of 60 iterations, comes to the model it would have come to."""
    shutil.copytree(FORMAT_1 / "run", tmp_path / "run")
    resume(tmp_path, recipe="moons")
    expected = safetensors.torch.load_file(FORMAT_1 / "model.safetensors")
    found = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5)
    assert load_model(FORMAT_1 / "model.safetensors", torch.device("cpu")).classes
    tally("13 old formats load", 2, 2)


def test_a_newer_format_is_refused(tmp_path, tally):
    """And left alone, as whole as it is."""
    run = killed(tmp_path)
    newest = run / "checkpoint" / f"{saved(run)[-1]:08d}.json"
    words = json.loads(newest.read_text())
    del words["seal"]
    newest.write_bytes(sealed({**words, "format": checkpoint.FORMAT + 1, "colour": "blue"}))
    survived = is_refused(tmp_path, saying=f"a checkpoint of format {checkpoint.FORMAT + 1}, and this version")
    tally("13 a newer format: refused", 1, survived)
    assert survived


def test_a_bug_is_told_apart(tmp_path, tally):
    """Three lines, status 70, the traceback in a file; the run goes on afterwards."""
    job = done(tmp_path, *MOONS, status=70, raise_in_iteration=13)
    assert says(job, "ZeroDivisionError")
    assert "run/traceback.txt and run/environment.json" in job.error
    assert (tmp_path / f"{job.name}.err").read_text().count("\n") <= 3
    assert "Traceback" in (tmp_path / "run" / "traceback.txt").read_text()
    shown = done(tmp_path, *MOONS[:-1], "other", "--traceback", status=70, raise_in_iteration=1)
    assert "Traceback" in shown.error
    (tmp_path / "run" / "traceback.txt").unlink()
    resume(tmp_path, recipe="moons")
    survived = same(tmp_path / "run", undisturbed(tuple(MOONS)))
    tally("13 a bug: reported, resumable", 1, survived)
    assert survived
