"""Notices within a minute that a process of several has failed, ended or hangs, and ends the others with its name.

A thread of each process says once a second, in the store that they found each other by, that it lives and how far it
has come. The first process looks at all of them, the others at the first. Who is missing is noted in the store, and
every process that reads it ends: it may be inside an operation that waits for the missing one, and cannot be told.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from oneway.common.errors import UserError
from oneway.common.interrupt import Interrupted
from oneway.common.words import first_line

SECONDS_BETWEEN_BEATS = 1.0
SILENT = 20.0
"""Seconds without a sign of life after which a process counts as gone."""
STUCK = 40.0
"""Seconds without progress, while another waits, after which it hangs."""
TO_FIND_OUT = 8.0
"""Seconds to find out who has gone, once an operation has failed."""
ADVICE = "What the run has saved is whole; --resume continues it."


class Broken(Exception):
    """An operation of several processes failed, most likely since one of them has gone."""


class Alarm:
    """The thread of one process."""

    def __init__(self, store: Any, token: str, rank: int, names: Sequence[str], processes: Sequence[str]) -> None:
        """Says at once that this process lives.

        Args:
            store: For this thread alone: one that waits would keep others waiting.
            token: Of this run, since the store may remember others.
            rank: Which process this is.
            names: Of all processes, in words.
            processes: `host process-id` of each.
        """
        self.store, self.token, self.rank, self.names, self.processes = store, token, rank, names, processes
        self.marks = 0
        """Counts what the processes do together: those who have done less are waited for."""
        self.ticks = 0
        """Counts what this one does by itself meanwhile."""
        self.waited_for = 1  # until training begins
        self.beats = 0
        self.seen = {other: ("", time.monotonic(), "", time.monotonic()) for other in range(len(names))}
        self.ended = threading.Event()
        self.failing = False
        self._beat("")

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Within the block, the thread watches; an error of this process is told to the others."""
        thread = threading.Thread(target=self._watch, name="alarm", daemon=True)
        thread.start()
        try:
            yield
        except Interrupted as stopped:
            self.ended.set()
            if self.rank == 0:
                raise
            time.sleep(1)  # torchrun ends the first process when this one has gone, and that one has something to say
            raise SystemExit(stopped.exit_status) from None
        except Exception as error:
            self.failing = True
            raise self._tell(error) from error
        except BaseException:
            self._note(f"{self.names[self.rank]} was stopped")
            raise
        finally:
            self.ended.set()
            thread.join()
            with suppress(Exception):
                self._beat("left")

    @contextmanager
    def expecting_progress(self) -> Iterator[None]:
        """Within the block, and not before, a process that makes no progress hangs."""
        self.waited_for -= 1
        try:
            yield
        finally:
            self.waited_for += 1

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Within the block, nobody minds that this process makes no progress."""
        self.waited_for += 1
        try:
            yield
        finally:
            self.waited_for -= 1

    def _tell(self, error: Exception) -> BaseException:
        """What is raised in this process: its own error, or who caused it; nothing is said twice."""
        with suppress(Exception):
            if isinstance(error, Broken):
                return UserError(f"{self._find_out(error).rstrip('.')}. {ADVICE}")
            what = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            first, own = self._note(f"{self.names[self.rank]} failed: {what}"), f"{self.names[self.rank]} "
            return SystemExit(1) if first.endswith(f" failed: {what}") and not first.startswith(own) else error
        return error

    def _find_out(self, error: Broken) -> str:
        """Who has gone, where an operation failed."""
        deadline = time.monotonic() + TO_FIND_OUT
        while time.monotonic() < deadline:
            if found := self._noted():
                return found
            for rank, process in enumerate(self.processes):
                if self._has_ended(process):
                    return self._note(f"{self.names[rank]} has ended without a word (killed, perhaps for its memory)")
            time.sleep(0.1)
        with suppress(Exception):
            self._look(silent=TO_FIND_OUT / 2)
        return self._noted() or f"another process no longer answers ({first_line(error)[:300]})."

    def _has_ended(self, process: str) -> bool:
        host, number = process.rsplit(" ", 1)
        if host != self.processes[self.rank].rsplit(" ", 1)[0]:
            return False
        try:
            os.kill(int(number), 0)
            with open(f"/proc/{number}/stat", encoding="ascii", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0] in "ZX"
        except ProcessLookupError:
            return True
        except OSError:
            return False

    def _watch(self) -> None:
        """Until the run ends."""
        while not self.ended.wait(SECONDS_BETWEEN_BEATS):
            try:
                self._beat("")
                self._look(SILENT)
                found = "" if self.ended.is_set() else self._noted()
            except Exception as error:
                if self.ended.is_set() or self.failing:
                    return
                found = f"{self.names[0]}, or the computer that torchrun began on, no longer answers ({error})"
            if found and not self.failing:
                # Nobody can interrupt an operation that waits; what was being written is written again or not at all.
                text = f"oneway: {self.names[self.rank]} has stopped: {found.rstrip('.')}. {ADVICE}\n"
                with suppress(OSError, ValueError):
                    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode())
                if self.rank == 0:
                    time.sleep(
                        2 * SECONDS_BETWEEN_BEATS
                    )  # without torchrun the store ends with it: others read it first
                os._exit(1)

    def _beat(self, state: str) -> None:
        self.beats += 1
        self.store.set(
            self._key(self.rank), f"{self.beats} {self.marks} {self.marks + self.ticks} {self.waited_for} {state}"
        )

    def _look(self, silent: float) -> None:
        """Notes who has been silent or stuck for too long."""
        others = [rank for rank in (range(len(self.names)) if self.rank == 0 else (0,)) if rank != self.rank]
        now = time.monotonic()
        for rank, value in zip(others, self.store.multi_get([self._key(rank) for rank in others]), strict=True):
            beat, marks, progress, waited_for, *left = value.decode().split()
            before, heard, progress_before, moved = self.seen[rank]
            heard = now if beat != before else heard
            moved = now if progress != progress_before or int(waited_for) else moved
            self.seen[rank] = beat, heard, progress, moved
            if left:
                if rank == 0:
                    self.ended.set()  # the run has ended, and the store may go with that process
                continue
            if now - heard > silent:
                self._note(f"{self.names[rank]} has not answered for {now - heard:.0f} s")
            elif now - moved > STUCK and int(marks) < self.marks:
                self._note(
                    f"{self.names[rank]} has made no progress for {now - moved:.0f} s, and the others wait for it"
                )

    def _note(self, found: str) -> str:
        """Writes down what has happened, and returns what was written down first."""
        return str(self.store.compare_set(self._key("failed"), "", found).decode())

    def _noted(self) -> str:
        key = self._key("failed")
        return str(self.store.get(key).decode()) if self.store.check([key]) else ""

    def _key(self, name: object) -> str:
        return f"{self.token}/{name}"
