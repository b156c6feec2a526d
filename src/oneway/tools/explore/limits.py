"""What requests may ask of the page: how large and how slow they are, and how many there are at once."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request


@dataclass(frozen=True)
class Limits:
    """How large and how slow a request may be, and how many there may be at once."""

    upload: int = 20 * 2**20
    """Bytes of an image file."""

    question: int = 2**14
    """Bytes of a JSON request."""

    timeout: float = 20.0
    """Seconds in which the body of a request has to arrive, and each part of an answer has to be read."""

    computing: int = 8
    """Requests that wait or are being computed, one after the other."""

    uploading: int = 2
    """Files that are being received or decoded."""

    decoding: float = 5.0
    """Seconds in which a file has to be decoded."""


class Slots:
    """Limits how many requests are served at once; a further one is asked to try again."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    @contextmanager
    def take(self) -> Iterator[None]:
        """Occupy a slot within the block."""
        if self.taken >= self.most:
            raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, "Busy; try again in a second.", {"Retry-After": "1"})
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1

    def keep_until(self, work: Future[Any]) -> None:
        """Occupy a slot until something is done that nobody waits for any more."""
        self.taken += 1

        def give_back(_: Future[Any]) -> None:
            self.taken -= 1

        work.add_done_callback(give_back)


async def body(request: Request, most: int, timeout: float) -> bytes:
    """The body of a request, if it has no more than `most` bytes and arrives within `timeout` seconds."""
    too_large = HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"More than {most} bytes.")
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > most:
        raise too_large
    content = bytearray()
    try:
        async with asyncio.timeout(timeout):
            async for chunk in request.stream():
                content += chunk
                if len(content) > most:
                    raise too_large
    except TimeoutError:
        raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, f"Not complete after {timeout:g} seconds.") from None
    except ClientDisconnect:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "The connection was closed.") from None
    return bytes(content)


def require_type(request: Request, *allowed: str) -> None:
    """Refuse other content types. Before a page of another site sends one of these, a browser asks; we refuse that."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in allowed:
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"The Content-Type must be {' or '.join(allowed)}.")
