"""What a stranger left lying, and files of ours with other values in them, through whole verbs, at full size."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from forks import called
from reliability import guards
from reliability.harness import done, undisturbed

pytestmark = pytest.mark.slow


def folder_runs(place: Path) -> dict[str, str]:
    """A folder of images, some without labels; an ended run on it, and one that was killed halfway."""
    data = guards.write_data(place)
    for index in (8, 9):
        Image.effect_noise((64, 32), 30 * index).convert("RGB").save(data / "images" / f"{index}.png")
    done(place, *guards.FOLDER)
    (place / "run").rename(place / "ended")
    return {"ended": str(place / "ended"), "stopped": str(guards.killed(place, guards.FOLDER)), "data": str(data)}


def run_records(place: Path) -> dict[str, str]:
    """An ended run with suggestions, and one that was killed halfway and had been changed."""
    whole = Path(shutil.copytree(undisturbed(), place / "whole"))
    done(place, "suggest", whole, "--count", 3)
    stopped = guards.killed(place)
    (stopped / "changes.json").write_text('{"changes": ["after 4 iterations, seed: 0 → 1"]}', encoding="utf-8")
    for run in (whole, stopped):
        (run / "report.html").touch()  # one that is there is not drawn anew after training, which takes longest
    return {"whole": str(whole), "stopped": str(stopped)}


def test_folders_of_strangers(tmp_path, tally):
    """Nothing outside is read or changed, nothing is written but where the user said, nothing is started."""
    runs = folder_runs(tmp_path / "runs")
    result = called(tmp_path, "reliability.strangers:strangers", folder=str(tmp_path), **runs)
    wrong = {line.split(":")[0] for line in result["wrong"]}
    tally("15 folders of strangers, whole verbs", result["tried"], result["tried"] - len(wrong))
    assert result["tried"] > 70
    assert not result["wrong"]


@pytest.mark.parametrize("seed", range(2))
def test_records_with_other_values(seed, tmp_path, tally):
    """Every verb works or refuses the file by name; no NaN in what it writes, no server error."""
    runs = run_records(tmp_path)
    result = called(tmp_path, "reliability.records:records", folder=str(tmp_path), count=7, seed=seed, **runs)
    tally("15 files of ours with other values, whole verbs", result["tried"], result["tried"] - len(result["wrong"]))
    assert result["tried"] > 150
    assert not result["wrong"]
