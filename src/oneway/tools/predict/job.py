"""The work of a prediction: images and videos in, results out; a broken file is named, and the others go on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from oneway.common.console import warn
from oneway.common.errors import SYSTEM_ERRORS, UserError
from oneway.common.interrupt import Stopped
from oneway.common.progress import ProgressBar
from oneway.data.dataset import Bytes
from oneway.data.decode.georeference import read_georeference
from oneway.data.decode.video import BreaksOff, read_frames
from oneway.runs.atomic import CannotWrite
from oneway.tools.predict.batches import FRAMES_AHEAD, Decoded, InOrder, batches, decode_ahead, prefetch, threads
from oneway.tools.predict.oddities import Oddities
from oneway.tools.predict.outputs import Outputs
from oneway.tools.predict.prediction import Prediction
from oneway.tools.predict.predictor import Predictor, Size
from oneway.tools.predict.sources import Source
from oneway.tools.predict.video import video_writer

if TYPE_CHECKING:
    from oneway.tools.annotations import Export


class Job:
    """Predicts images and videos, and has the results written by threads while the next ones are predicted."""

    def __init__(
        self,
        model: Predictor,
        outputs: Outputs,
        tile: Size | None,
        pool: ThreadPoolExecutor,
        bar: ProgressBar,
        export: Export | None,
        confidence: bool,
        origins: Mapping[Source, str],
    ) -> None:
        self.export = export
        self.model, self.outputs, self.pool, self.bar = model, outputs, pool, bar
        self.how, self.origins = (tile, confidence), origins
        self.images = 0
        self.frames = 0
        """Frames of videos, which are counted as images too."""
        self.results: list[tuple[Source, dict[str, Any]]] = []
        self.errors: list[str] = []
        self.oddities = Oddities(model.image_style)
        self.writing: InOrder[Source, dict[str, Any]] = InOrder(pool)

    def run(self, images: Sequence[Source], videos: Sequence[Source]) -> int | None:
        """Predict all of them; the signal, where Ctrl-C or another came before the end: what had begun is written."""
        stopped = None
        try:
            for batch in batches(decode_ahead(images, self.pool, self.leave_out, self.model.image_style)):
                self.predict(batch)
            for source in videos:
                self.predict_video(source)
        except KeyboardInterrupt as error:
            stopped = error.number if isinstance(error, Stopped) else signal.SIGINT
            self.pool.shutdown(cancel_futures=True)
        self._await(self.writing.rest())  # but for those that were called off
        return stopped

    def failed(self, source: Source, error: Exception) -> None:
        """Keep and print what is wrong with a file."""
        text = str(error) if isinstance(error, UserError) else f"cannot be predicted ({type(error).__name__}: {error})."
        if not text.startswith(str(source.path)):
            text = f"{source.path}: {text}"
        self.errors.append(text)
        warn(text)

    def leave_out(self, source: Source, error: Exception) -> None:
        """Go on without an image that cannot be read."""
        self.failed(source, error)
        self.bar.advance()

    @contextmanager
    def handling(self, *sources: Source) -> Iterator[None]:
        """What fails in the block is said of these files, and the others go on; a disk that takes nothing ends all."""
        try:
            yield
        except (UserError, OSError, ValueError, RuntimeError, ArithmeticError, MemoryError) as error:
            cause = error.__cause__ if isinstance(error, CannotWrite) else None
            if isinstance(cause, OSError) and cause.errno in SYSTEM_ERRORS:
                raise
            for source in sources:
                self.failed(source, error)

    def predict(self, batch: list[Decoded]) -> None:
        """Predict images of one size, and have the results written."""
        predictions: list[Prediction] = []
        with self.handling(*(source for source, _ in batch)):
            tell = partial(self._tell, batch[0][0], "tile")
            predictions = self.model.predict_batch([pixels for _, pixels in batch], *self.how, tell)
        for (source, pixels), prediction in zip(batch, predictions, strict=False):
            with self.handling(source):
                self.oddities.inspect(source.path, pixels)
                self._write(source.name, source, prediction)
        self.bar.show("")
        for _ in batch:
            self.bar.advance()

    def predict_video(self, source: Source) -> None:
        """Predict a video frame by frame, into another video or into files for each frame."""
        with self.handling(source):
            if self.model.image_style.bands is not None:
                seen = self.model.image_style
                raise UserError(f"{source.path}: a video has colours, and {self.model.source} sees {seen}.")
            if self.outputs.frames:
                number = 0
                for number, (pixels, _) in enumerate(prefetch(read_frames(source.path)), start=1):
                    (prediction,) = self.model.predict_batch([pixels], *self.how)
                    self._write(f"{source.name}.frames/{number:06}", source, prediction)
                    self._tell(source, "frame", number)
                self.outputs.remove_frames(f"{source.name}.frames", number)
            else:
                self._write_overlays(source)
        self.bar.show("")
        self.bar.advance()

    def _tell(self, source: Source, part: str, number: int, total: int | None = None) -> None:
        """How far a file has come of which there is much to predict."""
        of = "" if total is None else f" of {total:,}"
        self.bar.within(f"{source.path.name}: {part} {number:,}{of}")

    def _write_overlays(self, source: Source) -> None:
        """One video; of one that breaks off, as far as it can be read."""
        count, file = 0, self.outputs.place(f"overlays/{source.name}.mp4")
        broken: BreaksOff | None = None
        with video_writer(file, self.origins[source]) as append, threads(1) as encoder:
            encoding: InOrder[None, None] = InOrder(encoder, FRAMES_AHEAD)
            try:
                for pixels, shown_at in prefetch(read_frames(source.path)):
                    (prediction,) = self.model.predict_batch([pixels], *self.how)
                    for _, appended in encoding.make_room(prediction.labels.size):
                        appended.result()
                    encoding.submit(None, prediction.labels.size, _append_overlay, append, prediction, shown_at)
                    count += 1
                    self._tell(source, "frame", count)
            except BreaksOff as error:
                broken = error
            for _, appended in encoding.rest():
                appended.result()
        self.images += count
        self.frames += count
        self.results.append((source, {"video": str(source.path), "overlay": str(file), "frames": count}))
        if broken is not None:
            raise broken

    def _write(self, name: str, source: Source, prediction: Prediction) -> None:
        pixels = prediction.labels.size
        self._await(self.writing.make_room(pixels))
        self.writing.submit(source, pixels, self._write_files, name, source, prediction)

    def _write_files(self, name: str, source: Source, prediction: Prediction) -> dict[str, Any]:
        place = None if source.is_video else read_georeference(source.path, *prediction.labels.shape)
        facts = self.outputs.write(name, source.path, prediction, place, self.origins[source])
        if self.export is not None and not source.is_video:
            self.export.add(source.path, source.file_name, name, prediction)
        return facts

    def _await(self, results: Iterator[tuple[Source, Future[dict[str, Any]]]]) -> None:
        for source, written in results:
            with self.handling(source), suppress(CancelledError):
                self.results.append((source, written.result()))
                self.images += 1
                self.frames += source.is_video


def _append_overlay(
    append: Callable[[Bytes, Fraction | None], None], prediction: Prediction, shown_at: Fraction | None
) -> None:
    append(np.asarray(prediction.overlay()), shown_at)
