"""Files that are read by position, on this machine or on another: by path, over HTTP, or through fsspec.

What comes from elsewhere may come late, damaged or not at all. A read gives the bytes that were asked for, of the file
that is meant, or a UserError that names it; before that it is tried again, for a minute or two.
"""

from __future__ import annotations

import http.client
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from oneway.common.bounded import open_regular
from oneway.common.errors import UserError, cannot_read
from oneway.common.extras import import_extra
from oneway.data.pool.addresses import MOST_REDIRECTS, REDIRECTS, Connection, connect, drained, redirected

TIMEOUT = 15.0
"""Seconds without a byte after which a request is made anew."""

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 16.0)
"""Seconds before each further attempt: a server may be away for a minute or so."""

SYSTEM = random.SystemRandom()  # which takes nothing from a generator that somebody has seeded
Result = TypeVar("Result")


class Status(NamedTuple):
    """Size and version of a file, which tell whether it is the one it was."""

    size: int
    stamp: str  # when it was written, or what its server calls this version of it; empty where nobody says


class Files(Protocol):
    """Reads files; from several threads at once."""

    waits: bool
    """Whether reading is waiting, mostly, so that many threads are of use."""

    def status(self, path: str) -> Status: ...

    def read(self, path: str, start: int, count: int, expected: Status | None = None) -> bytes:
        """Bytes of a file from a place onwards; fewer only where it ends.

        Raises:
            UserError: It cannot be read, or is another than expected, as far as that shows.
        """

    def close(self) -> None:
        """End requests that are waited for."""


class LocalFiles:
    """Files on this machine."""

    waits = False

    def status(self, path: str) -> Status:
        with opened(path) as file:
            found = os.fstat(file.fileno())
        return Status(found.st_size, str(found.st_mtime_ns))

    def read(self, path: str, start: int, count: int, expected: Status | None = None) -> bytes:
        with opened(path) as file:
            found = os.fstat(file.fileno()).st_size
            content = os.pread(file.fileno(), count, start)
        if expected is not None and found != expected.size:
            raise changed(path, expected, Status(found, ""))
        return content

    def close(self) -> None:
        """Nothing is waited for."""


@contextmanager
def opened(path: Path | str) -> Iterator[BinaryIO]:
    """A file on this machine; what fails within the block is a UserError that names it."""
    try:
        with open_regular(Path(path)) as file:
            yield file
    except OSError as error:
        raise cannot_read(path, error) from error


class HttpFiles:
    """Files on a server that answers requests for parts of them, or redirects; each thread keeps its connections."""

    waits = True

    def __init__(self) -> None:
        self.mine = threading.local()
        self.open: set[http.client.HTTPConnection] = set()
        self.closed = threading.Event()

    def status(self, path: str) -> Status:
        headers, _ = self._ask(path, 0, 1)
        return _status(path, headers)

    def read(self, path: str, start: int, count: int, expected: Status | None = None) -> bytes:
        headers, content = self._ask(path, start, count)
        if expected is not None and (found := _status(path, headers)) != expected:
            raise changed(path, expected, found)
        return content

    def close(self) -> None:
        self.closed.set()
        for connection in tuple(self.open):
            with suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(socket.SHUT_RDWR)

    def _ask(self, path: str, start: int, count: int) -> tuple[http.client.HTTPMessage, bytes]:
        return patiently(path, lambda: self._ask_once(path, start, count), self.closed)

    def _ask_once(self, path: str, start: int, count: int) -> tuple[http.client.HTTPMessage, bytes]:
        targets: dict[str, str] = self.mine.__dict__.setdefault("targets", {})
        # Where it was redirected to, forgotten if that does not answer: such addresses may be good for an hour only.
        address = targets.pop(path, path)
        remembered = address != path
        for _ in range(MOST_REDIRECTS + 1):
            scheme, netloc = urlsplit(address)[:2]
            connection = self._connection(scheme, netloc)
            try:
                answer = connection.ask(address, start, start + count - 1)
                if answer.status not in REDIRECTS:
                    found = _taken(path, answer, start, count, remembered)
                    if address != path:
                        targets[path] = address
                    return found
                address = redirected(path, address, answer.getheader("Location"))
                if not drained(answer):
                    self._drop(scheme, netloc)
            except BaseException:
                self._drop(scheme, netloc)  # what is left of the answer would be taken for the next one
                raise
        raise UserError(f"{path}: its server redirects more than {MOST_REDIRECTS} times.")

    def _connection(self, scheme: str, netloc: str) -> Connection:
        kept: dict[tuple[str, str], Connection] = self.mine.__dict__.setdefault("connections", {})
        if (scheme, netloc) not in kept:
            kept[scheme, netloc] = connect(scheme, netloc, TIMEOUT)
            self.open.add(kept[scheme, netloc].link)
        return kept[scheme, netloc]

    def _drop(self, scheme: str, netloc: str) -> None:
        if connection := self.mine.__dict__.get("connections", {}).pop((scheme, netloc), None):
            self.open.discard(connection.link)
            connection.link.close()


