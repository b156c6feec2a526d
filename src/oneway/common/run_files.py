"""What the files are called that oneway writes, and how folders of them are recognised."""

from __future__ import annotations

from pathlib import Path

from oneway.common.links import is_ordinary

CONFIG = "config.yaml"
ENVIRONMENT = "environment.json"
SPLIT = "split.json"
METRICS = "metrics.jsonl"
SUMMARY = "summary.json"
VALIDATION = "validation.jsonl"  # what of each image is right
MODEL = "model.safetensors"
CHANGES = "changes.json"
SUGGESTIONS = "suggest.csv"
CONTACT_SHEET = "suggest.png"  # beside it
PICTURES = "pictures"  # of predictions, while a run trains
TRACEBACK = "traceback.txt"
PREDICTIONS = "predictions.json"  # beside predicted masks and overlays

EXPORTED = {
    ".onnx": ("an ONNX file", "ONNX Runtime"),
    ".xml": ("a file for OpenVINO", "OpenVINO"),
    ".pt2": ("a file of torch.export", "PyTorch"),
    ".engine": ("a TensorRT engine", "TensorRT"),
}
"""What exported models are, by suffix, and what runs them."""


def describe_exported(path: Path) -> str:
    """What to do with an exported model in place of a run; nothing where the path is no such file."""
    weights = path.suffix == ".bin" and path.with_suffix(".xml").is_file()  # OpenVINO's, beside its network
    kind, runtime = EXPORTED.get(".xml" if weights else path.suffix.lower(), ("", ""))
    if not kind or not path.is_file():
        return ""
    return f"{path}: {kind}. Run it with {runtime} (docs/export.md), or give the run folder that it came from."


def is_contact_sheet(path: Path) -> bool:
    """Whether a file shows the images to label next, and is none of them."""
    return path.name == CONTACT_SHEET and path.with_name(SUGGESTIONS).is_file()


def holds_predictions(folder: Path) -> bool:
    """Whether a folder has results of `predict`: other programs, too, call a file so, and it is left alone."""
    file = folder / PREDICTIONS
    try:
        if not is_ordinary(file):
            return False
        with file.open("rb") as opened:
            return b'"oneway":' in opened.read(64)
    except OSError:
        return False


def is_output(folder: Path) -> bool:
    """Whether a folder is a run, or holds predictions: what was found in images is nothing to learn from."""
    if holds_predictions(folder):
        return True
    beside = (ENVIRONMENT, SPLIT, METRICS, SUMMARY)
    return (folder / CONFIG).is_file() and any((folder / name).is_file() for name in beside)
