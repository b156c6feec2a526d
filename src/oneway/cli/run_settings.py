"""The settings and the folder of `oneway train`: from a recipe, a preset, a file, flags, or an earlier run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.run_files import CONFIG, is_output
from oneway.common.words import command, say
from oneway.config import Config, build, merge, prefer_epochs, read_yaml
from oneway.config.recipes import PresetName, configured, with_preset


def collect_changes(settings: Config, data: Path | None, file: Path | None) -> dict[str, Any]:
    """What the user wants otherwise than the recipe; flags win over a file."""
    changes = prefer_epochs(settings.model_dump(exclude_unset=True))
    if data is not None:
        changes = merge(changes, {"data": {"path": data}})
    return changes if file is None else merge(prefer_epochs(read_yaml(file)), changes)


def resolve(
    recipe_name: str,
    asked: dict[str, Any],
    preset: PresetName | None,
    source: str,
    earlier: dict[str, Any],
    console: Console,
) -> tuple[Config, dict[str, Any]]:
    """Every setting, and all changes: those that were asked for, and those of a preset.

    They are changes of a recipe; or of an earlier run's settings, which those of its recipe could contradict.
    """
    changes = asked if preset is None else with_preset(preset, recipe_name, asked)
    if (named := changes.get("recipe", recipe_name)) != recipe_name:
        use = command("oneway", "train", named, "--config", source)
        raise UserError(f"{source}: has settings of the recipe {named}, not of {recipe_name}. Use: {use}")
    config = build(merge(earlier, changes), source) if earlier else configured(recipe_name, changes, source)
    if preset == "best" and "crop" not in asked.get("jitter", {}):
        from oneway.tools.presets import fit_crops

        config = fit_crops(config, console)
        changes = merge(changes, {"jitter": {"crop": config.jitter.crop}})
    return config, changes


def recipe_of(place: Path, continued: bool) -> str:
    """The recipe of a run that is named in its place, to be continued."""
    if not (is_output(place) and (place / CONFIG).is_file()):
        for inside in sorted(found.parent for found in place.glob(f"*/{CONFIG}") if is_output(found.parent)):
            use, recipe = command("oneway", "train", inside, "--resume"), recipe_of(inside, continued=True)
            both = command("oneway", "train", recipe, "--compare", "--resume", "--out", place)
            raise UserError(
                f"{place}: holds runs, and is no recipe. To go on with one: {use}; with a comparison: {both}"
            )
        use = command("oneway", "train", "folder", "--data", place)
        raise UserError(f"{place}: a folder, and no recipe. Use: {use}")
    if not continued:
        use = command("oneway", "train", place, "--resume")
        raise UserError(f"{place}: a run, and no recipe. To go on with it: {use}")
    return str(read_yaml(place / CONFIG).get("recipe"))


def continue_run(
    folder: Path, given: Config, changes: dict[str, Any], source: str, console: Console
) -> tuple[Config, bool]:
    """The settings of the run in a folder with some changed, and True; where there is none yet, those given, and False.

    What is not mentioned now is as it was, so that continuing needs no flags again.
    """
    from oneway.engine.ranks import join
    from oneway.runs import open_run, refuse_occupied

    def find() -> tuple[Config, bool]:
        if not (folder / CONFIG).exists() and not any(folder.glob(f"*/{CONFIG}")):
            refuse_occupied(folder)
            say(console, f"{folder}: there is nothing to continue yet; the run starts.")
            return given, False
        earlier = open_run(folder).config
        if earlier.recipe != given.recipe:
            use = command("oneway", "train", folder, "--resume")
            raise UserError(
                f"{folder}: is a run of recipe {earlier.recipe}, not of {given.recipe}. Choose another folder with "
                f"--out, or continue that run: {use}"
            )
        return build(merge(earlier.model_dump(), changes), source), True

    ranks = join(given.train.device)
    with ranks.watching():
        ranks.require_same(given.flat())
        return ranks.same(find)


def compared_folder(config: Config, out: Path | None, begun: bool) -> Path:
    """The folder of the run that is compared with `supervised`, inside that of both, which is `out` if there is one.

    Where a comparison has begun whose method the user has not named again, it is that of then.
    """
    both, method = out or Path("runs") / f"{folder_name(config)}-compare", config.method
    if begun:
        from oneway.tools.baseline import find_compared

        method = find_compared(both) or method
    return both / method


def folder_name(config: Config) -> str:
    """Tells a run from others: what it learns from, the method, the labels and the seed."""
    labels = Path(config.labels).stem if Path(config.labels).is_file() else config.labels.replace("/", "of")
    variant = "" if config.variant == "1w-ct" else f"-{config.variant}"
    own = config.data.path if config.recipe == "folder" else None
    name = own and (own.stem if own.is_file() else own.resolve().name)
    return f"{name or config.recipe}-{config.method}{variant}-{labels}-seed{config.seed}"
