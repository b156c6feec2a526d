"""CamVid's layout from the first look to a trained model, as a user goes about it.

With the environment variable ONEWAY_CAMVID, the real frames in the folder it names; without, street scenes in their
place, which are as quickly learnt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oneway.common.terms import IGNORE
from oneway.data import streets
from oneway.data.published.camvid import TABLE, VOID

PLAYED_BY = {"person": "pedestrian", "sign": "sign symbol"}
"""Classes of street scenes that have another name in CamVid."""
FRAMES = {"train": 64, "val": 12}
SETTINGS = (
    "--method simple-phtps --model.width 0.5 --model.weights none --jitter.crop 96 128 --train.batch-labelled 4 "
    "--train.batch-unlabelled 4 --train.device cpu --train.validate-every 1000"
).split()


@pytest.fixture
def camvid(tmp_path: Path) -> Path:
    """The real data, or some that are made."""
    if given := os.environ.get("ONEWAY_CAMVID"):
        return Path(given).resolve()
    numbers = np.full(IGNORE + 1, VOID, dtype=np.uint8)
    numbers[: len(streets.CLASSES)] = [list(TABLE).index(PLAYED_BY.get(name, name)) for name in streets.CLASSES]
    for series, (split, count) in enumerate(FRAMES.items()):
        folders = tmp_path / "CamVid" / split, tmp_path / "CamVid" / f"{split}annot"
        for folder in folders:
            folder.mkdir(parents=True)
        for number in range(count):
            image, labels = streets.render(20 + series, number, 120, 160)
            for folder, pixels in zip(folders, (image, numbers[labels]), strict=True):
                Image.fromarray(pixels).save(folder / f"{number:03d}.png")
    return tmp_path / "CamVid"


def oneway(*arguments: object, cwd: Path) -> str:
    """What a command prints; without a limit of time, since training takes what it takes."""
    done = subprocess.run(
        [sys.executable, "-m", "oneway", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "XDG_CACHE_HOME": str(cwd / "cache")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_eighth_of_camvid_is_looked_at_split_trained_on_and_evaluated(camvid, tmp_path):
    """No error in the data; an eighth has labels, all serve; after 100 iterations the model has learnt something."""
    told = json.loads(oneway("check", camvid, "--recipe", "camvid", "--json", cwd=tmp_path))
    assert [finding for finding in told["findings"] if finding["level"] == "error"] == []
    assert len(told["classes"]) == 11

    train = ("train", "camvid", "--data", camvid, *SETTINGS)
    # A step of no length: the model as it is before training.
    untrained = ("--train.iterations", 1, "--optimiser.learning-rate", 1e-12, "--out", "untrained")
    oneway(*train, *untrained, cwd=tmp_path)
    oneway(*train, "--train.iterations", 100, "--optimiser.learning-rate", 2e-3, "--out", "trained", cwd=tmp_path)
    split = json.loads((tmp_path / "trained" / "split.json").read_text())
    assert len(split["unlabelled"]) == told["labelled"]
    assert len(split["labelled"]) == told["labelled"] // 8

    before, after = (json.loads(oneway("eval", run, "--json", cwd=tmp_path)) for run in ("untrained", "trained"))
    print(f"mIoU {before['value']:.1f} % before training, {after['value']:.1f} % after; {after['per_class']}")
    assert after["samples"] == told["validation"]
    assert after["value"] > before["value"] + 10
    assert after["per_class"]["road"] > 50
