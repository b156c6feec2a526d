"""What the server of `oneway explore` refuses."""

from __future__ import annotations

import json
import socket
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import numpy as np
import pytest

from explore.serving import SAMPLE, png, serving
from oneway.tools.explore.limits import Limits


def raw(address: str, content: bytes, *, wait: float = 5.0) -> bytes:
    """What comes back for bytes that no client library would send."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=wait) as connection:
        received = b""
        with suppress(OSError):  # the server may hang up before it has heard all
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            while part := connection.recv(65536):
                received += part
    return received


def status_of(answer: bytes) -> int | None:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else None


def healthy(client: httpx.Client) -> bool:
    return client.get("/health").json() == {"status": "ok"}


def question(key: str = SAMPLE, **more: Any) -> bytes:
    return json.dumps({"image": key, **more}).encode()


JSON = {"Content-Type": "application/json"}
PNG = {"Content-Type": "image/png"}
COMPARE = b"POST /api/compare HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GOOD = png(np.zeros((64, 64, 3), dtype=np.uint8))


def bomb() -> bytes:
    """A PNG of a few bytes that announces four billion pixels."""
    content = bytearray(png(np.zeros((1, 1, 3), dtype=np.uint8)))
    content[16:24] = (65535).to_bytes(4) * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4)
    return bytes(content)


Request = tuple[str, str, dict[str, str], bytes]
"""Method, path, headers, body."""

HOSTS = (
    "evil.example 127.0.0.1.evil.example localhost.evil.example:80 0.0.0.0 [::1 169.254.169.254 x@127.0.0.1 2130706433"
).split()
ORIGINS = ("http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1", "file://", "http://localhost:1")
TRICKS = (
    "../etc/passwd ..%2f..%2fetc%2fpasswd %2e%2e/%2e%2e/etc/passwd ....//etc/passwd static/../server.py %00 server.py "
    "page.js%00.png page.js/ //etc/passwd .git/config %c0%ae%c0%ae/etc/passwd \\..\\windows "
    "api/images/..%2f..%2fpage.js api/images/%2e%2e api/images/sample-9999 api/draw/-1 api/draw/1e9 api/draw/x "
    f"api/draw/{'9' * 5000} api/images/{'a' * 5000}"
).split()
WRONG_TYPES = ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded", "", "image/gif", "text/html")


def foreign_requests() -> Iterator[Request]:
    """From names that were bent to this machine, and from other pages."""
    for host in HOSTS:
        yield from (("GET", path, {"Host": host}, b"") for path in ("/", "/api/about", "/health", "/page.js"))
    for origin in ORIGINS:
        yield "GET", "/api/about", {"Origin": origin}, b""
        yield "POST", "/api/compare", {"Origin": origin, **JSON}, question()
        yield "POST", "/api/images", {"Origin": origin, **PNG}, GOOD
        yield "OPTIONS", "/api/compare", {"Origin": origin}, b""
    for site in ("cross-site", "same-site", "odd"):
        yield "GET", f"/api/images/{SAMPLE}", {"Sec-Fetch-Site": site}, b""
        yield "POST", "/api/compare", {"Sec-Fetch-Site": site, **JSON}, question()


def misdirected_requests() -> Iterator[Request]:
    """To places that are not there, by methods and of types that do not belong there."""
    for path in TRICKS:
        yield "GET", f"/{path}", {}, b""
        yield "POST", f"/{path}", JSON, b"{}"
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "POST"):
        yield from ((method, path, {}, b"") for path in ("/", "/api/about", "/health", "/page.css"))
    for kind in WRONG_TYPES:
        yield "POST", "/api/compare", {"Content-Type": kind}, question()
        yield "POST", "/api/images", {"Content-Type": kind}, GOOD


def malformed_questions() -> Iterator[bytes]:
    """JSON that is none, too deep, too long, or says what cannot be."""
    yield from (b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"image": 3}', b"[" * 16000, b'{"image":' * 1500)
    yield from (question() + b" " * 2**14, question(extra=1), question("nowhere"))
    yield from (f'{{"image": "{SAMPLE}", "hue": {number}}}'.encode() for number in ("NaN", "1e999", "-Infinity"))
    for wrong in (1e9, -1e9, "NaN", None, [], {}, "x" * 9000):
        yield from (question(**{name: wrong}) for name in ("brightness", "hue", "permutation", "displacements"))
        yield json.dumps({"image": wrong}).encode()


def malformed_files() -> Iterator[bytes]:
    """What is no image, a part of one, too large, too small, or larger than it looks."""
    yield from (b"", b"GIF89a", b"<svg/>", b"%PDF-1.4", b"PK\x03\x04" * 9, b"\x89PNG\r\n\x1a\n" + b"\0" * 999)
    yield from (GOOD[:40], GOOD[:-20], bomb(), b"\0" * (20 * 2**20 + 1))
    yield from (png(np.zeros((*size, 3), dtype=np.uint8)) for size in ((2, 2), (1, 9000), (9000, 8)))


def hostile_requests() -> list[Request]:
    """More than two hundred requests that must not be served."""
    named = {**PNG, "X-Name": "%0d%0aSet-Cookie:%20a"}
    return [
        *foreign_requests(),
        *misdirected_requests(),
        *(("POST", "/api/compare", JSON, content) for content in malformed_questions()),
        *(("POST", "/api/images", named, content) for content in malformed_files()),
    ]


def refused(client: httpx.Client, request: Request) -> int:
    method, path, headers, content = request
    address = client.base_url
    target = httpx.URL(scheme="http", host=address.host, port=address.port, raw_path=path.encode())
    return client.request(method, target, headers=headers, content=content).status_code


SEVERAL = 9  # every ninth request, where not all are tried


def assert_refused(client: httpx.Client, requests: list[Request]) -> None:
    wrong = []
    for request in requests:
        status = refused(client, request)
        if not 400 <= status < 500:
            wrong.append((status, *request[:3], request[3][:60]))
    assert not wrong
    assert healthy(client)


def test_hostile_requests_are_refused(client):
    """Some of every kind: the answer is a 4xx, and the server goes on."""
    assert_refused(client, hostile_requests()[::SEVERAL])


@pytest.mark.slow
def test_two_hundred_hostile_requests_are_refused(client):
    """All of them."""
    assert len(hostile_requests()) >= 200
    assert_refused(client, hostile_requests())


def test_broken_http_is_refused(address, client):
    """Bytes that are no request, or only the beginning of one: a 4xx or no answer, never a 5xx."""
    for content in (
        b"\0" * 100,
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 2**17 + b"\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        COMPARE + b"Content-Length: -5\r\n\r\n",
        COMPARE + b"Content-Length: 999\r\n\r\n" + question(),
        COMPARE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        COMPARE + b"Content-Length: 99999999999999999999\r\n\r\n",
        COMPARE + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    ):
        status = status_of(raw(address, content))
        assert status is None or 400 <= status < 500, content[:60]
        assert healthy(client)


def test_slow_bodies_time_out(address, client):
    """A body that arrives too slowly is given up, and occupies no slot."""
    host, port = address.removeprefix("http://").split(":")
    connections = [socket.create_connection((host, int(port)), timeout=10) for _ in range(20)]
    try:
        for connection in connections:
            connection.sendall(COMPARE + b"Content-Length: 9\r\n\r\n{")
        assert client.post("/api/compare", content=question(), headers=JSON).status_code == 200
        for connection in connections:
            assert status_of(connection.recv(1000)) == 408
    finally:
        for connection in connections:
            connection.close()


def test_unlimited_bodies_are_cut_off(client):
    """A body without an announced length is counted while it comes."""

    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 2**10

    assert client.post("/api/compare", content=endless(), headers=JSON).status_code == 413
    assert healthy(client)


def test_fifty_requests_at_once(client):
    """Some are answered, the others are asked to try again; afterwards the server answers as before."""
    with ThreadPoolExecutor(50) as threads:
        ask = lambda number: client.post("/api/compare", json={"image": SAMPLE, "hue": number / 1000})  # noqa: E731
        statuses = [answer.status_code for answer in threads.map(ask, range(50))]
    assert set(statuses) <= {200, 429}
    assert statuses.count(200) >= 8
    assert healthy(client)
    assert client.post("/api/compare", json={"image": SAMPLE}).status_code == 200


def test_a_silent_connection_is_closed(page_content, monkeypatch):
    """One that says nothing, and one that begins a request and does not go on."""
    monkeypatch.setattr("oneway.tools.local_guard.IDLE_SECONDS", 0.3)
    with serving(page_content, Limits()) as address:
        host, port = address.removeprefix("http://").split(":")
        for beginning in (b"", b"GET / HT"):
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(beginning)
                assert connection.recv(100) == b""


def test_the_page_loads_nothing_from_other_sites(client):
    """No other address is in its files, and a header forbids the browser to load from one."""
    for path in ("/", "/page.css", "/page.js", "/paint.js", "/icon.svg"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "http" not in answer.text.replace("http://www.w3.org/2000/svg", "")
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert (
        client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
    )  # a link to the page may be followed
