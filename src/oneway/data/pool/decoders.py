"""Images of a pool are decoded beside what asks for them: in processes, or in threads where reading is waiting.

Threads that decode wait for Python's lock, and so does the one that gives a GPU its work.
"""

from __future__ import annotations

import mmap
import os
import pickle
import selectors
import signal
import subprocess
import sys
import tempfile
import weakref
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any

import numpy as np

from oneway.common.errors import UserError
from oneway.data.pool.reader import Broken, Choose, ImageRegion, Reader

Read = Callable[..., ImageRegion]
"""`Pool.read`."""

CODE = "from oneway.data.pool.decoder import main; main()"
END = signal.SIGUSR1 if hasattr(signal, "SIGUSR1") else signal.SIGTERM
"""The signal at which a forker ends its processes and itself, see `decoder`."""

KEEP = 2**25
ENVIRONMENT = {
    # One computes in each process, and memory of one image is kept for the next: to fetch it from the system page by
    # page takes longer than to decode. The C library allows no more than KEEP for the first.
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "MALLOC_MMAP_THRESHOLD_": str(KEEP),
    "MALLOC_TRIM_THRESHOLD_": str(4 * KEEP),
}
DEATHS = 2  # of processes that decode the same image, before it is left alone
MOST_DEATHS = 20  # of all
CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL")
PAGE = mmap.PAGESIZE


def can_divide() -> bool:
    """Whether this system can fork processes to decode in."""
    return hasattr(os, "fork") and bool(sys.executable)


class Threads:
    """Decoders that are threads of this process."""

    def __init__(self, read: Read, seed: int, workers: int) -> None:
        self.read, self.seed = read, seed
        self.executor = ThreadPoolExecutor(workers, "decode")
        self.futures: dict[int, Future[ImageRegion]] = {}

    def begin(self, slot: int, image: int, choose: Choose) -> None:
        """See `engine.store.Decoders`, as for what follows."""
        if slot in self.futures:
            self.futures[slot].cancel()
        self.futures[slot] = self.executor.submit(self.read, image, self.seed, choose)

    def result(self, slot: int) -> ImageRegion:
        return self.futures.pop(slot).result()

    def close(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)


class _Worker:
    """A process that decodes: the connection to it, and the process that forked it."""

    def __init__(self, connection: Connection, forker: subprocess.Popen[bytes]) -> None:
        self.connection, self.forker = connection, forker
        self.slots: deque[int] = deque()  # that it has been given, in their order
        self.status: int | None = None

    def end(self) -> str:
        """What ended it, in words: as the process that forked it has said, or else what ended that one."""
        if self.status is None:
            with suppress(subprocess.TimeoutExpired):
                self.status = self.forker.wait(1)
        if self.status is None:
            return "something unknown"
        return signal.Signals(-self.status).name if self.status < 0 else f"status {self.status}"


