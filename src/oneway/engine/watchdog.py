"""The watchdog of distributed training: within a minute, a failed or hanging process ends all of them, by name.

A thread of each process writes a heartbeat with its progress into the rendezvous store once a second. Rank 0 watches
all others, and they watch rank 0. Whoever misses a process writes that into the store, and every process that reads it
exits: its main thread may be blocked in a collective operation, which nothing can interrupt.
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
"""Seconds without a heartbeat after which a process counts as gone."""
STUCK = 40.0
"""Seconds without progress, while another process waits, after which a process counts as hanging."""
TO_FIND_OUT = 8.0
"""Seconds to find out which process is gone, after a collective operation has failed."""
ADVICE = "What the run has saved is whole; --resume continues it."


class CollectiveError(Exception):
    """A collective operation failed, most likely because one of the processes is gone."""


class Watchdog:
    """The heartbeat of one process, and its view of the others."""

    def __init__(self, store: Any, token: str, rank: int, names: Sequence[str], processes: Sequence[str]) -> None:
        """Write the first heartbeat.

        Args:
            store: The rendezvous store, in a copy for this thread alone: a blocking call would block other threads.
            token: Prefix of the run's keys, since the store may hold keys of earlier runs.
            rank: The rank of this process.
            names: What messages call each process.
            processes: `host process-id` of each.
        """
        self.store, self.token, self.rank, self.names, self.processes = store, token, rank, names, processes
        self.marks = 0
        """Number of collective operations so far: a process with fewer than another is waited for."""
        self.ticks = 0
        """Number of steps that this process has made by itself."""
        self.pauses = 1  # until training begins
        self.beats = 0
        self.seen = {other: ("", time.monotonic(), "", time.monotonic()) for other in range(len(names))}
        self.ended = threading.Event()
        self.failing = False
        self._beat("")

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Run the watchdog thread within the block; an exception in this process is reported to the others."""
        thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
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
        """Within the block, and only there, a process without progress counts as hanging."""
        self.pauses -= 1
        try:
            yield
        finally:
            self.pauses += 1

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Within the block, this process may be without progress for any time."""
        self.pauses += 1
        try:
            yield
        finally:
            self.pauses -= 1

    def _tell(self, error: Exception) -> BaseException:
        """The exception to raise in this process: its own, or one that names who caused it; each is printed once."""
        with suppress(Exception):
            if isinstance(error, CollectiveError):
                return UserError(f"{self._find_out(error).rstrip('.')}. {ADVICE}")
            what = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            first, own = self._note(f"{self.names[self.rank]} failed: {what}"), f"{self.names[self.rank]} "
            return SystemExit(1) if first.endswith(f" failed: {what}") and not first.startswith(own) else error
        return error

    def _find_out(self, error: CollectiveError) -> str:
        """Which process is gone, after a collective operation has failed."""
        deadline = time.monotonic() + TO_FIND_OUT
        while time.monotonic() < deadline:
            if found := self._noted():
                return found
            for rank, process in enumerate(self.processes):
                if self._has_ended(process):
                    return self._note(f"{self.names[rank]} exited without an error (killed, perhaps out of memory)")
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
        """The loop of the thread, until the run ends."""
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
                if self.rank == 0:  # without torchrun the store ends with it: others read it first
                    time.sleep(2 * SECONDS_BETWEEN_BEATS)
                os._exit(1)

    def _beat(self, state: str) -> None:
        self.beats += 1
        self.store.set(
            self._key(self.rank), f"{self.beats} {self.marks} {self.marks + self.ticks} {self.pauses} {state}"
        )

    def _look(self, silent: float) -> None:
        """Report a process that has been silent or stuck for too long."""
        others = [rank for rank in (range(len(self.names)) if self.rank == 0 else (0,)) if rank != self.rank]
        now = time.monotonic()
        for rank, value in zip(others, self.store.multi_get([self._key(rank) for rank in others]), strict=True):
            beat, marks, progress, pauses, *left = value.decode().split()
            before, heard, progress_before, moved = self.seen[rank]
            heard = now if beat != before else heard
            moved = now if progress != progress_before or int(pauses) else moved
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
        """Report a failure in the store; returns the first report, which may be another process's."""
        return str(self.store.compare_set(self._key("failed"), "", found).decode())

    def _noted(self) -> str:
        key = self._key("failed")
        return str(self.store.get(key).decode()) if self.store.check([key]) else ""

    def _key(self, name: object) -> str:
        return f"{self.token}/{name}"
