"""What several tests need: small worlds, made once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from files import contents
from oneway.data.published import cifar10
from oneway.tools.predict import Predictor, load
from small_runs import train_two

# Tests run several to a machine; more threads each would only make them wait for one another.
torch.set_num_threads(1)
# A job in the background ignores Ctrl-C, one of `nohup` SIGHUP too, and so would every process that tests send them to.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)
# On a GPU, single precision is compared with single precision, also in processes that tests start.
os.environ["NVIDIA_TF32_OVERRIDE"] = "0"


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """Finished runs on street scenes, a supervised and a semi-supervised one. Who changes one, copies it first."""
    runs = train_two(tmp_path_factory.mktemp("runs"))
    before = [contents(run) for run in runs]
    yield runs
    assert [contents(run) for run in runs] == before, "a test has changed a run that others read"


@pytest.fixture(scope="session")
def trained_run(two_runs: list[Path]) -> Path:
    """The semi-supervised one."""
    return two_runs[1]


@pytest.fixture(scope="module")
def model(trained_run: Path) -> Predictor:
    """Its model, ready to predict on the CPU."""
    return load(trained_run, "cpu")


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that trains writes no page at its end, which takes longer than a few iterations."""
    monkeypatch.setattr("oneway.tools.report.write_report", lambda runs, page, *rest, **more: page)


@pytest.fixture
def words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without plots, which take longest, for tests about words."""
    places = (("page.robustness", None), ("figures.curves", []), ("figures.bars", None), ("figures.heat_maps", []))
    for place, nothing in places:
        monkeypatch.setattr(f"oneway.tools.report.{place}", lambda *_, nothing=nothing: nothing)


@pytest.fixture(scope="session")
def tiny_cifar(tmp_path_factory) -> Path:
    """500 training and 40 test images in the official binary layout: each class has a colour of its own, and noise."""
    random = np.random.default_rng(0)
    palette = random.integers(40, 216, (10, 3, 1))
    folder = tmp_path_factory.mktemp("data") / "cifar-10-batches-bin"
    folder.mkdir()

    def write(name: str, count: int) -> None:
        labels = np.arange(count) % 10
        pixels = np.clip(palette[labels] + random.normal(0, 25, (count, 3, 1024)), 0, 255).astype(np.uint8)
        records = np.concatenate((labels[:, None].astype(np.uint8), pixels.reshape(count, 3072)), axis=1)
        (folder / name).write_bytes(records.tobytes())

    for batch in range(1, 6):
        write(f"data_batch_{batch}.bin", 100)
    write("test_batch.bin", 40)
    (folder / "batches.meta.txt").write_text("\n".join(cifar10.CLASSES))
    return folder.parent
