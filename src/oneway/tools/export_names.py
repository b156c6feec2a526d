"""Names that an exported file may have; `tools/export` loads PyTorch, and a wrong name should fail before that."""

from __future__ import annotations

from pathlib import Path

from oneway.common.errors import UserError

SUFFIXES = (".onnx", ".xml", ".pt2")
INT8_SUFFIXES = (".onnx", ".xml")


def refuse_export_name(to: Path, int8: bool) -> None:
    """Raise a UserError for a file of another format, or a folder."""
    suffix = to.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{to}: unknown format. The name must end in {' or '.join(SUFFIXES)}.")
    if to.is_dir():
        raise UserError(f"{to}: is a folder. Name a file in it.")
    if int8 and suffix not in INT8_SUFFIXES:
        raise UserError(f"{to}: --int8 is for {' and '.join(INT8_SUFFIXES)} files.")
