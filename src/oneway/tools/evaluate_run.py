"""`oneway eval`: the scores of a run's model on a split, class by class."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from oneway import data, runs
from oneway.common.errors import UserError
from oneway.common.run_files import MODEL
from oneway.common.terms import COARSEST_STRIDE, SplitName
from oneway.common.words import counted, listed
from oneway.config.recipes import recipe
from oneway.data.dataset import Samples
from oneway.models.favoured import favoured
from oneway.models.mirrored import Mirrored
from oneway.tools.evaluate import Scores, as_json, evaluate
from oneway.tools.intervals import FEWEST, intervals_of_classes, miou_of_images, together
from oneway.tools.predict import load
from oneway.tools.run_data import read_split, refuse_other_style


def evaluate_run(
    path: Path,
    split: SplitName,
    data_path: Path | None,
    console: Console,
    *,
    factory: str | None = None,
    refresh: bool = False,
    device: str = "auto",
    cache: Path | None = None,
    mirror: bool = False,
    window: tuple[int, int] | None = None,
    favour: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The scores of a run's model on a split of its data set, or of the same kind of data set elsewhere.

    Where there is only the model's file, they are of the labelled images of another folder.

    With `mirror`, predictions are averaged over an image and its mirror image; with `window`, they are made in sliding
    windows of that height and width; with `favour`, the probabilities of some classes are multiplied by factors first.
    """
    run = _open(path, split, data_path, device, factory)
    _refuse_unsuited(run, split, mirror, window)
    chosen = runs.choose_device(device)
    trained = runs.load_model(run.model_file, chosen, factory)
    network = Mirrored(trained.network) if mirror else trained.network
    network = favoured(network, trained.classes, favour, chosen)
    dataset, samples, seen = read_split(
        run, split, trained.classes, data_path, console, refresh=refresh, cache=cache, masks=trained.masks
    )
    refuse_other_style(run.path, trained.image_style, dataset)
    scores = evaluate(network, samples, len(trained.classes), skip=seen, window=window)
    if not scores.confusion.any():
        where = data_path or run.config.data.path or run.config.data.name
        raise UserError(f"{where}: no pixel of its images to evaluate is labelled, and nothing can be scored.")
    how = {"mirror": mirror, "window": list(window or ()), "favour": dict(favour or {})}
    how["left_out"] = [samples.names[number] for number in seen]
    asked = {name: value for name, value in how.items() if value}
    about = {"run": str(path), "split": split, "samples": samples.labelled - len(seen), **asked}
    if scores.groups:
        about["groups"] = len({*scores.groups})
    by_class: dict[str, Sequence[Any]] = {}
    if scores.by_image is not None:
        by_class["class_intervals"] = intervals_of_classes(together(scores.by_image, scores.groups))
    if scores.task == "segmentation":
        by_class |= {"recall": scores.recall, "precision": scores.precision, "dice": scores.dice}
    named = {kind: dict(zip(trained.classes, values, strict=True)) for kind, values in by_class.items()}
    return {**about, **as_json(scores, trained.classes), **named, **_by_image(scores, samples, seen)}


def _by_image(scores: Scores, samples: Samples, seen: Collection[int]) -> dict[str, dict[str, float | None]]:
    """The mIoU of each image by itself, over the classes it has; None for one without a labelled pixel."""
    if scores.by_image is None:
        return {}
    names = [samples.names[number] for number in range(samples.labelled) if number not in seen]
    values = [None if math.isnan(value) else value for value in miou_of_images(scores.by_image).tolist()]
    return {"images": dict(zip(names, values, strict=True))}


def _open(path: Path, split: SplitName, data_path: Path | None, device: str, factory: str | None) -> runs.Run:
    """The run of a folder or of the model in it; or a model alone, which has to see a folder and predict masks."""
    if path.name == MODEL and (path.parent / runs.CONFIG).is_file():
        return runs.open_run(path.parent, any_method=True)
    if path.suffix != Path(MODEL).suffix or not path.is_file():
        return runs.open_run(path, any_method=True)
    if data_path is None or split != "val":
        raise UserError(
            f"{path}: a model without its run, which would know its images. Name a folder of labelled ones with "
            "--data DIR, and leave out --split."
        )
    model = load(path, device, factory)
    if model.classifies:
        raise UserError(f"{path}: classifies whole images, and folders have masks. Give its run folder.")
    config = recipe("folder").changed(jitter={"crop": None, "fit": False}, data={"reduction": model.reduction})
    return runs.ModelAlone(path, config)


def _refuse_unsuited(run: runs.Run, split: SplitName, mirror: bool, window: tuple[int, int] | None) -> None:
    """Refuse what a run's data do not have, or its model cannot do, before anything is loaded."""
    path, name, classifies = run.path, run.config.data.name, run.config.data.task == "classification"
    if window and min(window) < COARSEST_STRIDE:
        crop = run.config.jitter.crop
        crops = f", such as those of its crops: --window {crop[0]} {crop[1]}" if crop else ""
        raise UserError(
            f"--window {window[0]} {window[1]}: too small for {path} to see anything, and would take hours. Give "
            f"{COARSEST_STRIDE} pixels or more a side{crops}."
        )
    if split == "test" and name in data.READERS:
        raise UserError(f"{name} has no test split apart from its validation set; use --split val.")
    if mirror and classifies:
        raise UserError(f"--mirror: {path} classifies {name}; only segmentation is averaged so.")
    if window and classifies:
        raise UserError(f"--window: {path} classifies {name}, whole inputs at once; leave it out.")


def about_interval(scores: Mapping[str, Any]) -> str:
    """Why there is no interval of mIoU; nothing where there is one."""
    if scores["interval"] is not None or scores["metric"] != "miou":
        return ""
    groups = scores.get("groups")
    if (groups or scores["samples"]) >= FEWEST:
        return "No interval: half of the classes or more are shown by hardly any image, and the mean is largely theirs."
    shown = counted(scores["samples"], "image") if groups is None else f"{counted(groups, 'group')} of images"
    return f"No interval: with {shown}, fewer than {FEWEST}, others could change every number here by many points."


def about_absent(scores: Mapping[str, Any]) -> str:
    """A note on classes that no labelled pixel has, and on predictions of them; nothing where there is none."""
    if not scores["absent"] or scores["metric"] != "miou":
        return ""
    columns = zip(*scores["confusion"], strict=True)
    predicted = {name: sum(column) for name, column in zip(scores["per_class"], columns, strict=True)}
    note = f"No pixel is labelled {listed(scores['absent'], None, 'or')}: not in the mean."
    if wrong := [name for name in scores["absent"] if predicted[name]]:
        share = 100 * sum(predicted[name] for name in wrong) / sum(predicted.values())
        amount = f"{share:.1f} %" if share >= 0.05 else "Less than 0.1 %"
        note += f" {amount} are taken for {listed(wrong, None, 'or')} all the same: errors of the classes they have."
    return note
