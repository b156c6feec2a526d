"""Twenty iterations of everything that can be trained, as numbers: `python tests/golden/record.py` writes them down.

A change that should leave training alone must reproduce them: the first losses anywhere, to rounding; every bit of the
weights on the kinds of machine, and with the versions of PyTorch and of the C library, that they were recorded with.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import tempfile
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors import safe_open

import oneway
from oneway.methods import METHODS, VARIANTS

RECORDED = Path(__file__).with_name("recorded.json")
SMALL = {
    "model": {"width": 0.25},
    "jitter": {"crop": (32, 48)},
    "data": {"images": 24},
    "labels": "6",
    "train": {"iterations": 20, "batch_labelled": 4, "batch_unlabelled": 4, "log_every": 1, "validate_every": 20},
}
RENDERED = lru_cache(import_module("oneway.data.load")._render_streets.__wrapped__)
POINTS = {"train": {"iterations": 20, "log_every": 1, "validate_every": 20}}


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """Recipe and settings by name: methods × variants as far as they are allowed, and the settings of training."""
    found = {}
    for method in METHODS:
        for variant in VARIANTS if not METHODS[method].supervised else ("1w-ct",):
            settings = SMALL | {"method": method, "variant": variant}
            try:
                oneway.configure("streets", **settings)
            except Exception:  # a variant that makes no sense with the method
                continue
            found[f"{method} {variant}"] = ("streets", settings)
    for name, change in {
        "teacher-norm batch": {"method": "simple-phtps", "train": {"teacher_norm": "batch"}},
        "batch-norm both": {"method": "simple-phtps", "train": {"batch_norm": "both"}},
        "warm-up": {"method": "mt-phtps", "train": {"consistency_from": 0.5}},
        "entropy alone": {"method": "vat-entmin", "train": {"alpha": 0.0}},
        "sgd": {"method": "simple-cutmix", "optimiser": {"name": "sgd", "learning_rate": 0.01}},
        "balance frequency": {"method": "supervised", "train": {"balance": "frequency"}},
        "balance dice": {"method": "supervised", "train": {"balance": "dice"}},
        "balance ohem": {"method": "simple-phtps", "train": {"balance": "ohem"}},
        # Twenty iterations make no network as sure as these methods ask for.
        "cac of all places": {"method": "cac", "train": {"confidence": 0.0}},
        "fixmatch of all pixels": {"method": "fixmatch", "train": {"confidence": 0.0}},
        "fixmatch-ema of all pixels": {"method": "fixmatch-ema", "train": {"confidence": 0.0}},
        "unimatch-v2 of all pixels": {"method": "unimatch-v2", "train": {"confidence": 0.0}},
        "strengths": {"method": "simple-phtps", "perturb": {"photometric": 0.5, "geometric": 2.0}},
    }.items():
        train = SMALL["train"] | change.get("train", {})
        found[name] = ("streets", SMALL | change | {"train": train})
    for method in ("supervised", "simple-noise", "vat-entmin"):
        found[f"moons {method}"] = ("moons", POINTS | {"method": method})
    return found


def run(recipe: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The losses of each iteration, and a digest of all weights, averages and statistics.

    Validation is no part of that, and sees four scenes.
    """
    few = patch.multiple("oneway.data.load", STREETS_VALIDATION_IMAGES=4, _render_streets=RENDERED)
    with tempfile.TemporaryDirectory() as folder, few:
        trained = oneway.fit(oneway.configure(recipe, **settings), Path(folder) / "run", quiet=True)
        lines = [json.loads(line) for line in (trained.path / "metrics.jsonl").read_text().splitlines()]
        return {
            "supervised": [line["supervised"] for line in lines if "supervised" in line],
            "consistency": [line["consistency"] for line in lines if "consistency" in line],
            "digest": digest(trained.path),
        }


def digest(run_folder: Path) -> str:
    """Of every tensor of the last checkpoint, in order of name."""
    total = hashlib.sha256()
    with safe_open(sorted((run_folder / "checkpoint").glob("*.safetensors"))[-1], "pt") as file:
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name)
            total.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            total.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def machines() -> tuple[str, str]:
    """What decides the last bits: with the model of the processor, and with its maker alone, of which all may agree."""
    cpuinfo = Path("/proc/cpuinfo")  # of Linux
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    found = [re.search(rf"^{key}\s*:\s*(\S+)", text, re.MULTILINE) for key in ("vendor_id", "cpu family", "model")]
    # For the same instructions, libraries choose other algorithms by these.
    maker, *model = [match[1] if match else platform.machine() for match in found]
    library = " ".join(platform.libc_ver())  # its logarithms and sines make the noise
    rest = f"{torch.backends.cpu.get_cpu_capability()}, one thread, {library}"
    exact, roughly = (f"PyTorch {torch.__version__}, {name}, {rest}" for name in (" ".join((maker, *model)), maker))
    return exact, roughly


def of_this_machine(digests: dict[str, str]) -> str | None:
    """The digest that was recorded on a machine like this one, if there is one."""
    return next((digests[machine] for machine in machines() if machine in digests), None)


def record() -> None:
    """Adds what is missing for this kind of machine to the file that the test compares with."""
    torch.set_num_threads(1)
    known, here = json.loads(RECORDED.read_text()), machines()[0]
    recorded = {}
    for name, case in cases().items():
        recorded[name] = known.get(name, {"digests": {}})
        if of_this_machine(recorded[name]["digests"]) is None:
            found = run(*case)
            digests = recorded[name]["digests"] | {here: found.pop("digest")}
            recorded[name] = found | recorded[name] | {"digests": digests}
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    record()
