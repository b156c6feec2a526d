"""The model card: what a stranger should know about an exported model, in Markdown."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneway import __version__, runs
from oneway.common.errors import UserError
from oneway.common.run_files import ENVIRONMENT
from oneway.config import Model
from oneway.tools.evaluate import METRIC_NAMES

NO_LICENCE = "not stated; fill it in, and mind the licence of the training images"


@dataclass(frozen=True)
class Speed:
    """Images per second, one by one."""

    hardware: str
    size: tuple[int, int]
    exported: float
    pytorch: float


@dataclass(frozen=True)
class Exported:
    """A file that was exported, and what is known about it."""

    path: Path
    content: bytes
    input: str
    output: str
    classes: tuple[str, ...]
    backbone: str | None
    """Of a network that has one by name."""

    parameters: int
    agreement: str
    runtime: str
    speed: Speed
    licence: str | None


def model_card(exported: Exported, folder: Path) -> str:
    """The text, with the history of the run folder, if it is one."""
    history, summary = read_history(folder, exported.backbone)
    sections = [
        f"# {exported.path.name}",
        _table(_file_rows(exported)),
        "## Training",
        _table(history),
        "## Quality",
        quality(summary, exported.classes),
        "## Speed",
        _speed(exported),
    ]
    return "\n\n".join(sections) + "\n"


def _file_rows(exported: Exported) -> dict[str, object]:
    return {
        "input": exported.input,
        "output": exported.output,
        "classes": ", ".join(f"{index} {name}" for index, name in enumerate(exported.classes)),
        "parameters": f"{exported.parameters:,}",
        "agreement": exported.agreement,
        "SHA-256": hashlib.sha256(exported.content).hexdigest(),
        "exported by": f"oneway {__version__}",
        "licence": exported.licence or NO_LICENCE,
    }


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
    config, split, summary, environment = run.config, run.split, run.summary, _environment(run.path)
    labelled = set(split.labelled)
    data = config.data.name if config.data.path is None else f"{config.data.name}: {config.data.path.name}"
    return {
        "data": data,
        "labelled images": len(labelled),
        "further images without labels": len(set(split.unlabelled) - labelled),
        "method": f"{config.method}, variant {config.variant}",
        "seed": config.seed,
        "iterations": summary["iterations"] if summary else "the run has not ended",
        "network": config.model.factory or _network(config.model, backbone),
        "initial weights": Path(config.model.weights).name if config.model.weights else "random",
        "hardware": environment.get("hardware", "not known"),
        "versions": ", ".join(f"{name} {version}" for name, version in environment.get("versions", {}).items()),
    }


def _network(model: Model, backbone: str | None) -> str:
    return f"{model.name}, backbone {backbone}, width {model.width:g}" if backbone else model.name


def quality(summary: dict[str, Any] | None, classes: tuple[str, ...]) -> str:
    """How good a model was when its run ended, in words and a table."""
    if summary is None:
        return "Not known."
    metric = METRIC_NAMES[summary["metric"]]
    header = f"{summary['value']:.1f} % {metric} on {summary['validation_samples']} validation images, last iteration."
    column = "IoU in %" if summary["metric"] == "miou" else "recognised in %"
    values = {name: summary["per_class"].get(name) for name in classes}
    rows = {name: "–" if value is None else f"{value:.1f}" for name, value in values.items()}
    return f"{header}\n\n{_table(rows, ('class', column))}"


def _speed(exported: Exported) -> str:
    speed = exported.speed
    rows = {exported.runtime: f"{speed.exported:.1f}", "PyTorch": f"{speed.pytorch:.1f}"}
    height, width = speed.size
    return f"Images of {height}×{width} pixels, one by one, on {speed.hardware}.\n\n" + _table(
        rows, ("runtime", "images per second")
    )


def _environment(folder: Path) -> dict[str, Any]:
    file = folder / ENVIRONMENT
    return runs.read_json(file) if file.is_file() else {}


def _table(rows: dict[str, Any], header: tuple[str, str] = ("", "")) -> str:
    lines = [header, ("---", "---"), *rows.items()]
    return "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in lines)


def _cell(value: object) -> str:
    """Text that does not break out of its table."""
    return " ".join(str(value).replace("|", "\\|").split())
