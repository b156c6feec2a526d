"""Runs that would become another experiment, and data that are no longer what they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from reliability.harness import EVERY, ITERATIONS, MOONS, Job, done

SIGKILL = -9
FOLDER = (
    f"train folder --data data --data.cache cache --method supervised --jitter.crop 32 64 --model.width 0.125 "
    f"--model.backbone resnet18 --labels all --train.batch-labelled 2 --train.iterations {ITERATIONS} "
    f"--train.checkpoint-every {EVERY} --train.validate-every 12 --train.log-every 1 --train.device cpu --out run"
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
"""What is asked for on resuming, and how the difference is shown."""


def killed(folder: Path, words: list[str] = MOONS) -> Path:
    """A run that was killed halfway, as soon as it had the checkpoint of iteration 12."""
    done(folder, *words, status=SIGKILL, fault={"call": "replace", "turn": 5, "after": True})
    return folder / "run"


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder that are not hidden."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def is_refused(folder: Path, *words: str, saying: str, recipe: str = "moons") -> bool:
    """Resuming fails with these words in its message, and changes nothing."""
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
