"""Verbs on the way from data to a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, validators
from rich.table import Table

from oneway import config as configuration
from oneway.cli.app import TRAIN, Cache, Factory, Json, Refresh, Switch, console, messages, results, verb
from oneway.common.console import print_result
from oneway.common.errors import UserError
from oneway.common.interrupt import Interrupted
from oneway.common.run_files import CONFIG, is_output
from oneway.common.terms import LoggerName, SplitName
from oneway.common.words import command, counted, say
from oneway.config import Config, Positive
from oneway.config.recipes import RECIPES, PresetName, configured, with_preset
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
        unlabelled: Further images without labels: a folder, a video, or tar shards, of which some are looked at.
        holdout: Share of the labelled images that validate, where there is no validation set; 0.2 unless given, and 0
            for none.
        out: The contact sheet of images with their masks laid over; by default check-NAME.png here.
        save: Write what was understood to dataset.yaml in the folder, for you to edit.
        as_json: Print JSON, for machines.
    """
    from oneway.data.check.inspection import check_folder, check_listing

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
    sys.exit(check_listing(list_files(settings), results, out=out, as_json=as_json, pool=pool))


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
        preset: Settings that go together: a first model on small crops, minutes without a GPU (cpu); half the time of
            the recipe (fast); twice the unlabelled images in a batch and larger crops, which gained a point on façades
            for 2.8 times the work (best). Flags win over it. `eval` and `predict` gain some tenths by --mirror.
        compare: Also train without unlabelled images, with the same seed, labels and length, and report what they
            brought; the folder then holds two runs, named after their methods.
        resume: Continue the run in the folder from its last checkpoint, to the bit; start it where there is none yet.
            `oneway train RUN --resume` continues a run with its own settings.
        allow_changes: With --resume, go on although settings, split or data are not those the run began with.
        config: Take the settings of a YAML file, such as the config.yaml of an earlier run; flags win over it.
        log: Also draw the curves there, while it trains; a continued run goes on with its curve without this flag.
        dry_run: Print the settings that would be used, and stop.
        settings: The configuration.
    """
    if log:
        from oneway.tools.loggers import require_services

        require_services(log)
    run_settings: dict[str, Any] = {}
    if recipe_name not in RECIPES and (place := Path(recipe_name)).is_dir():
        recipe_name, out = _recipe_of(place, resume and out is None and not compare), place
        run_settings = configuration.read_yaml(place / CONFIG)  # those of the recipe could contradict changes
    changes = configuration.prefer_epochs(settings.model_dump(exclude_unset=True))
    if data is not None:
        changes = configuration.merge(changes, {"data": {"path": data}})
    if config is not None:
        changes = configuration.merge(configuration.prefer_epochs(configuration.read_yaml(config)), changes)
    asked = changes
    if preset is not None:
        changes = with_preset(preset, recipe_name, changes)
    source = str(config or "command line")
    if (named := changes.get("recipe", recipe_name)) != recipe_name:
        raise UserError(f"{source}: has settings of the recipe {named}, not of {recipe_name}.")
    if run_settings:
        resolved = configuration.build(configuration.merge(run_settings, changes), source)
    else:
        resolved = configured(recipe_name, changes, source)
    if preset == "best" and "crop" not in asked.get("jitter", {}):
        from oneway.tools.presets import fit_crops

        resolved = fit_crops(resolved, messages if dry_run else console)
        changes = configuration.merge(changes, {"jitter": {"crop": resolved.jitter.crop}})
    folder = out or Path("runs") / _folder_name(resolved)
    if compare:
        folder = _compared_folder(resolved, out, resume and "method" not in changes)
    if allow_changes and not resume:
        raise UserError("--allow-changes: a new run has nothing to change. Add --resume, or leave it out.")
    begun = False
    if resume:
        from oneway.engine.ranks import join

        ranks = join(resolved.train.device)
        with ranks.watching():
            ranks.require_same(resolved.flat())
            resolved, begun = ranks.same(lambda: _earlier(folder, resolved, changes, source))
    # Code that a file names runs for a user who names it too.
    configuration.confirm_factory(resolved.model.factory, settings.model.factory, config or folder)
    if dry_run:
        print_result(resolved.to_yaml().rstrip("\n"))
        return

    if compare:
        from oneway.tools.baseline import with_method
        from oneway.tools.compare import compare as train_both

        # The chosen method first: what was asked for at the start is then in its folder when the two are continued.
        try:
            train_both([resolved, with_method(resolved)], folder.parent, console, resume, allow_changes, log)
        except Interrupted as stopped:
            continued = command("oneway", "train", recipe_name, "--compare", "--resume", "--out", folder.parent)
            raise Interrupted(stopped.args[0], f"{stopped} Both: {continued}") from None
        return

    from oneway.engine.ranks import joined
    from oneway.tools.evaluate import METRIC_NAMES
    from oneway.tools.report import describe_gain, read_runs, write_report
    from oneway.tools.report.words import rests_on_few
    from oneway.tools.train import train

    summary = train(resolved, folder, begun, console, allow_changes, log)
    if not joined().is_first:
        return
    page = folder / "report.html"
    if not page.exists():
        write_report([folder], page, resolved.model.factory, trained=resolved.data)
    value, given = summary["value"], counted(summary["labels"], "label")
    known = value is not None and f"{value:.1f} % {METRIC_NAMES[summary['metric']]} on validation with {given}"
    if known and (caution := rests_on_few(summary["validation_samples"], compared=False)):
        known = f"{known}\n{caution}"
    say(console, f"{known or f'Trained on {given}; no image validates, and no score is known'}\nReport: {page}")
    say(console, str(describe_gain(read_runs([folder]))))


def _recipe_of(place: Path, continued: bool) -> str:
    """The recipe of a run that is named in its place, to be continued."""
    if not (is_output(place) and (place / CONFIG).is_file()):
        for inside in sorted(found.parent for found in place.glob(f"*/{CONFIG}") if is_output(found.parent)):
            use, recipe = command("oneway", "train", inside, "--resume"), _recipe_of(inside, continued=True)
            both = command("oneway", "train", recipe, "--compare", "--resume", "--out", place)
            raise UserError(
                f"{place}: holds runs, and is no recipe. To go on with one: {use}; with a comparison: {both}"
            )
        use = command("oneway", "train", "folder", "--data", place)
        raise UserError(f"{place}: a folder, and no recipe. Use: {use}")
    if not continued:
        use = command("oneway", "train", place, "--resume")
        raise UserError(f"{place}: a run, and no recipe. To go on with it: {use}")
    return str(configuration.read_yaml(place / CONFIG).get("recipe"))


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


@verb(TRAIN, name="eval")
def evaluate(
    run: Path,
    /,
    *,
    data: Path | None = None,
    split: SplitName = "val",
    mirror: Switch = False,
    window: tuple[Positive, Positive] | None = None,
    refresh: Refresh = False,
    cache: Cache = None,
    device: str = "auto",
    factory: Factory = None,
    as_json: Json = False,
) -> None:
    """Print how good a trained model is, class by class.

    Args:
        run: Run folder.
        data: Folder of the data set, where it is not the one trained on.
        split: Which images.
        mirror: Average the predictions for an image and its mirror image: twice the time, often some tenths better.
        window: Height and width of sliding windows, each seen by itself, as benchmarks on Cityscapes do; by default a
            model sees whole images.
        refresh: Accept that files have changed or vanished since they were decoded.
        cache: Where decoded images are kept; by default a folder of the user's cache folder, whatever the run says.
        device: auto, cpu, cuda, cuda:1, …
        factory: The function that made the model's network, where it is not one of ours; its code runs.
        as_json: Print JSON, for machines.
    """
    from oneway.tools.evaluate import about_absent, evaluate_run

    result = evaluate_run(run, split, data, messages, factory, refresh, device, cache, mirror, window)
    if as_json:
        print_result(json.dumps(result, indent=1, allow_nan=False))
        return
    taught = ", from which it has learnt" if split == "train" else ""
    averaged = ", averaged with mirror images" if mirror else ""
    windows = f", in windows of {window[0]}×{window[1]} pixels" if window else ""
    say(results, f"{run} on {result['samples']} {split} samples{taught}{windows}{averaged}")
    table = Table()
    table.add_column("class")
    table.add_column("IoU in %" if result["metric"] == "miou" else "recognised in %", justify="right")
    for name, value in result["per_class"].items():
        table.add_row(name, "–" if value is None else f"{value:.1f}")
    table.add_section()
    table.add_row("mean" if result["metric"] == "miou" else "accuracy", f"{result['value']:.1f}", style="bold")
    results.print(table)
    if note := about_absent(result):
        say(results, note)


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

    say(console, f"Report: {write_report(list(runs), out, factory, data, refresh, console, cache)}")


def _earlier(folder: Path, given: Config, changes: dict[str, Any], source: str) -> tuple[Config, bool]:
    """The settings of the run in a folder with some changed, and True; where there is none yet, those given, and False.

    What is not mentioned now is as it was, so that continuing needs no flags again.
    """
    from oneway.runs import open_run, refuse_occupied

    if not (folder / CONFIG).exists() and not any(folder.glob(f"*/{CONFIG}")):
        refuse_occupied(folder)
        say(console, f"{folder}: there is nothing to continue yet; the run starts.")
        return given, False
    earlier = open_run(folder).config
    if earlier.recipe != given.recipe:
        raise UserError(f"{folder}: is a run of recipe {earlier.recipe}, not of {given.recipe}.")
    return configuration.build(configuration.merge(earlier.model_dump(), changes), source), True


def _compared_folder(config: Config, out: Path | None, begun: bool) -> Path:
    """The folder of the run that is compared with `supervised`, inside that of both.

    Args:
        config: As asked for now.
        out: The folder of both runs, if the user named one.
        begun: Whether a comparison is continued whose method the user has not named again.
    """
    both, method = out or Path("runs") / f"{_folder_name(config)}-compare", config.method
    if begun:
        from oneway.tools.baseline import find_compared

        method = find_compared(both) or method
    return both / method


def _folder_name(config: Config) -> str:
    labels = Path(config.labels).stem if Path(config.labels).is_file() else config.labels.replace("/", "of")
    variant = "" if config.variant == "1w-ct" else f"-{config.variant}"
    own = config.data.path if config.recipe == "folder" else None
    name = own and (own.stem if own.is_file() else own.resolve().name)
    return f"{name or config.recipe}-{config.method}{variant}-{labels}-seed{config.seed}"
