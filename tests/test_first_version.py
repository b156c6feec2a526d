"""Runs of the first version: a killed one continues, and one that ended gives scores, masks and a report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oneway.runs import open_run
from processes import forked
from reliability import first_version
from reliability.first_version import ENDED, RUNS

FACTORY = ("--model.factory", "tiny_network:tiny")


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """The run that ended, beside the code of its network."""
    shutil.copy(RUNS / "tiny_network.py", tmp_path)
    return Path(shutil.copytree(ENDED, tmp_path / "ended"))


def test_a_killed_run_continues_to_the_bit(tmp_path):
    """Its checkpoint is of format 2, with a digest for each tensor."""
    manifest = json.loads((first_version.KILLED / "checkpoint" / "00000040.json").read_text())
    assert manifest["format"] == 2
    assert manifest["tensors"]
    assert first_version.continues_exactly(tmp_path)


def test_an_ended_run_evaluates_to_its_own_score(ended):
    done = forked("eval", ended, *FACTORY, "--json", cwd=ended.parent)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["metric"] == "miou"
    assert found["value"] == pytest.approx(open_run(ended).summary["value"], abs=0.01)


def test_an_ended_run_predicts(ended):
    Image.fromarray(np.zeros((24, 40, 3), np.uint8)).save(ended.parent / "image.png")
    done = forked("predict", ended, "image.png", *FACTORY, "--out", "out", cwd=ended.parent)
    assert done.returncode == 0, done.stderr
    (mask,) = (ended.parent / "out").rglob("masks/image.png")
    with Image.open(mask) as image:
        assert image.size == (40, 24)


def test_an_ended_run_is_reported_on(ended):
    done = forked("report", ended, *FACTORY, "--out", "page.html", cwd=ended.parent)
    assert done.returncode == 0, done.stderr
    assert "tiny_network:tiny" in (ended.parent / "page.html").read_text()


def test_an_ended_run_is_not_trained_again(ended):
    before = (ended / "summary.json").read_bytes()
    done = forked("train", "streets", "--out", ended, "--resume", *FACTORY, cwd=ended.parent)
    assert done.returncode == 0, done.stderr
    assert "nothing to do" in done.stdout
    assert (ended / "summary.json").read_bytes() == before
