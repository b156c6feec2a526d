"""Predicts files and writes the results; a broken file is named, and the others are predicted."""

from __future__ import annotations

import csv
import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import rich.console
from rich.text import Text

from oneway import __version__
from oneway.common.allocator import keep_freed_memory
from oneway.common.console import Console, Output, print_result
from oneway.common.errors import SYSTEM_ERRORS, UserError
from oneway.common.interrupt import Interrupted, Stopped
from oneway.common.progress import ProgressBar
from oneway.common.words import command, counted, say, table_cell, visible
from oneway.data.dataset import Bytes
from oneway.data.decode.georeference import read_georeference
from oneway.data.decode.images import read_image
from oneway.data.decode.video import BreaksOff, read_frames, require_video
from oneway.runs.atomic import CannotWrite
from oneway.tools.predict.batches import (
    FRAMES_AHEAD,
    THREADS,
    Decoded,
    InOrder,
    batches,
    decode_ahead,
    prefetch,
    threads,
)
from oneway.tools.predict.oddities import Oddities
from oneway.tools.predict.origin import maker_of, origin_of
from oneway.tools.predict.outputs import SETTINGS, STOPPED, Outputs
from oneway.tools.predict.prediction import Prediction
from oneway.tools.predict.predictor import Predictor, Size
from oneway.tools.predict.sources import Skipped, Source, find_sources
from oneway.tools.predict.video import video_writer

if TYPE_CHECKING:
    from oneway.tools.annotations import Export


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Say of a disk that takes no results how to choose another."""
    try:
        yield
    except CannotWrite as error:
        raise CannotWrite(f"{error} With --out DIR, results go elsewhere.") from error.__cause__


@_elsewhere()
def predict_files(
    model: Predictor,
    paths: Sequence[str],
    outputs: Outputs,
    console: rich.console.Console,
    tile: Size | None = None,
    as_json: bool = False,
    export: Export | None = None,
    unlabelled: bool = False,
    resume: bool = False,
) -> int:
    """Predict images, folders, patterns and videos; returns the exit status, 1 where a file could not be predicted.

    Args:
        model: What predicts.
        paths: As a user types them.
        outputs: Where results go.
        console: Shows progress; with `as_json`, not on the standard output.
        tile: Height and width of tiles; by default an image is predicted in one pass.
        as_json: Print the results as JSON to the standard output.
        export: Writes the results for an annotation tool as well.
        unlabelled: Leave out images of data sets that have labels.
        resume: Leave out what has results that would be the same again.

    Raises:
        Interrupted: Ctrl-C or `Stopped` came; the index, and the JSON that was asked for, say what is done.
        UserError: Nothing can be done at all: a path leads nowhere, or results cannot be written.
    """
    if not model.classifies:
        outputs.refuse_occupied()
    skipped = Skipped()
    sources = find_sources(paths, outputs.folder, skipped, unlabelled)
    if model.classifies:
        return _classify(model, sources, skipped, as_json)
    about = {**_about(model), **_asked(outputs, tile), "masks": _meanings(model, outputs)}
    maker = maker_of(model.source, {key: about.get(key) for key in SETTINGS})
    origins = {source: origin_of(source, maker) for source in sources}
    if resume:
        outputs.refuse_others(about)
        total = len(sources)
        sources = [source for source in sources if not _is_done(source, outputs, origins[source])]
        say(console, f"Left out: {total - len(sources):,} of {counted(total, 'file')}, which have results.")
    outputs.refuse_edited(sources)
    images, videos = [[source for source in sources if source.is_video == kind] for kind in (False, True)]
    if videos:
        _require_videos(videos[0], outputs, export, alone=not images)
    position = {source: number for number, source in enumerate(sources)}
    with outputs.claimed(about):
        began = time.monotonic()
        with (
            ProgressBar(console, "Predicting", len(sources)) as bar,
            keep_freed_memory(),  # of the network on a CPU, and of images anywhere
            threads(THREADS) as pool,
        ):
            confidence = outputs.confidence or outputs.facts or as_json or export is not None
            job = _Job(model, outputs, tile, pool, bar, export, confidence, origins)
            stopped = job.run(images, videos)
        seconds = time.monotonic() - began
        for remark in (*skipped.messages(), *job.oddities.messages()):
            warn(remark)
        index = {**about, "images": job.images, "seconds": round(seconds, 3), "errors": job.errors}
        if stopped:
            index |= STOPPED
        outputs.write_index(index)
    if as_json:
        results = sorted(job.results, key=lambda result: position[result[0]])
        print_result(json.dumps({**index, "results": [facts for _, facts in results]}, indent=1, allow_nan=False))
    if stopped:
        done = f"{len({source for source, _ in job.results})} of {counted(len(sources), _kind(images, videos))}"
        again = "" if export else "; --resume continues"
        raise Interrupted(stopped, f"Stopped after {done}; results: {outputs.folder}{again}")
    failures = f"; {len(job.errors)} failed" if job.errors else ""
    say(console, f"{pace(job.images - job.frames, job.frames, seconds)}{failures}")
    say(console, f"Results: {outputs.folder}")
    if export is not None:
        say(console, export.finish())
        if videos:
            warn(f"{counted(len(videos), 'video')} left out of what --to wrote. Give the frames as images.")
    return 1 if job.errors else 0


def _require_videos(first: Source, outputs: Outputs, export: Export | None, alone: bool) -> None:
    """Refuse videos of which what was asked for cannot be written; where they are not alone, that is a warning."""
    if export is not None and alone:
        frames = command("ffmpeg", "-i", first.path, "frames/%06d.png")
        raise UserError(
            f"{first.path}: a video, and --to {export.settings.to} is for images. Make images of its frames, and "
            f"predict those: mkdir frames; {frames}"
        )
    require_video()
    if (outputs.confidence or outputs.facts) and not outputs.frames:
        about = f"{first.path}: a video, of which --confidence and --facts write files for each frame."
        if alone:
            raise UserError(f"{about} Add --frames, or leave them out.")
        warn(f"{about} Without --frames they are written for images alone.")


def _is_done(source: Source, outputs: Outputs, origin: str) -> bool:
    try:
        return outputs.has(source.name, source.is_video, origin, source.path.stat().st_mtime)
    except OSError:  # it is said when it is read
        return False


def _kind(images: Sequence[Source], videos: Sequence[Source]) -> str:
    return "file" if images and videos else "video" if videos else "image"


def pace(images: int, frames: int, seconds: float) -> str:
    """How many in which time; how many in a second, or how long for one."""
    both = {"image": images, "frame": frames}
    found = {noun: count for noun, count in both.items() if count} or {"image": 0}
    what, total = " and ".join(counted(count, noun) for noun, count in found.items()), images + frames
    noun = next(iter(found)) if len(found) == 1 else "picture"
    rate = f"{total / seconds:.1f} {noun}s/s" if total >= seconds else f"{seconds / max(1, total):.1f} s per {noun}"
    return f"{what} in {seconds:.1f} s" + (f" ({rate})" if total else "")


class _Job:
    """Predicts images and has the results written."""

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


def _about(model: Predictor) -> dict[str, Any]:
    asked = {"mirror": model.mirror, "favour": model.favour}
    return {
        "oneway": __version__,
        "model": str(model.source),
        **{key: value for key, value in asked.items() if value},
        "precision": "bfloat16" if model.half else "float32",
        "classes": model.classes,
        "colours": model.colours,
    }


def _asked(outputs: Outputs, tile: Size | None) -> dict[str, Any]:
    asked = {"tile": tile, "confidence": outputs.confidence, "facts": outputs.facts}
    return {key: value for key, value in asked.items() if value}


def _meanings(model: Predictor, outputs: Outputs) -> dict[str, Any]:
    """What stands for each class in the masks: numbers, or colours as #rrggbb."""
    style = None if outputs.indices else model.masks
    values = range(len(model.classes)) if style is None else style.values
    coloured = style is not None and style.mode == "RGB"
    shown = [f"#{value:06x}" if coloured else value for value in values]
    return {"mode": "P" if style is None else style.mode, "values": dict(zip(model.classes, shown, strict=True))}


