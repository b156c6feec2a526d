"""A run does not depend on who reads what it prints, and saves its state when its time is up; at full size."""

from __future__ import annotations

import pytest

from reliability import surroundings

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("how", surroundings.LOST)
def test_output_that_nobody_can_read(how, tmp_path, tally):
    """The same files, and status 0."""
    survived = surroundings.trains_unread(tmp_path, how)
    tally("15 output that nobody can read", 1, survived)
    assert survived


def test_nohup(tmp_path, tally):
    """SIGHUP stays ignored."""
    survived = surroundings.nohup_is_obeyed(tmp_path)
    tally("2 nohup", 1, survived)
    assert survived


def test_processor_time(tmp_path, tally):
    """A limit of the system's own."""
    survived = surroundings.saves_when_its_time_is_up(tmp_path)
    tally("2 processor time used up", 1, survived)
    assert survived
