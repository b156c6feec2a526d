"""Videos, by PyAV: their frames, and a video of overlays with the same timing. Sound is left out.

Shapes: a frame has H×W pixels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from oneway.common.errors import UserError
from oneway.common.extras import import_extra
from oneway.data.dataset import Bytes
from oneway.data.decode.images import MOST_PIXELS
from oneway.runs.atomic import SUFFIX, CannotWrite

CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegvideo"
"""What a file may be, whatever its name: playlists, which lead to other files, are not among them."""

TICK = Fraction(1, 90_000)
"""The clock of the videos that are written, in seconds."""

USUAL_RATE = 25
CODECS = {"libx264": {"crf": "18"}, "mpeg4": {"qscale": "2"}}
"""The preferred one first, each with options for the quality of a good copy."""


def require_video() -> Any:
    """PyAV, or an error that says how to get it."""
    return import_extra("av", "video", "A video")


def read_frames(path: Path) -> Iterator[tuple[Bytes, Fraction | None]]:
    """The frames of a video, H×W×3 in RGB and upright, each with its time in seconds where that is known.

    A UserError names a file that is no video, or breaks off.
    """
    av = require_video()
    count = 0
    try:
        with path.open("rb") as file, av.open(file, options={"format_whitelist": CONTAINERS}) as container:
            for frame in container.decode(video=0):
                if frame.width * frame.height > MOST_PIXELS:
                    raise UserError(f"{path}: frames of {frame.width}×{frame.height} pixels are more than we decode.")
                upright = np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90) % 4)
                yield np.ascontiguousarray(upright), None if frame.pts is None else frame.pts * frame.time_base
                count += 1
    except (av.FFmpegError, OSError, ValueError, IndexError) as error:
        cause = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: damaged after frame {count}, or no video that can be read ({cause}).") from error
    if not count:
        raise UserError(f"{path}: no frame in it can be read.")


@contextmanager
def video_writer(path: Path) -> Iterator[Callable[[Bytes, Fraction | None], None]]:
    """A function that appends a frame; the file has its name only once the block has ended well."""
    av = require_video()
    temporary = path.with_name(f".{path.name}.{os.getpid()}{SUFFIX}")
    stream: Any = None
    ticks = -1

    def append(pixels: Bytes, time: Fraction | None) -> None:
        nonlocal stream, ticks
        # Colours are kept for 2×2 pixels together: an odd side gets its last row or column twice.
        height, width = pixels.shape[:2]
        even = np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
        frame = av.VideoFrame.from_ndarray(even, format="rgb24")
        if stream is None:
            codec = next(name for name in CODECS if name in av.codecs_available)
            stream = container.add_stream(codec, USUAL_RATE, options=CODECS[codec])
            stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, "yuv420p"
            stream.codec_context.time_base = TICK
        # A damaged clock must not stand still or go back.
        step = round(1 / (USUAL_RATE * TICK)) if ticks >= 0 else 1
        ticks = ticks + step if time is None else max(ticks + 1, round(time / TICK))
        frame.pts, frame.time_base = ticks, TICK
        container.mux(stream.encode(frame))

    try:
        with av.open(str(temporary), "w", format="mp4") as container:
            yield append
            if stream is not None:
                container.mux(stream.encode(None))
        os.replace(temporary, path)
    except (av.FFmpegError, OSError) as error:
        raise CannotWrite(f"{path}: cannot be written ({error}).") from error
    finally:
        temporary.unlink(missing_ok=True)