def _classify(model: Predictor, sources: Sequence[Source], skipped: Skipped, as_json: bool) -> int:
    """Print a line for each image, as comma-separated values; or else all of them as JSON."""
    warn(f"{model.source}: classifies whole images; their classes follow, and no masks are written.")
    output = Output("stdout", result=True)
    table = csv.writer(output, lineterminator="\n")
    if not as_json:
        table.writerow(["image", "class", "confidence"])
    results: list[dict[str, Any]] = []
    errors: list[str] = []
    oddities = Oddities(model.image_style)
    for source in sources:
        try:
            if source.is_video:
                raise UserError(f"{source.path}: a video, and this model classifies images. Give its frames as images.")
            pixels = read_image(source.path, style=model.image_style)
            name, confidence = model.classify(pixels)
            oddities.inspect(source.path, pixels)
        except UserError as error:
            warn(str(error))
            errors.append(str(error))
        else:
            results.append({"image": str(source.path), "class": name, "confidence": confidence})
            if not as_json:
                table.writerow([table_cell(visible(str(source.path))), table_cell(name), f"{confidence:.4f}"])
    if as_json:
        print_result(
            json.dumps(
                {**_about(model), "images": len(results), "errors": errors, "results": results},
                indent=1,
                allow_nan=False,
            )
        )
    output.flush()
    for remark in (*skipped.messages(), *oddities.messages()):
        warn(remark)
    return 1 if errors else 0


def warn(text: str) -> None:
    """Print a warning on the standard error, apart from results."""
    Console(stderr=True).print(Text.assemble(("oneway: ", "bold red"), text), soft_wrap=True)
