"""The services' own readers find the curves of a run, once each; nothing that happens to a logger shows in the run."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import forks
import oneway
from oneway.common.errors import UserError
from oneway.common.run_files import METRICS
from oneway.data import load
from oneway.data.streets import CLASSES
from oneway.runs import open_run
from oneway.tools.evaluate import evenly_spaced
from oneway.tools.loggers import About, follow_run, followers
from oneway.tools.snapshots import Snapshots
from processes import forked
from reliability.disks import small_disk
from small_runs import QUIET
from test_resume import FLAGS, ITERATIONS

LOSSES = ("supervised", "consistency")


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]


def curve(lines: list[dict[str, Any]], key: str) -> list[tuple[int, float]]:
    return [(line["iteration"], line[key]) for line in lines if key in line]


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """A run that is not logged."""
    folder = tmp_path_factory.mktemp("plain")
    done = forked("train", *FLAGS, "--out", "run", cwd=folder, report=False)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """A run that is logged to TensorBoard, killed after points that no checkpoint has, and continued."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    job = forks.start(folder.parent, command=["train", *FLAGS, "--out", "run", "--log", "tensorboard"])
    deadline = time.monotonic() + 120
    while not (folder / "checkpoint/00000010.json").exists() or lines_of(folder)[-1]["iteration"] <= 10:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(job.process, signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL, job.error
    assert lines_of(folder)[-1]["iteration"] < ITERATIONS
    done = forked("train", "streets", "--out", folder, "--resume", cwd=folder.parent, report=False)
    assert done.returncode == 0, done.stderr
    assert "Note:" not in done.stdout
    return folder


def test_tensorboard_reads_one_curve_of_a_killed_run(killed):
    """Every iteration once, with the numbers of the log, though its reader is told to forget nothing; and pictures."""
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    files = [file.name for file in (killed / "tensorboard").iterdir()]
    assert len(files) == 1
    unlimited = {"scalars": 0, "images": 0, "tensors": 0}
    found = event_accumulator.EventAccumulator(str(killed / "tensorboard"), unlimited, purge_orphaned_data=False)
    found.Reload()
    log = lines_of(killed)
    names = {f"loss/{name}": name for name in LOSSES} | {"learning_rate": "learning_rate", "validation/miou": "miou"}
    for tag, key in names.items():
        read = [(event.step, event.value) for event in found.Scalars(tag)]
        assert [step for step, _ in read] == [step for step, _ in curve(log, key)]
        assert [value for _, value in read] == pytest.approx([value for _, value in curve(log, key)], rel=1e-6)
    assert len(curve(log, "supervised")) == ITERATIONS // 5
    last = log[-1]["per_class"]
    for name, value in zip(CLASSES, last, strict=True):
        if value is not None:
            assert found.Scalars(f"iou/{name}")[-1].value == pytest.approx(value, rel=1e-6)
    shown = found.Images("pictures/1")
    assert [event.step for event in shown] == [20, 40]
    assert Image.open(io.BytesIO(shown[-1].encoded_image_string)).size == (shown[-1].width, shown[-1].height)
    texts = {tag: found.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in ("configuration", "summary")}
    assert "| train.iterations | 40 |" in texts["configuration"]
    assert "| value |" in texts["summary"]


def test_a_logged_run_learns_the_same(plain, killed):
    """To the bit: the model and the log."""
    for name in ("model.safetensors", METRICS):
        assert (killed / name).read_bytes() == (plain / name).read_bytes()


def test_the_last_picture_is_what_the_model_predicts(plain):
    """And the run folder has the image and its labels beside it."""
    picture = Image.open(plain / "pictures/00000040-2.png")
    assert {Image.open(plain / f"pictures/{name}").size for name in ("image-2.jpg", "truth-2.png")} == {picture.size}
    images = load(open_run(plain).config.data, QUIET).read("val")
    predicted = oneway.load(plain, device="cpu").predict(images.image(evenly_spaced(len(images), 4)[1])).labels
    factor = picture.width // predicted.shape[1]
    assert (np.asarray(picture)[::factor, ::factor] == predicted).all()


def test_pictures_that_cannot_be_written_cost_one_message(plain, tmp_path):
    """A file is where their folder should be."""
    (tmp_path / "pictures").write_text("mine")
    said: list[str] = []
    dataset = load(open_run(plain).config.data, QUIET)
    snapshots = Snapshots(tmp_path, dataset, dataset.read("val"), said.append)
    snapshots.take(10, [np.zeros((4, 4), np.uint8)] * 4)
    assert len(said) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["pictures"]


@pytest.mark.parametrize(("every", "expected"), [(100, [100, 200]), (1, range(10, 201, 10))])
def test_pictures_come_with_twenty_validations_at_most(every, expected, plain, tmp_path):
    """A run may validate after each of thousands of iterations."""
    dataset = load(open_run(plain).config.data, QUIET)
    snapshots = Snapshots(tmp_path, dataset, dataset.read("val"), str)
    for iteration in range(every, 201, every):
        snapshots.take(iteration, [np.zeros((4, 4), np.uint8) for _ in snapshots.due(iteration, every, 200)])
    found = sorted(int(file.name[:8]) for file in (tmp_path / "pictures").glob("0*-1.png"))
    assert found == list(expected)


@pytest.fixture
def copied(killed, tmp_path) -> tuple[Path, About]:
    """A run folder without traces of a logger, and what loggers are told about it."""
    folder = tmp_path / "run"
    shutil.copytree(killed, folder, ignore=shutil.ignore_patterns("tensorboard"))
    return folder, About(str(folder), list(CLASSES), {"train.iterations": 40, "method": "simple-phtps"}, 1)


def log_twice(folder: Path, about: About, service: str) -> list[str]:
    """Logs what a killed run left, part of which was to be trained again, then the whole; returns what was said."""
    whole, summary = (folder / METRICS).read_text(), (folder / "summary.json").read_text()
    said: list[str] = []
    (folder / METRICS).write_text("".join(line + "\n" for line in whole.splitlines()[:6]))
    (folder / "summary.json").unlink()
    with follow_run([service], about, said.append):
        pass
    (folder / METRICS).write_text(whole)
    (folder / "summary.json").write_text(summary)
    with follow_run([service], about, said.append):
        pass
    return said


@pytest.mark.slow
def test_mlflow_holds_one_curve_of_a_continued_run(copied, monkeypatch, tmp_path):
    """In its local store, with settings, pictures, status and summary."""
    tracking = pytest.importorskip("mlflow.tracking")
    folder, about = copied
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    assert log_twice(folder, about, "mlflow") == []
    client = tracking.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("oneway").experiment_id])
    for key, name in {"loss/supervised": "supervised", "validation/miou": "miou"}.items():
        read = [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, key)]
        assert read == curve(lines_of(folder), name)
    assert run.data.params == {key: str(value) for key, value in about.config.items()}
    assert run.info.status == "FINISHED"
    assert run.data.tags["summary.metric"] == "miou"
    pictures = [file.path for file in client.list_artifacts(run.info.run_id, "pictures")]
    assert pictures == ["pictures/1-00000020.png", "pictures/1-00000040.png"]


