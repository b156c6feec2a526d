"""Verbs for a model that has been trained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from oneway.cli.app import USE, Cache, Factory, Json, Refresh, Switch, console, messages, verb
from oneway.cli.favour import Favour, factors_of
from oneway.common.errors import UserError
from oneway.common.interrupt import stops_as_by_ctrl_c
from oneway.common.terms import AnnotationFormat, SuggestBy
from oneway.common.words import counted, say
from oneway.config import Positive, Precision
from oneway.config.tree import NonNegative


@verb(USE)
@stops_as_by_ctrl_c()
def predict(
    run: Path,
    /,
    *paths: str,
    out: Path = Path("predictions"),
    resume: Switch = False,
    unlabelled: Switch = False,
    tile: tuple[Positive, Positive] | None = None,
    mirror: Switch = False,
    favour: Favour = (),
    confidence: Switch = False,
    facts: Switch = False,
    frames: Switch = False,
    masks_as: Annotated[Literal["trained", "indices"], Parameter(name="--as")] = "trained",
    to: AnnotationFormat | None = None,
    tolerance: float = 1.0,
    least_area: Positive = 16,
    background: Switch = False,
    as_json: Json = False,
    device: str = "auto",
    precision: Precision = "auto",
    factory: Factory = None,
) -> None:
    """Predict masks of images, folders and videos with a trained model.

    Writes masks like those that the model learnt from, and overlays, under the names of the images. Broken files are
    named and left out; the exit status is then 1. A model that classifies prints a CSV table instead.

    Args:
        run: Run folder, or its model.safetensors.
        paths: Images, videos, folders (with all their subfolders) and patterns such as 'photos/**/*.jpg'.
        out: Folder of the results: new, empty, or of earlier results, of which files of the same name are replaced.
        resume: Go on in a folder of earlier results: leave out files with results of the same file and model.
        unlabelled: Leave out images that have labels; the paths are folders of data sets.
        tile: Height and width of overlapping tiles; by default, only images of more than 16.8 million pixels have them.
        mirror: Average over each image and its mirror image: twice the time, often some tenths of a point better.
        favour: Multiply a class's probability, as in crack=3, so that less is missed; below 1: fewer false alarms.
            May be repeated.
        confidence: Also write how sure the model is of each pixel, from black to white.
        facts: Also write a JSON file for each image: the share of each class, the mean confidence.
        frames: Write a mask and an overlay for each frame of a video, instead of an overlay video.
        masks_as: Masks as those were that the model learnt from, in their numbers or colours; or class indices, which
            are shown in the colours of the classes.
        to: Also write the regions for an annotation tool, into a folder of that name in the results.
        tolerance: With --to: pixels between a polygon and the predicted outline; 0: exact masks, where there are some.
        least_area: With --to: pixels of a region; smaller ones are left out.
        background: With --to: also write the class called background, void or unlabelled.
        as_json: Print JSON: for each image its mask, the share of each class and the mean confidence; and errors.
        device: auto, cpu, cuda, cuda:1, …
        precision: Number format of the network; auto is bfloat16 on a GPU, float32 on a CPU. On CPUs with AVX-512 BF16
            or AMX, bfloat16 takes half the time, and a few pixels between two classes differ.
        factory: The function that makes the network, where it is one of your own.
    """
    from oneway.tools.annotations import AnnotationSettings
    from oneway.tools.predict import Outputs, load, predict_files

    if resume and to:
        raise UserError("--resume leaves out images, and what --to writes is about all of them. Leave one of them out.")
    outputs = Outputs(out, confidence=confidence, facts=facts, frames=frames, indices=masks_as == "indices")
    model = load(run, device, factory, mirror, precision, factors_of(favour))
    annotations = AnnotationSettings(to, tolerance, least_area, background).export(model, out / to) if to else None
    shown = messages if as_json else console
    sys.exit(predict_files(model, paths, outputs, shown, tile, as_json, annotations, unlabelled, resume))


@verb(USE)
def export(
    run: Path,
    /,
    *,
    to: Path,
    output: Literal["labels", "logits"] = "labels",
    int8: Switch = False,
    int8_loss: NonNegative | None = None,
    licence: str | None = None,
    favour: Favour = (),
    data: Path | None = None,
    refresh: Refresh = False,
    cache: Cache = None,
    factory: Factory = None,
) -> None:
    """Export a trained model to a file that runs without oneway, with a model card beside it.

    The file takes any number of images of any size. It is compared with the model before it gets its name.

    Args:
        run: Run folder, or its model.safetensors.
        to: The file: .onnx for ONNX Runtime and its like, .xml for OpenVINO, .pt2 for PyTorch.
        output: The class of each pixel, or the logits of all classes.
        int8: Quantise to 8-bit integers, calibrated on some of the run's images without labels: smaller, and faster on
            most CPUs. mIoU on the validation set is measured before and after.
        int8_loss: With --int8: points of mIoU that may be lost on the validation set; more, and nothing is written. By
            default 1.
        licence: Licence of the model, for its card.
        favour: Multiply a class's probability, as in crack=3, so that less is missed; below 1: fewer false alarms.
            May be repeated.
        data: With --int8: folder of the data set, where it is not the one trained on.
        refresh: With --int8: accept that files have changed or vanished since they were decoded.
        cache: With --int8: where decoded images are kept; by default a folder of the user's cache folder.
        factory: The function that makes the network, where it is one of your own.
    """
    from oneway.tools.export_names import refuse_export_name

    if not int8 and (int8_loss, data, refresh, cache) != (None, None, False, None):
        raise UserError("--int8-loss and the flags of data go with --int8, which alone looks at images of the run.")
    refuse_export_name(to, int8)
    factors = factors_of(favour)
    from oneway.tools.export import Int8, export_model  # which loads PyTorch

    most_lost = 1.0 if int8_loss is None else int8_loss
    asked = Int8(most_lost, data=data, refresh=refresh, cache=cache) if int8 else None
    export_model(run, to, output, console, licence=licence, factory=factory, int8=asked, favour=factors)


@verb(USE)
def explore(
    run: Path,
    other: Path | None = None,
    /,
    *,
    data: Path | None = None,
    refresh: Refresh = False,
    cache: Cache = None,
    port: int | None = None,
    device: str = "auto",
    factory: Factory = None,
) -> None:
    """Serve a page on this computer: perturb an image by hand, and see where one model, or two, contradict themselves.

    Args:
        run: Run folder.
        other: A second run with the same classes, to see beside it.
        data: Folder of the data set, where it is not the one trained on.
        refresh: Accept that files have changed or vanished since they were decoded.
        cache: Where decoded images are kept; by default a folder of the user's cache folder, whatever the run says.
        port: Port of the page's address; by default 8421, or a free one.
        device: auto, cpu, cuda, cuda:1, …
        factory: The function that makes the network, where it is one of your own.
    """
    from oneway.tools.explore import explore, prepare

    paths = [run, other] if other else [run]
    content = prepare(paths, console, data=data, refresh=refresh, cache=cache, factory=factory, device=device)
    explore(content, console, port)


@verb(USE)
def suggest(
    run: Path,
    /,
    *,
    data: Path | None = None,
    count: Positive = 24,
    by: SuggestBy | None = None,
    out: Path | None = None,
    to: AnnotationFormat | None = None,
    tolerance: float = 1.0,
    least_area: Positive = 16,
    background: Switch = False,
    refresh: Refresh = False,
    cache: Cache = None,
    device: str = "auto",
    factory: Factory = None,
) -> None:
    """Say which images to label next: those that a model cannot decide on, and unlike those that have labels.

    Args:
        run: Run folder.
        data: Folder of images to choose from; by default the run's own without labels.
        count: Number of images to suggest.
        by: What decides: doubt, how unsure the model is, every class counting the same; features, how unlike all
            labelled images an image is; or both, the default.
        out: The table (CSV); a contact sheet (PNG) lies beside it. By default suggest.csv in the run folder.
            With --to, the folder of all, new or empty; by default suggest-FORMAT in the run folder.
        to: Also copy the images, with what the model makes of them, for an annotation tool to correct.
        tolerance: With --to: pixels between a polygon and the predicted outline; 0: exact masks, where there are some.
        least_area: With --to: pixels of a region; smaller ones are left out.
        background: With --to: also write the class called background, void or unlabelled.
        refresh: Accept that files have changed or vanished since they were decoded.
        cache: Where decoded images are kept; by default a folder of the user's cache folder, whatever the run says.
        device: auto, cpu, cuda, cuda:1, …
        factory: The function that makes the network, where it is one of your own.
    """
    from oneway.tools.annotations import AnnotationSettings
    from oneway.tools.suggest import suggest

    found = suggest(
        run,
        console,
        folder=data,
        count=count,
        by=by,
        out=out,
        to=AnnotationSettings(to, tolerance, least_area, background) if to else None,
        refresh=refresh,
        cache=cache,
        factory=factory,
        device=device,
    )
    for reason in found.unreadable:
        say(console, f"Left out: {reason}")
    alike = [f"{counted(found.alike, 'other')} like them"] if found.alike else []
    few = ["no more are without labels"] if found.among < count else []
    remarks = f" ({'; '.join([*alike, *few])})" if alike or few else ""
    say(
        console,
        f"{counted(len(found.chosen), 'image')} to label next{remarks}: {found.table}\nContact sheet: {found.sheet}",
    )
    if found.annotations:
        say(console, found.annotations)
