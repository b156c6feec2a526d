"""Frames of videos as images in the cache."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path, PurePosixPath

from PIL import Image
from rich.console import Console

from oneway.common.links import replace_file
from oneway.common.words import counted, say
from oneway.data.cache.made_folder import ensure_folder
from oneway.data.decode.video import BreaksOff, read_frames

PART, LOOKED_AT = 2**20, 16  # bytes of a part of a video, and parts by which it is known again
USUAL_RATE = 25  # frames a second, where a video has no clock
QUALITY = 95  # of the JPEG files of frames: a video has lost more
FRAMES = ".frames.json"  # beside the folder of a video's frames: what should be in it


def unpack_frames(path: Path, videos: Sequence[Path], every: float, cache: Path | None, console: Console) -> Path:
    """The folder with frames of videos as JPEG files, one for each so many seconds, by their times.

    `path` is the only video, or a folder that holds them; frames of each are then in a folder of its name.
    """
    places = {video: PurePosixPath(video.relative_to(path).as_posix()) for video in videos}
    known_by = (" ".join((*place.parts, _known_by(video))) for video, place in places.items())

    def fill(new: Path) -> None:
        problems = {place: _write_frames(video, every, new / place, console) for video, place in places.items()}
        said = (": ".join((*place.parts[-1:], problem)) for place, problem in problems.items() if problem)
        noted = {"frames": _frames_in(new), "problem": "; ".join(said)}
        replace_file(new.parent / FRAMES, json.dumps(noted).encode())

    folder = ensure_folder(path, f"{' '.join(known_by)} every {every:g} s", cache, console, fill, _has_frames)
    if problem := json.loads((folder.parent / FRAMES).read_bytes())["problem"]:
        say(console, f"Note: {path}: {problem}")
    return folder


def _known_by(video: Path) -> str:
    """The size of a file, and a digest of parts of it."""
    size, digest = video.stat().st_size, blake2b(digest_size=16)
    with video.open("rb") as file:
        for part in range(LOOKED_AT):
            file.seek(part * max(size - PART, 0) // (LOOKED_AT - 1))
            digest.update(file.read(PART))
    return f"{size} {digest.hexdigest()}"


def _has_frames(folder: Path) -> bool:
    """Whether all frames that were written are there."""
    try:
        noted = json.loads((folder.parent / FRAMES).read_bytes())
        return bool(noted["frames"] == _frames_in(folder)) and "problem" in noted
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _frames_in(folder: Path) -> list[int]:
    """How many files there are, and of how many bytes."""
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return [len(sizes), sum(sizes)]


def _write_frames(path: Path, every: float, folder: Path, console: Console) -> str:
    """Write the frames of a video into a folder, and return why it breaks off, where it does."""
    folder.mkdir(parents=True, exist_ok=True)
    step, due, written, problem = Fraction(every), Fraction(0), 0, ""

    def wanted(number: int, time: Fraction | None) -> bool:
        nonlocal due
        now = Fraction(number, USUAL_RATE) if time is None else time
        if now < due:
            return False
        due = (now // step + 1) * step
        return True

    try:
        for pixels, time in read_frames(path, wanted):
            name = f"{float(time):010.3f}" if time is not None else f"frame{written:06d}"
            Image.fromarray(pixels).save(folder / f"{name}.jpg", quality=QUALITY)
            written += 1
    except BreaksOff as error:
        problem = str(error).removeprefix(f"{path}: ")
    say(console, f"{path}: {counted(written, 'frame')}, one every {every:g} s (--data.frames-every).")
    return problem
