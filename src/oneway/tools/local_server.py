"""The server of a page for this computer alone: its socket, its answers to errors, and what guards it."""

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
from oneway.tools.explore.limits import Connection, Guard

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
    app = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: _refuse,
            ValidationError: _explain,
            UserError: _explain,
            MemoryError: _exhausted,
            OSError: _exhausted,
            RuntimeError: _exhausted,
            Exception: _bug,
        },
    )
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
    """Serves an application until it is interrupted; prints its address."""
    with listen(port, preferred) as listening:
        address = f"http://{HOST}:{listening.getsockname()[1]}/"
        console.print(Text.assemble((address, "bold"), "  (Ctrl-C ends it)"), highlight=False, soft_wrap=True)
        with suppress(KeyboardInterrupt):  # how one leaves
            server(app).run(sockets=[listening])


def server(app: ASGIApp) -> uvicorn.Server:
    """Serves an application on a socket given to its `run`, until it is interrupted."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_level="critical",  # clients that go away and computations that are left are no errors; `_bug` prints those
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _explain(request: Request, error: Exception) -> Response:
    """Answers what is wrong with what was sent."""
    message = str(error)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        message = f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    return JSONResponse({"error": message}, HTTPStatus.UNPROCESSABLE_ENTITY)


async def _exhausted(request: Request, error: Exception) -> Response:
    """Answers that memory, a disk or another resource does not suffice; PyTorch says so by a RuntimeError."""
    if isinstance(error, RuntimeError) and "memory" not in str(error):
        raise error
    reason = getattr(error, "strerror", None) or "out of memory"
    answer = f"This computer cannot answer that now ({reason}). Try a smaller image, or make room."
    return JSONResponse({"error": answer}, HTTPStatus.INSUFFICIENT_STORAGE)


async def _bug(request: Request, error: Exception) -> Response:
    traceback.print_exception(error)
    return JSONResponse({"error": f"A bug in oneway: {type(error).__name__}."}, HTTPStatus.INTERNAL_SERVER_ERROR)
