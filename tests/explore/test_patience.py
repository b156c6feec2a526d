"""What the page does while others block it: clients that do not read, files that decode slowly, a disk that is full."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import numpy as np
import pytest
import uvicorn

from explore.serving import SAMPLE, png, serving
from oneway.common.errors import UserError
from oneway.tools import local_guard, local_server
from oneway.tools.explore import images, server
from oneway.tools.explore.limits import Limits

PNG = {"Content-Type": "image/png"}
GOOD = png(np.zeros((64, 64, 3), dtype=np.uint8))
MUCH = b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500
LAST = b"GET /page.js HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@contextmanager
def deaf_clients(address: str, count: int, asking: bytes) -> Iterator[None]:
    """Connections that ask for much and read nothing."""
    host, port = address.removeprefix("http://").split(":")
    connections = []
    for _ in range(count):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, int(port)))
        connection.settimeout(0.2)
        with suppress(OSError):
            connection.sendall(asking)
        connections.append(connection)
    try:
        yield
    finally:
        for connection in connections:
            connection.close()


def test_clients_that_do_not_read_keep_nobody_out(address, client):
    """Two hundred of them, as many as there may be: a further one is answered at once."""
    with deaf_clients(address, local_guard.MOST_CONNECTIONS, LAST):
        for _ in range(3):
            began = time.monotonic()
            assert httpx.get(f"{address}/health", timeout=5).status_code == 200
            assert time.monotonic() - began < 2


def test_answers_that_nobody_reads_are_given_up(page_content, monkeypatch):
    """Also where the server has closed the connection, and what it has to say still waits."""
    monkeypatch.setattr(local_guard, "IDLE_SECONDS", 0.3)
    serves = local_server.server(server.application(page_content, Limits(timeout=0.3)))
    serves.config.log_level = "critical"
    with local_server.listen(0) as listening:
        thread = threading.Thread(target=serves.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with deaf_clients(f"http://127.0.0.1:{listening.getsockname()[1]}", 5, MUCH + LAST):
                assert _wait(lambda: len(serves.server_state.connections) == 5, 5)
                assert _wait(lambda: not serves.server_state.connections, 5)
        finally:
            serves.should_exit = True
            thread.join()


def _wait(condition, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("folder", ["gone", "full"])
def test_an_upload_needs_no_temporary_folder(client, monkeypatch, tmp_path, folder):
    """It is decoded in memory."""

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    if folder == "full":
        monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    assert client.post("/api/images", content=GOOD, headers=PNG).status_code == 201


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OSError(28, "No space left on device"), 507),
        (MemoryError(), 507),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 507),
        (UserError("a.png: no."), 422),
        (RuntimeError("something else"), 500),
        (KeyError("a bug"), 500),
    ],
)
def test_every_answer_is_ours(page_content, monkeypatch, error, status):
    """As JSON, with the headers that forbid other sites: what cannot be done, and a bug too."""

    def fail(*arguments):
        raise error

    monkeypatch.setattr(images, "read_image", fail)
    monkeypatch.setattr(uvicorn.config, "LOGGING_CONFIG", {"version": 1})
    with serving(page_content, Limits()) as address:
        answer = httpx.post(f"{address}/api/images", content=GOOD, headers=PNG)
        assert answer.status_code == status
        assert answer.json()["error"]
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert httpx.get(f"{address}/health").status_code == 200


def test_an_upload_that_decodes_slowly_blocks_nobody(page_content, monkeypatch):
    """It is given up with an answer; what is computed meanwhile does not wait for it."""
    real = images.read_image

    def slow(*arguments):
        time.sleep(2)
        return real(*arguments)

    monkeypatch.setattr(images, "read_image", slow)
    with serving(page_content, Limits(decoding=0.5)) as address, httpx.Client(base_url=address) as client:
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{address}/api/images", content=GOOD, headers=PNG))
        )
        began = time.monotonic()
        thread.start()
        assert client.post("/api/compare", json={"image": SAMPLE}).status_code == 200
        thread.join()
        assert time.monotonic() - began < 1.5
        assert answers[0].status_code == 422
        assert "takes longer than 0.5 seconds" in answers[0].json()["error"]
