"""What a logger is given, and which there are. Loads nothing but the standard library."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from oneway.common.errors import UserError
from oneway.common.run_files import PICTURES

BESIDE_LOSSES = ("learning_rate", "skipped")
METRICS = {"miou": "iou", "accuracy": "recognised"}
"""What validates, and what it is called for a single class."""


class Service(NamedTuple):
    """A service that takes curves."""

    title: str
    module: str
    """What has to be installed; an extra of this package has the name of the service."""


SERVICES = {
    "tensorboard": Service("TensorBoard", "tensorboard"),
    "wandb": Service("Weights & Biases", "wandb"),
    "mlflow": Service("MLflow", "mlflow"),
}


@dataclass(frozen=True)
class About:
    """A run, as its loggers know it."""

    path: str
    classes: Sequence[str]
    config: Mapping[str, Any]
    """By dotted keys."""

    pictures: int
    """Number of validation images that are shown."""

    @property
    def folder(self) -> Path:
        """The run folder."""
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
    """Of the line, from 0."""

    iteration: int
    values: Mapping[str, float]
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    """PNG files by name: an image, its labels and the prediction, side by side."""


class Logger(Protocol):
    """Takes the points of a run, in order and from the first on; what a service has already, it does not take twice."""

    def log(self, points: Sequence[Point]) -> None:
        """Takes points."""

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Ends, with the summary of a run that has ended; without one, the run may be continued."""


def require_services(names: Iterable[str]) -> None:
    """Refuses services whose packages are not installed, with the command that installs them."""
    missing = [name for name in names if importlib.util.find_spec(SERVICES[name].module) is None]
    if missing:
        flags = " ".join(f"--log {name}" for name in missing)
        extras = ",".join(missing)
        raise UserError(
            f"{flags}: {' and '.join(SERVICES[name].title for name in missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed. "
            f"Install with: pip install 'oneway[{extras}]'"
        )


def services_of(run: Path, asked: Sequence[str], say: Callable[[str], None]) -> list[str]:
    """The services that a run is logged to: those asked for, and those where a continued run has been before."""
    before = [name for name in SERVICES if name not in asked and (run / name).is_dir()]
    gone = [name for name in before if importlib.util.find_spec(SERVICES[name].module) is None]
    for name in gone:
        say(f"Note: {SERVICES[name].title} is no longer installed, and does not go on with the run.")
    return [*dict.fromkeys(asked), *(name for name in before if name not in gone)]


def read_point(about: About, number: int, line: Mapping[str, Any]) -> Point:
    """A line of `metrics.jsonl` as a point; a validation comes with pictures, where there are some."""
    iteration = int(line["iteration"])
    metric = next((name for name in METRICS if name in line), None)
    if metric is None:
        named = {
            (key if key in BESIDE_LOSSES else f"loss/{key}"): value for key, value in line.items() if key != "iteration"
        }
        return Point(number, iteration, named)
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
    gap = 4
    whole = Image.new(
        "RGB",
        (sum(image.width for image in images) + gap * (len(images) - 1), max(image.height for image in images)),
        "white",
    )
    left = 0
    for image in images:
        whole.paste(image, (left, 0))
        left += image.width + gap
    content = io.BytesIO()
    whole.save(content, "PNG")
    return content.getvalue()
