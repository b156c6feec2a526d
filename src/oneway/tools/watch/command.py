"""Serves the page about runs until it is interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from oneway.common.extras import import_extra
from oneway.tools.watch.state import Watcher

STATIC = Path(__file__).parent / "static"
TIMEOUT = 20.0

if TYPE_CHECKING:  # needs packages that not everyone has
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp


def watch(path: Path, console: Console, port: int | None = None) -> None:
    """Serve the page about a run, or about those in a folder; its address is printed, its port 8422 or a free one."""
    for package in ("starlette", "uvicorn"):
        import_extra(package, "explore", "oneway watch")
    from oneway.tools.local_server import serve

    serve(application(Watcher(path)), console, port, preferred=8422)


def application(watcher: Watcher) -> ASGIApp:
    """The page, and what it asks for, as an ASGI application. Functions run in threads of their own."""
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from oneway.tools.local_server import guarded, static_routes

    def overview(request: Request) -> Response:
        return JSONResponse({"folder": str(watcher.path), "runs": watcher.overview()})

    def details(request: Request) -> Response:
        return JSONResponse(watcher.details(request.path_params["number"]))

    def picture(request: Request) -> Response:
        name = request.path_params["name"]
        content = watcher.picture(request.path_params["number"], name)
        return Response(content, media_type="image/jpeg" if name.endswith(".jpg") else "image/png")

    routes = [
        *static_routes(STATIC, "watch.css", "watch.js", "plot.js"),
        Route("/api/runs", overview),
        Route("/api/runs/{number:int}", details),
        Route("/api/runs/{number:int}/pictures/{name}", picture),
    ]
    return guarded(routes, TIMEOUT)
