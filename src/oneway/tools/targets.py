"""Which files a model can be exported to. Loads nothing, so that a wrong name is refused at once."""

from __future__ import annotations

from pathlib import Path

from oneway.common.errors import UserError

SUFFIXES = (".onnx", ".xml", ".pt2")
INT8_SUFFIXES = (".onnx", ".xml")


def refuse_target(to: Path, int8: bool) -> None:
    """Raises a UserError for a file that no export is written to."""
    suffix = to.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{to}: unknown format. The name must end in {' or '.join(SUFFIXES)}.")
    if to.is_dir():
        raise UserError(f"{to}: is a folder. Name a file in it.")
    if int8 and suffix not in INT8_SUFFIXES:
        raise UserError(f"{to}: --int8 is for {' and '.join(INT8_SUFFIXES)} files.")
