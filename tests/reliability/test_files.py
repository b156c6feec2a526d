"""Files that are damaged, mutated at random, or meant to do harm, at full size."""

from __future__ import annotations

import pytest

from forks import called

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("part", range(4))
def test_damaged_checkpoints(part, tmp_path, tally):
    """2,000 flipped bits and 500 missing ends: none is accepted, and the previous checkpoint is used."""
    result = called(tmp_path, "reliability.damage:damage", folder=str(tmp_path), flips=500, truncations=125, seed=part)
    tally("5 bit flips and truncations", result["tried"], result["tried"] - len(result["accepted"]))
    assert not result["accepted"]


@pytest.mark.parametrize(
    ("kind", "count"),
    [("images", 5000), ("masks", 5000), ("checkpoints", 2000), ("configurations", 5000), ("lists", 1000)],
)
def test_mutated_files(kind, count, tmp_path, tally):
    """Each is read, or refused by name: no crash, at most 2 s and 300 MiB."""
    result = called(tmp_path, f"reliability.fuzz:{kind}", folder=str(tmp_path), count=count)
    tally(f"6 fuzz: {kind}", result["tried"], result["tried"] - len(result["failures"]))
    assert not result["failures"]


def test_hostile_files(tmp_path, tally):
    """Nothing is run, nothing outside the folder is opened or changed."""
    result = called(tmp_path, "reliability.hostile:hostile", folder=str(tmp_path))
    tally("7 hostile files", result["tried"], result["tried"] - len({line.split(":")[0] for line in result["wrong"]}))
    assert result["tried"] > 100
    assert not result["wrong"]
