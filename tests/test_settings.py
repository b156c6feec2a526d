"""Facts about where settings come from: a recipe, a file, flags, in this order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import torch
import yaml

from oneway.config.recipes import recipe
from oneway.tools.opening import slow_on_cpu
from processes import forked

LENGTHS = {
    "a file's epochs": ("train: {epochs: 5}", (), (None, 5)),
    "a flag's epochs over a file's iterations": ("train: {iterations: 7}", ("--train.epochs", "5"), (None, 5)),
    "both in a file": ("train: {epochs: 5, iterations: 7}", (), (7, 5)),
    "a flag's iterations over a file's epochs": ("train: {epochs: 5}", ("--train.iterations", "7"), (7, 5)),
}


@pytest.mark.parametrize(("content", "flags", "expected"), LENGTHS.values(), ids=LENGTHS)
def test_the_length_of_a_run_is_what_was_asked_for_last(content, flags, expected, tmp_path):
    """Epochs win over the iterations of a recipe, wherever they were asked for."""
    (tmp_path / "own.yaml").write_text(content)
    done = forked("train", "streets", "--config", "own.yaml", *flags, "--dry-run", cwd=tmp_path)
    train = yaml.safe_load(done.stdout)["train"]
    assert (train["iterations"], train["epochs"]) == expected


def test_a_file_of_another_recipe_is_refused(tmp_path):
    """Its settings are for other data; the recipe on the command line is not silently replaced."""
    (tmp_path / "own.yaml").write_text("recipe: camvid\n")
    done = forked("train", "streets", "--config", "own.yaml", "--dry-run", cwd=tmp_path)
    assert done.returncode == 1
    assert "own.yaml: has settings of the recipe camvid, not of streets" in " ".join(done.stderr.split())


def test_a_closed_pipe_is_no_error(tmp_path):
    """`oneway … | head -1` ends quietly, as other programs do."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "oneway", "train", "streets", "--dry-run"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=tmp_path, timeout=60)
    os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE
    assert not done.stderr


def test_a_run_can_be_read_from_another_folder(tmp_path):
    """What it keeps is where its data are, not how to get there; the folder's name is the run's."""
    (tmp_path / "photos").mkdir()
    said = forked("train", "folder", "--data", "photos", "--dry-run", cwd=tmp_path).stdout
    assert yaml.safe_load(said)["data"]["path"] == str(tmp_path / "photos")


def test_a_folder_in_the_place_of_a_recipe_is_recognised(tmp_path):
    """With what to type instead."""
    (tmp_path / "photos").mkdir()
    said = forked("train", "photos", cwd=tmp_path)
    assert said.returncode == 1
    assert "oneway train folder --data photos" in said.stderr


@pytest.mark.parametrize(("gpu", "cause"), [(True, "with --train.device cpu"), (False, "there is no GPU here")])
def test_hours_on_a_cpu_are_announced_with_their_cause(monkeypatch, gpu, cause):
    """A GPU that is there and not used is not denied; what is quick is not announced."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    config = recipe("cityscapes").changed(train={"device": "cpu"})
    assert cause in slow_on_cpu(config, 92_750)
    assert not slow_on_cpu(recipe("streets"), 10)
    assert not slow_on_cpu(recipe("cifar10"), 31_000)
