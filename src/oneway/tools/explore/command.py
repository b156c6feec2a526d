"""Opens runs and their images, and serves the page about them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from oneway import runs
from oneway.common.errors import UserError
from oneway.common.extras import import_extra
from oneway.common.words import say
from oneway.tools.evaluate import METRIC_NAMES
from oneway.tools.explore.compute import Comparer
from oneway.tools.explore.images import ImageStore, Picture, load_pictures, most_pixels, render_scenes

if TYPE_CHECKING:  # needs packages that not everyone has
    from oneway.tools.explore.server import PageContent, RunInfo


def explore(
    paths: Sequence[Path],
    console: Console,
    *,
    data: Path | None = None,
    refresh: bool = False,
    port: int | None = None,
    factory: str | None = None,
    device: str = "auto",
) -> None:
    """Serves the page about one run or two until it is interrupted.

    Args:
        paths: Run folders, the baseline first.
        console: Where the address of the page is printed.
        data: Folder of the data set, where it is not the one trained on.
        refresh: Accept that files of it have changed since they were decoded.
        port: Of the address; by default 8421, or a free one.
        factory: The `model.factory` that the user agrees to run.
        device: Where the models run.

    Raises:
        UserError: A run is unfinished or not about segmentation, two have different classes, or a package is missing.
    """
    for package in ("starlette", "uvicorn"):
        import_extra(package, "explore", "oneway explore")
    from oneway.tools.explore.server import application, listen, server

    page_content = prepare(paths, console, data=data, refresh=refresh, factory=factory, device=device)
    if page_content.remark:
        say(console, page_content.remark)
    with listen(port) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        console.print(f"[bold]{address}[/]  (Ctrl-C ends it)", highlight=False, soft_wrap=True)
        with suppress(KeyboardInterrupt):  # how one leaves
            server(application(page_content)).run(sockets=[listening])


def prepare(
    paths: Sequence[Path],
    console: Console,
    *,
    data: Path | None = None,
    refresh: bool = False,
    factory: str | None = None,
    device: str = "auto",
) -> PageContent:
    """The models of runs that can be shown together, and images for them."""
    from oneway.tools.explore.server import PageContent

    opened = [runs.open_run(path) for path in paths]
    for run in opened:
        require_segmentation(run, "explore shows")
    place = runs.choose_device(device)
    models = [runs.load_model(run.model_file, place, factory) for run in opened]
    first = models[0]
    for path, model in zip(paths, models, strict=True):
        if model.classes != first.classes:
            raise UserError(
                f"{path}: has the classes {', '.join(model.classes)}, and {paths[0]} {', '.join(first.classes)}. "
                "Two runs side by side need the same ones in the same order."
            )
    most = most_pixels(len(first.classes))
    pictures, remark = _choose_pictures(opened[0], data, refresh, most, console)
    return PageContent(
        runs=[_run_info(run, opened) for run in opened],
        classes=first.classes,
        colours=first.colours,
        comparer=Comparer([model.network for model in models], place),
        store=ImageStore(pictures, most),
        perturb=opened[-1].config.perturb,
        remark=remark,
    )


def require_segmentation(run: runs.Run, what_for: str) -> None:
    """Refuses a run that classifies whole inputs."""
    if run.config.data.task != "segmentation":
        raise UserError(f"{run.path}: {what_for} segmentation, and {run.config.data.name} is classified.")


def _choose_pictures(
    run: runs.Run, path: Path | None, refresh: bool, most: int, console: Console
) -> tuple[list[Picture], str]:
    """Validation images of the run's data; where those are gone, embedded scenes and a remark that says so."""
    try:
        return load_pictures(runs.data_of(run.config, path, refresh), most, console), ""
    except UserError as error:
        if path is not None:
            raise
        return render_scenes(most), f"{error} The page shows embedded street scenes instead."


def _run_info(run: runs.Run, among: Sequence[runs.Run]) -> RunInfo:
    from oneway.tools.explore.server import RunInfo

    names = [other.path.resolve().name for other in among]
    name = run.path.resolve().name
    summary = run.summary or {}
    return RunInfo(
        name=name if names.count(name) == 1 else str(run.path),
        method=run.config.method,
        labels=summary.get("labels"),
        metric=METRIC_NAMES[summary.get("metric", "miou")],
        value=summary.get("value"),
    )
