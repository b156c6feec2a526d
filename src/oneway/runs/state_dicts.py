"""State dicts in .pth files of any origin: the unpacked size is checked before a file is read.

`torch.load` with `weights_only` creates nothing but tensors and plain containers, but does not limit their sizes: a
megabyte of compressed zeros becomes a gigabyte, and a directory of a million entries a million objects.
"""

from __future__ import annotations

import os
import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from oneway.common.errors import UserError, cannot_read
from oneway.runs.checkpoint.tensors import DTYPES as KNOWN_DTYPES

WRAPPINGS = ("state_dict", "model_state_dict", "model")
"""Keys under which training checkpoints keep the weights."""
MOST_EXPANSION = 4
"""Unpacked size as a multiple of the file's: `torch.save` compresses nothing, others may a little."""
SMALL = 2**20
"""Unpacked bytes that are allowed for any file."""
MOST_DIRECTORY_BYTES = 2**23
"""The most bytes of an archive's directory; a network with ten thousand tensors has 600 kB."""
DTYPES = frozenset({*KNOWN_DTYPES.values(), torch.int16, torch.int8})


def read(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a .pth file by name.

    Raises:
        UserError: It holds something else, or would take much more memory than its size; names the file and the key.
    """
    try:
        with path.open("rb") as file:
            _refuse_bombs(file, path)
        with warnings.catch_warnings(action="ignore"):  # about kinds of tensors that are refused below
            state = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except OSError as error:
        raise cannot_read(path, error) from error
    except Exception as error:  # damaged, truncated, hostile: to the user they are one
        raise UserError(f"{path}: not a readable state dict ({type(error).__name__}).") from error
    for key in WRAPPINGS:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping):
        raise _refused(path, f"it is a {type(state).__name__}")
    for name, tensor in state.items():
        if not isinstance(name, str):
            raise _refused(path, f"among its names is a {type(name).__name__}")
        if not isinstance(tensor, Tensor):
            raise _refused(path, f"its {name!r:.200} is a {type(tensor).__name__}")
        refuse_odd(name, tensor, path)
    return {name: tensor.detach() for name, tensor in state.items()}


def refuse_odd(name: str, tensor: Tensor, path: Path) -> None:
    """Refuse tensors that are not dense arrays of plain numbers: they could not be copied into a network."""
    if tensor.device.type == "meta":
        what = "has a shape and no values"
    elif tensor.is_quantized:
        what = "is quantised"
    elif tensor.is_nested or tensor.layout != torch.strided:
        what = "is sparse or nested"
    elif tensor.dtype not in DTYPES:
        what = f"has values of type {str(tensor.dtype).removeprefix('torch.')}"
    elif tensor.nbytes > tensor.untyped_storage().nbytes():
        what = "announces more values than it has"
    else:
        return
    raise _refused(path, f"its {name!r:.200} {what}")


def _refused(path: Path, reason: str) -> UserError:
    way_out = "Save names and dense tensors alone: torch.save(network.state_dict(), FILE)."
    return UserError(f"{path}: not a readable state dict ({reason}). {way_out}")


def _refuse_bombs(file: BinaryIO, path: Path) -> None:
    """Refuse an archive that would unpack to much more than its size; older files of torch are no archives."""
    if file.read(4) != b"PK\3\4":
        return
    size = file.seek(0, os.SEEK_END)
    start, length = _directory(file, size)
    if start + length > size or length > MOST_DIRECTORY_BYTES:
        raise UserError(f"{path}: damaged; its list of entries would have {length} bytes.")
    unpacked = sum(entry.file_size for entry in zipfile.ZipFile(file).infolist())
    if unpacked > max(MOST_EXPANSION * size, SMALL):
        raise UserError(
            f"{path}: would unpack to {unpacked} bytes, {unpacked // size} times its size, as no file of weights does. "
            "Get it from a source that you trust."
        )


def _directory(file: BinaryIO, size: int) -> tuple[int, int]:
    """Start and length of an archive's directory; a ValueError where two readers might find different ones.

    torch writes the directory at the end of the file, followed by one or two end records alone. Only that is accepted:
    otherwise torch might read another directory than the one checked here.
    """
    ending = 98  # a record of 56 bytes with 64-bit sizes, its locator of 20, and the end record of 22 bytes
    file.seek(max(size - ending, 0))
    records = file.read(ending).rjust(ending, b"\0")
    signature, length, start, comment = struct.unpack("<4s8xIIH", records[76:])
    end = size - 22
    if records[56:60] == b"PK\6\7":
        end = size - ending
        if records[:4] != b"PK\6\6" or struct.unpack("<Q", records[64:72]) != (end,):
            raise ValueError("a locator of something else")
        length, start = struct.unpack("<QQ", records[40:56])
    if signature != b"PK\5\6" or comment or start + length != end:
        raise ValueError("no archive as torch writes it")
    return start, length
