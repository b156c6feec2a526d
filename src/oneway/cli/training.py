"""Verbs on the way from data to a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, validators
from rich.table import Table

from oneway.cli import run_settings
from oneway.cli.app import TRAIN, Cache, Factory, Json, Refresh, Switch, console, messages, results, verb
from oneway.cli.favour import Favour, factors_of
from oneway.common.console import print_result
from oneway.common.errors import UserError
from oneway.common.importing import import_report
from oneway.common.interrupt import Interrupted
from oneway.common.terms import LoggerName, SplitName
from oneway.common.words import command, counted, say
from oneway.config import Config, Positive, confirm_factory
from oneway.config.recipes import RECIPES, PresetName
from oneway.config.recipes import recipe as recipe_named

SHARE = validators.Number(gte=0, lt=1)


@verb(TRAIN)
def quickstart(*, out: Path = Path("runs/quickstart"), seed: int = 0) -> None:
    """Train with and without unlabelled images on embedded street scenes, and compare the two in a report.

    Takes a few minutes on a laptop's CPU. Run again, it continues where it was stopped.

    Args:
        out: Folder of the two runs, summary.json and report.html.
        seed: Decides the labelled subset, the initial weights and every random draw.
    """
    from oneway.tools.quickstart import quickstart

    quickstart(out, seed, console)


@verb(TRAIN)
def check(
    folder: Annotated[Path, Parameter(name="data")],
    /,
    *,
    recipe: Literal[
        "folder", "camvid", "cityscapes", "cityscapes-half", "cityscapes-coarse", "voc", "ade20k", "coco-stuff"
    ] = "folder",
    unlabelled: Annotated[str | Path | None, Parameter(name=("--unlabelled", "--data.unlabelled"))] = None,
    holdout: Annotated[float | None, Parameter(name=("--holdout", "--data.holdout"), validator=SHARE)] = None,
    out: Path | None = None,
    save: Switch = False,
    as_json: Json = False,
) -> None:
    """Look at a data set before anything trains on it: what is there, what is wrong, what looks suspicious.

    The data are never changed. The exit status is 1 if something in them would harm training.

    Args:
        folder: Folder or zip file of the data set.
        recipe: What kind of data set it is.
        unlabelled: Further images without labels: a folder of images or videos, or tar shards; some are looked at.
        holdout: Share of the labelled images that validate, where there is no validation set; 0.2 unless given, and 0
            for none.
        out: The contact sheet of images with their masks laid over; by default check-NAME.png here.
        save: Write what was understood to dataset.yaml in the folder, for you to edit.
        as_json: Print JSON, for machines.
    """
    from oneway.data.check.inspection import check_folder, check_listing, print_refusal

    if recipe == "folder":
        found = check_folder(
            folder, results, unlabelled=unlabelled, holdout=holdout, out=out, save=save, as_json=as_json
        )
        sys.exit(found)
    if holdout is not None:
        raise UserError(f"--holdout: {recipe} has a validation set of its own. Leave it out.")
    if save:
        raise UserError(f"--save: {recipe} is read as it comes, without a dataset.yaml.")
    from oneway.data.load import has_pool, list_files

    settings = recipe_named(recipe).data.model_copy(update={"path": folder, "unlabelled": unlabelled})
    pool = unlabelled if has_pool(settings) else None
    try:
        listing = list_files(settings)
    except UserError as error:
        sys.exit(print_refusal(folder, error, results, as_json))
    sys.exit(check_listing(listing, results, out=out, as_json=as_json, pool=pool))


@verb(TRAIN)
def shards(
    folder: Annotated[Path, Parameter(name="dir")],
    /,
    *,
    out: Path,
    size: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=10**6))] = 1000,
) -> None:
    """Pack a folder of images into tar shards, to train on more of them than can be decoded beforehand.

    The shards are in WebDataset's format, with an index beside them. `--data.unlabelled` of `oneway train` takes them,
    from a disk or from a web server. Run again, it continues where it was stopped.

    Args:
        folder: Folder of images, searched with its subfolders.
        out: Folder of the shards.
        size: Images in a shard.
    """
    from oneway.tools.shards import pack

    packed = pack(folder, out, size, console)
    shards = counted(packed.shards, "shard")
    say(console, f"{counted(packed.images, 'image')} in {shards}, {packed.bytes / 1e6:,.0f} MB: {out}")


@verb(TRAIN)
def train(
    recipe_name: Annotated[
        str,
        Parameter(name="recipe", help=f"What to start from: {', '.join(RECIPES)}.", completer=lambda _: [*RECIPES]),
    ],
    /,
    *,
    data: Path | None = None,
    out: Path | None = None,
    preset: PresetName | None = None,
    compare: Switch = False,
    resume: Switch = False,
    allow_changes: Switch = False,
    config: Path | None = None,
    # Before its script, torchrun takes --log for the beginning of flags of its own.
    log: Annotated[
        tuple[LoggerName, ...], Parameter(name=("--log", "--logger"), consume_multiple=True, show_default=False)
    ] = (),
    dry_run: Switch = False,
    # A recipe decides the defaults of settings: fixed ones in the help would mislead.
    settings: Annotated[Config, Parameter(name="*", show_default=False)] = Config(),  # noqa: B008 (frozen)
) -> None:
    """Train a model as a recipe says; any setting of the recipe can be changed by its flag.

    Args:
        recipe_name: What to start from.
        data: Folder or zip file of the data set, for recipes that read one.
        out: Run folder; by default one below runs/ named after recipe (or own data), method, labels and seed.
        preset: Settings that go together: a first model on small crops, minutes without a GPU, for which --method
            supervised is enough (cpu); half the time of the recipe (fast); twice the unlabelled images in a batch and
            larger crops, which gained a point on façades for 2.8 times the work (best). Flags win over it. `eval` and
            `predict` gain some tenths by --mirror.
        compare: Also train without unlabelled images, with the same seed, labels and length, and report what they
            brought; the folder then holds two runs, named after their methods.
        resume: Continue the run in the folder from its last checkpoint, to the bit; start it where there is none yet.
            `oneway train RUN --resume` continues a run with its own settings.
        allow_changes: With --resume, go on although settings, split or data are not those the run began with.
        config: Take the settings of a YAML file, such as the config.yaml of an earlier run; flags win over it.
        log: Also log losses and scores to these services; a continued run goes on logging without this flag.
        dry_run: Print the settings that would be used, and stop.
        settings: The configuration.
    """
    if log:
        from oneway.tools.loggers import require_services

        require_services(log)
    if allow_changes and not resume:
        raise UserError("--allow-changes: a new run has nothing to change. Add --resume, or leave it out.")
    earlier: dict[str, Any] = {}
    if recipe_name not in RECIPES and run_settings.is_place(recipe_name):
        place = Path(recipe_name)
        recipe_name, out = run_settings.recipe_of(place, resume and out is None and not compare), place
        earlier = run_settings.settings_of(place)
    source = str(config or "command line")
    changes = run_settings.collect_changes(settings, data, config)
    resolved, changes = run_settings.resolve(recipe_name, changes, preset, source, earlier)
    folder = out or Path("runs") / run_settings.folder_name(resolved)
    if compare:
        folder = run_settings.compared_folder(resolved, out, resume and "method" not in changes)
    begun = False
    if resume:
        resolved, begun = run_settings.continue_run(folder, resolved, changes, source, console)
    # Code that a file names runs for a user who names it too.
    confirm_factory(resolved.model.factory, settings.model.factory, config or folder)
    if dry_run:
        print_result(resolved.to_yaml().rstrip("\n"))
        return
    if not begun:
        from oneway.data.splits import refuse_unreadable

        refuse_unreadable(resolved.labels)  # what was typed comes before what is missing
    if compare:
        _train_both(resolved, folder.parent, resume, allow_changes, log)
    else:
        _train_one(resolved, folder, begun, allow_changes, log)


def _train_both(config: Config, out: Path, resume: bool, allow_changes: bool, log: Sequence[str]) -> None:
    """Train with and without unlabelled images, and compare."""
    from oneway.tools.baseline import with_method
    from oneway.tools.compare import compare

    # The chosen method first: what was asked for at the start is then in its folder when the two are continued.
    try:
        compare([config, with_method(config)], out, console, resume, allow_changes, log)
    except Interrupted as stopped:
        continued = command("oneway", "train", config.recipe, "--compare", "--resume", "--out", out)
        raise Interrupted(stopped.args[0], f"{stopped} Both: {continued}") from None


def _train_one(config: Config, folder: Path, begun: bool, allow_changes: bool, log: Sequence[str]) -> None:
    """Train a run, and say how good the model is, and where the report is."""
    from oneway.engine.rendezvous import joined
    from oneway.tools.evaluate import METRIC_NAMES
    from oneway.tools.train import train

    summary = train(config, folder, begun, console, allow_changes, log, beside=import_report)
    if not joined().is_first:
        return
    from oneway.tools.intervals import in_brackets
    from oneway.tools.report import after_training, describe_gain, read_runs, write_report
    from oneway.tools.report.cautions import rests_on_few
    from oneway.tools.report.class_words import lowest_class

    given, facts = counted(summary["labels"], "label"), read_runs([folder])
    if summary["value"] is None:
        say(console, f"Trained on {given}; no image validates, and no score is known")
    else:
        result = f"{summary['value']:.1f} % {METRIC_NAMES[summary['metric']]} on validation with {given}"
        say(console, f"{result}{in_brackets(summary.get('interval'))}")
        for sentence in filter(None, (lowest_class(facts), rests_on_few(facts))):
            say(console, sentence)
    page = folder / "report.html"
    if not page.exists():
        with after_training(folder):
            write_report([folder], page, factory=config.model.factory, trained=config.data)
    say(console, f"Report: {page}")
    say(console, str(describe_gain(facts)))


@verb(TRAIN)
def watch(run: Path, /, *, port: int | None = None) -> None:
    """Serve a page on this computer that shows a run while it trains: losses, validation, classes and pictures.

    It reads the run folder and touches nothing there; it may be started and ended at any time, also after the run.

    Args:
        run: Run folder, or a folder of several, of which the latest are drawn together.
        port: Port of the page's address; by default 8422, or a free one.
    """
    from oneway.tools.watch import watch

    watch(run, console, port)


@verb(TRAIN)
def runs(
    folder: Path = Path("runs"), /, *, sort: Literal["date", "score", "name"] = "date", as_json: Json = False
) -> None:
    """List the runs in a folder: how far each is, how good it is, when it was started and what room it takes.

    It only reads, and trains nothing. A narrow terminal shows fewer columns.

    Args:
        folder: Folder of runs, searched with its subfolders; links are not followed.
        sort: The newest run last, or the best, or all by name.
        as_json: Print JSON, for machines.
    """
    from oneway.tools.run_list import list_runs, table

    found = list_runs(folder, sort)
    if as_json:
        print_result(json.dumps([vars(run) for run in found], indent=1, allow_nan=False))
        return
    results.print(table(found, results.width))
    for run in found:
        if run.problem:
            say(results, f"Cannot be read: {run.problem}")
    for run in found:
        if run.process:
            say(results, f"{run.name} is suspended: `fg` in its terminal lets it go on, or `kill -CONT {run.process}`.")
    if any(run.state == "stopped" for run in found):
        say(results, f"A stopped run goes on with: {command('oneway', 'train', 'RUN', '--resume')}")


@verb(TRAIN, name="eval")
def evaluate(
    run: Path,
    /,
    *,
    data: Path | None = None,
    split: SplitName = "val",
    mirror: Switch = False,
    window: tuple[Positive, Positive] | None = None,
    favour: Favour = (),
    refresh: Refresh = False,
    cache: Cache = None,
    device: str = "auto",
    factory: Factory = None,
    as_json: Json = False,
) -> None:
    """Print how good a trained model is, class by class.

    Args:
        run: Run folder; or, with --data, a model.safetensors alone.
        data: Folder of the data set, where it is not the one trained on.
        split: Which split of the data set.
        mirror: Average the predictions for an image and its mirror image: twice the time, often some tenths better.
        window: Height and width of sliding windows, each seen by itself, as benchmarks on Cityscapes do; by default a
            model sees whole images.
        favour: Multiply a class's probability, as in crack=3, so that less is missed; below 1: fewer false alarms.
            May be repeated.
        refresh: Accept that files have changed or vanished since they were decoded.
        cache: Where decoded images are kept; by default a folder of the user's cache folder, whatever the run says.
        device: auto, cpu, cuda, cuda:1, …
        factory: The function that made the model's network, where it is not one of ours; its code runs.
        as_json: Print JSON, for machines.
    """
    from oneway.models.favoured import in_words
    from oneway.tools.evaluate_run import about_absent, about_interval, evaluate_run

    factors = factors_of(favour)
    result = evaluate_run(
        run,
        split,
        data,
        messages,
        factory=factory,
        device=device,
        mirror=mirror,
        window=window,
        favour=factors,
        refresh=refresh,
        cache=cache,
    )
    if as_json:
        print_result(json.dumps(result, indent=1, allow_nan=False))
        return
    taught = ", from which it has learnt" if split == "train" else ""
    favouring = f", probabilities of {in_words(factors)}" if factors else ""
    averaged = ", averaged with mirror images" if mirror else ""
    windows = f", in windows of {window[0]}×{window[1]} pixels" if window else ""
    say(results, f"{run} on {counted(result['samples'], f'{split} sample')}{taught}{windows}{averaged}{favouring}")
    results.print(_scores_table(result))
    for note in filter(None, (about_interval(result), about_absent(result))):
        say(results, note)


def _scores_table(result: dict[str, Any]) -> Table:
    """Class by class, then all of them."""
    table = Table()
    table.add_column("class")
    columns = {"IoU in %" if result["metric"] == "miou" else "recognised in %": result["per_class"]}
    if result["interval"] is not None:
        columns["95 % interval"] = result["class_intervals"]
    if result["metric"] == "miou":
        columns |= {f"{name} in %": result[name.lower()] for name in ("recall", "precision", "Dice")}
    for column in columns:
        table.add_column(column, justify="right")
    for name in result["per_class"]:
        table.add_row(name, *(_cell(values[name]) for values in columns.values()))
    table.add_section()
    interval = [] if result["interval"] is None else [_cell(result["interval"])]
    title = "mean" if result["metric"] == "miou" else "accuracy"
    table.add_row(title, _cell(result["value"]), *interval, style="bold")
    return table


def _cell(value: float | tuple[float, float] | None) -> str:
    """A number or an interval, in a table."""
    if value is None:
        return "–"
    return f"{value[0]:.1f} – {value[1]:.1f}" if isinstance(value, tuple) else f"{value:.1f}"


@verb(TRAIN)
def report(
    *runs: Path,
    out: Path | None = None,
    data: Path | None = None,
    refresh: Refresh = False,
    cache: Cache = None,
    factory: Factory = None,
) -> None:
    """Write one self-contained HTML page about one run, or about several side by side.

    Args:
        runs: Run folders, the baseline first; or the folder of both runs of a comparison.
        out: The page; by default report.html in the folder given, or report-A-B.html in the last of several.
        data: Folder of the data set, where it is not the one trained on.
        refresh: Accept that files have changed or vanished since they were decoded.
        cache: Where decoded images are kept; by default a folder of the user's cache folder, whatever the run says.
        factory: The function that made the models' networks, where they are not ours; its code runs.
    """
    from oneway.tools.report import write_report

    page = write_report(list(runs), out, factory=factory, data=data, refresh=refresh, cache=cache, console=console)
    say(console, f"Report: {page}")
