"""What do other runtimes and INT8 cost and bring, on a trained model and its own validation images?

For PyTorch, ONNX Runtime and OpenVINO, and for the INT8 files of the latter two: mIoU on all validation images; files
per second on two threads, from the file to the class of each pixel, and the CPU time of one image on one thread. The
runtimes take turns at the same files. CPU time says more than the clock does on a computer that others use too.

    python benchmarks/int8.py runs/facade runs/camvid --out int8.json
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shlex
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console

from oneway.data.decode.images import read_image
from oneway.runs import data_of, open_run
from oneway.runs.atomic import write_json
from oneway.runs.environment import environment
from oneway.tools.evaluate import score
from oneway.tools.export.agreement import compare
from oneway.tools.export.command import predict_bytes
from oneway.tools.export.formats import FORMATS, Call, make_onnx
from oneway.tools.export.int8 import Int8, quantise, read_images
from oneway.tools.predict import load

THREADS = 2
FILES = 6
ROUNDS = 2
console = Console(soft_wrap=True)


def half_precision(path: Path) -> Call:
    """OpenVINO as it comes: in bfloat16, where the CPU can."""
    import openvino

    settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "PERFORMANCE_HINT": "LATENCY"}
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    return lambda images: torch.from_numpy(compiled(images.numpy(), share_outputs=False)[0])


def runtimes(network: torch.nn.Module, folder: Path) -> dict[str, Call]:
    """As functions of bytes, with as many threads as PyTorch has now."""
    calls: dict[str, Call] = {"pytorch": partial(predict_bytes, network)}
    calls |= {"onnxruntime": FORMATS[".onnx"].open(folder / "float.onnx").result}
    calls |= {"openvino": FORMATS[".xml"].open(folder / "float.xml").result}
    calls |= {"openvino, as it comes": half_precision(folder / "float.xml")}
    calls |= {"onnxruntime-int8": FORMATS[".onnx"].open(folder / "int8.onnx").result}
    calls |= {"openvino-int8": FORMATS[".xml"].open(folder / "int8.xml").result}
    return calls


@torch.inference_mode()
def study(run: Path) -> dict[str, Any]:
    """One run."""
    model, opened = load(run, "cpu"), open_run(run)
    images = read_images(run, model.classes, Int8(), console)
    root = data_of(opened, console).path
    assert root is not None
    files = [root / name for name in images.validation.names[:: max(1, len(images.validation) // FILES)][:FILES]]
    found: dict[str, Any] = {
        "run": run.name,
        "command": opened.environment["command"],
        "size": list(read_image(files[0]).shape[:2]),
        "validation_images": images.validation.labelled,
        "calibration": f"{len(images.calibration)} images {images.kind}",
        "agreement": {},
        "megabytes": {},
        "results": {},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph = make_onnx(model.network, "labels")
        for kind, made in (("float", graph), ("int8", quantise(graph, images.calibration))):
            for suffix in (".onnx", ".xml"):
                format_, path = FORMATS[suffix], folder / f"{kind}{suffix}"
                format_.save(made, path, {})  # type: ignore[union-attr]
                found["agreement"][path.name] = str(compare(model.network, format_.open(path)))
                found["megabytes"][path.name] = sum(file.stat().st_size for file in format_.files(path)) / 1e6
                console.print(path.name, found["agreement"][path.name])
        clock, cpu = time_all(model.network, folder, files)
        for runtime, call in runtimes(model.network, folder).items():
            known = opened.summary["value"] if opened.summary and runtime == "pytorch" else None
            value = known or score(call, images.validation, len(model.classes), images.without).value
            rates = {"files_per_second": 1 / clock[runtime], "cpu_ms": 1000 * cpu[runtime]}
            found["results"][runtime] = {"miou": value, **rates}
            console.print(run.name, runtime, found["results"][runtime])
    return found


def read(file: Path) -> torch.Tensor:
    """1×H×W×3 bytes."""
    return torch.tensor(read_image(file))[None]


def time_all(network: torch.nn.Module, folder: Path, files: list[Path]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of a file on two threads, by the clock, and of an image on one, of CPU time."""
    timed: list[dict[str, float]] = []
    for threads, now in ((THREADS, time.perf_counter), (1, time.process_time)):
        torch.set_num_threads(threads)
        calls = runtimes(network, folder)
        first = read(files[0])
        for call in calls.values():
            call(first)
        seconds: dict[str, list[float]] = {runtime: [] for runtime in calls}
        for _ in range(ROUNDS):
            for file in files:
                for runtime, call in calls.items():
                    began = now()
                    call(first if threads == 1 else read(file))
                    seconds[runtime].append(now() - began)
        timed.append({runtime: median(values) for runtime, values in seconds.items()})
    torch.set_num_threads(THREADS)
    return timed[0], timed[1]


def main() -> None:
    """Reads the command line, and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(THREADS)
    about = environment(torch.device("cpu"))
    about["versions"] |= {name: importlib.metadata.version(name) for name in ("onnx", "onnxruntime", "openvino")}
    kept = {key: about[key] for key in ("versions", "python", "hardware", "started")}
    command = shlex.join(["python", "benchmarks/int8.py", *sys.argv[1:]])
    studied: list[dict[str, Any]] = []
    for run in asked.runs:
        studied.append(study(run))
        write_json(asked.out, {"command": command, **kept, "runs": studied})


if __name__ == "__main__":
    main()
