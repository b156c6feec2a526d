"""Files on a server that answers requests for parts of them."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

from oneway.common.errors import UserError
from oneway.data.pool import patience
from oneway.data.pool.addresses import MOST_REDIRECTS, REDIRECTS, Connection, connect, drained, redirected
from oneway.data.pool.files import Status, changed
from oneway.data.pool.patience import Again, patiently


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
            kept[scheme, netloc] = connect(scheme, netloc, patience.TIMEOUT)
            self.open.add(kept[scheme, netloc].link)
        return kept[scheme, netloc]

    def _drop(self, scheme: str, netloc: str) -> None:
        if connection := self.mine.__dict__.get("connections", {}).pop((scheme, netloc), None):
            self.open.discard(connection.link)
            connection.link.close()


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


def _status(path: str, headers: http.client.HTTPMessage) -> Status:
    size = (headers.get("Content-Range") or "").rpartition("/")[2]
    if not size.isdigit():
        raise UserError(f"{path}: its server does not say how long it is. Use one that answers range requests.")
    return Status(int(size), headers.get("ETag") or headers.get("Last-Modified") or "")
