"""Predictions of a model that classifies whole images: no masks are written, classes are printed."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from typing import Any

from oneway.common.console import Output, print_result, warn
from oneway.common.errors import UserError
from oneway.common.words import table_cell, visible
from oneway.data.decode.images import read_image
from oneway.tools.predict.about import about_model
from oneway.tools.predict.oddities import Oddities
from oneway.tools.predict.predictor import Predictor
from oneway.tools.predict.skipped import Skipped
from oneway.tools.predict.sources import Source


def classify_files(model: Predictor, sources: Sequence[Source], skipped: Skipped, as_json: bool) -> int:
    """Print a line for each image, as comma-separated values; or else all of them as JSON; returns the exit status."""
    warn(f"{model.source}: classifies whole images; their classes follow, and no masks are written.")
    output = Output("stdout", result=True)
    table = csv.writer(output, lineterminator="\n")
    if not as_json:
        table.writerow(["image", "class", "confidence"])
    results: list[dict[str, Any]] = []
    errors: list[str] = []
    oddities = Oddities(model.image_style)
    for source in sources:
        try:
            if source.is_video:
                raise UserError(f"{source.path}: a video, and this model classifies images. Give its frames as images.")
            pixels = read_image(source.path, style=model.image_style)
            name, confidence = model.classify(pixels)
            oddities.inspect(source.path, pixels)
        except UserError as error:
            warn(str(error))
            errors.append(str(error))
        else:
            results.append({"image": str(source.path), "class": name, "confidence": confidence})
            if not as_json:
                table.writerow([table_cell(visible(str(source.path))), table_cell(name), f"{confidence:.4f}"])
    if as_json:
        print_result(
            json.dumps(
                {**about_model(model), "images": len(results), "errors": errors, "results": results},
                indent=1,
                allow_nan=False,
            )
        )
    output.flush()
    for remark in (*skipped.messages(), *oddities.messages()):
        warn(remark)
    return 1 if errors else 0
