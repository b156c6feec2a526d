"""Videos of overlays, by PyAV, with the timing of the video that they are made of. Sound is left out.

Shapes: a frame has H×W pixels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from oneway.common.links import temporary_for
from oneway.data.dataset import Bytes
from oneway.data.decode.video import require_video
from oneway.runs.atomic import CannotWrite

TICK = Fraction(1, 60_000)
"""The clock of the videos that are written, in seconds: MPEG-4 counts no more than 65,535 ticks in one."""

USUAL_RATE = 25
CODECS = {"libx264": {"crf": "18", "bf": "0"}, "mpeg4": {"qmin": "2", "qmax": "2"}}
"""The preferred one first, each with options for the quality of a good copy.

Frames are stored in the order in which they are shown (`bf`), or those of uneven times would end too early."""


@contextmanager
def video_writer(path: Path, origin: str) -> Iterator[Callable[[Bytes, Fraction | None], None]]:
    """A function that appends a frame; the file has its name, and notes its origin, once the block has ended well."""
    av = require_video()
    temporary = temporary_for(path)
    stream: Any = None
    latest: Any = None  # the last packet, which waits until it is known how long its frame is shown
    ticks, lasting = -1, round(1 / (USUAL_RATE * TICK))

    def append(pixels: Bytes, time: Fraction | None) -> None:
        nonlocal stream, ticks, lasting
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
        before, ticks = ticks, ticks + step if time is None else max(ticks + 1, round(time / TICK))
        lasting = ticks - before if before >= 0 else lasting
        frame.pts, frame.time_base = ticks, TICK
        write(stream.encode(frame))

    def write(packets: Iterable[Any]) -> None:
        nonlocal latest
        for packet in packets:
            if latest is not None:
                container.mux(latest)
            latest = packet

    try:
        with av.open(str(temporary), "w", format="mp4") as container:
            container.metadata["comment"] = origin
            yield append
            if stream is not None:
                write(stream.encode(None))
                latest.duration = lasting  # or the last frame, after which none comes, would be shown for no time
                container.mux(latest)
        os.replace(temporary, path)
    except (av.FFmpegError, OSError) as error:
        raise CannotWrite(f"{path}: cannot be written ({error}).") from error
    finally:
        temporary.unlink(missing_ok=True)
