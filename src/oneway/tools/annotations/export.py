"""Predictions for an annotation tool: what a person corrects is quicker labelled than what a person draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from oneway.common.errors import UserError
from oneway.common.terms import AnnotationFormat
from oneway.common.words import counted, listed
from oneway.data.decode.regions import UNDRAWN
from oneway.data.folder import FILE
from oneway.runs.atomic import place_below, write_atomically
from oneway.tools.annotations import coco, cvat, label_studio, labelme, voc, yolo
from oneway.tools.annotations.interface import Picture, Scheme, Writer
from oneway.tools.annotations.regions import find_regions
from oneway.tools.predict.prediction import Prediction
from oneway.tools.predict.predictor import Predictor

FORMATS: Mapping[AnnotationFormat, Writer] = {
    "cvat": cvat,
    "label-studio": label_studio,
    "labelme": labelme,
    "coco": coco,
    "yolo": yolo,
    "voc": voc,
}

MOST_CLASSES = 254  # that a byte numbers beside the background


@dataclass(frozen=True)
class AnnotationSettings:
    """What a user chooses about annotations."""

    to: AnnotationFormat
    tolerance: float = 1.0
    least: int = 16
    background: bool = False
    """Write also the class that is called background, or something like it."""

    def export(self, model: Predictor, folder: Path) -> Export:
        """Annotations by a model, below a folder; refuses a model or settings that this format cannot have."""
        if model.classifies:
            raise UserError(f"{model.source}: classifies whole images, and --to {self.to} is for regions in them.")
        if not 0 <= self.tolerance < float("inf"):
            raise UserError(f"--tolerance {self.tolerance}: give a number of pixels, 0 or more.")
        names = enumerate(model.classes)
        wanted = tuple(index for index, name in names if self.background or name.casefold() not in UNDRAWN)
        if not wanted:
            raise UserError(f"{model.source}: has no class but {model.classes[0]}. Write that with --background.")
        if self.to == "voc" and len(wanted) > MOST_CLASSES:
            raise UserError(f"--to voc: its masks hold {MOST_CLASSES} classes, and not {len(wanted)}. Choose coco.")
        return Export(self, Scheme(model.classes, model.colours, wanted, self.tolerance, self.least), folder)


@dataclass
class Export:
    """Annotations in one format, written image by image; `add` may be called in several threads."""

    settings: AnnotationSettings
    scheme: Scheme
    folder: Path
    parts: dict[str, tuple[Any, int, int]] = field(default_factory=dict)
    """By name: what the format keeps of an image, its regions, and those left out because they are too small."""

    @property
    def writer(self) -> Writer:
        return FORMATS[self.settings.to]

    def add(self, path: Path, name: str, stem: str, prediction: Prediction) -> None:
        """Write the files about one image, and keep what those about all images need.

        `name` is its path below the folder of images, with forward slashes; `stem` that of files about it, without a
        suffix and unlike that of every other image.
        """
        scheme = self.scheme
        found, specks = find_regions(
            prediction.labels, prediction.confidence, scheme.wanted, scheme.tolerance, scheme.least
        )
        confidence = float(prediction.confidence.mean(dtype="float64"))
        picture = Picture(path, name, stem, prediction.labels, found, confidence)
        files, part = self.writer.describe(picture, scheme, self.folder)
        self._write(files)
        self.parts[name] = part, len(found), specks

    def finish(self) -> str:
        """Write the files about all images; returns a sentence about what there is."""
        self._write(self.writer.gather([self.parts[name][0] for name in sorted(self.parts)], self.scheme))
        self._describe_classes()
        if self.settings.to == "voc":
            return f"Annotations of {counted(len(self.parts), 'image')} for voc: {self.folder}"
        found, specks = (sum(part[place] for part in self.parts.values()) for place in (1, 2))
        pixels = "pixel" if self.scheme.tolerance == 1 else "pixels"
        within = f"within {self.scheme.tolerance:g} {pixels}" if self.scheme.tolerance else "exact"
        least = counted(self.scheme.least, "pixel")
        left_out = f"; {counted(specks, 'region')} below {least} left out" if specks else ""
        regions = f"{counted(found, 'region')} in {counted(len(self.parts), 'image')}"
        said = f"Annotations for {self.settings.to}: {regions}, {within}{left_out}: {self.folder}"
        return said + self._about_numbers()

    def _about_numbers(self) -> str:
        """What to mind where numbers stand for classes: among others, they may be those of other classes."""
        first = {"yolo": 0, "coco": 1}.get(self.settings.to)
        if first is None:
            return ""
        shown = listed((f"{number} {name}" for number, name in enumerate(self.scheme.names, first)), most=2)
        if self.settings.to == "coco":
            return f"\nIds of categories are {shown}. A file of yours may have other ids: merge by names."
        if len(self.scheme.wanted) == len(self.scheme.classes):
            return ""
        return f"\nNumbers are {shown}. Where a data.yaml of yours numbers the background too, use --background."

    def _describe_classes(self) -> None:
        """Write a description: with its images, the folder is a data set of all the model's classes, in their order."""
        heading = "# The classes of the model that drew this, in the order of their numbers.\n"
        given = voc.describe_classes(self.scheme) if self.settings.to == "voc" else {"classes": [*self.scheme.classes]}
        content = yaml.safe_dump(given, allow_unicode=True, sort_keys=False, default_flow_style=None)
        self._write({FILE: (heading + content).encode()})

    def _write(self, files: Mapping[str, bytes]) -> None:
        for relative, content in files.items():
            write_atomically(place_below(self.folder, relative), content)
