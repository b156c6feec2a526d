"""TensorBoard: one event file in the run folder, written anew when a run is continued: a curve without a seam."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from oneway.tools.loggers.interface import About, Point

PREFIX = "events.out.tfevents."


class Service:
    """Writes to the disk at once."""

    def __init__(self, about: About, tell: Callable[[str], None]) -> None:
        folder = about.folder_of("tensorboard")
        earlier = [file for file in folder.iterdir() if file.name.startswith(PREFIX)]
        # TensorBoard reads the files of a folder in the order of their names.
        latest = max((_time_of(file) for file in earlier), default=0)
        name = f"{PREFIX}{max(int(time.time()), latest + 1):010d}.oneway.{os.getpid()}"
        self.writer = RecordWriter(open(folder / name, "xb"))  # noqa: SIM115 (closed in `close`)
        for file in earlier:  # what they hold comes from the log, as does this one
            file.unlink()
        self._write(file_version="brain.Event:2")
        # One that is open in a browser forgets what it has read.
        self._write(session_log=SessionLog(status=SessionLog.START))
        self._write(summary=text_pb("configuration", _table(about.config)))
        self.writer.flush()

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
            values += [Summary.Value(tag=name, image=_as_image(file)) for name, file in point.pictures.items()]
            self._write(point.iteration, summary=Summary(value=values))
        self.writer.flush()

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """End the file, with the summary as text."""
        if summary is not None:
            plain = {key: value for key, value in summary.items() if not isinstance(value, (dict, list))}
            self._write(int(summary["iterations"]), summary=text_pb("summary", _table(plain)))
        self.writer.close()

    def _write(self, step: int = 0, **content: Any) -> None:
        self.writer.write(Event(wall_time=time.time(), step=step, **content).SerializeToString())


def _time_of(file: Path) -> int:
    number = file.name.removeprefix(PREFIX).partition(".")[0]
    return int(number) if number.isdecimal() else 0


def _as_image(content: bytes) -> Summary.Image:
    width, height = Image.open(io.BytesIO(content)).size
    return Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=content)


def _table(values: Mapping[str, Any]) -> str:
    """Markdown, which TensorBoard shows as a table."""
    rows = [f"| {key} | {str(value).replace('|', '&#124;')} |" for key, value in values.items()]
    return "\n".join(["| | |", "|---|---|", *rows])
