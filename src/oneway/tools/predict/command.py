"""`oneway predict`: finds what is meant, has it predicted, and says what came of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from oneway.common.allocator import keep_freed_memory
from oneway.common.console import print_result, warn
from oneway.common.errors import UserError
from oneway.common.interrupt import Interrupted
from oneway.common.progress import ProgressBar
from oneway.common.words import command, counted, say
from oneway.data.decode.video import require_video
from oneway.runs.atomic import CannotWrite
from oneway.tools.predict.about import about_results
from oneway.tools.predict.batches import THREADS, threads
from oneway.tools.predict.classify import classify_files
from oneway.tools.predict.job import Job
from oneway.tools.predict.origin import maker_of, origin_of
from oneway.tools.predict.outputs import SETTINGS, STOPPED, Outputs
from oneway.tools.predict.predictor import Predictor, Size
from oneway.tools.predict.skipped import Skipped
from oneway.tools.predict.sources import Source, find_sources

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
    console: Console,
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
    skipped = Skipped()
    if model.classifies:
        return classify_files(model, find_sources(paths, outputs.folder, skipped, unlabelled), skipped, as_json)
    outputs.refuse_occupied()
    sources = find_sources(paths, outputs.folder, skipped, unlabelled)
    about = about_results(model, outputs, tile)
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
    with outputs.claimed(about):
        began = time.monotonic()
        with (
            ProgressBar(console, "Predicting", len(sources)) as bar,
            keep_freed_memory(),  # of the network on a CPU, and of images anywhere
            threads(THREADS) as pool,
        ):
            confidence = outputs.confidence or outputs.facts or as_json or export is not None
            job = Job(model, outputs, tile, pool, bar, export, confidence, origins)
            stopped = job.run(images, videos)
        seconds = time.monotonic() - began
        for remark in (*skipped.messages(), *job.oddities.messages()):
            warn(remark)
        index = {**about, "images": job.images, "seconds": round(seconds, 3), "errors": job.errors}
        if stopped:
            index |= STOPPED
        outputs.write_index(index)
    if as_json:
        order = {source: number for number, source in enumerate(sources)}
        results = [facts for _, facts in sorted(job.results, key=lambda result: order[result[0]])]
        print_result(json.dumps({**index, "results": results}, indent=1, allow_nan=False))
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
