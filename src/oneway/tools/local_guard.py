"""What guards a page for this computer alone: requests of other origins, and connections that keep others out."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

HOSTS = ("127.0.0.1", "localhost")
"""Names under which the page may be reached, at any port: one may be forwarded from another machine."""

MOST_CONNECTIONS = 200
IDLE_SECONDS = 20.0

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Guard:
    """Serves this page only: refuses requests under other host names (DNS rebinding), and from pages of other sites."""

    def __init__(self, app: ASGIApp, timeout: float) -> None:
        self.app = app
        self.timeout = timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the headers of a request, and add those of the answer."""
        if scope["type"] != "http":
            return

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            # A client that does not read its answer is disconnected.
            async with asyncio.timeout(self.timeout):
                await send(message)

        reason = _reason_to_refuse(Headers(scope=scope), scope["path"])
        if reason is None:
            await self.app(scope, receive, reply)
        else:
            await JSONResponse({"error": reason}, HTTPStatus.FORBIDDEN)(scope, receive, reply)


def _reason_to_refuse(headers: Headers, path: str) -> str | None:
    hosts = headers.getlist("host")
    if len(hosts) != 1 or hosts[0].partition(":")[0].lower() not in HOSTS:
        return "Only requests to 127.0.0.1 and localhost are answered."
    if any(origin != f"http://{hosts[0]}" for origin in headers.getlist("origin")):
        return "Only requests of this page are answered."
    if path != "/" and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "Only requests of this page are answered."
    return None


class Connection(H11Protocol):
    """Uvicorn's connection, ended when nothing happens on it for long: in a request, or because nobody reads an answer.

    Where there are too many, the one that has been idle for longest makes room for the new one: those who neither ask
    nor read keep nobody out.
    """

    answered = 0
    idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, in place of another if there are too many."""
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            others = [other for other in self.connections if isinstance(other, Connection) and other is not self]
            min(others, key=lambda other: (other.waits_for_us, other.idle_since)).transport.abort()
        self._watch(None)

    @property
    def waits_for_us(self) -> bool:
        """Whether a request is received or computed, which have limits of their own, and the client reads."""
        asked = self.cycle is not None and not self.cycle.response_complete
        return asked and not self.transport.is_closing() and not self.flow.write_paused

    def on_response_complete(self) -> None:
        """Count the answers, so that `_watch` knows whether the connection is idle."""
        self.answered += 1
        self.idle_since = self.loop.time()
        super().on_response_complete()

    def _watch(self, before: tuple[int, int] | None) -> None:
        """Every IDLE_SECONDS, ends a connection on which nothing was answered or read since, nor is being answered.

        A transport that is merely closed waits until everything is read: for ever, where nobody reads.
        """
        if self not in self.connections:
            return
        now = self.answered, self.transport.get_write_buffer_size()
        if now == before and not self.waits_for_us:
            self.transport.close() if now[1] == 0 else self.transport.abort()
        else:
            self.loop.call_later(IDLE_SECONDS, self._watch, now)
