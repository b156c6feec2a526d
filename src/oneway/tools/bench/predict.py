"""`oneway bench predict`: files per second from JPEGs to masks, against each stage alone and a plain loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from oneway import models
from oneway.common.allocator import keep_freed_memory
from oneway.config import Model
from oneway.data.decode.images import read_image
from oneway.data.folder.classes import default_colours
from oneway.data.pictures import encoded, palette
from oneway.models.winograd import use_winograd
from oneway.ops import upsample
from oneway.runs.atomic import place_below, write_atomically
from oneway.tools.bench.findings import Findings, Options, Result, Say, table_of
from oneway.tools.bench.timing import release, synchronise
from oneway.tools.evaluate import as_input
from oneway.tools.predict import Outputs, Predictor, predict_files
from oneway.tools.predict.batches import THREADS, threads
from oneway.tools.predict.outputs import OVERLAY

CASES = {"swiftnet-rn18": Model(name="swiftnet"), "swiftnet-rn18-quarter": Model(name="swiftnet", width=0.25)}
CLASSES = 19
SIZE = (1024, 2048)
FILES, FILES_ON_CPU = 2000, 8
DIFFERENT = 20
"""Images; the other files repeat them."""

ROUNDS, ROUNDS_ON_CPU = 1, 3
MOST_AT_ONCE = 100
"""Files that the plain loop and the stages alone take: their images stay in memory."""

QUIET = Console(quiet=True)
STAGES = ("decode", "network", "write")


def bench_predict(options: Options, say: Say) -> Findings:
    """Measure the way from a folder of JPEGs to one of masks and overlays."""
    count, rounds = (FILES_ON_CPU, ROUNDS_ON_CPU) if options.small else (FILES, ROUNDS)
    rows: list[Result] = []
    with TemporaryDirectory(prefix="oneway-bench-") as folder:
        files = make_photos(Path(folder) / "photos", count)
        for name, config in options.choose(CASES).items():
            rows.append(row := measure(name, make_predictor(config, options.device), files, rounds))
            say(
                f"{name}: {row['files_per_second']['pipeline']:.2f} files/s, {row['of_slowest']:.0%} of what "
                f"{row['slowest']} reaches alone; {row['ratio']:.2f} times a plain loop"
            )
    notes = [
        f"{count} JPEGs of {SIZE[1]}×{SIZE[0]}, some of them alike; random weights; {rounds} rounds.",
        f"decode and write alone: {THREADS} threads, all processors. network alone: one image after another, with the "
        "class of each pixel at full size. On a CPU all stages share its cores.",
        "plain loop: one file after another, by PyTorch's and Pillow's own functions, all logits at full size.",
        "Processor seconds are those of all cores together, which other programs disturb less than the clock.",
    ]
    return Findings([rates_table(rows), work_table(rows)], rows, notes)


def make_photos(folder: Path, count: int) -> list[Path]:
    """JPEGs with the detail of photographs: noise of every scale."""
    folder.mkdir()
    contents = []
    for index in range(min(count, DIFFERENT)):
        random = np.random.default_rng(index)
        pixels = np.full((*SIZE, 3), 128, np.float32)
        for cell in (256, 64, 16, 4):
            noise = random.normal(0, 22, (-(-SIZE[0] // cell), -(-SIZE[1] // cell), 3)).astype(np.float32)
            pixels += np.repeat(np.repeat(noise, cell, axis=0), cell, axis=1)[: SIZE[0], : SIZE[1]]
        contents.append(encoded(Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), "JPEG", quality=90))
    files = [folder / f"{index:05}.jpg" for index in range(count)]
    for index, file in enumerate(files):
        file.write_bytes(contents[index % len(contents)])
    return files


def make_predictor(config: Model, device: torch.device) -> Predictor:
    """A predictor as `oneway predict` has it, with random weights."""
    network = models.build(config, CLASSES, seed=0).eval().requires_grad_(False).to(device)
    if device.type == "cuda":
        from oneway.models.fuse import for_prediction

        network = for_prediction(network)
    else:
        network = use_winograd(network)
    names = tuple(f"class {index}" for index in range(CLASSES))
    about = names, default_colours(names), device, Path("random weights")
    return Predictor(network, *about, classifies=False, half=device.type == "cuda")


def measure(name: str, model: Predictor, files: list[Path], rounds: int) -> Result:
    """Files per second of the whole way, of each stage alone and of a plain loop, which take turns."""
    release(model.device)
    out = files[0].parent.parent / "out"
    some = files[:MOST_AT_ONCE]
    images = [read_image(file) for file in some]
    (prediction,) = model.predict_batch(images[:1], confidence=False)
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "plain": (len(some), lambda: [plain(model, file, out) for file in some]),
        "decode": (len(some), lambda: _by_threads(read_image, some)),
        "network": (len(some), lambda: [model.predict_batch([image], confidence=False) for image in images]),
        "write": (len(some), lambda: _by_threads(lambda file: Outputs(out).write(file.stem, file, prediction), some)),
        "pipeline": (len(files), lambda: predict_files(model, list(map(str, files)), Outputs(out), QUIET)),
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    work: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (count, call) in ways.items():
            rmtree(out, ignore_errors=True)
            with keep_freed_memory(way != "plain"):
                wall, processor = time.perf_counter(), time.process_time()
                call()
                synchronise(model.device)
                rates[way].append(count / (time.perf_counter() - wall))
                work[way].append((time.process_time() - processor) / count)
    slowest = min(STAGES, key=lambda stage: median(rates[stage]))
    return {
        "case": name,
        "files": len(files),
        "size": SIZE,
        "rounds": rounds,
        "files_per_second": {way: median(values) for way, values in rates.items()},
        "processor_seconds_per_file": {way: median(values) for way, values in work.items()},
        "slowest": slowest,
        "of_slowest": median(a / b for a, b in zip(rates["pipeline"], rates[slowest], strict=True)),
        "ratio": median(a / b for a, b in zip(rates["pipeline"], rates["plain"], strict=True)),
    }


@torch.no_grad()  # and not in inference mode, where convolutions are not PyTorch's
def plain(model: Predictor, file: Path, out: Path) -> None:
    """One file by PyTorch's and Pillow's own functions, one after the other."""
    pixels = np.asarray(Image.open(file).convert("RGB"))
    x = as_input(torch.tensor(pixels)[None].to(model.device))
    with torch.autocast(model.device.type, torch.bfloat16, enabled=model.half):
        logits = model.network(x)
    logits = upsample(logits, SIZE)
    largest, winner = logits.max(dim=1)
    confidence = (largest - logits.logsumexp(dim=1)).exp()
    labels = winner[0].to("cpu", torch.uint8).numpy()
    shares = np.bincount(labels.reshape(-1), minlength=CLASSES) / labels.size
    assert shares.sum() > 0
    assert float(confidence.mean()) > 0
    colours = palette(model.colours)
    mask = Image.fromarray(labels)
    mask.putpalette(colours.tobytes())
    image = Image.fromarray(pixels)
    painted = Image.blend(image, Image.fromarray(colours[labels]), 0.5)
    painted = Image.composite(painted, image, Image.fromarray(colours.max(axis=1)[labels] > 0))
    for kind, content in (("png", encoded(mask, "PNG")), ("jpg", encoded(painted, "JPEG", **OVERLAY))):
        write_atomically(place_below(out, f"{kind}/{file.stem}.{kind}"), content)


def _by_threads(work: Callable[[Path], object], files: list[Path]) -> None:
    with threads(THREADS) as pool:
        for done in [pool.submit(work, file) for file in files]:
            done.result()


def rates_table(rows: list[Result]) -> Table:
    """Files per second of the whole way, beside those of its stages and of the plain loop."""
    columns = {
        "case": "{case}",
        **{way: f"{{files_per_second[{way}]:,.2f}}" for way in (*STAGES, "pipeline")},
        "of slowest": "{of_slowest:.0%}",
        "plain": "{files_per_second[plain]:,.2f}",
        "ratio": "{ratio:.2f}×",
    }
    return table_of("Files per second: each stage alone, all in the pipeline, and in a plain loop", rows, columns)


def work_table(rows: list[Result]) -> Table:
    """Processor time of the same ways, on all cores together."""
    ways = {way: f"{{processor_seconds_per_file[{way}]:,.2f}}" for way in (*STAGES, "pipeline", "plain")}
    return table_of("Processor seconds per file", rows, {"case": "{case}", **ways})
