"""Data that are wrong from the start, and files that are damaged later."""

from __future__ import annotations

import json

import pytest

from data.defects import DEFECTS, clean_set
from files import contents
from reliability import breaks
from reliability.harness import start

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found(name, tmp_path, tally):
    """By `oneway check`, alone, with file and value; the data stay as they are."""
    defect, root = DEFECTS[name], clean_set(tmp_path / "data")
    defect.sow(root)
    (found,) = checked(tmp_path, status=int(defect.level == "error"))
    survived = (found["level"], found["file"]) == (defect.level, defect.file)
    survived &= all(words in found["message"] for words in defect.says)
    tally("8 defects that oneway check finds", 1, survived)
    assert survived, found


def test_clean_data_raise_no_alarm(tmp_path, tally):
    """Five hundred images."""
    clean_set(tmp_path / "data", train=400, val=100)
    found = checked(tmp_path, status=0)
    tally("8 clean images without a false alarm", 500, 500 - len(found))
    assert not found


def checked(folder, status):
    """What `oneway check` finds, having left the data as they were."""
    before = contents(folder / "data")
    job = start(folder, command=["check", "data", "--json"])
    assert job.wait() == status, job.error
    assert contents(folder / "data") == before
    return json.loads((folder / f"{job.name}.out").read_text())["findings"]


@pytest.mark.parametrize("what", [breaks.few_are_left_out, breaks.many_are_refused], ids=["few", "too many"])
def test_files_that_cannot_be_read(what, tmp_path, survives):
    """A few are left out, counted and named, for good; more than the share that may be broken stop the run."""
    survives("9 files that cannot be read: left out, or too many", what(tmp_path))


@pytest.mark.parametrize("what", breaks.CUTS)
def test_a_cache_that_is_truncated_while_a_run_trains(what, tmp_path, survives):
    """Named, with status 1 and no signal; the run is resumed to the byte."""
    survives("9 a cache truncated: named, resumable", breaks.truncation_is_named(tmp_path, breaks.CUTS[what]))


def test_a_cache_that_is_truncated_when_its_data_are_in_memory(tmp_path, survives):
    """The run ends as if nothing had happened."""
    survives("9 a cache truncated, data in memory: no effect", breaks.truncation_changes_nothing(tmp_path))
