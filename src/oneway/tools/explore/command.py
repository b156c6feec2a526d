"""Opens runs and their images, and serves the page about them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from oneway import runs
from oneway.common.console import close_streams
from oneway.common.errors import UserError
from oneway.common.extras import import_extra
from oneway.common.run_files import SPLIT
from oneway.common.words import say
from oneway.tools.evaluate import METRIC_NAMES
from oneway.tools.explore.compute import Comparer
from oneway.tools.explore.images import ImageStore, load_pictures, most_pixels, render_scenes

LAST_SECONDS = 0.2
"""Seconds that a computation has to end once the page is interrupted."""

if TYPE_CHECKING:  # needs packages that not everyone has
    from oneway.tools.explore.server import PageContent


def explore(page_content: PageContent, console: Console, port: int | None = None) -> None:
    """Serve the page until it is interrupted; its address is printed on the console, its port 8421 or a free one."""
    from oneway.tools.explore.limits import Limits
    from oneway.tools.explore.server import Workers, application
    from oneway.tools.local_server import serve

    limits = Limits()
    workers = Workers(limits.uploading)
    if page_content.remark:
        say(console, page_content.remark)
    serve(application(page_content, limits, workers), console, port, preferred=8421)
    if not workers.stop(LAST_SECONDS):  # Python would wait for what is being computed, which nobody wants any more
        close_streams()
        os._exit(0)


def prepare(
    paths: Sequence[Path],
    console: Console,
    *,
    data: Path | None = None,
    refresh: bool = False,
    cache: Path | None = None,
    factory: str | None = None,
    device: str = "auto",
) -> PageContent:
    """The models of one run or two that can be shown together, and images for them.

    Args:
        paths: Run folders, the baseline first.
        console: Shows progress.
        data: Folder of the data set, where it is not the one trained on.
        refresh: Accept that files of it have changed since they were decoded.
        cache: Where decoded images go, if not to a folder of the user's.
        factory: The `model.factory` that the user agrees to run.
        device: Where the models run.

    Raises:
        UserError: A run is unfinished or not about segmentation, two have different classes, or a package is missing.
    """
    for package in ("starlette", "uvicorn"):
        import_extra(package, "explore", "oneway explore")
    from oneway.tools.explore.server import PageContent

    opened = [runs.open_run(path, any_method=True) for path in paths]
    for run in opened:
        require_segmentation(run, "explore shows")
    place = runs.choose_device(device)
    models = [runs.load_model(run.model_file, place, factory) for run in opened]
    first = models[0]
    _refuse_unlike(paths, models)
    most, remark = most_pixels(len(first.classes)), ""
    try:
        settings = runs.data_of(opened[0], console, data, refresh=refresh, cache=cache)
        splits = [run.split for run in opened if (run.path / SPLIT).exists()]
        pictures = load_pictures(settings, paths[0], first, splits, data is not None, most, console)
    except UserError as error:
        if data is not None:
            raise
        pictures, remark = render_scenes(most), f"{error} The page shows embedded street scenes instead."
    names = [run.path.resolve().name for run in opened]
    return PageContent(
        runs=[
            _run_info(run, name if names.count(name) == 1 else str(run.path))
            for run, name in zip(opened, names, strict=True)
        ],
        classes=first.classes,
        colours=first.colours,
        comparer=Comparer([model.network for model in models], place),
        store=ImageStore(pictures, most, first.image_style, first.reduction),
        perturb=opened[-1].config.perturb,
        remark=remark,
    )


def _refuse_unlike(paths: Sequence[Path], models: Sequence[runs.TrainedModel]) -> None:
    """Refuse models that do not see the same images, or give them other classes."""
    first = models[0]
    for path, model in zip(paths, models, strict=True):
        if model.classes != first.classes:
            raise UserError(
                f"{path}: has the classes {', '.join(model.classes)}, and {paths[0]} {', '.join(first.classes)}. "
                "Two runs side by side need the same ones in the same order."
            )
        if model.reduction != first.reduction:
            raise UserError(
                f"{path}: sees images at 1/{model.reduction} of their size, and {paths[0]} at 1/{first.reduction} "
                "(data.reduction). Two runs side by side need the same images."
            )


def require_segmentation(run: runs.Run, what_for: str) -> None:
    """Refuse a run that classifies whole inputs."""
    if run.config.data.task != "segmentation":
        raise UserError(f"{run.path}: {what_for} segmentation, and {run.config.data.name} is classified.")


def _run_info(run: runs.Run, name: str) -> dict[str, Any]:
    """What the page says about a run."""
    summary = run.summary or {}
    metric = METRIC_NAMES[summary.get("metric", "miou")]
    facts = {"labels": summary.get("labels"), "metric": metric, "value": summary.get("value")}
    return {"name": name, "method": run.config.method, **facts}
