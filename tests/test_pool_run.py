"""Runs on a pool: the same weights whatever it is packed in, resumed to the bit, and stopped with a checkpoint."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.interrupt import Interrupted
from oneway.config import Config, build, merge
from oneway.config.recipes import recipe
from oneway.runs import open_run
from oneway.tools.train import train
from pools import break_some, pack, photograph, write_images

QUIET = Console(quiet=True)
ITERATIONS = 6


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A labelled data set, a folder of further images, and the same in shards."""
    place = tmp_path_factory.mktemp("pool")
    for kind in ("images", "masks"):
        (place / "data" / kind).mkdir(parents=True)
    for number in range(8):
        photograph(number + 100).save(place / f"data/images/{number}.png")
        height, width = photograph(number + 100).size[::-1]
        mask = (np.indices((height, width)).sum(axis=0) // 16 % 2).astype(np.uint8)
        Image.fromarray(mask).save(place / f"data/masks/{number}.png")
    pack(write_images(place / "more", 30), place / "shards", 7)
    return place


def settings(place: Path, **changes: Any) -> Config:
    small = {
        "method": "simple-phtps",
        "labels": "4",
        "data": {"path": place / "data", "unlabelled": str(place / "shards"), "cache": place / "cache"},
        "jitter": {"crop": (32, 32)},
        "model": {"width": 0.125, "weights": None},
        "train": {
            "iterations": ITERATIONS,
            "batch_labelled": 2,
            "batch_unlabelled": 3,
            "log_every": 2,
            "device": "cpu",
        },
    }
    return build(merge(merge(recipe("folder").model_dump(), small), changes), source="test")


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def from_shards(place) -> Path:
    train(settings(place), place / "run", resume=False, console=QUIET)
    return place / "run"


@pytest.mark.parametrize("pool", ["always", "never"])
def test_a_folder_gives_the_weights_of_its_shards(pool, place, from_shards, tmp_path):
    """As a pool, or decoded into the cache."""
    config = settings(place, data={"unlabelled": str(place / "more"), "pool": pool})
    train(config, tmp_path / "run", resume=False, console=QUIET)
    assert weights(tmp_path / "run") == weights(from_shards)
    assert json.loads((tmp_path / "run/summary.json").read_text())["value"] == open_run(from_shards).summary["value"]


def test_other_images_give_other_weights(place, from_shards, tmp_path):
    """So the pool has taught."""
    shards = tmp_path / "shards"
    shards.mkdir()
    shutil.copy(place / "shards/00000.tar", shards)
    train(settings(place, data={"unlabelled": str(shards)}), tmp_path / "run", resume=False, console=QUIET)
    assert weights(tmp_path / "run") != weights(from_shards)


def test_the_split_has_a_digest_and_a_rule(from_shards, place):
    """And the names of the data set alone."""
    stored = json.loads((from_shards / "split.json").read_text())
    assert stored["pool"]["images"] == 30
    assert "all images of the pool" in stored["pool"]["rule"]
    assert not [name for name in stored["unlabelled"] if "more" in name or ".tar" in name]
    assert open_run(from_shards).split.pool == (30, stored["pool"]["digest"])


def interrupt(monkeypatch, after: int) -> None:
    """A signal arrives in an iteration."""
    from oneway.engine.feed import streamed

    def feed(*given, **settings):
        fed = streamed(*given, **settings)

        def draws(iteration: int):
            if iteration == after - 1:
                os.kill(os.getpid(), 15)
            return fed.draws(iteration)

        return type(fed)(fed.store, draws, fed.place, fed.ready, fed.close)

    monkeypatch.setattr("oneway.engine.feed.streamed", feed)


@pytest.mark.parametrize("after", [1, 4])
def test_a_run_resumes_to_the_bit(after, place, from_shards, tmp_path, monkeypatch):
    """From the folder that the shards were packed from, too: it is the same pool."""
    with monkeypatch.context() as patch:
        interrupt(patch, after)
        with pytest.raises(Interrupted, match=f"Stopped after {after} of"):
            train(settings(place), tmp_path / "run", resume=False, console=QUIET)
    config = (
        settings(place, data={"unlabelled": str(place / "more"), "pool": "always"}) if after == 4 else settings(place)
    )
    train(config, tmp_path / "run", resume=True, console=QUIET)
    assert weights(tmp_path / "run") == weights(from_shards)


def test_another_pool_is_not_continued_with(place, tmp_path, monkeypatch):
    """Unless the user insists."""
    with monkeypatch.context() as patch:
        interrupt(patch, 2)
        with pytest.raises(Interrupted):
            train(settings(place), tmp_path / "run", resume=False, console=QUIET)
    other = settings(place, data={"unlabelled": str(place / "shards/{00000..00001}.tar")})
    with pytest.raises(UserError, match=r"pool of unlabelled images: 30 with digest .* → 14 with digest"):
        train(other, tmp_path / "run", resume=True, console=QUIET)


def test_a_shard_that_changes_stops_the_run_with_a_checkpoint(place, from_shards, tmp_path):
    """From which it goes on, when the shard is back."""
    shards = shutil.copytree(place / "shards", tmp_path / "shards")
    config = settings(place, data={"unlabelled": str(shards)}, train={"iterations": 30, "checkpoint_every": 30})
    truncated = []

    import oneway.tools.train as training

    advance = training.choose_step

    def choose(*given, **settings):
        step = advance(*given, **settings)

        def cut(*inputs):
            if not truncated:
                for shard in shards.glob("*.tar"):
                    truncated.append((shard, shard.read_bytes(), shard.stat()))
                    os.truncate(shard, 1000)
            return step(*inputs)

        return cut

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "choose_step", choose)
        with pytest.raises(UserError, match=r"\.tar: changed since it was indexed.*Stopped after \d+ of 30.*--resume"):
            train(config, tmp_path / "run", resume=False, console=QUIET)
    assert list((tmp_path / "run/checkpoint").iterdir())
    for shard, content, status in truncated:
        shard.write_bytes(content)
        os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))
    summary = train(config, tmp_path / "run", resume=True, console=QUIET)
    assert summary["iterations"] == 30


