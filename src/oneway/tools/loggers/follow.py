"""The process of a logger: follows the log of a run until the run ends, and takes it to a service.

Started by `followers.py`. Its standard input says which run, and closes when the run ends, in whatever way. On its
standard output, a line is a message for the user, and an empty one a sign of life.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from importlib import import_module

from oneway.common.extras import unreported
from oneway.common.run_files import METRICS, SUMMARY
from oneway.common.words import first_line
from oneway.tools.loggers.interface import TITLES, About, Logger, read_point

SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_BETWEEN_TRIES = 30.0
LAST_SECONDS = 60
"""Seconds that a service has after the end of the run, if nobody ends it before."""


class Parent:
    """The process that trains, at the other end of two pipes."""

    def __init__(self) -> None:
        self.pipe = os.dup(1)
        os.set_blocking(self.pipe, False)  # nobody may read
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):  # services print what nobody asked for
            os.dup2(nowhere, stream)
        self.gone = threading.Event()
        threading.Thread(target=self._await_end, daemon=True).start()

    def _await_end(self) -> None:
        while os.read(0, 1):
            pass
        self.gone.set()
        signal.alarm(LAST_SECONDS)  # whatever the service is doing then

    def tell(self, message: str = "") -> None:
        """A message; without words, a sign of life."""
        with suppress(OSError):
            os.write(self.pipe, f"{' '.join(message.split())}\n".encode())


def main() -> None:
    """Send the run to a service; where that fails, say so, and try again from the start."""
    service, about = sys.argv[1], About(**json.loads(sys.stdin.buffer.readline()))
    parent = Parent()
    with suppress(OSError):
        os.nice(5)  # training comes first
    lock = os.open(about.folder_of(service), os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)  # the process of a run that was killed may be about to end
    told: set[type[Exception]] = set()
    while True:
        last_try = parent.gone.is_set()
        try:
            follow(about, service, parent)
            return
        except Exception as error:
            if type(error) not in told:  # the words of one kind may differ each time, in an address or a time
                parent.tell(
                    f"{TITLES[service]} failed ({first_line(error)[:300]}). The run goes on; {METRICS} has everything, "
                    f"and it is tried again every {SECONDS_BETWEEN_TRIES:g} s."
                )
                with suppress(OSError):
                    (about.folder_of(service) / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
            told.add(type(error))
            if last_try:
                return
            parent.gone.wait(SECONDS_BETWEEN_TRIES)


def follow(about: About, service: str, parent: Parent) -> None:
    """Send all points of a run to a service, from the first on, until the run ends."""
    with unreported():
        module = import_module(f"oneway.tools.loggers.{service}")
    logger: Logger = module.Service(about, parent.tell)
    number, rest, ended = 0, "", False
    with open(about.folder / METRICS, encoding="utf-8") as log:  # stays the same file when a continued run has another
        while not ended:
            parent.tell()
            ended = parent.gone.wait(SECONDS_BETWEEN_LOOKS if number else 0)
            *lines, rest = (rest + log.read()).split("\n")
            points = [read_point(about, place, json.loads(line)) for place, line in enumerate(lines, start=number)]
            number += len(points)
            if not (about.folder / service).is_dir():  # a file that is open could still be written, and nobody sees it
                raise FileNotFoundError(f"{about.folder / service} is gone")
            if points:
                logger.log(points)
    summary = about.folder / SUMMARY
    logger.close(json.loads(summary.read_text(encoding="utf-8")) if summary.exists() else None)


if __name__ == "__main__":
    main()
