"""What the model makes of a few validation images while it trains, as pictures in the run folder.

For each image there are `image-1.jpg` and `truth-1.png`, and from time to time the prediction, `00000100-1.png`.
Nothing depends on them: where they cannot be written, that is said once, and training goes on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image

from oneway.common.errors import UserError
from oneway.common.links import open_descriptor
from oneway.common.run_files import PICTURES
from oneway.data.dataset import Bytes, Dataset, Samples
from oneway.data.pictures import draw_classes, encoded, shown_size
from oneway.runs.atomic import place_below
from oneway.tools.scenes import choose_scenes

SCENES = 4
CLASSES = "classes.json"
"""Beside the pictures: names and colours of the classes."""

MOST_TIMES = 20
"""How often a run predicts them: a run may validate a thousand times."""


class Snapshots:
    """Predictions of a run for a few images of its validation set (see `choose_scenes`)."""

    def __init__(self, run: Path, dataset: Dataset, images: Samples, say: Callable[[str], None]) -> None:
        self.folder, self.images, self.colours, self.say = run / PICTURES, images, dataset.colours, say
        self.shown = choose_scenes(images, SCENES) if images.dense else []
        self.writable = len(images) > 0
        known = {"classes": dataset.classes, "colours": dataset.colours}
        self._write(CLASSES, json.dumps(known).encode())
        for place, index in enumerate(self.shown, start=1):
            pixels = images.image(index)
            picture = Image.fromarray(pixels).resize(shown_size(*pixels.shape[:2]), Image.Resampling.BICUBIC)
            self._write(f"image-{place}.jpg", encoded(picture, "JPEG", quality=85))
            self._write(f"truth-{place}.png", encoded(draw_classes(images.label_map(index), self.colours), "PNG"))

    def due(self, iteration: int, every: int, iterations: int) -> list[int]:
        """Those to be predicted at a validation, of which a run has one every so many iterations; but not too often."""
        number, times = iteration // every, iterations // every
        if iteration < iterations and number * MOST_TIMES // times == (number - 1) * MOST_TIMES // times:
            return []
        return self.shown

    def take(self, iteration: int, predictions: Sequence[Bytes]) -> None:
        """Draw the classes that were predicted for the images."""
        for place, labels in enumerate(predictions, start=1):
            self._write(f"{iteration:08d}-{place}.png", encoded(draw_classes(labels, self.colours), "PNG"))

    def _write(self, name: str, content: bytes) -> None:
        """Write a file, not to be relied on after a power cut; where it cannot, there will be no others."""
        for again in (True, False):  # a disk may fail for a moment
            if not self.writable:
                return
            try:
                file = place_below(self.folder, name)
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
                with open_descriptor(file, flags) as descriptor, open(descriptor, "wb", closefd=False) as opened:
                    opened.write(content)
                return
            except (OSError, UserError) as error:
                if not again:
                    self.shown, self.writable = [], False
                    self.say(f"Note: there will be no more pictures in {self.folder} ({error}).")
