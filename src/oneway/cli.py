"""The command line. A verb imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Literal

import pydantic
from cyclopts import App, CycloptsError, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from oneway import __version__
from oneway import config as configuration
from oneway.config import Config, Positive
from oneway.errors import UserError
from oneway.failure import BUG_STATUS, describe_bug
from oneway.methods import SplitName
from oneway.recipes import RECIPES
from oneway.recipes import recipe as recipe_named

app = App(
    name="oneway",
    help="Train real-time segmentation models from a few labelled and many unlabelled images.",
    version=__version__,
    help_epilogue="New here? `oneway quickstart` needs no data and ends in a report. "
    "Behind any command, `--traceback` shows where an error came from.",
    # A recipe decides the defaults: a fixed one in the help would mislead.
    default_parameter=Parameter(show_default=False, negative_iterable=(), negative_none=()),
)
console = Console()
Switch = Annotated[bool, Parameter(negative=())]
Factory = Annotated[str | None, Parameter(name="--model.factory")]


@app.command
def quickstart(*, out: Path = Path("runs/quickstart"), seed: int = 0) -> None:
    """Train with and without unlabelled images on embedded street scenes, and compare the two in a report.

    Takes a few minutes on a laptop's CPU. Run again, it continues where it was stopped.

    Args:
        out: Folder of the two runs, summary.json and report.html.
        seed: Decides the labelled subset, the initial weights and every random draw.
    """
    from oneway.quickstart import quickstart

    quickstart(out, seed, console)


@app.command
def train(
    recipe_name: Annotated[str, Parameter(name="recipe", help=f"What to start from: {', '.join(RECIPES)}.")],
    /,
    *,
    data: Path | None = None,
    out: Path | None = None,
    resume: Switch = False,
    allow_changes: Switch = False,
    config: Path | None = None,
    dry_run: Switch = False,
    settings: Annotated[Config, Parameter(name="*")] = Config(),  # noqa: B008 (frozen)
) -> None:
    """Train a model as a recipe says; any setting of the recipe can be changed by its flag.

    Args:
        recipe_name: What to start from.
        data: Folder of the data set, for recipes that read one.
        out: Run folder; by default one below runs/ named after recipe, method, labels and seed.
        resume: Continue the run in the folder from its last checkpoint, to the bit.
        allow_changes: With --resume, go on although settings, split or data are not those the run began with.
        config: Take the settings of a YAML file, such as the config.yaml of an earlier run; flags win over it.
        dry_run: Print the settings that would be used, and stop.
        settings: The configuration.
    """
    changes = settings.model_dump(exclude_unset=True)
    if data is not None:
        changes = configuration.merge(changes, {"data": {"path": data}})
    if {"epochs"} == changes.get("train", {}).keys() & {"epochs", "iterations"}:
        changes["train"]["iterations"] = None  # a recipe's own would win over the epochs asked for
    if config is not None:
        changes = configuration.merge(configuration.read_yaml(config), changes)
    source = str(config or "command line")
    base = recipe_named(recipe_name, changes.get("method")).model_dump()
    resolved = configuration.build(configuration.merge(base, changes), source)
    folder = out or Path("runs") / _folder_name(resolved)
    if allow_changes and not resume:
        raise UserError("--allow-changes: a new run has nothing to change. Add --resume, or leave it out.")
    if resume:
        from oneway.run import open_run

        # What is not mentioned now is as it was, so that continuing needs no flags again.
        earlier = open_run(folder).config
        if earlier.recipe != recipe_name:
            raise UserError(f"{folder}: is a run of recipe {earlier.recipe}, not of {recipe_name}.")
        resolved = configuration.build(configuration.merge(earlier.model_dump(), changes), source)
    # Code that a file names runs for a user who names it too.
    configuration.confirm_factory(resolved.model.factory, settings.model.factory, config or folder)
    if dry_run:
        print(resolved.to_yaml(), end="")
        return

    from oneway.evaluate import METRIC_NAMES
    from oneway.report import write_report
    from oneway.train import train

    summary = train(resolved, folder, resume, console, allow_changes)
    page = folder / "report.html"
    if not page.exists():
        write_report([folder], page, resolved.model.factory)
    metric = METRIC_NAMES[summary["metric"]]
    _say(f"{summary['value']:.1f} % {metric} on validation with {summary['labels']} labels\nReport: {page}")


@app.command(name="eval")
def evaluate(
    run: Path,
    /,
    *,
    data: Path | None = None,
    split: SplitName = "val",
    refresh: Annotated[bool, Parameter(name="--data.refresh", negative=())] = False,
    factory: Factory = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Print how good a trained model is, class by class.

    Args:
        run: Run folder.
        data: Folder of the data set, where it is not the one trained on.
        split: Which images.
        refresh: Accept that files have changed or vanished since they were decoded.
        factory: The function that made the model's network, where it is not one of ours; its code runs.
        as_json: Print JSON, for machines.
    """
    from oneway.evaluate import evaluate_run

    result = evaluate_run(run, split, data, Console(stderr=True), factory, refresh)
    if as_json:
        print(json.dumps(result, indent=1))
        return
    table = Table(title=Text(f"{run}, {result['samples']} {split} samples"), caption=_absent_note(result["absent"]))
    table.add_column("class")
    table.add_column("IoU in %" if result["metric"] == "miou" else "recognised in %", justify="right")
    for name, value in result["per_class"].items():
        table.add_row(name, "–" if value is None else f"{value:.1f}")
    table.add_section()
    table.add_row("mean" if result["metric"] == "miou" else "accuracy", f"{result['value']:.1f}", style="bold")
    console.print(table)


