"""The server of a page for this computer alone: its socket, its files, and its answers to errors."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import uvicorn
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from oneway.common.errors import UserError
from oneway.tools.local_guard import Connection, Guard

HOST = "127.0.0.1"
SHARED = Path(__file__).parent / "static"
"""Files of all pages."""


def static_routes(folder: Path, *names: str) -> list[Route]:
    """The index.html of a page, some other files beside it, and those of all pages; no other can be requested."""
    files = {"/": folder / "index.html", **{f"/{name}": folder / name for name in names}}
    files |= {f"/{file.name}": file for file in SHARED.iterdir()}

    async def static(request: Request) -> Response:
        return FileResponse(files[request.url.path])

    return [Route(address, static) for address in files]


def guarded(routes: Sequence[Route], timeout: float) -> ASGIApp:
    """An application that answers its own page only, and whatever goes wrong by a reason in JSON."""
    kinds = (HTTPException, ValidationError, UserError, MemoryError, OSError, RuntimeError, Exception)
    app = Starlette(routes=routes, exception_handlers=dict.fromkeys(kinds, _answer))
    app.router.redirect_slashes = False
    return Guard(app, timeout)  # around everything, so that answers to bugs have its headers too


def listen(port: int | None, preferred: int = 0) -> socket.socket:
    """A socket on this machine only: at the port asked for, or else the preferred one, or any that is free."""
    for choice in (preferred, 0) if port is None else (port,):
        try:
            return socket.create_server((HOST, choice))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
    raise UserError(f"--port {port}: cannot be used ({reason}). Leave it out to have a free one chosen.")


def serve(app: ASGIApp, console: Console, port: int | None, preferred: int) -> None:
    """Serve an application until it is interrupted; prints its address."""
    with listen(port, preferred) as listening:
        address = f"http://{HOST}:{listening.getsockname()[1]}/"
        console.print(Text.assemble((address, "bold"), "  (Ctrl-C ends it)"), highlight=False, soft_wrap=True)
        with suppress(KeyboardInterrupt):  # how one leaves
            server(app).run(sockets=[listening])


def server(app: ASGIApp) -> uvicorn.Server:
    """Serve an application on a socket given to its `run`, until it is interrupted."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_level="critical",  # clients that go away and what is left then are no errors; `_answer` prints those
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


async def _answer(request: Request, error: Exception) -> Response:
    """What is wrong: with the address or with what was sent, with this computer, or with oneway."""
    # Memory, a disk or another resource does not suffice; PyTorch says so by a RuntimeError.
    exhausted = isinstance(error, MemoryError | OSError) or (isinstance(error, RuntimeError) and "memory" in str(error))
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    match error:
        case HTTPException():
            return JSONResponse({"error": error.detail}, error.status_code, error.headers)
        case ValidationError():
            first = error.errors(include_url=False, include_context=False)[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
        case UserError():
            reason = str(error)
        case _ if exhausted:
            status = HTTPStatus.INSUFFICIENT_STORAGE
            why = getattr(error, "strerror", None) or "out of memory"
            reason = f"This computer cannot answer that now ({why}). Try a smaller image, or make room."
        case _:
            traceback.print_exception(error)
            status, reason = HTTPStatus.INTERNAL_SERVER_ERROR, f"A bug in oneway: {type(error).__name__}."
    return JSONResponse({"error": reason}, status)
