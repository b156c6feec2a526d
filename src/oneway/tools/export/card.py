"""The model card: what a stranger should know about an exported model, in Markdown."""

from __future__ import annotations

import hashlib
import html
import os
import re
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from oneway import runs
from oneway.common.errors import UserError
from oneway.common.links import is_ordinary
from oneway.common.run_files import ENVIRONMENT
from oneway.common.words import visible
from oneway.methods import METHODS
from oneway.models.encoder import Encoder
from oneway.tools.evaluate import METRIC_NAMES
from oneway.tools.intervals import in_brackets
from oneway.tools.predict import Predictor

Rows = Mapping[str, object]


def model_card(name: str, file: Rows, model: Predictor, folder: Path, where: str, speeds: dict[str, float]) -> str:
    """The text of the card, with the history of the run, where there is its folder.

    `file` is what is known about the file; `where` a sentence about the images and the hardware of the speeds, which
    are images per second of each runtime.
    """
    backbone = next((part.backbone for part in model.network.modules() if isinstance(part, Encoder)), None)
    history, summary = read_history(folder, backbone)
    rates = {runtime: f"{speed:.1f}" for runtime, speed in speeds.items()}
    sections = [
        f"# {_cell(name)}",
        _table(file),
        "## Training",
        _table(history),
        "## Quality",
        quality(summary, model.classes),
        "## Speed",
        where,
        _table(rates, ("runtime", "images per second")),
    ]
    return _sealed("\n\n".join(sections) + "\n")


def _sealed(text: str) -> str:
    """The text with a last line that Markdown does not show, a digest of it: an edited card is recognised."""
    return f"{text}\n<!-- as written by oneway: {hashlib.sha256(text.encode()).hexdigest()} -->\n"


def keep_edited(card: Path) -> Path | None:
    """Rename a card that someone has changed since it was written, and return its new name, which nothing had."""
    if not os.path.lexists(card):
        return None
    text = card.read_text(encoding="utf-8", errors="replace") if is_ordinary(card) else ""
    if text == _sealed(text.rpartition("\n<!--")[0]):
        return None
    names = (card.with_name(f"{card.name}.bak{number or ''}") for number in count())
    kept = next(name for name in names if not os.path.lexists(name))
    card.rename(kept)
    return kept


def read_history(folder: Path, backbone: str | None) -> tuple[dict[str, object], dict[str, Any] | None]:
    """How a model was trained, and the summary of its run; a model is worth exporting without them."""
    if not (folder / runs.CONFIG).is_file():
        return {"history": "not known: exported from the model file alone"}, None
    try:
        run = runs.open_run(folder)
        return _training_rows(run, backbone), run.summary
    except UserError as error:
        return {"history": f"not known: {str(error).replace(f'{folder}/', '')}"}, None


def _training_rows(run: runs.Run, backbone: str | None) -> dict[str, object]:
    config, split, summary = run.config, run.split, run.summary
    environment = run.environment if is_ordinary(run.path / ENVIRONMENT) else {}
    method = METHODS[config.method]
    labelled, name, width = set(split.labelled), config.model.name, config.model.width
    data = config.data.name if config.data.path is None else f"{config.data.name}: {config.data.path.name}"
    return {
        "data": data,
        "labelled images": len(labelled),
        **({} if method.supervised else {"further images without labels": split.further}),
        "method": config.method + (f", variant {config.variant}" if method.variants else ""),
        "seed": config.seed,
        "iterations": summary["iterations"] if summary else "the run has not ended",
        "network": config.model.factory or (f"{name}, backbone {backbone}, width {width:g}" if backbone else name),
        "initial weights": Path(config.model.weights).name if config.model.weights else "random",
        "hardware": environment.get("hardware", "not known"),
        "versions": ", ".join(f"{package} {version}" for package, version in environment.get("versions", {}).items()),
    }


def quality(summary: dict[str, Any] | None, classes: tuple[str, ...]) -> str:
    """How good a model was when its run ended, in words and a table."""
    if summary is None:
        return "Not known."
    if summary["value"] is None:
        return "Not measured: no image was held out to validate."
    metric = METRIC_NAMES[summary["metric"]]
    value = f"{summary['value']:.1f} % {metric}{in_brackets(summary.get('interval'))}"
    header = f"{value} on {summary['validation_samples']} validation images, last iteration."
    column = "IoU in %" if summary["metric"] == "miou" else "recognised in %"
    values = {name: summary["per_class"].get(name) for name in classes}
    rows = {name: "–" if value is None else f"{value:.1f}" for name, value in values.items()}
    return f"{header}\n\n{_table(rows, ('class', column))}"


def _table(rows: Rows, header: tuple[str, str] = ("", "")) -> str:
    lines = [header, ("---", "---"), *rows.items()]
    return "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in lines)


def _cell(value: object) -> str:
    """Text that stands in Markdown as it is: no HTML, no link, and within its cell."""
    text = html.escape(visible(" ".join(str(value).split())), quote=False)
    return re.sub(r"[\\`*\[\]|~]", r"\\\g<0>", text)
