"""What results say of themselves: the model that made them, how it was asked, and what masks mean."""

from __future__ import annotations

from typing import Any

from oneway import __version__
from oneway.tools.predict.outputs import Outputs
from oneway.tools.predict.predictor import Predictor, Size


def about_model(model: Predictor) -> dict[str, Any]:
    """Which model, and how it computes; options only where they were asked for."""
    asked = {"mirror": model.mirror, "favour": model.favour}
    return {
        "oneway": __version__,
        "model": str(model.source),
        **{key: value for key, value in asked.items() if value},
        "precision": "bfloat16" if model.half else "float32",
        "classes": model.classes,
        "colours": model.colours,
    }


def about_results(model: Predictor, outputs: Outputs, tile: Size | None) -> dict[str, Any]:
    """All that decides results of a model that segments, and what their masks mean."""
    asked = {"tile": tile, "confidence": outputs.confidence, "facts": outputs.facts}
    given = {key: value for key, value in asked.items() if value}
    return {**about_model(model), **given, "masks": _meanings(model, outputs)}


def _meanings(model: Predictor, outputs: Outputs) -> dict[str, Any]:
    """What stands for each class in the masks: numbers, or colours as #rrggbb."""
    style = None if outputs.indices else model.masks
    values = range(len(model.classes)) if style is None else style.values
    coloured = style is not None and style.mode == "RGB"
    shown = [f"#{value:06x}" if coloured else value for value in values]
    return {"mode": "P" if style is None else style.mode, "values": dict(zip(model.classes, shown, strict=True))}
