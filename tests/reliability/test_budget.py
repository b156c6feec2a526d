"""Files that cost a decoder minutes or gigabytes, at full size; and the page, which ends when it is told to."""

from __future__ import annotations

import pytest

from forks import called

pytestmark = pytest.mark.slow

PARTS = 2


@pytest.mark.parametrize("part", range(PARTS))
def test_a_budget_for_every_hostile_file(part, tmp_path, tally):
    """Every reader that it can reach ends within 2 s and 300 MiB, by reading it or with our own error."""
    result = called(tmp_path, "reliability.budget:budget", folder=str(tmp_path / "files"), part=part, parts=PARTS)
    tally("8 a budget per hostile file", result["tried"], result["tried"] - len(result["wrong"]))
    assert not result["wrong"]