def test_weights_and_biases_hold_one_curve_of_a_continued_run(copied, monkeypatch):
    """In files to be sent later, which is said once; read in their format, with W&B's own messages."""
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    folder, about = copied
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert log_twice(folder, about, "wandb") == []
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    history: list[dict[str, Any]] = []
    kinds = set()
    for content in records_in(file.read_bytes()):
        record = messages.Record()
        record.ParseFromString(content)
        kinds.add(record.WhichOneof("record_type"))
        if record.HasField("history"):
            items = record.history.item
            history.append({"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items})
    assert {"run", "history", "summary", "exit"} <= kinds
    log = lines_of(folder)
    assert [line["iteration"] for line in history] == [line["iteration"] for line in log]
    for key, name in {"loss/supervised": "supervised", "validation/miou": "miou"}.items():
        assert curve(history, key) == curve(log, name)
    assert sum("pictures/1/_type" in line for line in history) == 2


def records_in(content: bytes) -> Iterator[bytes]:
    """Of a file of W&B: a log as LevelDB has it, in blocks of 32 KiB, after seven bytes."""
    place, parts, block = 7, b"", 2**15
    while place < len(content):
        if block - place % block < 7:  # the rest of a block that has no room for a header
            place += block - place % block
            continue
        _, size, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            yield parts
            parts = b""


def test_a_server_that_hangs_costs_one_message(copied, monkeypatch):
    """And the end of the run waits for it no longer than it should."""
    pytest.importorskip("mlflow")
    monkeypatch.setattr(followers, "PATIENCE", 1.0)
    said: list[str] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with follow_run(["mlflow"], copied[1], said.append) as hear:
            silent.settimeout(60)
            silent.accept()  # it has asked, and waits
            began = time.monotonic()
            hear()
            assert time.monotonic() - began < 0.1
    assert time.monotonic() - began < 5
    assert said == ["Note: MLflow does not answer, and may lack the last points. metrics.jsonl has everything."]


def test_a_full_disk_costs_one_message(copied):
    """Nothing is raised, and the points that fit can be read."""
    pytest.importorskip("tensorboard")
    folder, about = copied
    said: list[str] = []
    with small_disk(folder / "tensorboard", 2**14) as mounted:
        if not mounted:
            pytest.skip("only root may mount a small disk")
        with follow_run(["tensorboard"], about, said.append):
            pass
    (message,) = [message for message in said if message.startswith("Note:")]
    assert "TensorBoard failed ([Errno 28] No space left on device). The run goes on" in message


def wait_for_events(folder: Path) -> Path:
    """The event file of a logger that is at work."""
    deadline = time.monotonic() + 60
    while not (files := list(folder.glob("tensorboard/events.*"))) or files[0].stat().st_size < 2**12:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return files[0]


def test_a_folder_that_is_removed_is_written_anew(copied):
    """Which is said; the curve is whole again, and not in a file that nobody sees."""
    pytest.importorskip("tensorboard")
    folder, about = copied
    said: list[str] = []
    with follow_run(["tensorboard"], about, said.append):
        size = wait_for_events(folder).stat().st_size
        shutil.rmtree(folder / "tensorboard")
    assert wait_for_events(folder).stat().st_size >= size
    (message,) = [message for message in said if message.startswith("Note:")]
    assert "tensorboard is gone). The run goes on" in message


def test_a_logger_that_is_killed_is_reported_at_once(copied):
    """And not only when the run has ended."""
    pytest.importorskip("tensorboard")
    folder, about = copied
    said: list[str] = []
    with follow_run(["tensorboard"], about, said.append) as hear:
        os.kill(int(wait_for_events(folder).name.rpartition(".")[2]), signal.SIGKILL)
        deadline = time.monotonic() + 10
        while len(said) < 2 and time.monotonic() < deadline:
            hear()
            time.sleep(0.05)
        assert said[1:] == ["Note: TensorBoard has failed (status -9). metrics.jsonl has everything."]
    assert len(said) == 2


def test_a_logger_that_cannot_start_costs_one_message(copied):
    """A file is where its folder should be."""
    folder, about = copied
    (folder / "tensorboard").write_text("mine")
    said: list[str] = []
    with follow_run(["tensorboard"], about, said.append):
        pass
    assert len([message for message in said if message.startswith("Note:")]) == 1
    assert (folder / "tensorboard").read_text() == "mine"


def test_each_message_of_a_logger_is_said_once(copied, monkeypatch, tmp_path):
    """A later failure is not hidden by an earlier note; what says something new for ever is not heard for ever."""
    logger = tmp_path / "logger"
    monkeypatch.setattr(followers, "sys", SimpleNamespace(executable=str(logger)))
    for words, expected in (("no-login no-login full", ["no-login", "full"]), (" ".join("abcdefghij"), [*"abcdefgh"])):
        logger.write_text(f"#!/bin/sh\nfor word in {words}; do echo $word; done\nexit 3\n")
        logger.chmod(0o700)
        said: list[str] = []
        with follow_run(["wandb"], copied[1], said.append):
            pass
        end = ["Weights & Biases has failed (status 3). metrics.jsonl has everything."] if len(expected) < 8 else []
        assert said == [f"Note: {message}" for message in (*expected, *end)]


def test_another_kind_of_failure_is_told_too(copied):
    """Each kind once, however often the service is tried."""
    code = """
from oneway.tools.loggers import follow
errors = iter([OSError("disk 1"), OSError("disk 2"), ValueError("what the service says")])
def fail(*_):
    raise next(errors, None) or SystemExit
follow.follow, follow.SECONDS_BETWEEN_TRIES = fail, 0
follow.main()
"""
    command = [sys.executable, "-c", code, "wandb"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdin.write(json.dumps(asdict(copied[1])).encode() + b"\n")
        process.stdin.flush()
        first, second = process.stdout.read().decode().splitlines()
    assert "failed (disk 1)" in first
    assert "failed (what the service says)" in second


def test_a_missing_extra_is_named_before_anything_happens(monkeypatch, tmp_path):
    """With the command that installs it."""
    from oneway.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'oneway\[wandb,mlflow\]'"):
        app(["train", "streets", "--log", "wandb", "mlflow"], exit_on_error=False)
    assert not list(tmp_path.iterdir())
