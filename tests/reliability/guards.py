"""Runs that would become another experiment, and data that have changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import safetensors.torch
from PIL import Image

from oneway.runs import open_run
from reliability.harness import EVERY, ITERATIONS, MOONS, Job, done, resume, saved

SIGKILL = -9
FOLDER = (
    f"train folder --data data --data.cache cache --method supervised --jitter.crop 32 64 --model.width 0.125 "
    f"--model.backbone resnet18 --model.weights none --labels all --train.batch-labelled 2 "
    f"--train.iterations {ITERATIONS} --train.checkpoint-every {EVERY} "
    f"--train.validate-every 12 --train.log-every 1 --train.device cpu --out run"
).split()

CHANGES = {
    "batch": ("--train.batch-labelled 3", "train.batch_labelled: 6 → 3"),
    "length": ("--train.iterations 30", f"train.iterations: {ITERATIONS} → 30"),
    "split": ("--labels 8", "labels: 6 → 8"),
    "method": ("--method supervised", "method: simple-noise → supervised"),
    "variant": ("--variant 1w-cs", "variant: 1w-ct → 1w-cs"),
    "seed": ("--seed 1", "seed: 0 → 1"),
    "rate": ("--optimiser.learning-rate 0.1", "optimiser.learning_rate: 0.001 → 0.1"),
    "data": ("--data.seed 1", "data.seed: 0 → 1"),
}
"""Flags of the resumed run, and how the difference is shown."""


def killed(folder: Path, words: list[str] = MOONS) -> Path:
    """A run that was killed halfway, right after the checkpoint of iteration 12."""
    done(folder, *words, status=SIGKILL, fault={"call": "replace", "turn": 5, "after": True})
    return folder / "run"


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder that are not hidden."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def diverges_and_continues(folder: Path) -> bool:
    """Continued at an absurd learning rate, a run stops with the cause; at its own rate, it continues as before.

    The first step at that rate is finite, and ruins the weights; all others are skipped. No checkpoint has them.
    """
    write_data(folder)
    done(folder, *FOLDER)
    (folder / "run").rename(folder / "whole")
    run = killed(folder, FOLDER)
    rate = open_run(run).config.optimiser.learning_rate
    job = resume(folder, "--optimiser.learning-rate", "1e30", "--allow-changes", recipe="folder", status=1)
    told = says(job, "The last 10 steps up to iteration 23 were not finite and were skipped")
    told &= "at learning rate" in job.error and "images/" in job.error and "--optimiser.learning-rate" in job.error
    kept = saved(run)[-1] == 12 and all_finite(run)
    resume(folder, "--optimiser.learning-rate", rate, "--allow-changes", recipe="folder")
    files = (f"checkpoint/{ITERATIONS:08d}.safetensors", "model.safetensors", "metrics.jsonl", "config.yaml")
    return told and kept and all((run / name).read_bytes() == (folder / "whole" / name).read_bytes() for name in files)


def all_finite(run: Path) -> bool:
    """Whether every tensor in every checkpoint is finite."""
    files = (run / "checkpoint").glob("*.safetensors")
    return all(tensor.isfinite().all() for file in files for tensor in safetensors.torch.load_file(file).values())


def is_refused(folder: Path, *words: str, saying: str, recipe: str = "moons") -> bool:
    """Resuming fails with these words in its message, and no file changes."""
    run = folder / "run"
    before = contents(run)
    job = done(folder, "train", recipe, "--out", "run", "--resume", *words, status=1)
    return says(job, saying) and contents(run) == before


def says(job: Job, words: str) -> bool:
    """One message, with these words in it and no traceback."""
    return words in job.error and "Traceback" not in job.error


def write_data(folder: Path, images: int = 6) -> Path:
    """Images of noise, with masks of two halves."""
    rng = np.random.default_rng(0)
    for kind in ("images", "masks"):
        (folder / "data" / kind).mkdir(parents=True)
    for index in range(images):
        image = rng.integers(256, size=(32, 64, 3), dtype=np.uint8)
        mask = (np.arange(64) >= 24 + 2 * index).astype(np.uint8)[None].repeat(32, axis=0)
        Image.fromarray(image).save(folder / "data" / "images" / f"{index}.png")
        Image.fromarray(mask).save(folder / "data" / "masks" / f"{index}.png")
    return folder / "data"
