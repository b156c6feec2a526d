"""`oneway predict`: files in, results out; what is broken is named, and the rest goes on."""

from __future__ import annotations

import csv
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from oneway import __version__
from oneway.common.errors import UserError
from oneway.common.words import say
from oneway.data.decode.images import read_image
from oneway.runs.atomic import CannotWrite
from oneway.tools.predict.batches import AHEAD, Decoded, batches, decoded
from oneway.tools.predict.oddities import Oddities
from oneway.tools.predict.outputs import Outputs
from oneway.tools.predict.prediction import Prediction
from oneway.tools.predict.predictor import Predictor, Size
from oneway.tools.predict.sources import Source, find_sources
from oneway.tools.predict.video import read_frames, require_video, video_writer

SECONDS_BETWEEN_LINES = 10.0


def predict_files(
    model: Predictor, paths: Sequence[str], outputs: Outputs, console: Console, tile: Size | None = None
) -> int:
    """Predicts images, folders, patterns and videos; returns the exit status, 1 where a file could not be predicted.

    Raises:
        UserError: Nothing can be done at all: a path leads nowhere, or results cannot be written.
    """
    if model.classifies:
        return _classify(model, find_sources(paths, outputs.folder))
    outputs.refuse_occupied()
    sources = find_sources(paths, outputs.folder)
    images, videos = [[source for source in sources if source.is_video == kind] for kind in (False, True)]
    if videos:
        require_video()
    outputs.prepare()
    began = time.monotonic()
    with _progress(console, len(sources)) as advanced, ThreadPoolExecutor(AHEAD) as pool:
        job = _Job(model, outputs, tile, pool, advanced)
        for batch in batches(decoded(images, pool, job.failed)):
            job.predict(batch)
        for source in videos:
            job.predict_video(source)
        job.await_writing(0)
    seconds = time.monotonic() - began
    for remark in job.oddities.in_words():
        complain(remark)
    about = {"oneway": __version__, "model": str(model.source), "classes": model.classes, "colours": model.colours}
    outputs.write_index({**about, "images": job.images, "seconds": round(seconds, 3), "errors": job.errors})
    failures = f"; {len(job.errors)} failed" if job.errors else ""
    count = "1 image" if job.images == 1 else f"{job.images} images"
    say(console, f"{count} in {seconds:.1f} s ({job.images / seconds:.1f} images/s){failures}")
    say(console, f"Results: {outputs.folder}")
    return 1 if job.errors else 0


class _Job:
    """Images on their way through a model into files."""

    def __init__(
        self,
        model: Predictor,
        outputs: Outputs,
        tile: Size | None,
        pool: ThreadPoolExecutor,
        advanced: Callable[[], None],
    ) -> None:
        self.model, self.outputs, self.tile, self.pool, self.advanced = model, outputs, tile, pool, advanced
        self.images = 0
        self.errors: list[str] = []
        self.oddities = Oddities()
        self.writing: deque[Future[None]] = deque()

    def failed(self, source: Source, error: UserError) -> None:
        """Notes and tells what is wrong with a file."""
        text = str(error) if str(error).startswith(str(source.path)) else f"{source.path}: {error}"
        self.errors.append(text)
        complain(text)
        self.advanced()

    def predict(self, batch: list[Decoded]) -> None:
        """Predicts images of one size, and has the results written."""
        try:
            predictions = self.model.predict_batch([pixels for _, pixels in batch], self.tile)
        except UserError as error:
            for source, _ in batch:
                self.failed(source, error)
            return
        for (source, pixels), prediction in zip(batch, predictions, strict=True):
            self.oddities.look_at(source.path, pixels)
            self._write(source.name, source, prediction)
            self.images += 1
            self.advanced()

    def predict_video(self, source: Source) -> None:
        """Predicts a video frame by frame, into another video or into files for each frame."""
        try:
            self.images += self._frames(source) if self.outputs.frames else self._overlays(source)
            self.advanced()
        except CannotWrite:
            raise
        except UserError as error:
            self.failed(source, error)

    def _frames(self, source: Source) -> int:
        count = 0
        for frame in read_frames(source.path):
            count += 1
            self._write(f"{source.name}.frames/{count:06}", source, self.model.predict(frame.pixels, self.tile))
        return count

    def _overlays(self, source: Source) -> int:
        count = 0
        with video_writer(self.outputs.place(f"overlays/{source.name}.mp4")) as append:
            for frame in read_frames(source.path):
                count += 1
                append(np.asarray(self.model.predict(frame.pixels, self.tile).overlay()), frame.time)
        return count

    def _write(self, name: str, source: Source, prediction: Prediction) -> None:
        self.writing.append(self.pool.submit(self.outputs.write, name, source.path, prediction))
        self.await_writing(AHEAD)

    def await_writing(self, most: int) -> None:
        """Waits until no more than so many results are still to be written; a full disk ends the job."""
        while len(self.writing) > most:
            self.writing.popleft().result()


def _classify(model: Predictor, sources: Sequence[Source]) -> int:
    """A line for each image, as comma-separated values on the standard output."""
    complain(f"{model.source}: classifies whole images; their classes follow, and no masks are written.")
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["image", "class", "confidence"])
    status, oddities = 0, Oddities()
    for source in sources:
        try:
            if source.is_video:
                raise UserError(f"{source.path}: a video, and this model classifies images. Give its frames as images.")
            pixels = read_image(source.path)
            name, confidence = model.classify(pixels)
            oddities.look_at(source.path, pixels)
        except UserError as error:
            complain(str(error))
            status = 1
        else:
            table.writerow([source.path, name, f"{confidence:.4f}"])
    for remark in oddities.in_words():
        complain(remark)
    return status


@contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[], None]]:
    """A function to call after each file: a live bar on a terminal, now and then a line elsewhere."""
    columns = (TextColumn("predict"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True, expand=True) as bar:
        task = bar.add_task("", total=total)
        done, last = 0, time.monotonic()

        def advance() -> None:
            nonlocal done, last
            done += 1
            bar.advance(task)
            if not console.is_terminal and time.monotonic() - last >= SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                say(console, f"{done}/{total}")

        yield advance


def complain(text: str) -> None:
    """Prints a complaint on the standard error, apart from results."""
    Console(stderr=True).print(Text.assemble(("oneway: ", "bold red"), text), soft_wrap=True, highlight=False)
