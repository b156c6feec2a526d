"""The settings and the folder of `oneway train`: from a recipe, a preset, a file, flags, or an earlier run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rich.console import Console

from oneway.common.errors import UserError, missing
from oneway.common.run_files import CONFIG, is_output
from oneway.common.words import command, say
from oneway.config import Config, build, merge, read_yaml, unset_alternatives
from oneway.config.recipes import PresetName, configured, with_preset


def collect_changes(settings: Config, data: Path | None, file: Path | None) -> dict[str, Any]:
    """The settings that the user gives, by section; flags win over a file."""
    changes = unset_alternatives(settings.model_dump(exclude_unset=True))
    if data is not None:
        changes = merge(changes, {"data": {"path": data}})
    return changes if file is None else merge(unset_alternatives(read_yaml(file)), changes)


def resolve(
    recipe_name: str,
    asked: dict[str, Any],
    preset: PresetName | None,
    source: str,
    earlier: dict[str, Any],
) -> tuple[Config, dict[str, Any]]:
    """Every setting: those of a recipe, or of an `earlier` run, with a preset and then `asked` over them.

    Returns:
        The settings, and what was changed by the preset and by the user.
    """
    changes = asked if preset is None else with_preset(preset, recipe_name, asked)
    if (named := changes.get("recipe", recipe_name)) != recipe_name:
        use = command("oneway", "train", named, "--config", source)
        raise UserError(f"{source}: has settings of the recipe {named}, not of {recipe_name}. Use: {use}")
    config = build(merge(earlier, changes), source) if earlier else configured(recipe_name, changes, source)
    return config, changes


def is_place(named: str) -> bool:
    """Whether what was named in a recipe's place is a folder or an archive, or a path at which there is nothing."""
    place = Path(named)
    return place.is_dir() or place.suffix.lower() == ".zip" or (os.sep in named and not place.exists())


def recipe_of(run: Path, resume: bool) -> str:
    """The recipe of a run folder that was named in a recipe's place.

    Raises:
        UserError: It is no run, or not to be continued; says which command was probably meant.
    """
    if not run.exists():
        raise missing(run)
    if not (is_output(run) and (run / CONFIG).is_file()):
        raise _no_recipe(run)
    if not resume:
        use = command("oneway", "train", run, "--resume")
        raise UserError(f"{run}: a run, and not a recipe. To continue it: {use}")
    return str(read_yaml(run / CONFIG).get("recipe"))


def settings_of(run: Path) -> dict[str, Any]:
    """The settings of a run to continue; a UserError where only another program knows its method."""
    from oneway.runs.settings import refuse_own_method

    settings = read_yaml(run / CONFIG)
    refuse_own_method(run, settings.get("method"))
    return settings


def _no_recipe(folder: Path) -> UserError:
    """The error for a folder in a recipe's place that is no run: it holds runs, or else images."""
    inside = sorted(file.parent for file in folder.glob(f"*/{CONFIG}") if is_output(file.parent))
    if not inside:
        use = command("oneway", "train", "folder", "--data", folder)
        kind = "a folder" if folder.is_dir() else "a file"
        return UserError(f"{folder}: {kind}, and not a recipe. Use: {use}")
    use = command("oneway", "train", inside[0], "--resume")
    both = command("oneway", "train", recipe_of(inside[0], resume=True), "--compare", "--resume", "--out", folder)
    return UserError(f"{folder}: holds runs, and is not a recipe. To continue one: {use}; a comparison: {both}")


def continue_run(
    folder: Path, given: Config, changes: dict[str, Any], source: str, console: Console
) -> tuple[Config, bool]:
    """The settings of the run in a folder, and over them the changes; where there is no run yet, those given.

    Returns:
        The settings, and whether there is a run.
    """
    from oneway.engine.rendezvous import join
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
        ranks.require_equal(given.flat())
        return ranks.broadcast(find)


def compared_folder(config: Config, out: Path | None, begun: bool) -> Path:
    """The folder of the run that is compared with `supervised`, inside the folder of both, which is `out` if given.

    Where a comparison has `begun`, it is that of its method: the user need not name it again.
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
