"""The server of the page: one address on this machine, a few requests, one computation at a time."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import torch
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from oneway.common.errors import UserError
from oneway.common.terms import IGNORE
from oneway.config import Perturb
from oneway.data.dataset import Colour
from oneway.draws import PHOTOMETRIC_RANGES
from oneway.tools.explore import heat
from oneway.tools.explore.compute import FARTHEST, RANGES, Comparer, Parameters, draw_parameters
from oneway.tools.explore.images import ImageStore, Picture, as_data_uri, pack, thumbnail
from oneway.tools.explore.limits import Limits, Slots, body, require_type
from oneway.tools.local_server import guarded, static_routes

STATIC = Path(__file__).parent / "static"
IMAGE_TYPES = ("image/jpeg", "image/png", "image/webp", "image/tiff", "image/bmp")
LONGEST_NAME = 100

Result = TypeVar("Result")


class Question(Parameters):
    """Which image, and what happens to it."""

    image: str = Field(max_length=100)


@dataclass(frozen=True)
class PageContent:
    """What the page shows: runs with their networks, and pictures."""

    runs: Sequence[dict[str, Any]]
    classes: Sequence[str]
    colours: Sequence[Colour]
    comparer: Comparer
    store: ImageStore
    perturb: Perturb
    """Strengths of random draws."""

    remark: str = ""


class Workers:
    """Threads apart from the one that talks: one that computes, and others that decode what was uploaded."""

    def __init__(self, decoding: int) -> None:
        self.pools = [ThreadPoolExecutor(count, thread_name_prefix="explore") for count in (1, decoding)]

    async def compute(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """What a function returns, after those that were asked for before."""
        return await asyncio.get_running_loop().run_in_executor(self.pools[0], function, *arguments)

    def decode(self, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """What a function will return, while others are computed."""
        return asyncio.get_running_loop().run_in_executor(self.pools[1], function, *arguments)

    def stop(self, seconds: float) -> bool:
        """Let the threads end; whether they have done so within so many seconds."""
        for pool in self.pools:
            pool.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + seconds
        threads = [thread for pool in self.pools for thread in pool._threads]
        for thread in threads:
            thread.join(max(0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)


def application(
    page_content: PageContent,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    workers: Workers | None = None,
) -> ASGIApp:
    """The page, and the requests that it makes, as an ASGI application."""
    workers = workers or Workers(limits.uploading)
    computing, uploading = Slots(limits.computing), Slots(limits.uploading)
    about = _about(page_content, limits)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def tell(request: Request) -> Response:
        return JSONResponse(about)

    async def draw(request: Request) -> Response:
        seed = request.path_params["seed"]
        if not re.fullmatch(r"[0-9]{1,10}", seed):
            raise HTTPException(HTTPStatus.NOT_FOUND, "A seed is a number of up to ten digits.")
        return JSONResponse(draw_parameters(int(seed), page_content.perturb).model_dump())

    async def small(request: Request) -> Response:
        picture = _find_picture(page_content.store, request.path_params["key"])
        with computing.take():
            return Response(await workers.compute(thumbnail, picture), media_type="image/jpeg")

    async def upload(request: Request) -> Response:
        require_type(request, *IMAGE_TYPES)
        name = unquote(request.headers.get("x-name", "")).strip()[:LONGEST_NAME]
        with uploading.take():
            content = await body(request, limits.upload, limits.timeout)
            shown = name if name and name.isprintable() else "This file"
            decoding = workers.decode(page_content.store.decode, content, shown)
            try:
                async with asyncio.timeout(limits.decoding):
                    picture = await asyncio.shield(decoding)
            except TimeoutError:
                uploading.keep_until(decoding)  # a thread cannot be stopped
                raise UserError(f"{shown}: takes longer than {limits.decoding:g} seconds to decode.") from None
            page_content.store.add(picture)
        return JSONResponse(_picture_info(picture), HTTPStatus.CREATED)

    async def compare(request: Request) -> Response:
        require_type(request, "application/json")
        question = Question.model_validate_json(await body(request, limits.question, limits.timeout))
        picture = _find_picture(page_content.store, question.image)
        with computing.take():
            return JSONResponse(await workers.compute(_answer, page_content, picture, question))

    routes = [
        *static_routes(STATIC, "page.css", "page.js", "paint.js"),
        Route("/health", health),
        Route("/api/about", tell),
        Route("/api/draw/{seed}", draw),
        Route("/api/images", upload, methods=["POST"]),
        Route("/api/images/{key}", small),
        Route("/api/compare", compare, methods=["POST"]),
    ]
    return guarded(routes, limits.timeout)


def _about(page_content: PageContent, limits: Limits) -> dict[str, Any]:
    return {
        "runs": page_content.runs,
        "classes": page_content.classes,
        "colours": page_content.colours,
        "ignore": IGNORE,
        "images": [_picture_info(picture) for picture in page_content.store.offered.values()],
        "ranges": RANGES,
        "drawn": PHOTOMETRIC_RANGES,
        "farthest": FARTHEST,
        "heat": {"top": heat.TOP, "colours": heat.colours().tolist()},
        "upload": {"bytes": limits.upload, "types": IMAGE_TYPES},
        "remark": page_content.remark,
    }


def _picture_info(picture: Picture) -> dict[str, Any]:
    height, width = picture.pixels.shape[:2]
    return {"key": picture.key, "name": picture.name, "height": height, "width": width, "part": picture.part}


def _find_picture(store: ImageStore, key: str) -> Picture:
    picture = store.find(key)
    if picture is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "No such image, or no longer. /api/about lists those there are.")
    return picture


def _answer(page_content: PageContent, picture: Picture, parameters: Parameters) -> dict[str, Any]:
    perturbed, valid, comparisons = page_content.comparer.compare(picture.key, picture.x, parameters)
    height, width = valid.shape
    return {
        "height": height,
        "width": width,
        "valid": float(valid.float().mean()),
        "picture": as_data_uri(perturbed),
        "runs": [
            {
                **comparison,
                "target": pack(comparison["target"]),
                "prediction": pack(comparison["prediction"]),
                "kl": pack(torch.where(valid, heat.levels(comparison["kl"]), IGNORE)),
            }
            for comparison in comparisons
        ],
    }
