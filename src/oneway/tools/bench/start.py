"""`oneway bench start`: what a user waits for around the work itself, by verb and part, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from rich.table import Table

from oneway.common.errors import UserError
from oneway.data.streets import render
from oneway.tools.bench import probe
from oneway.tools.bench.findings import Findings, Options, Result, Say, number, table

IMAGES = 4
PARTS = (
    "Python", "imports", "device", "data", "network", "weights", "first iterations", "capture", "work", "validation",
    "saving", "report", "rest", "exit",
)  # fmt: skip
"""In the order in which they happen, more or less."""


def bench_start(options: Options, say: Say) -> Findings:
    """The verbs one after another on a run of the embedded `streets`, which the first of them trains."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        verbs = verbs_in(home, str(options.device), options.small)
        chosen = options.choose(verbs)
        (home / "images").mkdir()
        for index in range(IMAGES):
            Image.fromarray(render(0, index, 128, 256)[0]).save(home / "images" / f"{index}.png")
        rows = []
        for name, words in verbs.items():
            if name in chosen or name == "train":  # whose run the others use
                rows.append({"verb": name, **measure(words, home)})
                say(f"{name}: {rows[-1]['seconds']:.1f} s, {rows[-1]['processor_seconds']:.1f} s of processors.")
    return Findings(
        [start_table(rows, "seconds"), start_table(rows, "processor_seconds")],
        rows,
        [
            f"first iterations: the first {probe.FIRST}. work: those after them; prediction, scores, exporting. "
            "Seconds of processors are those of all cores together; on a busy computer they vary less."
        ],
    )


def verbs_in(home: Path, device: str, small: bool) -> dict[str, list[str]]:
    """The verbs to run. On a GPU, a second training finds the compiled kernels that the first has left."""
    run, length = str(home / "run"), "12" if small else "400"
    train = ["train", "streets", "--train.iterations", length, "--train.device", device]
    lite = [*train, "--model.backbone", "tf_efficientnet_lite0", "--model.width", "1"]
    more = {
        "train again": [*train, "--out", str(home / "again")],
        "lite0": [*lite, "--out", str(home / "lite0")],
        "lite0 again": [*lite, "--out", str(home / "lite0-again")],
    }
    to = "model.onnx" if all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))) else "model.pt2"
    return {
        "train": [*train, "--out", run],
        **({} if small else more),
        "eval": ["eval", run, "--device", device],
        "predict": ["predict", run, str(home / "images"), "--out", str(home / "masks"), "--device", device],
        "report": ["report", run, "--out", str(home / "report.html")],
        "suggest": ["suggest", run, "--device", device],
        "export": ["export", run, "--to", str(home / to)],
    }


def measure(words: list[str], home: Path) -> Result:
    """Seconds of a verb and of its parts, by the wall clock and of processors.

    Raises:
        UserError: It fails.
    """
    file = home / "times.json"
    command = [sys.executable, "-P", probe.__file__, str(file), *words]
    environment = os.environ | {"TRITON_CACHE_DIR": str(home / "triton")}
    began, before = time.monotonic(), os.times()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    ended, after = time.monotonic(), os.times()
    if done.returncode:
        raise UserError(f"`oneway {words[0]}` fails here, and is not measured. It says: {done.stderr.strip()}")
    found = json.loads(file.read_text(encoding="utf-8"))
    processors = sum(after[2:4]) - sum(before[2:4])  # of children, in user and system mode
    parts = {
        **found["parts"],
        "Python": (found["began"][0] - began, found["began"][1]),
        "exit": (ended - found["ended"][0], max(0.0, processors - found["ended"][1])),
    }
    return {
        "seconds": ended - began,
        "processor_seconds": processors,
        "parts": {
            name: {"seconds": parts[name][0], "processor_seconds": parts[name][1]} for name in PARTS if name in parts
        },
    }


def start_table(rows: list[Result], unit: str) -> Table:
    """A column for each verb, a row for each part."""
    title = "Seconds from Enter to the prompt" if unit == "seconds" else "Seconds of processors"
    shown: list[Sequence[str] | None] = [
        (part, *(number(row["parts"].get(part, {}).get(unit), 2) for row in rows)) for part in PARTS
    ]
    return table(
        title, ("", *(row["verb"] for row in rows)), [*shown, None, ("all", *(number(row[unit], 2) for row in rows))]
    )
