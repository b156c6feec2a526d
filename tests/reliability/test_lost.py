"""Nothing is lost when a system call fails, a folder goes or a file is gone; at full size."""

from __future__ import annotations

import pytest

import preload
from reliability import faults, lost

pytestmark = pytest.mark.slow
PARTS = 8


@pytest.mark.skipif(not preload.library(), reason=faults.NO_COMPILER)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_call_of_a_resume_failing_once(part, tmp_path, tally):
    """Every open, listing, read, write and rename: nothing is lost, and resumed again, the run ends to the byte."""
    _, calls = faults.undisturbed("resume points")
    wrong = [faults.survives(tmp_path / str(turn), *where(turn)) for turn in range(part, calls, PARTS)]
    tally("15 every call of a resume failing once", len(wrong), wrong.count(""))
    assert not list(filter(None, wrong))


def where(turn: int) -> tuple[str, int, int]:
    """The command, the turn and the error."""
    return "resume points", turn, faults.NUMBERS[turn % len(faults.NUMBERS)]


@pytest.mark.skipif(not preload.library(), reason=faults.NO_COMPILER)
@pytest.mark.parametrize(("name", "count", "part"), faults.parts())
def test_random_faults(name, count, part, tmp_path, tally):
    """In training, resuming, reporting and predicting; then the same command comes to the same end."""
    turns = faults.random_turns(name, count, seed=part)
    wrong = [faults.survives(tmp_path / f"{turn}", name, turn, number) for turn, number in turns]
    tally(f"15 random faults: {name}", len(wrong), wrong.count(""))
    assert not list(filter(None, wrong))


@pytest.mark.parametrize("what", lost.FOLDERS)
def test_a_folder_that_goes(what, tmp_path, survives):
    """The run notices, stops with its new name, and writes into no other folder."""
    survives("15 a folder renamed, replaced or removed", lost.FOLDERS[what](tmp_path))


@pytest.mark.parametrize("what", lost.WITHOUT_CHECKPOINTS)
def test_checkpoints_that_are_missing(what, tmp_path, survives):
    """Nothing starts over, and no metrics are dropped."""
    survives("15 checkpoints missing: refused", lost.without_checkpoints(tmp_path, lost.WITHOUT_CHECKPOINTS[what]))


@pytest.mark.parametrize("what", lost.SURROUNDINGS)
def test_surroundings_that_change(what, tmp_path, survives):
    """Recorded and said, or without effect."""
    survives("15 threads, versions, weights, teacher, folders", lost.SURROUNDINGS[what](tmp_path))
