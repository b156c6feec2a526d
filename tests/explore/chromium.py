"""Chromium without a window, driven over its DevTools protocol by a WebSocket client of forty lines."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --remote-debugging-port=0 --no-first-run "
    "--disable-extensions --disable-background-networking --disable-dev-shm-usage"
).split()
PATIENCE = 30.0

EXECUTABLE = next(filter(None, map(shutil.which, NAMES)), None)


class WebSocket:
    """Text messages to and from a server on this machine."""

    def __init__(self, url: str) -> None:
        host, port, path = re.fullmatch(r"ws://([^:/]+):(\d+)(/.*)", url).groups()
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self.file = self.socket.makefile("rb")
        assert b"101" in self.file.readline()
        while self.file.readline() != b"\r\n":
            pass

    def send(self, text: str) -> None:
        content, mask = text.encode(), os.urandom(4)
        size = len(content)
        length = bytes([0x80 | size]) if size < 126 else struct.pack("!BH", 0xFE, size)  # none of ours is larger
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(content))
        self.socket.sendall(b"\x81" + length + mask + masked)

    def receive(self) -> str:
        content, last = b"", False
        while not last:
            first, second = self.file.read(2)
            size = second & 0x7F
            if size > 125:
                size = int.from_bytes(self.file.read(2 if size == 126 else 8))
            content, last = content + self.file.read(size), bool(first & 0x80)
        return content.decode()


class Page:
    """One tab."""

    def __init__(self, url: str) -> None:
        self.socket = WebSocket(url)
        self.number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A DevTools command and its result; events that come before it are kept."""
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Until an expression is true; while a page loads, what it asks for may not be there."""
        end = time.monotonic() + PATIENCE
        while not (value := self.evaluate(f"(() => {{ try {{ return {expression} }} catch {{}} }})()")):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)
        return value

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        """The size of the window, in CSS pixels; a phone has twice as many pixels, and is touched."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)

    def theme(self, name: str) -> None:
        """`light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def centre(self, selector: str) -> tuple[float, float]:
        """Of an element, in the window."""
        box = self.evaluate(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()")
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, selector: str, by: tuple[float, float], moves: int = 2) -> None:
        """With the mouse, from the centre of an element, in so many moves."""
        x, y = self.centre(selector)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        for move in range(1, moves + 1):
            part = move / moves
            self.mouse("mouseMoved", x + part * by[0], y + part * by[1], button="left", buttons=1)
        self.mouse("mouseReleased", x + by[0], y + by[1], button="left", clickCount=1)

    def press(self, key: str) -> None:
        """A key, on what has the focus."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEY_CODES[key])

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))


KEY_CODES = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "Tab": 9}


@contextmanager
def browser() -> Iterator[Callable[[str], Page]]:
    """A function that opens an address in a new tab, of a browser that ends with the block."""
    assert EXECUTABLE is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [EXECUTABLE, *FLAGS, f"--user-data-dir={profile}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            host = re.search(rb"ws://([^/]+)/", _line(process, b"DevTools listening on"))[1].decode()

            def open_page(address: str) -> Page:
                request = urllib.request.Request(f"http://{host}/json/new?about:blank", method="PUT")
                with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                    page = Page(json.load(answer)["webSocketDebuggerUrl"])
                for domain in ("Page", "Runtime", "Network", "Log"):
                    page.call(f"{domain}.enable")
                page.call("Page.navigate", url=address)
                return page

            yield open_page
        finally:
            process.kill()
            process.wait()


def _line(process: subprocess.Popen[bytes], words: bytes) -> bytes:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError("Chromium did not start")
