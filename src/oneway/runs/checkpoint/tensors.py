"""Tensors in safetensors files of any origin: the header is checked before tensors are read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from oneway.common.errors import UserError, cannot_read
from oneway.common.links import open_descriptor
from oneway.runs.reading import reading

MOST_HEADER_BYTES = 2**24  # a ResNet-34 with its optimiser has a header of 100 kB
KEY = "oneway"  # of our own metadata, a JSON object
Expected = Mapping[str, tuple[torch.Size, torch.dtype]]
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}  # types by the names they have in files
WRITTEN = {
    torch.uint64: "U64", torch.int64: "I64", torch.float64: "F64", torch.complex64: "C64", torch.float32: "F32",
    torch.uint32: "U32", torch.int32: "I32", torch.bfloat16: "BF16", torch.float16: "F16", torch.uint16: "U16",
    torch.int16: "I16", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""File names of the dtypes that can be written, in the order that tensors have in a file."""


class Packed(dict[str, Tensor]):
    """Tensors by name that are views of a file's content in memory: filling them fills the content."""

    data: memoryview
    """The content of the file."""

    def __init__(self, like: Mapping[str, Tensor], about: Mapping[str, Any], pinned: bool = False) -> None:
        """Allocate tensors with the shapes and dtypes of others, and metadata; pinned memory for copies from a GPU."""
        super().__init__()
        header: dict[str, Any] = {"__metadata__": {KEY: json.dumps(about)}}
        end = 0
        order = [*WRITTEN]
        for name, tensor in sorted(like.items(), key=lambda item: (order.index(item[1].dtype), item[0])):
            begin, end = end, end + tensor.nbytes
            kind, shape = WRITTEN[tensor.dtype], list(tensor.shape)
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # so that every number lies at a multiple of its size
        first = 8 + len(text)
        memory = torch.empty(first + end, dtype=torch.uint8, pin_memory=pinned)
        self.data = memory.numpy().data
        self.data[:first] = len(text).to_bytes(8, "little") + text
        for name, tensor in like.items():
            begin, end = header[name]["data_offsets"]
            self[name] = memory[first + begin : first + end].view(tensor.dtype).view(tensor.shape)


def pack(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Packed:
    """Copies of tensors in the content of a file; the same tensors and metadata give the same bytes."""
    packed = Packed(tensors, about)
    for name, tensor in tensors.items():
        packed[name].copy_(tensor)
    return packed


def is_finite(tensor: Tensor) -> bool:
    """Whether all values are finite; by minimum and maximum, in a tenth of the time of `isfinite().all()`."""
    if tensor.dtype not in (torch.float32, torch.float64) or not tensor.numel():
        return bool(tensor.isfinite().all())
    return all(math.isfinite(extreme) for extreme in tensor.aminmax())


def expected_of(tensors: Mapping[str, Tensor]) -> Expected:
    """The shapes and dtypes that a file must have to be loaded into these tensors."""
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


@contextmanager
def open_file(path: Path) -> Iterator[safetensors.safe_open]:
    """Open a file whose header is of a plausible size; an error within the block becomes a UserError that names it."""
    if not path.is_file():  # a pipe would keep us waiting
        raise UserError(f"{path}: {'not a file' if path.exists() else 'no such file'}.")
    try:
        with path.open("rb") as start:
            announced = int.from_bytes(start.read(8), "little")
        if announced > min(MOST_HEADER_BYTES, path.stat().st_size):
            raise UserError(f"{path}: damaged, or no safetensors file (its header would have {announced} bytes).")
        with safetensors.safe_open(path, framework="pt") as file:
            yield file
    except UserError:
        raise
    except OSError as error:
        raise cannot_read(path, error) from None
    except Exception as error:  # a hostile header may fail in the parser, or in our code
        cause = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: damaged, or no safetensors file ({cause}).") from error


def read_about(file: safetensors.safe_open, path: Path) -> dict[str, Any]:
    """Read our own metadata of a file."""
    try:
        found = json.loads((file.metadata() or {}).get(KEY, ""))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UserError(f"{path}: not written by oneway (its metadata lack '{KEY}').")
    return found


def check(file: safetensors.safe_open, path: Path, required: Expected) -> None:
    """Refuse a file that lacks a required tensor, or announces one of another name, shape or type."""
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    found = {name: (torch.Size(part.get_shape()), DTYPES.get(part.get_dtype())) for name, part in slices.items()}
    _compare(found, path, required, {})


def read(file: safetensors.safe_open, path: Path, required: Expected) -> dict[str, Tensor]:
    """All tensors of a file that passes `check`."""
    check(file, path, required)
    return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)


def parse(content: bytes, path: Path, required: Expected, optional: Expected) -> dict[str, Tensor]:
    """Read all tensors of a file's content in memory, required and optional ones; `path` is for messages."""
    try:
        found = safetensors.torch.load(content)
    except MemoryError:
        raise
    except Exception as error:  # a hostile header may fail in the parser, or behind it
        cause = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: damaged, or no safetensors file ({cause}).") from error
    _compare(expected_of(found), path, required, optional)
    return found


def read_notes(path: Path) -> dict[str, Any] | None:
    """Read our own metadata of a file, from its header alone; None if it cannot be parsed."""
    with (
        reading(path),
        open_descriptor(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as descriptor,
        open(descriptor, "rb", closefd=False) as file,
    ):
        announced = int.from_bytes(file.read(8), "little")
        header = file.read(announced) if announced <= MOST_HEADER_BYTES else b""
    try:
        found = json.loads(json.loads(header)["__metadata__"][KEY])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _compare(
    found: Mapping[str, tuple[torch.Size, torch.dtype | None]], path: Path, required: Expected, optional: Expected
) -> None:
    known = {**required, **optional}
    problems = [f"it lacks {name}" for name in required.keys() - found.keys()]
    for name, (shape, dtype) in found.items():
        if name not in known:
            problems.append(f"it has an unknown {name[:200]!r}")
        elif (shape, dtype) != known[name]:
            problems.append(f"its {name} is {dtype} {list(shape)} instead of {known[name][1]} {list(known[name][0])}")
    if problems:
        raise UserError(f"{path}: of another model: {'; '.join(sorted(problems)[:3])}.")