@app.command
def check(
    folder: Annotated[Path, Parameter(name="data")],
    /,
    *,
    recipe: Literal["folder", "camvid", "cityscapes", "cityscapes-half", "cityscapes-coarse"] = "folder",
    unlabelled: Path | None = None,
    out: Path | None = None,
    save: Switch = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Look at a data set before anything trains on it: what is there, what is wrong, what looks suspicious.

    The data are never changed. Exits with 1 if something in them would hurt.

    Args:
        folder: Folder of the data set.
        recipe: What kind of data set it is.
        unlabelled: A folder of further images without labels.
        out: The contact sheet of images with their masks laid over; by default check-NAME.png here.
        save: Write the dataset.yaml by which the folder would be read into it.
        as_json: Print JSON, for machines.
    """
    from oneway.data.check.inspection import check_folder, check_listing

    if recipe == "folder":
        sys.exit(check_folder(folder, console, unlabelled=unlabelled, out=out, save=save, as_json=as_json))
    if save:
        raise UserError(f"--save: {recipe} is read as it comes, without a dataset.yaml.")
    from oneway.data import list_files

    settings = recipe_named(recipe).data.model_copy(update={"path": folder, "unlabelled": unlabelled})
    sys.exit(check_listing(list_files(settings), console, out=out, as_json=as_json))


@app.command
def predict(
    run: Path,
    /,
    *paths: str,
    out: Path = Path("predictions"),
    tile: tuple[Positive, Positive] | None = None,
    confidence: Switch = False,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    frames: Switch = False,
    device: str = "auto",
    factory: Annotated[str | None, Parameter(name="--model.factory")] = None,
) -> None:
    """Predict masks of images, folders and videos with a trained model.

    Writes masks that hold class indices and show class colours, and overlays, under the names of the images. Broken
    files are named and left out; the exit status is 1 then. A model that classifies prints a CSV table instead.

    Args:
        run: Run folder, or its model.safetensors.
        paths: Images, videos, folders (with all their subfolders) and patterns such as 'photos/**/*.jpg'.
        out: Folder of the results: new, empty, or of earlier results, which are replaced.
        tile: Height and width of overlapping tiles, for images too large to be seen at once.
        confidence: Also write how sure the model is of each pixel, from black to white.
        as_json: Also write a JSON file for each image: the share of each class, the mean confidence.
        frames: Write a mask and an overlay for each frame of a video, instead of an overlay video.
        device: auto, cpu, cuda, cuda:1, …
        factory: The function that makes the network, where it is one of your own.
    """
    from oneway.predict import Outputs, load, predict_files

    outputs = Outputs(out, confidence=confidence, facts=as_json, frames=frames)
    sys.exit(predict_files(load(run, device, factory), paths, outputs, console, tile))


@app.command
def export(
    run: Path,
    /,
    *,
    to: Path,
    output: Literal["labels", "logits"] = "labels",
    licence: str | None = None,
    factory: Annotated[str | None, Parameter(name="--model.factory")] = None,
) -> None:
    """Export a trained model to one file that runs without oneway, with a model card beside it.

    The file takes any number of images of any size. It is compared with the model before it gets its name.

    Args:
        run: Run folder, or its model.safetensors.
        to: The file: .onnx for ONNX Runtime and its like, .pt2 for PyTorch.
        output: The class of each pixel, or the logits of all classes.
        licence: Under which the model may be used, for its card.
        factory: The function that makes the network, where it is one of your own.
    """
    from oneway.export import export_model

    export_model(run, to, output, console, licence, factory)


@app.command
def report(*runs: Path, out: Path | None = None, factory: Factory = None) -> None:
    """Write one self-contained HTML page about one run, or about several side by side.

    Args:
        runs: Run folders, the baseline first.
        out: The page; by default report.html in the (last) run folder.
        factory: The function that made the models' networks, where they are not ours; its code runs.
    """
    from oneway.report import write_report

    _say(f"Report: {write_report(list(runs), out, factory)}")


@app.command
def reproduce(
    name: str | None = None,
    /,
    *,
    data: Path | None = None,
    out: Path = Path("runs/reproduce"),
    seeds: Positive = 1,
    row: tuple[str, ...] = (),
    column: tuple[str, ...] = (),
    iterations: Positive | None = None,
    side_by_side: Positive | None = None,
) -> None:
    """Train and draw what the paper shows: a table or a figure by name; without a name, list them.

    What has been trained before is not trained again; what was stopped goes on.

    Args:
        name: Which table or figure.
        data: Folder of the data set.
        out: Folder of the runs and the result.
        seeds: Number of runs of each setup; the result tells mean and deviation.
        row: Only this row of the table (a method); can be repeated.
        column: Only this column of the table (a number of labels); can be repeated.
        iterations: Length of every run, where not the paper's.
        side_by_side: How many runs train at once.
    """
    from oneway.reproduce import EXPERIMENTS, Request, reproduce

    if name is None:
        for known, experiment in EXPERIMENTS.items():
            console.print(f"[bold]{known}[/]  {experiment.shows}", soft_wrap=True)
        return
    reproduce(name, Request(out, seeds, data, row, column, iterations, side_by_side), console)


@app.command
def explore(run: Path, other: Path | None = None, /, *, data: Path | None = None, port: int | None = None) -> None:
    """Open a local page: perturb an image by hand, and see where one model, or two, contradict themselves.

    Args:
        run: Run folder.
        other: A second run with the same classes, to see beside it.
        data: Folder of the data set, where it is not the one trained on.
        port: Port of the page's address; by default 8421, or a free one.
    """
    from oneway.explore import explore

    explore([run, other] if other else [run], console, data=data, port=port)


@app.command
def suggest(run: Path, /, *, data: Path | None = None, count: Positive = 24, out: Path | None = None) -> None:
    """Say which images to label next: those on which a model contradicts itself, no two alike.

    Args:
        run: Run folder.
        data: Folder of images to choose from; by default the run's own without labels.
        count: How many.
        out: The table (CSV); a contact sheet (PNG) lies beside it. By default suggest.csv in the run folder.
    """
    from oneway.suggest import suggest

    found = suggest(run, console, folder=data, count=count, out=out)
    for reason in found.unreadable:
        _say(f"Left out: {reason}")
    alike = f" ({found.alike} others look like them)" if found.alike else ""
    _say(f"{len(found.chosen)} images to label next{alike}: {found.table}\nContact sheet: {found.sheet}")


@app.command
def bench(
    what: Literal["params", "step", "memory", "infer", "data"] | None = None,
    /,
    *,
    case: tuple[str, ...] = (),
    profile: Switch = False,
    figure: Path | None = None,
    as_json: Annotated[Path | None, Parameter(name="--json")] = None,
) -> None:
    """Measure time, memory and speed against named baselines and the paper; without a name, list what can be measured.

    Needs no data. On a computer without a GPU it runs at a small size.

    Args:
        what: What to measure.
        case: Measure this case only; may be repeated.
        profile: With step, also tell where the time goes, and the least that it could be.
        figure: With memory, draw the paper's figure into this file (.png, .svg or .pdf).
        as_json: Write everything that was measured to this file.
    """
    from oneway.bench import BENCHES, Options, bench
    from oneway.run import choose_device

    if what is None:
        for known, one in BENCHES.items():
            console.print(f"[bold]{known}[/]  {one.shows}", soft_wrap=True)
        return
    bench(what, Options(choose_device("auto"), case, profile, figure), as_json, console)


def _absent_note(absent: list[str]) -> str | None:
    return f"No pixel of these images is labelled {', '.join(absent)}." if absent else None


def _folder_name(config: Config) -> str:
    labels = Path(config.labels).stem if Path(config.labels).is_file() else config.labels.replace("/", "of")
    variant = "" if config.variant == "1w-ct" else f"-{config.variant}"
    return f"{config.recipe}-{config.method}{variant}-{labels}-seed{config.seed}"


def main() -> None:
    """The `oneway` command: what the user can mend is said in a line or two, without a traceback."""
    # PyTorch's threads wait for one another many times in a step. By default they spin for long, and on a computer that
    # has other things to do a step can take twenty times as long; if they slept at once, an idle one would be slower.
    # GNU's OpenMP, that of PyTorch on Linux, reads this when PyTorch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    words = [word for word in sys.argv[1:] if word != "--traceback"]
    try:
        app(words, print_error=False, exit_on_error=False)
    except (Exception, KeyboardInterrupt) as error:
        if len(words) < len(sys.argv) - 1:
            Console(stderr=True).print_exception()
        _fail(*_explained(error))


def _explained(error: BaseException) -> tuple[str, int]:
    """What to say about an error, and the exit status."""
    from oneway.interrupt import Interrupted

    match error:
        case CycloptsError():
            cause = error.__cause__
            return configuration.explain(cause) if isinstance(cause, pydantic.ValidationError) else str(error), 2
        case UserError():
            return str(error), 1
        case Interrupted():
            return str(error), error.exit_status
        case KeyboardInterrupt():
            return "Stopped.", 128 + signal.SIGINT
        case _:
            return describe_bug(error), BUG_STATUS


def _say(message: str) -> None:
    # What a user typed, a path say, is text and not markup.
    console.print(message, markup=False, highlight=False, soft_wrap=True)


def _fail(message: str, status: int) -> None:
    Console(stderr=True).print(Text.assemble(("oneway: ", "bold red"), message), soft_wrap=True)
    sys.exit(status)
