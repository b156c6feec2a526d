"""What `oneway check` costs on many images, by how their labels are stored: time, memory, and time for each image.

python benchmarks/check.py [--images 20000] [--size 240 320] [--folder DIR] [--out FILE.json]

The images are street scenes, each with noise of its own; labels are masks, or 12 polygons of 16 vertices on each image.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from oneway.data.streets import CLASSES, render

SCENES, POLYGONS, VERTICES = 64, 12, 16
FORMATS = ("masks", "coco", "yolo")


def write_images(folder: Path, size: tuple[int, int], numbers: range) -> None:
    """Images and masks with these numbers."""
    for number in numbers:
        random = np.random.default_rng(number)
        image, labels = render(3, number % SCENES, *size)
        noisy = (
            image.astype(np.int16)
            + random.integers(-24, 25, (size[0] // 8 + 1, size[1] // 8 + 1, 1))
            .repeat(8, axis=0)
            .repeat(8, axis=1)[: size[0], : size[1]]
        )
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / "images" / f"{number:06d}.jpg", quality=90)
        Image.fromarray(labels).save(folder / "masks" / f"{number:06d}.png")


def polygons(number: int, size: tuple[int, int]) -> list[tuple[int, np.ndarray[Any, Any]]]:
    """Classes and vertices, x and y in pixels."""
    random = np.random.default_rng(number)
    turns = 2 * math.pi * np.arange(VERTICES) / VERTICES
    found = []
    for index in range(POLYGONS):
        radius = random.uniform(0.05, 0.2) * min(size) * random.uniform(0.7, 1, VERTICES)
        centre = random.uniform(0.2, 0.8, 2) * size[::-1]
        found.append(
            (1 + index % (len(CLASSES) - 1), centre + radius[:, None] * np.stack([np.cos(turns), np.sin(turns)], 1))
        )
    return found


def write_labels(root: Path, images: int, size: tuple[int, int]) -> None:
    """COCO's file, and YOLO's; folders of each format share the images by hard links."""
    coco: dict[str, Any] = {"images": [], "annotations": [], "categories": []}
    coco["categories"] = [{"id": index, "name": name} for index, name in enumerate(CLASSES)]
    (root / "yolo" / "labels").mkdir(parents=True)
    for number in range(images):
        name = f"{number:06d}"
        coco["images"].append({"id": number, "file_name": f"{name}.jpg", "height": size[0], "width": size[1]})
        lines = []
        for label, points in polygons(number, size):
            outline = [points.round(1).ravel().tolist()]
            coco["annotations"].append({"image_id": number, "category_id": label, "segmentation": outline})
            lines.append(" ".join([str(label), *(f"{value:.5f}" for value in (points / size[::-1]).ravel())]))
        (root / "yolo" / "labels" / f"{name}.txt").write_text("\n".join(lines))
    names = json.dumps(list(CLASSES))
    (root / "yolo" / "data.yaml").write_text(f"train: images\nnames: {names}\n")
    for kind in ("coco", "yolo"):
        (root / kind / "images").mkdir(parents=True)
        for path in (root / "masks" / "images").iterdir():
            os.link(path, root / kind / "images" / path.name)
    (root / "coco" / "instances.json").write_text(json.dumps(coco))


def measure(folder: Path) -> dict[str, float]:
    """Seconds, processor seconds and MiB of a check, in a process of its own."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "oneway", "check", str(folder), "--json"], stdout=subprocess.PIPE, cwd=folder.parent
    )
    assert process.stdout is not None
    answer = json.loads(process.stdout.read())
    _, _, usage = os.wait4(process.pid, 0)
    errors = [one for one in answer["findings"] if one["level"] == "error"]
    assert not errors, errors[:3]
    return {
        "labelled": answer["labelled"] + answer["validation"],
        "seconds": time.perf_counter() - began,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "peak_memory_mib": usage.ru_maxrss / 1024,
    }


def main() -> None:
    """Makes the folders, checks each, and prints a line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--size", type=int, nargs=2, default=(240, 320))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    root = options.folder or Path(tempfile.mkdtemp())
    if not (root / "yolo").exists():
        for kind in ("images", "masks"):
            (root / "masks" / kind).mkdir(parents=True)
        parts = [range(start, min(start + 200, options.images)) for start in range(0, options.images, 200)]
        with ProcessPoolExecutor() as processes:
            list(processes.map(partial(write_images, root / "masks", tuple(options.size)), parts))
        write_labels(root, options.images, tuple(options.size))
    found: dict[str, Any] = {"images": options.images, "size": list(options.size), "cpu_count": os.cpu_count()}
    found["python"], found["load_average"] = platform.python_version(), os.getloadavg()
    for kind in FORMATS:
        found[kind] = measure(root / kind)
        print(kind, {key: round(value, 1) for key, value in found[kind].items()}, flush=True)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
