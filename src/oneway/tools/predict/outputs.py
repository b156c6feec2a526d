"""The folder of results: masks, overlays, confidence maps and JSON, each under the name of its image."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from oneway.common.errors import UserError
from oneway.common.links import is_ordinary, refuse_link
from oneway.common.run_files import PREDICTIONS, holds_predictions
from oneway.common.threads import in_threads
from oneway.common.words import listed
from oneway.data.decode.georeference import Georeference, files_beside
from oneway.data.decode.json_files import read_json
from oneway.data.pictures import encoded, is_marked
from oneway.runs import lock
from oneway.runs.atomic import place_below, write_atomically
from oneway.tools.predict.origin import origin_in
from oneway.tools.predict.prediction import Prediction, png
from oneway.tools.predict.sources import Source

OVERLAY = {"quality": 92, "subsampling": 0}
LONGEST_SIDE = 65_500
"""Pixels of a side that a JPEG has at most."""

STOPPED = {"stopped": True}
"""In the index, until all is done."""

SETTINGS = "model mirror favour precision tile confidence facts classes colours masks".split()
"""What the index says of how results are made."""


@dataclass(frozen=True)
class Outputs:
    """Where results go, and which are wanted beside masks and overlays."""

    folder: Path
    confidence: bool = False
    facts: bool = False
    """A JSON file for each image."""

    frames: bool = False
    """A mask and an overlay of every frame of a video, instead of an overlay video."""

    indices: bool = False
    """Masks of class indices, whatever those were that the model learnt from."""

    def refuse_occupied(self) -> None:
        """A folder with other content is refused: results replace nothing but results."""
        folder = self.folder
        try:
            occupied = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        except OSError as error:
            raise UserError(f"{folder}: cannot be read ({error.strerror}). Choose another with --out.") from None
        if occupied and not holds_predictions(folder):
            raise UserError(
                f"{folder}: exists, and holds no earlier results that could be replaced. Choose another with --out."
            )

    @contextmanager
    def claimed(self, about: dict[str, Any]) -> Iterator[None]:
        """Make the folder and mark it; a process that is killed leaves results whose meaning is known.

        Within the block, no other process may write results there: together they would be a medley.
        """
        self.place(PREDICTIONS)
        with lock.hold(self.folder):
            self.write_index(about | STOPPED)
            yield

    def write_index(self, about: dict[str, Any]) -> None:
        """Write the file that says what the results are, and mark the folder as one of results."""
        write_atomically(self.folder / PREDICTIONS, _json(about))

    def refuse_others(self, about: dict[str, Any]) -> None:
        """Earlier results of another model, or written in another way, are refused: together they would be a medley."""
        file = self.folder / PREDICTIONS
        if not file.is_file():
            return
        earlier, now = read_json(file), json.loads(_json(about))
        earlier = earlier if isinstance(earlier, dict) else {}
        if others := [key for key in SETTINGS if earlier.get(key) != now.get(key)]:
            raise UserError(
                f"{self.folder}: cannot be continued with --resume: its results differ in {listed(others)} "
                f"({PREDICTIONS} says which). Choose another folder with --out, or leave out --resume to replace them."
            )

    def refuse_edited(self, sources: Iterable[Source]) -> None:
        """Masks that were edited since they were predicted are somebody's work, and are not replaced."""
        masks = [mask for source in sources for mask in self._masks_of(source) if is_ordinary(mask)]
        ours = in_threads(partial(is_marked, verb="predict"), masks)
        if edited := [mask for mask, is_ours in zip(masks, ours, strict=True) if not is_ours]:
            them = "it" if len(edited) == 1 else "them"
            raise UserError(
                f"{listed(edited)}: edited since `oneway predict` wrote {them}, and would be replaced. Choose another "
                f"folder with --out, or move {them} elsewhere."
            )

    def _masks_of(self, source: Source) -> list[Path]:
        """Where the masks of an image or a video are; of frames, those that are there."""
        if not source.is_video:
            return [self.folder / f"masks/{source.name}.png"]
        frames = (self.folder / f"masks/{source.name}.frames").glob("*.png") if self.frames else ()
        return [frame for frame in frames if frame.stem.isdecimal()]

    def has(self, name: str, is_video: bool, origin: str, since: float) -> bool:
        """Whether all files about an image or a video are there, from this origin; frames are not known.

        A mask that was edited tells of none: it is kept unless it is older than `since`.
        """
        if is_video:
            wanted = [f"overlays/{name}.mp4"]
        else:
            further = [f"confidence/{name}.png"] * self.confidence + [f"json/{name}.json"] * self.facts
            wanted = [f"masks/{name}.png", f"overlays/{name}.jpg", *further]
        files = [self.folder / relative for relative in wanted]
        if (is_video and self.frames) or not all(map(is_ordinary, files)):
            return False
        found = origin_in(files[0])
        return found == origin if found else files[0].stat().st_mtime >= since

    def write(
        self, name: str, image: Path, prediction: Prediction, place: Georeference | None = None, origin: str = ""
    ) -> dict[str, Any]:
        """Write all files about one image, each of them whole or not at all; returns the facts about it.

        Beside pictures of a place on the earth are files that say which; those about an earlier picture are removed.
        The mask is the last: where it notes its origin, all others are from there too.
        """
        facts: dict[str, Any] = {"image": str(image), "mask": str(self.folder / f"masks/{name}.png")}
        if prediction.confidence.size:  # nobody asks for facts without it
            facts |= prediction.facts()
        overlay = prediction.overlay()
        factor = -(-max(overlay.size) // LONGEST_SIDE)
        files = {f"overlays/{name}.jpg": jpeg(overlay.reduce(factor) if factor > 1 else overlay)}
        places = dict.fromkeys(files, place and place.reduced(factor))
        if self.confidence:
            grey = np.rint(255 * prediction.confidence).astype(np.uint8)
            files[f"confidence/{name}.png"] = encoded(Image.fromarray(grey), "PNG")
        mask = png(prediction.indices() if self.indices else prediction.mask(), origin)
        files[f"masks/{name}.png"] = mask
        beside = {
            key: content
            for picture in files
            for key, content in files_beside(picture, places.get(picture, place)).items()
        }
        if self.facts:
            beside[f"json/{name}.json"] = _json(facts)
        for relative, content in (beside | files).items():  # whoever finds a mask finds its place on the earth
            path = self.place(relative)
            if content is not None:
                write_atomically(path, content)
                continue
            with suppress(OSError):  # there is none, or its name would be too long
                path.unlink()
        return facts

    def remove_frames(self, name: str, last: int) -> None:
        """Remove frames behind the last one: of an earlier video of that name, which was longer."""
        for kind in ("masks", "overlays", "confidence", "json"):
            with suppress(OSError):  # there are none
                for frame in refuse_link(self.folder / kind / name).iterdir():
                    if frame.stem.isdecimal() and int(frame.stem) > last:
                        frame.unlink()

    def place(self, relative: str) -> Path:
        """A path below the folder; makes the folders on the way."""
        return place_below(self.folder, relative)


def jpeg(picture: Image.Image) -> bytes:
    """The content of an overlay's file; where there are files in memory, other threads run while Pillow encodes it."""
    if not hasattr(os, "memfd_create"):
        return encoded(picture, "JPEG", **OVERLAY)
    with os.fdopen(os.memfd_create("overlay"), "w+b") as file:
        picture.save(file, "JPEG", **OVERLAY)
        file.seek(0)
        return file.read()


def _json(values: dict[str, Any]) -> bytes:
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    # A byte of a name in another encoding is no character: JSON escapes it like this.
    return text.encode(errors="backslashreplace")