def test_broken_images_are_replaced_and_counted(place, tmp_path):
    """Alike in a folder and in shards; the run goes on, says which, and how many."""
    folder = shutil.copytree(place / "more", tmp_path / "more")
    break_some(folder, range(9))
    shards = pack(folder, tmp_path / "shards", 7)
    console = Console(record=True, file=io.StringIO(), width=300)
    for named, run in ((folder, "one"), (shards, "other")):
        config = settings(place, data={"unlabelled": str(named), "pool": "always"})
        summary = train(config, tmp_path / run, resume=False, console=console)
        assert 0 < summary["broken_images"] <= 9
    assert weights(tmp_path / "one") == weights(tmp_path / "other")
    assert "another image is used in place of one that cannot be read" in console.export_text()


def test_a_pool_without_a_readable_image_is_refused_before_anything_trains(place, tmp_path):
    """With the name of one."""
    folder = shutil.copytree(place / "more", tmp_path / "more")
    break_some(folder, range(30))
    config = settings(place, data={"unlabelled": str(pack(folder, tmp_path / "shards"))})
    with pytest.raises(UserError, match=r"30 of 30 images of the pool .* cannot be decoded\. \S+tar/a/"):
        train(config, tmp_path / "run", resume=False, console=QUIET)
    assert not (tmp_path / "run").exists()


def test_supervised_training_reads_nothing_of_a_pool(place, tmp_path):
    """It has no use for it."""
    config = settings(place, method="supervised")
    train(config, tmp_path / "run", resume=False, console=QUIET)
    assert open_run(tmp_path / "run").summary is not None
