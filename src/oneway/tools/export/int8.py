"""INT8: static quantisation of a graph, calibrated on images of a run; and what it costs.

Shapes: N images of H×W pixels, C classes.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console

from oneway import runs
from oneway.common.errors import UserError
from oneway.common.extras import import_extra
from oneway.common.words import counted, say
from oneway.data.dataset import Bytes, Samples
from oneway.tools.evaluate import METRIC_NAMES, evenly_spaced, score
from oneway.tools.export.formats import About, Opened
from oneway.tools.export.graph import INPUT, explain_error
from oneway.tools.predict.predictor import Predictor
from oneway.tools.run_data import NothingValidates, read_split, refuse_other_style

CALIBRATION_IMAGES = 32
FEW_IMAGES = 10
"""Fewer than these judge badly."""

MOST_LOST = 1.0
OPERATIONS = ("Conv", "Add", "Relu", "MaxPool", "Concat")


@dataclass(frozen=True)
class Int8:
    """What a user asks of an INT8 file."""

    most_lost: float = MOST_LOST
    """Points of mIoU, or of accuracy, that may be lost on the validation images."""

    data: Path | None = None
    """Folder of the data set, where it is not the one trained on."""

    refresh: bool = False
    cache: Path | None = None


class Images(NamedTuple):
    """What a graph is calibrated on, and what it is judged by."""

    calibration: list[Bytes]  # 1×H×W×3 each
    kind: str
    validation: Samples
    without: list[int]


def read_images(path: Path, model: Predictor, asked: Int8, console: Console) -> Images:
    """Images of a run: some that taught without labels, or with them where there are no others; all that validate."""
    if not (path / runs.CONFIG).is_file():
        raise UserError(
            f"{path}: --int8 measures on images of the run what is lost, and the model file alone names none. "
            "Give the run folder."
        )
    run = runs.open_run(path, any_method=True)
    try:
        dataset, validation, without = read_split(
            run, "val", model.classes, asked.data, console, refresh=asked.refresh, cache=asked.cache, masks=model.masks
        )
    except NothingValidates:
        raise UserError(
            f"{asked.data or path}: INT8 is judged on validation images, and there are none. Give some with labels, "
            "with --data DIR, or export without --int8."
        ) from None
    refuse_other_style(run.path, model.image_style, dataset)
    judging = validation.labelled - len(without)
    if judging < FEW_IMAGES:
        say(console, f"Note: {counted(judging, 'validation image')} alone will tell what INT8 loses. More: --data DIR")
    train, labelled = dataset.read("train"), set(run.split.labelled)
    members = [number for number, name in enumerate(train.names) if name not in labelled]
    further = len(train.pool) if train.pool else 0
    kind = "without labels" if members or further else "that taught"
    members = members if members or further else list(range(len(train)))
    if not members and not further:
        raise UserError(f"{asked.data or run.path}: has no training images to calibrate INT8 on.")

    def read(place: int) -> Bytes:
        if train.pool is None or place < len(members):
            return train.image(members[place])
        return train.pool.read(place - len(members), 0, lambda size: (0, 0, *size)).pixels

    chosen = evenly_spaced(len(members) + further, CALIBRATION_IMAGES)
    return Images([np.ascontiguousarray(read(place))[None] for place in chosen], kind, validation, without)


def quantise(model: Any, calibration: list[Bytes]) -> Any:
    """An ONNX model in 8-bit integers: weights by channel, activations by the range that images show.

    By ONNX Runtime's own tools, as pairs of QuantizeLinear and DequantizeLinear, which OpenVINO reads too.
    """
    onnx = import_extra("onnx", "export", "--int8")
    tools = import_extra("onnxruntime.quantization", "export", "--int8")
    shapes = import_extra("onnxruntime.quantization.shape_inference", "export", "--int8")

    reader = SimpleNamespace(get_next=partial(next, iter([{INPUT: image} for image in calibration]), None))
    told = logging.root.manager.disable
    with tempfile.TemporaryDirectory() as folder:
        given, prepared, quantised = (Path(folder) / f"{step}.onnx" for step in ("given", "prepared", "quantised"))
        given.write_bytes(model.SerializeToString())
        logging.disable(logging.WARNING)  # the tools' advice to each other
        try:
            shapes.quant_pre_process(str(given), str(prepared), skip_symbolic_shape=True)
            tools.quantize_static(
                str(prepared),
                str(quantised),
                reader,
                quant_format=tools.QuantFormat.QDQ,
                per_channel=True,
                activation_type=tools.QuantType.QUInt8,
                weight_type=tools.QuantType.QInt8,
                op_types_to_quantize=list(OPERATIONS),
            )
        except Exception as error:  # of whichever tool
            raise UserError(f"This network has no INT8 form ({explain_error(error)}).") from error
        finally:
            logging.disable(told)
        return onnx.load(str(quantised))


@dataclass(frozen=True)
class Cost:
    """What INT8 costs on the validation images."""

    metric: str
    before: float
    after: float
    validation_images: int
    calibration: str

    @property
    def lost(self) -> float:
        """Points of mIoU that are lost; below zero where some are gained."""
        return self.before - self.after

    def __str__(self) -> str:
        return (
            f"{self.after:.2f} % {METRIC_NAMES[self.metric]} on {counted(self.validation_images, 'validation image')}, "
            f"{self.before:.2f} % before; calibrated on {self.calibration}"
        )

    def facts(self) -> About:
        """As files have it."""
        return {**asdict(self), "before": round(self.before, 4), "after": round(self.after, 4)}


@torch.inference_mode()
def measure(before: Opened, after: Opened, images: Images, classes: int) -> Cost:
    """The scores of both files on the validation images."""

    def scored(file: Opened) -> Any:
        def classify(inputs: torch.Tensor) -> torch.Tensor:
            found = file.result(inputs)
            return found.argmax(dim=1) if found.is_floating_point() else found

        return score(classify, images.validation, classes, images.without)

    first, second = scored(before), scored(after)
    calibration = f"{counted(len(images.calibration), 'image')} {images.kind}"
    judged = images.validation.labelled - len(images.without)
    return Cost(first.metric, first.value, second.value, judged, calibration)


def refuse_loss(cost: Cost, most: float) -> None:
    """Raise a UserError where more is lost than the user accepts."""
    if cost.lost > most:
        raise UserError(
            f"INT8 loses {cost.lost:.2f} points of {METRIC_NAMES[cost.metric]} on the validation images "
            f"({cost.before:.2f} % before, {cost.after:.2f} % after), and {most:g} may be lost. Accept it with "
            f"--int8-loss {np.ceil(10 * cost.lost) / 10:g}, or export without --int8."
        )
