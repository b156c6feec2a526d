"""Starts the processes of loggers beside a run, hears what they say, and waits for them in the end, not for long."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict

from oneway.tools.loggers.interface import TITLES, About

PATIENCE = 30.0
"""Seconds without a sign of life after which a logger is not waited for any longer."""

MOST_SECONDS = 60.0
"""Seconds that the end of a run waits for a logger that shows signs of life."""

MOST_MESSAGES = 8
"""The most messages of one logger: a service that restarts again and again may say something else each time."""


class Follower:
    """The process of one logger. Nothing here waits for it but `finish`, and nothing raises."""

    def __init__(self, service: str, about: About, say: Callable[[str], None]) -> None:
        self.title, self.say = TITLES[service], say
        self.heard, self.unread = time.monotonic(), b""
        self.told: set[str] = set()
        command = [sys.executable, "-P", "-m", "oneway.tools.loggers.follow", service]
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        # Ctrl-C is for the run: its loggers end when it has.
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, start_new_session=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()
        os.set_blocking(self.output, False)
        with suppress(OSError):
            self.process.stdin.write(json.dumps(asdict(about)).encode() + b"\n")
            self.process.stdin.flush()

    def hear(self) -> bool:
        """Say what the logger has said; False where it will say no more."""
        try:
            while content := os.read(self.output, 2**16):
                self.heard = time.monotonic()
                *lines, self.unread = (self.unread + content).split(b"\n")
                for line in filter(None, lines):
                    self._tell(line.decode("utf-8", errors="replace"))
        except BlockingIOError:
            return True
        return False

    def finish(self) -> None:
        """Let a logger that was left take what it lacks, and end it where it does not; it has had the whole run."""
        deadline = time.monotonic() + MOST_SECONDS
        while self.hear() and time.monotonic() < min(deadline, self.heard + PATIENCE):
            select.select([self.output], [], [], 0.2)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)  # who has closed its pipe is about to end
        if self.process.poll() is None:
            with suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self._tell(f"{self.title} does not answer, and may lack the last points. metrics.jsonl has everything.")
        else:
            self.tell_failure()
        self.process.wait()

    def tell_failure(self) -> None:
        """Say that the logger has ended, where it has, and not well."""
        if self.process.poll():
            self._tell(f"{self.title} has failed (status {self.process.returncode}). metrics.jsonl has everything.")

    def leave(self) -> None:
        """Tell the logger that the run has ended, or has been stopped: it does the rest by itself."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()

    def _tell(self, message: str) -> None:
        if message not in self.told and len(self.told) < MOST_MESSAGES:
            self.say(f"Note: {message}")
            self.told.add(message)


@contextmanager
def follow_run(services: Sequence[str], about: About, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Log a run to services within the block; the function that it gives says what they have to say."""
    followers: list[Follower] = []
    if "tensorboard" in services:
        say(f"Curves: tensorboard --logdir {shlex.quote(about.path)}")
    for service in services:
        try:
            followers.append(Follower(service, about, say))
        except OSError as error:
            say(f"Note: {TITLES[service]} cannot be started ({error.strerror}). The run goes on.")

    def hear() -> None:
        for follower in followers:
            if not follower.hear():
                follower.tell_failure()

    try:
        yield hear
    finally:  # all at once: they take what is left beside each other
        for follower in followers:
            follower.leave()
    for follower in followers:
        follower.finish()
