"""A web server in a process of its own that gives parts of files, and misbehaves as a file beside them asks it to."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

FAULTS = "faults.json"
"""{"kind": …, "times": N}: the next N requests for a tar file are answered so; then all is well again."""

COUNTING = Lock()
"""Held by the request that counts itself."""


class Handler(BaseHTTPRequestHandler):
    """Answers requests."""

    protocol_version = "HTTP/1.1"
    root = Path()

    def do_GET(self) -> None:
        asked_for = urlsplit(self.path).path  # who takes this for a proxy gives the whole address
        if redirect := re.fullmatch(r"/(30\d)/(\w+)(/.*)", asked_for):  # /302/http/x.tar leads to /x.tar
            status, scheme, rest = redirect.groups()
            self._answer(
                int(status), b"over there", {"Location": f"{scheme}://localhost:{self.server.server_port}{rest}"}
            )
            return
        path = self.root / asked_for.lstrip("/")
        if not path.is_file():
            self._answer(404, b"")
            return
        fault = self._fault() if path.suffix == ".tar" else ""
        content = path.read_bytes()
        if fault == "stall":
            time.sleep(json.loads((self.root / FAULTS).read_text())["seconds"])
        if fault == "error":
            self._answer(500, b"")
            return
        if fault == "gone":
            self._answer(404, b"")
            return
        asked = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if not asked or fault == "whole":
            self._answer(200, content)
            return
        start, stop = int(asked[1]), min(int(asked[2]) + 1, len(content))
        if start >= len(content):
            self._answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            return
        part = content[start:stop]
        if fault == "other":
            part = bytes(value ^ 255 for value in part)
        if fault == "flip":  # what a proxy with bad memory does
            part = bytes((*part[:-5], part[-5] ^ 1, *part[-4:]))
        headers = {"Content-Range": f"bytes {start}-{stop - 1}/{len(content)}", "ETag": str(path.stat().st_mtime_ns)}
        if fault == "short":  # announces less than was asked for
            self._answer(206, part[: len(part) // 2], headers)
        elif fault == "cut":  # announces all, and hangs up in the middle
            self._answer(206, part, headers, len(part) // 2)
            self.close_connection = True
        else:
            self._answer(206, part, headers)

    def _fault(self) -> str:
        with COUNTING, suppress(FileNotFoundError), open(self.root / FAULTS, "r+") as file:  # never makes it again
            fault = json.load(file)
            if fault["times"] > 0:
                file.seek(0)
                file.truncate()
                json.dump(fault | {"times": fault["times"] - 1}, file)
                return str(fault["kind"])
        return ""

    def _answer(
        self, status: int, content: bytes, headers: dict[str, str] | None = None, sent: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:sent])

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    """One thread for each connection."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Who hangs up is not waited for."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a folder, within the block."""
    process = subprocess.Popen([sys.executable, __file__, folder], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def misbehave(folder: Path, kind: str, times: int, **more: Any) -> None:
    """What the server of a folder does with its next requests."""
    (folder / FAULTS).write_text(json.dumps({"kind": kind, "times": times, **more}))


if __name__ == "__main__":
    Handler.root = Path(sys.argv[1])
    with Server(("127.0.0.1", 0), Handler) as server:
        print(server.server_port, flush=True)
        server.serve_forever()
