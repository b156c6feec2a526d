"""The baseline of a run: the same settings, trained on labels alone; and the commands that train either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oneway.common.errors import UserError
from oneway.common.run_files import CONFIG, SUMMARY
from oneway.common.words import command, listed
from oneway.config import Config, Perturb, read_yaml
from oneway.config.recipes import PRESETS, recipe
from oneway.config.recipes.presets import PHOTOGRAPHS
from oneway.methods import METHODS

BASELINE = "supervised"

PERTURBING = {f"perturb.{name}" for name in Perturb.model_fields}
OF_A_TEACHER = {f"train.teacher_{name}" for name in ("decay", "warm_up", "norm")}
OF_UNLABELLED_IMAGES = {
    *("variant", "teacher", *OF_A_TEACHER, *PERTURBING),
    *(f"train.{name}" for name in ("alpha", "batch_unlabelled", "confidence", "consistency_from", "entropy")),
}
"""Settings that mean nothing to a method that learns from labels alone, unless it perturbs these images."""

MAY_DIFFER = {
    *("recipe", "method", *OF_UNLABELLED_IMAGES),
    *(f"data.{name}" for name in ("path", "unlabelled", "cache", "refresh", "skip_unreadable")),
    *(f"train.{name}" for name in ("device", "engine", "most_skipped")),
    *(f"train.{name}" for name in ("validate_every", "checkpoint_every", "log_every")),
}
"""Between a run and its baseline: settings that concern unlabelled images, or nothing that is learnt."""

COMPARED_AS_DONE = {"labels", "train.iterations", "train.epochs"}
"""Settings with several spellings of one value: callers compare the labelled images and iterations themselves."""

OF_LABELLED_IMAGES = {"balance"}
"""Settings that a method may bring, and its baseline keeps: a gain should be that of unlabelled images alone."""

NOT_REPEATED = ("recipe", "method", "data.name", "data.path", "data.refresh", "data.cache", "jitter.fit")
"""Settings that a command to copy leaves out: it has other words for them, or each user has their own."""


def find_compared(out: Path) -> str | None:
    """The method that a comparison in this folder was begun with; None where that is not clear."""
    runs = [file.parent.name for file in out.glob(f"*/{CONFIG}")]
    found = [name for name in runs if name in METHODS and not METHODS[name].supervised]
    return found[0] if len(found) == 1 else None


def compared_runs(folder: Path) -> list[Path]:
    """The two runs in a folder that `--compare` has filled, the baseline first; the folder itself where it is none.

    Raises:
        UserError: One of them has not ended; says how to continue.
    """
    method = None if (folder / CONFIG).is_file() else find_compared(folder)
    if method is None:
        return [folder]
    both = [folder / BASELINE, folder / method]
    if unfinished := [run.name for run in both if not (run / SUMMARY).is_file()]:
        name = read_yaml(both[1] / CONFIG).get("recipe")
        use = command("oneway", "train", name, "--compare", "--resume", "--out", folder)
        raise UserError(
            f"{folder}: a comparison that has not ended ({listed(unfinished)}). Continue it with: {use}. For one run "
            "alone, name its folder."
        )
    return both


def with_method(config: Config, method: str = BASELINE) -> Config:
    """The same run with another method: seed, labels, length, network and whatever else decides it are unchanged.

    Settings that the one method had brought for unlabelled images give way to those of the other, and to the recipe's.
    A baseline keeps what the method had brought for labelled ones.
    """
    before, after = (recipe(config.recipe, name).train for name in (config.method, method))
    brought = {"teacher_norm", *METHODS[config.method].train, *METHODS[method].train}
    if METHODS[method].supervised:
        brought -= OF_LABELLED_IMAGES
    left = {name for name in brought if getattr(config.train, name) == getattr(before, name)}
    changes: dict[str, Any] = {"method": method, "variant": "1w-ct"}
    if METHODS[method].supervised:
        changes["teacher"] = None
    return config.changed(**changes, train={name: getattr(after, name) for name in left})


def is_baseline_of(one: Config, other: Config) -> bool:
    """Whether `one` is `other` on labels alone; labels and length are not compared, only the remaining settings."""
    if not METHODS[one.method].supervised or METHODS[other.method].supervised or not alike(one, other):
        return False
    return all(getattr(one.train, name) == getattr(other.train, name) for name in OF_LABELLED_IMAGES)


def alike(one: Config, other: Config) -> bool:
    """Whether two runs differ in the method with what it brings, the labels and the length at most."""
    skipped = MAY_DIFFER | COMPARED_AS_DONE
    skipped |= {f"train.{name}" for config in (one, other) for name in METHODS[config.method].train}
    settings = [{key: value for key, value in config.flat().items() if key not in skipped} for config in (one, other)]
    for each in settings:
        if each.get("train.batch_norm") == "both":  # there is nothing perturbed for a baseline to count
            each["train.batch_norm"] = "clean"
    return settings[0] == settings[1]


def train_command(config: Config, *more: str) -> str:
    """The command that trains as configured: the recipe, the method, and the settings that are not theirs.

    Where a preset has brought settings, it is named in their place; what the method does not use is left out.
    """
    plain, words = recipe(config.recipe, config.method), ["oneway", "train", config.recipe]
    flags = _flags(config, plain)
    for name in PRESETS if config.recipe in PHOTOGRAPHS else ():
        fewer = {"preset": name, **_flags(config, plain.changed(**PRESETS[name]))}
        flags = fewer if len(fewer) < len(flags) else flags
    if config.data.path is not None:
        words += ["--data", str(config.data.path)]
    for key, value in flags.items():
        words += _flag(key, value)
    return command(*words, "--method", config.method, *more)


def _flags(config: Config, usual: Config) -> dict[str, Any]:
    """The settings of a command to copy: those that differ from `usual` and matter to the method."""
    method, before = METHODS[config.method], usual.flat()
    unused = OF_UNLABELLED_IMAGES if method.supervised else set()
    said = {*before} - {*NOT_REPEATED} - (unused - PERTURBING if method.augment else unused)
    return {key: value for key, value in config.flat().items() if key in said and value != before[key]}


def _flag(key: str, value: Any) -> list[str]:
    flag = f"--{key.replace('_', '-')}"
    if isinstance(value, bool):
        return [f"{flag}={'yes' if value else 'no'}"]
    return [flag, *map(str, value if isinstance(value, list) else ["none" if value is None else value])]