class Processes:
    """Decoders that are processes, and write into memory that is shared with them. For one thread at a time."""

    def __init__(self, reader: Reader, read: Read, seed: int, workers: int, slots: int, room: int) -> None:
        """Start the workers, with shared memory for as many images as there are slots, of at most `room` bytes each.

        What the reader cannot decode, `read` replaces: see `Pool.read`.
        """
        self.reader, self.read, self.seed = reader, read, seed
        self.room = -(-room // PAGE) * PAGE
        self.file = _shared(slots * self.room)
        weakref.finalize(self, os.close, self.file)
        self.memory = np.frombuffer(mmap.mmap(self.file, slots * self.room), np.uint8).reshape(slots, self.room)
        self.asked: dict[int, tuple[int, Choose]] = {}
        self.outcomes: dict[int, Any] = {}  # by slot, of those that are done
        self.deaths: Counter[int] = Counter()  # of processes, by the image that each was decoding
        self.all_deaths = 0
        self.forkers: list[subprocess.Popen[bytes]] = []
        self.selector = selectors.DefaultSelector()
        self.workers: list[_Worker] = []
        self.closed = False
        self._start(workers)

    def begin(self, slot: int, image: int, choose: Choose) -> None:
        """See `engine.store.Decoders`, as for what follows."""
        while slot in self.asked and slot not in self.outcomes:  # nobody may write there any more
            self._receive()
        self.outcomes.pop(slot, None)
        self.asked[slot] = image, choose
        self._receive(0)
        self._give(slot)

    def result(self, slot: int) -> ImageRegion:
        image, choose = self.asked[slot]
        return self.read(image, self.seed, choose, partial(self._decode, slot))

    def close(self) -> None:
        self.closed = True
        for forker in self.forkers:
            forker.send_signal(END)
        for forker in self.forkers:
            with suppress(subprocess.TimeoutExpired):
                forker.wait(1)

    def _decode(self, slot: int, image: int, choose: Choose) -> ImageRegion:
        if self.asked[slot][0] != image:  # the one that was asked for is known to be broken
            self.begin(slot, image, choose)
        while slot not in self.outcomes:
            self._receive()
        outcome = self.outcomes[slot]
        if isinstance(outcome, BaseException):
            raise outcome
        size, box = outcome
        shape = box[2] - box[0], box[3] - box[1], 3
        return ImageRegion(size, box, self.memory[slot, : shape[0] * shape[1] * 3].reshape(shape), image)

    def _give(self, slot: int) -> None:
        worker = min(self.workers, key=lambda worker: len(worker.slots))
        worker.slots.append(slot)
        with suppress(OSError):  # it has died, which will be seen
            worker.connection.send((slot, *self.asked[slot]))

    def _receive(self, timeout: float | None = None) -> None:
        """Note the answers that have come; without a timeout, wait for the next."""
        for key, _ in self.selector.select(timeout):
            worker: _Worker = key.data
            try:
                slot, outcome = worker.connection.recv()
            except (EOFError, OSError):
                self._replace(worker)
                continue
            if slot is None:
                worker.status = outcome  # of the process: nothing else will come
            else:
                worker.slots.remove(slot)
                self.outcomes[slot] = outcome

    def _replace(self, worker: _Worker) -> None:
        """Start another worker for the images of a dead one; an image at which DEATHS of them died is given up."""
        self.selector.unregister(worker.connection)
        self.workers.remove(worker)
        worker.connection.close()
        if self.closed:
            raise CancelledError
        end = worker.end()
        if worker.slots:
            image, _ = self.asked[worker.slots[0]]
            self.deaths[image] += 1
            if self.deaths[image] == DEATHS:
                self.outcomes[worker.slots.popleft()] = self._error(image, end)
        self.all_deaths += 1
        if self.all_deaths > MOST_DEATHS:
            raise UserError(
                f"{self.reader.source.name}: {MOST_DEATHS} processes that decoded its images have ended before their "
                f"time, the last one by {end}. The system ends them (SIGKILL) where memory is short."
            )
        self._start(1)
        for slot in worker.slots:
            self._give(slot)

    def _error(self, image: int, end: str) -> Exception:
        name = self.reader.name(image)
        if end in CRASHES:
            return Broken(f"{name}: the decoder crashes on it ({end}).")
        return UserError(
            f"{name}: the process that decodes it was ended by {end}, {DEATHS} times. The system "
            "does so (SIGKILL) where memory is short."
        )

    def _start(self, count: int) -> None:
        ours, theirs = zip(*(Pipe() for _ in range(count)), strict=True)
        numbers = self.file, *(connection.fileno() for connection in theirs)
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        forker = subprocess.Popen(
            [sys.executable, "-c", CODE, *map(str, numbers)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=os.environ | ENVIRONMENT | {"PYTHONPATH": path},
            pass_fds=(*numbers, self.reader.index.file),
            start_new_session=True,  # out of reach of Ctrl-C
        )
        self.forkers.append(forker)
        for connection in theirs:
            connection.close()
        with suppress(OSError):
            ours[0].send_bytes(pickle.dumps((self.reader, self.room)))
        for connection in ours:
            self.workers.append(worker := _Worker(connection, forker))
            self.selector.register(connection, selectors.EVENT_READ, worker)


def _shared(size: int) -> int:
    """The number of an open file without a name, for memory that processes share."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("oneway")
    else:
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    os.ftruncate(file, size)
    return file
