"""Frames of videos, by PyAV. Sound is left out.

Shapes: a frame has H×W pixels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from oneway.common.bounded import open_regular
from oneway.common.errors import UserError
from oneway.common.extras import import_extra
from oneway.data.dataset import Bytes
from oneway.data.decode.plausible import MOST_PIXELS

VIDEO_SUFFIXES = frozenset({".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg"})
CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegvideo"
"""What a file may be, whatever its name: playlists, which lead to other files, are not among them."""

LENGTH = re.compile(r"(\d{1,3}):(\d\d):(\d\d(?:\.\d{1,9})?)")
"""The length of a stream of a Matroska file: hours, minutes and seconds."""


def require_video() -> Any:
    """PyAV, or an error that says how to get it."""
    return import_extra("av", "video", "A video")


class BreaksOff(UserError):
    """A video that ends before its end; the frames before can be used."""


def read_frames(
    path: Path, wanted: Callable[[int, Fraction | None], bool] | None = None
) -> Iterator[tuple[Bytes, Fraction | None]]:
    """The frames of a video, H×W×3 in RGB and upright, each with its time in seconds where that is known.

    Args:
        path: The video.
        wanted: Whether to give a frame, by its number and its time; by default all.

    Raises:
        BreaksOff: After the last frame that can be read, of a video that should have more.
        UserError: It is no video that can be read.
    """
    av = require_video()
    count, end, corrupt, announced, length = 0, Fraction(0), False, 0, Fraction(0)
    problem = ""
    try:
        with open_regular(path) as file, av.open(file, options={"format_whitelist": CONTAINERS}) as container:
            announced, length = _announced(container)
            for frame in container.decode(video=0):
                shown_at = None if frame.pts is None else frame.pts * frame.time_base
                if frame.width * frame.height > MOST_PIXELS:
                    raise UserError(f"{path}: frames of {frame.width}×{frame.height} pixels are more than we decode.")
                if wanted is None or wanted(count, shown_at):
                    upright = np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90) % 4)
                    yield np.ascontiguousarray(upright), shown_at
                count += 1
                end = max(end, (shown_at or 0) + (frame.duration or 0) * frame.time_base)
                corrupt = frame.is_corrupt
    except (av.FFmpegError, OSError, ValueError, IndexError) as error:
        reason = str(getattr(error, "strerror", None) or error)  # without a number, and what FFmpeg calls the file
        problem = f" ({' '.join(reason.split())[:200]})"
        if not count:
            raise UserError(f"{path}: damaged, or no video that can be read{problem}.") from error
    if not count:
        raise UserError(f"{path}: no frame in it can be read.")
    # Editors leave frames in a file that are not shown, and the last ones of some encoders are lost.
    missing = announced - count > max(2, announced // 50) and (
        not length or end < length - max(Fraction(1), length / 50)
    )
    if problem or corrupt or missing:
        of = f" of {announced}" if announced > count else ""
        raise BreaksOff(f"{path}: breaks off; {count}{of} frames could be read, and are used{problem}.")


def _announced(container: Any) -> tuple[int, Fraction]:
    """How many frames a video should have, and how many seconds they should last; zero where it does not say."""
    stream = container.streams.video[0]
    seconds = Fraction(0)
    if stream.duration is not None and container.format.name != "avi":  # which guesses, by the size of the file
        seconds = stream.duration * stream.time_base
    elif match := LENGTH.fullmatch(stream.metadata.get("DURATION", "")):
        hours, minutes, rest = match.groups()
        seconds = 3600 * int(hours) + 60 * int(minutes) + Fraction(rest)
    elif len(container.streams) == 1 and container.duration is not None and not stream.frames:
        seconds = Fraction(container.duration, 10**6)  # of several streams, sound may be longer
    return stream.frames or round(seconds * (stream.average_rate or 0)), seconds
