"""What a large pool costs: its index, the start of a run, memory, and decoding; a small pool beside it for comparison.

python benchmarks/pools.py --data FOLDER --pool SHARDS [--shards 2] [--out FILE.json]

FOLDER is a labelled data set as `oneway train folder` takes it; SHARDS a folder of shards, of which the first few are
the small pool. The index of ten million images is made up, with files that have no content.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from oneway.config import Data
from oneway.data.pool import Pool, find_pool, open_pool
from oneway.data.pool.decoders import Processes, Threads
from oneway.data.pool.entries import ENTRY, PART, Shard, load, save
from oneway.data.pool.files import LocalFiles
from oneway.data.pool.reader import Reader
from oneway.data.pool.shard_index import index_shards
from oneway.draws import Plan, draw

QUIET = Console(quiet=True)
REPEATS = 3


def pool_of(named: str, cache: Path) -> Pool:
    """A pool, indexed in a cache."""
    return open_pool(find_pool(named), Data(name="folder", unlabelled=named, cache=cache), QUIET)


def measure_index(named: str, cache: Path) -> dict[str, Any]:
    """The time to make an index, and its size."""
    began = time.perf_counter()
    pool = pool_of(named, cache)
    made = time.perf_counter() - began
    began = time.perf_counter()
    pool_of(named, cache)
    size = sum(path.stat().st_size for path in pool.index.folder.iterdir())
    return {
        "images": len(pool),
        "shards": len(pool.index.shards),
        "index_seconds": made,
        "open_seconds": time.perf_counter() - began,
        "index_bytes": size,
        "bytes_per_image": size / len(pool),
    }


def measure_run(data: Path, named: str, cache: Path, seconds: list[float], memory: list[float]) -> None:
    """One iteration of a small network, from the shell: how long it takes, and the most memory it had."""
    out = cache / "run"
    shutil.rmtree(out, ignore_errors=True)
    words = ["train", "folder", "--data", data, "--data.unlabelled", named, "--data.cache", cache, "--out", out]
    small = "--method simple-phtps --model.width 0.25 --model.weights none --jitter.crop 160 160 --train.device cpu"
    began = time.perf_counter()
    command = [sys.executable, "-m", "oneway", *map(str, words), *small.split(), "--train.iterations", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{named}: the run ended with {status}")
    seconds.append(time.perf_counter() - began)
    memory.append(used.ru_maxrss / 1024)


def measure_decoding(pool: Pool, workers: int, threads: bool, images: int = 4000) -> dict[str, Any]:
    """Images that are read at random places and decoded as a run has them, by so many processes or threads."""
    chosen, slots = np.random.default_rng(0).integers(len(pool), size=images).tolist(), 8 * workers
    largest = max(pool.decode(image).pixels.nbytes for image in chosen[:32])
    reader = Reader(pool.source, pool.index, pool.files, pool.factor)
    decoders = Threads(pool.read, 0, workers) if threads else Processes(reader, pool.read, 0, workers, slots, largest)
    decoded = 0
    for number in range(-2 * slots, images):  # the first ones wait for processes
        if number == 0:
            began, decoded = time.perf_counter(), 0
        if number >= -slots:
            decoded += decoders.result(number % slots).pixels.nbytes
        decoders.begin(number % slots, chosen[number], whole)
    seconds = time.perf_counter() - began
    decoders.close()
    kind = "threads" if threads else "processes"
    return {kind: workers, "images_per_second": images / seconds, "megapixels_per_second": decoded / 3e6 / seconds}


def whole(size: tuple[int, int]) -> tuple[int, int, int, int]:
    """All of an image."""
    return 0, 0, *size


def measure_ten_million(place: Path, shards: int = 10_000, images: int = 1000) -> dict[str, Any]:
    """An index of so many images whose shards are empty: what it takes to open it, and to draw from it."""
    size = images * 10_240
    (place / "shards").mkdir(parents=True)
    (place / "index").mkdir()
    listed = []
    with (place / "index" / PART).open("wb") as file:
        for number in range(shards):
            path = place / "shards" / f"{number:05d}.tar"
            path.touch()
            os.truncate(path, size)
            entries = np.zeros(images, dtype=ENTRY)
            entries["offset"], entries["size"] = np.arange(images) * 10_240 + 512, 9000
            entries["name"] = np.arange(images) + number * images
            file.write(entries.tobytes())
            listed.append(Shard(str(path), LocalFiles().status(str(path)), images, ""))
    save(place / "index", listed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    index = index_shards(tuple(shard.path for shard in listed), LocalFiles(), place / "index", False, QUIET)
    opened = time.perf_counter() - began
    assert load(place / "index") is not None
    plan = Plan(0, (0,), range(len(index)), 1, 8, (0.5, 2.0), flip=True)
    few = Plan(0, (0,), tuple(range(1000)), 1, 8, (0.5, 2.0), flip=True)
    times = {}
    for name, each in (("draw", plan), ("draw_from_a_thousand", few)):
        draw(each, 0)
        began = time.perf_counter()
        for iteration in range(0, 10**6, 5000):
            table = draw(each, iteration)
        times[f"{name}_milliseconds"] = (time.perf_counter() - began) * 1000 / 200
    began = time.perf_counter()
    for image in table.unlabelled.item.tolist() * 100:
        index.shard_of(image)
        index.entries(image)
    return {
        "images": len(index),
        "open_seconds": opened,
        "entry_microseconds": (time.perf_counter() - began) * 1e6 / 800,
        **times,
        "memory_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "bytes_per_image": sum(path.stat().st_size for path in (place / "index").iterdir()) / len(index),
    }


def main() -> None:
    """Prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pool", type=Path, required=True)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    small = f"{given.pool}/{{00000..{given.shards - 1:05d}}}.tar"
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        found: dict[str, Any] = {"cores": len(os.sched_getaffinity(0))}
        found["ten_million"] = measure_ten_million(cache / "ten-million")
        for name, named in (("small", small), ("large", str(given.pool))):
            found[name] = measure_index(named, cache)
        runs: dict[str, tuple[list[float], list[float]]] = {"small": ([], []), "large": ([], [])}
        for turn in range(REPEATS + 1):
            for name, named in (("small", small), ("large", str(given.pool))):
                measure_run(given.data, named, cache, *(runs[name] if turn else ([], [])))  # the first fills the cache
        for name, (seconds, memory) in runs.items():
            found[name] |= {"run_seconds": statistics.median(seconds), "run_peak_mib": statistics.median(memory)}
        pool = pool_of(str(given.pool), cache)
        found["decoding"] = [
            measure_decoding(pool, workers, threads) for threads in (False, True) for workers in (1, 2, 4)
        ]
    text = json.dumps(found, indent=1)
    print(text)
    if given.out:
        given.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