class OtherFiles:
    """Files that fsspec reads, from object stores and others."""

    waits = True

    def __init__(self, scheme: str) -> None:
        fsspec = import_extra("fsspec", "remote", f"{scheme}://")
        try:
            self.system: Any = fsspec.filesystem(scheme, **_settings(scheme))
        except (ImportError, ValueError) as error:
            raise UserError(
                f"{scheme}:// cannot be read ({error}). Install it with: pip install 'oneway[remote]'"
            ) from None
        self.closed = threading.Event()

    def status(self, path: str) -> Status:
        return patiently(path, lambda: self._status_now(path), self.closed)

    def read(self, path: str, start: int, count: int, expected: Status | None = None) -> bytes:
        def read_once() -> bytes:
            try:
                content: bytes = self._try(path, lambda: self.system.cat_file(path, start=start, end=start + count))
                wanted = count if expected is None else max(min(count, expected.size - start), 0)
                if expected is not None and len(content) != wanted:
                    raise Again(f"{len(content)} of {wanted} bytes came")
                return content
            except Again:
                if expected is not None and (found := self._status_now(path)) != expected:
                    raise changed(path, expected, found) from None
                raise

        return patiently(path, read_once, self.closed)

    def glob(self, pattern: str) -> list[str]:
        """Addresses that match."""
        found = patiently(pattern, lambda: self._try(pattern, lambda: self.system.glob(pattern)), self.closed)
        return sorted(self.system.unstrip_protocol(path) for path in found)

    def close(self) -> None:
        self.closed.set()

    def _status_now(self, path: str) -> Status:
        found = self._try(path, lambda: self.system.info(path))
        stamp = next((found[key] for key in ("ETag", "etag", "LastModified", "mtime", "created") if key in found), "")
        return Status(int(found["size"]), str(stamp))

    def _try(self, path: str, ask: Callable[[], Result]) -> Result:
        try:
            return ask()
        except (FileNotFoundError, PermissionError) as error:
            raise UserError(f"{path}: cannot be read ({error}).") from error
        except Exception as error:  # every store has errors of its own
            raise Again(f"{type(error).__name__}: {error}"[:200]) from error


def _settings(scheme: str) -> dict[str, Any]:
    """Options of a file system: nothing is cached that may have changed, and no request waits for minutes."""
    if scheme == "memory":
        return {}
    patience = {"connect_timeout": TIMEOUT, "read_timeout": TIMEOUT, "retries": {"max_attempts": 0}}
    return {"use_listings_cache": False, **({"config_kwargs": patience} if scheme in ("s3", "s3a") else {})}


class Again(Exception):
    """A failure that may pass: the request is made again."""


def patiently(path: str, ask: Callable[[], Result], closed: threading.Event) -> Result:
    """The result of a request, which is made again after failures that may pass; a UserError after the last attempt."""
    began = time.monotonic()
    for pause in (*PAUSES, None):
        try:
            return ask()
        except UserError:
            raise
        except (Again, OSError, http.client.HTTPException) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            # Threads that were refused together must not come back together.
            if pause is None or closed.wait(pause * SYSTEM.uniform(0.5, 1.5)):
                break
    waited = time.monotonic() - began
    raise UserError(f"{path}: cannot be read ({reason}), in {len(PAUSES) + 1} attempts over {waited:.0f} s.")


def files_for(path: str) -> Files:
    """The reader for an address, or for a path on this machine."""
    scheme = scheme_of(path)
    if scheme is None:
        return LocalFiles()
    return HttpFiles() if scheme in ("http", "https") else OtherFiles(scheme)


def scheme_of(path: str) -> str | None:
    """The scheme of an address; None for a path on this machine."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", path)
    return found[1].lower() if found else None


def changed(path: str, expected: Status, found: Status) -> UserError:
    """The error about a file that is another than it was."""
    what = f"has {found.size} bytes, and had {expected.size}" if found.size != expected.size else "is another version"
    return UserError(
        f"{path}: changed since it was indexed: it {what}. Restore it, or accept the change with --data.refresh."
    )


def _status(path: str, headers: http.client.HTTPMessage) -> Status:
    size = (headers.get("Content-Range") or "").rpartition("/")[2]
    if not size.isdigit():
        raise UserError(f"{path}: its server does not say how long it is. Use one that answers range requests.")
    return Status(int(size), headers.get("ETag") or headers.get("Last-Modified") or "")


def _taken(
    path: str, answer: http.client.HTTPResponse, start: int, count: int, remembered: bool
) -> tuple[http.client.HTTPMessage, bytes]:
    """Headers and bytes of an answer; `remembered`: requests have been redirected to this address before."""
    if answer.status == 416:  # from beyond its end
        answer.read()
        return answer.headers, b""
    if answer.status != 206:
        raise _refusal(path, answer.status, remembered)
    content = answer.read()  # an IncompleteRead where the connection ends early
    size = _status(path, answer.headers).size
    if len(content) != min(count, size - start):
        raise Again(f"{len(content)} of {count} bytes came")
    return answer.headers, content


def _refusal(path: str, status: int, remembered: bool) -> Exception:
    if status >= 500 or status in (408, 425, 429) or (remembered and status >= 400):
        return Again(f"the server answers {status}")
    if status == 200:
        return UserError(f"{path}: its server gives whole files only. Use one that answers range requests.")
    return UserError(f"{path}: the server answers {status} ({http.client.responses.get(status, 'unknown')}).")
