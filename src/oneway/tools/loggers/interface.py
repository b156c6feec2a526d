"""What a logger is given, and which there are. Loads nothing but the standard library."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from oneway.common.errors import UserError
from oneway.common.run_files import PICTURES
from oneway.common.words import listed

BESIDE_LOSSES = ("learning_rate", "skipped")
METRICS = {"miou": "iou", "accuracy": "recognised"}
"""What validates, and what it is called for a single class."""

GAP = 4  # pixels between pictures
TITLES = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases", "mlflow": "MLflow"}
"""Services that take curves, and what people call them; their packages and our extras have the same names."""


@dataclass(frozen=True)
class About:
    """A run, as its loggers know it."""

    path: str
    classes: Sequence[str]
    config: Mapping[str, Any]
    """Settings by dotted keys."""

    pictures: int
    """Number of validation images that are shown."""

    @property
    def folder(self) -> Path:
        return Path(self.path)

    @property
    def name(self) -> str:
        """The folder's name, and for one of several in a folder also that one's."""
        return "/".join(self.folder.absolute().parts[-2:]).removeprefix("runs/")

    def folder_of(self, service: str) -> Path:
        """Where a service keeps what it needs, within the run folder."""
        folder = self.folder / service
        folder.mkdir(exist_ok=True)
        return folder


@dataclass(frozen=True)
class Point:
    """A line of `metrics.jsonl`, with a name for each number."""

    number: int
    """The number of the line, from 0."""

    iteration: int
    values: Mapping[str, float]
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    """PNG files by name: an image, its labels and the prediction, side by side."""


class Logger(Protocol):
    """Takes the points of a run, in order and from the first on; what a service has already, it does not take twice.

    The module of a service calls it `Service`. It is made of a run, and of a function that tells the user something.
    """

    def log(self, points: Sequence[Point]) -> None: ...

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Ends, with the summary of a run that has ended; without one, the run may be continued."""


def require_services(names: Sequence[str]) -> None:
    """Refuse services that do not exist, or whose packages are not installed, with the command that installs them."""
    if unknown := [name for name in names if name not in TITLES]:
        raise UserError(f"log: {unknown[0]} is none of {', '.join(TITLES)}.")
    if missing := [name for name in names if not _is_installed(name)]:
        flags, titles = " ".join(f"--log {name}" for name in missing), listed(TITLES[name] for name in missing)
        verb = "is" if len(missing) == 1 else "are"
        raise UserError(
            f"{flags}: {titles} {verb} not installed. Install with: pip install 'oneway[{','.join(missing)}]'"
        )


def services_of(run: Path, asked: Sequence[str], say: Callable[[str], None]) -> list[str]:
    """The services that a run is logged to: those asked for, and those where a continued run has been before."""
    before = [name for name in TITLES if name not in asked and (run / name).is_dir()]
    gone = [name for name in before if not _is_installed(name)]
    for name in gone:
        say(f"Note: {TITLES[name]} is no longer installed, and does not go on with the run.")
    return [*dict.fromkeys(asked), *(name for name in before if name not in gone)]


def _is_installed(service: str) -> bool:
    found = importlib.util.find_spec(service)
    return found is not None and found.origin is not None  # W&B leaves folders of its name, which are no packages


def read_point(about: About, number: int, line: Mapping[str, Any]) -> Point:
    """A line of `metrics.jsonl` as a point; a validation comes with pictures, where there are some."""
    iteration = int(line["iteration"])
    metric = next((name for name in METRICS if name in line), None)
    if metric is None:
        values = {key if key in BESIDE_LOSSES else f"loss/{key}": line[key] for key in line if key != "iteration"}
        return Point(number, iteration, values)
    values = {f"validation/{metric}": line[metric]}
    for name, value in zip(about.classes, line.get("per_class", ()), strict=False):
        if value is not None:
            values[f"{METRICS[metric]}/{name}"] = value
    pictures = {}
    for place in range(1, about.pictures + 1):
        files = [f"image-{place}.jpg", f"truth-{place}.png", f"{iteration:08d}-{place}.png"]
        found = [about.folder / PICTURES / name for name in files]
        if all(file.is_file() for file in found):
            pictures[f"pictures/{place}"] = _side_by_side(found)
    return Point(number, iteration, values, pictures)


def _side_by_side(files: Sequence[Path]) -> bytes:
    from PIL import Image

    images = [Image.open(file).convert("RGB") for file in files]
    *lefts, end = accumulate((image.width + GAP for image in images), initial=0)
    whole = Image.new("RGB", (end - GAP, max(image.height for image in images)), "white")
    for left, image in zip(lefts, images, strict=True):
        whole.paste(image, (left, 0))
    content = io.BytesIO()
    whole.save(content, "PNG")
    return content.getvalue()
