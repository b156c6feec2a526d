"""Train real-time segmentation models from a few labelled and many unlabelled images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oneway.common.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from oneway.common.terms import SplitName
    from oneway.config import Config, Precision
    from oneway.config.recipes import PresetName
    from oneway.runs import Run
    from oneway.tools.export import Output
    from oneway.tools.predict import Predictor

__version__ = "0.1.0"
__all__ = ["UserError", "__version__", "configure", "evaluate", "export", "fit", "load", "report"]

# PyTorch takes seconds to import, and the science must load alone: each function imports what it needs.


def configure(recipe: str, preset: PresetName | None = None, **changes: Any) -> Config:
    """Every setting of a run: `oneway.configure("streets", method="mt-phtps", train={"iterations": 500})`.

    Args:
        recipe: What to start from; `folder` for images of your own.
        preset: Settings that go together, as `oneway train --preset` has them: `cpu`, `fast`, `best`.
        changes: Settings as in a YAML file, with a dict for each section; for `data`, its path alone will do.

    Raises:
        UserError: A setting does not exist, is out of range, or contradicts another.
    """
    from os import PathLike

    from oneway.config import unset_alternatives
    from oneway.config.recipes import configured, with_preset

    if isinstance(changes.get("data"), str | PathLike):
        changes["data"] = {"path": changes["data"]}
    if preset is not None:
        changes = with_preset(preset, recipe, unset_alternatives(changes))
    return configured(recipe, changes, source="configure")


def fit(
    config: Config, out: str | PathLike[str], resume: bool = False, quiet: bool = False, log: Sequence[str] = ()
) -> Run:
    """Train as configured into a run folder, and return the run: its `summary`, `metrics()` and `config`.

    In the main thread, Ctrl-C and SIGTERM save a checkpoint and raise `oneway.common.interrupt.Interrupted`; in another
    thread, signals are left to the main thread.

    Args:
        config: Every setting.
        out: An empty or new folder; with `resume`, also that of a run to continue.
        resume: Continue a run in that folder where it stopped; one that has ended is returned as it is.
        quiet: Show no progress.
        log: Services that take its curves: `tensorboard`, `wandb`, `mlflow`.

    Raises:
        UserError: Something that the user can correct; the message says how.
    """
    from pathlib import Path

    from oneway.common.console import Console
    from oneway.common.run_files import CONFIG
    from oneway.engine.rendezvous import join
    from oneway.runs import open_run
    from oneway.tools.train import train

    folder = Path(out)
    begun = join(config.train.device).broadcast(lambda: resume and (folder / CONFIG).is_file())
    train(config, folder, begun, Console(quiet=quiet), log=log)
    return open_run(folder)


def evaluate(
    run: str | PathLike[str],
    data: str | PathLike[str] | None = None,
    split: SplitName = "val",
    device: str = "auto",
    factory: str | None = None,
    mirror: bool = False,
    window: tuple[int, int] | None = None,
    favour: Mapping[str, float] | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """How good a trained model is, as `oneway eval --json` says it: `value`, `per_class`, `recall`, `precision`, ….

    Args:
        run: A run, its folder, or with `data` its model.safetensors alone.
        data: Another folder of labelled images; by default, the images of the run.
        split: `val`, `test`, or `train`, from which it has learnt.
        device: As in `load`.
        factory: As in `load`.
        mirror: Average what it makes of an image and of its mirror image; twice the time.
        window: Height and width of sliding windows; by default, a model sees whole images.
        favour: As in `load`.
        quiet: Show no notes.

    Raises:
        UserError: Something that the user can correct, such as other classes; the message says how.
    """
    from pathlib import Path

    from oneway.common.console import Console
    from oneway.tools.evaluate_run import evaluate_run

    return evaluate_run(
        Path(run),
        split,
        None if data is None else Path(data),
        Console(quiet=quiet),
        device=device,
        factory=factory,
        mirror=mirror,
        window=window,
        favour=favour,
    )


def load(
    run: str | PathLike[str],
    device: str = "auto",
    factory: str | None = None,
    mirror: bool = False,
    precision: Precision = "auto",
    favour: Mapping[str, float] | None = None,
) -> Predictor:
    """A trained model, ready to use: `oneway.load("runs/x").predict("image.jpg").save("mask.png")`.

    Args:
        run: A run, its folder, or its model.safetensors.
        device: `auto` takes the GPU where there is one; else `cpu`, `cuda`, `cuda:1`, …
        factory: The `model.factory` that you agree to run, where the model names one.
        mirror: Average what it makes of an image and of its mirror image; twice the time.
        precision: `auto` is bfloat16 on a GPU, float32 on a CPU.
        favour: Factors of classes, such as `{"crack": 3.0}`, by which their probabilities are multiplied.
    """
    from oneway.tools import predict

    return predict.load(run, device, factory, mirror, precision, favour)


def export(
    run: str | PathLike[str],
    to: str | PathLike[str],
    output: Output = "labels",
    int8_loss: float | None = None,
    favour: Mapping[str, float] | None = None,
    factory: str | None = None,
    quiet: bool = False,
) -> Path:
    """Export a trained model to a file that runs without oneway, with a model card beside it; returns the file.

    Args:
        run: A run, its folder, or its model.safetensors.
        to: The file: .onnx for ONNX Runtime and its like, .xml for OpenVINO, .pt2 for PyTorch.
        output: The class of each pixel, or the `logits` of all classes.
        int8_loss: Quantise to 8-bit integers, if so many points of mIoU at most are lost on the validation set.
        favour: As in `load`.
        factory: As in `load`.
        quiet: Show no notes.

    Raises:
        UserError: The network cannot be exported, or the file does not agree with it; no file is left behind.
    """
    from pathlib import Path

    from oneway.common.console import Console
    from oneway.tools.export import Int8, export_model
    from oneway.tools.export_names import refuse_export_name

    file, int8 = Path(to), None if int8_loss is None else Int8(int8_loss)
    refuse_export_name(file, int8 is not None)
    console = Console(quiet=quiet)
    export_model(Path(run), file, output, console, factory=factory, int8=int8, favour=favour)
    return file


def report(
    *runs: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    data: str | PathLike[str] | None = None,
    factory: str | None = None,
    quiet: bool = False,
) -> Path:
    """Write one self-contained HTML page about one run, or about several side by side; returns the page.

    Args:
        runs: Runs or their folders, the baseline first; or the folder of both runs of a comparison.
        out: The page; by default report.html in the folder given, or report-A-B.html in the last of several.
        data: Folder of the data set, where it is not the one trained on.
        factory: As in `load`.
        quiet: Show no notes.
    """
    from pathlib import Path

    from oneway.common.console import Console
    from oneway.tools.report import write_report

    page, folder = (None if path is None else Path(path) for path in (out, data))
    return write_report([*map(Path, runs)], page, factory=factory, data=folder, console=Console(quiet=quiet))
