"""CIFAR-10, read from either of its official layouts: binary records or Python pickles.

Pickles are programs. Here one can name nothing but the parts of a NumPy array, gets records in their place, and is
surveyed before it runs; so a hostile file builds containers, numbers and strings in bounded memory, and nothing else.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from oneway.common.errors import UserError
from oneway.common.terms import SplitName
from oneway.data.dataset import Bytes
from oneway.data.published.shared import require_folder

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIZE = 32
PIXEL_BYTES = 3 * SIZE * SIZE
RECORD_BYTES = 1 + PIXEL_BYTES

BATCHES: dict[SplitName, tuple[str, ...]] = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "val": ("test_batch",),
}
SUFFIXES = {"cifar-10-batches-bin": ".bin", "cifar-10-batches-py": ""}

MOST_BYTES = 64 * 2**20
"""An official batch has 30 MiB."""
MOST_STEPS = 200_000
"""An official pickle takes some 40,000 steps; each of them can make an object."""


def read(path: Path | None, split: SplitName) -> tuple[Bytes, Bytes]:
    """Pixels (N×32×32×3, RGB) and labels (N) in the official order; `val` is the test batch.

    The path is the folder of the batches, or the one that contains it.

    Raises:
        UserError: The files are missing, damaged, or not CIFAR-10.
    """
    folder, suffix = _find(path)
    batches = [_read_batch(folder / f"{name}{suffix}") for name in BATCHES[split]]
    planes, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return np.ascontiguousarray(planes.reshape(-1, 3, SIZE, SIZE).transpose(0, 2, 3, 1)), labels


def _find(path: Path | None) -> tuple[Path, str]:
    """The folder with the batches, and how the names of its files end."""
    path = require_folder(path, "CIFAR-10")
    candidates = [(folder, suffix) for name, suffix in SUFFIXES.items() for folder in (path, path / name)]
    for folder, suffix in candidates:
        if any((folder / f"{name}{suffix}").is_file() for names in BATCHES.values() for name in names):
            return folder, suffix
    sought = ", ".join(str(folder / f"data_batch_1{suffix}") for folder, suffix in candidates)
    raise UserError(f"{path}: no CIFAR-10 batch found; looked for {sought} and so on. Is the archive unpacked?")


def _read_batch(file: Path) -> tuple[Bytes, Bytes]:
    """Pixels as stored (N×3072, a row a red, a green and a blue plane) and labels (N)."""
    if not file.is_file():
        raise UserError(f"{file}: no such file, though other batches are there. Unpack the CIFAR-10 archive again.")
    if (size := file.stat().st_size) > MOST_BYTES:
        raise UserError(f"{file}: {size} bytes are too many; an official CIFAR-10 batch has 31 million.")
    try:
        content = file.read_bytes()
        planes, labels = _from_records(content) if file.suffix == ".bin" else _from_pickle(content)
    except Exception as error:  # disks and pickles fail in many ways; to the user they are one
        raise UserError(f"{file}: not a CIFAR-10 batch ({str(error)[:200]}). Unpack the archive again.") from error
    if labels.max() >= len(CLASSES):
        raise UserError(f"{file}: image {labels.argmax()} has label {labels.max()}; CIFAR-10 has labels 0 to 9.")
    return planes, labels


def _from_records(content: bytes) -> tuple[Bytes, Bytes]:
    if not content or len(content) % RECORD_BYTES:
        raise ValueError(f"{len(content)} bytes are no whole number of records of {RECORD_BYTES}")
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD_BYTES)
    return records[:, 1:], records[:, 0]


def _from_pickle(content: bytes) -> tuple[Bytes, Bytes]:
    match _unpickle(content):
        case {b"data": _Built() as data, b"labels": list(numbers)}:
            planes, labels = data.to_array(), np.frombuffer(bytes(numbers), np.uint8)
        case _:
            raise ValueError("it is no dictionary with an array b'data' and a list b'labels'")
    if not len(planes) == len(labels) > 0:
        raise ValueError(f"it has {len(planes)} images and {len(labels)} labels")
    return planes, labels


def _unpickle(content: bytes) -> object:
    """What the pickle builds, after a survey that runs nothing.

    The survey finds data that end too early, and notes kept under a number beyond reason: unpickling would reserve room
    for all smaller numbers, 32 GiB for a file of ten bytes.
    """
    for step, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        note = int(argument or 0) if opcode.name in ("PUT", "LONG_BINPUT") else 0
        if max(step, note) > MOST_STEPS:
            raise pickle.UnpicklingError("it asks for more memory than a batch needs")
    return _ArrayUnpickler(content).load()


class _ArrayUnpickler(pickle.Unpickler):
    """Puts records in the place of arrays; whatever arrays do not need has no name."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")  # what Python 2 called a string
        self.encodable = len(content)

    def find_class(self, module: str, name: str) -> Callable[..., object] | None:
        # Made anew each time: a pickle can set attributes of what it is given, and must not keep them.
        match module, name:
            case ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") | ("numpy", "dtype"):
                return lambda *arguments: _Built(arguments)
            case "numpy", "ndarray":
                return None  # named as an argument of _reconstruct, never called
            case "_codecs", "encode":
                return lambda text, _: self._encode(text)
        raise pickle.UnpicklingError(f"it names {module!r} {name!r}, which no array needs")

    def _encode(self, text: str) -> bytes:
        """Python 3's way to write bytes for Python 2: once each, so that all together are no longer than the file."""
        self.encodable -= len(text)
        if self.encodable < 0:
            raise pickle.UnpicklingError("it asks for more memory than a batch needs")
        return text.encode("latin1")


class _Built:
    """What an array or a data type would have been built from."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.arguments = arguments
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state

    def to_array(self) -> Bytes:
        """The N×3072 bytes this record describes."""
        match self.state:
            case [
                _,
                [int(rows), int(columns)],
                _Built(arguments=[bytes() | str() as code, *_]),
                by_columns,
                bytes(raw),
            ]:
                if code not in (b"u1", "u1"):
                    raise ValueError(f"b'data' has elements of type {code!r:.12}, not 'u1'")
                if columns != PIXEL_BYTES or len(raw) != rows * columns:
                    raise ValueError(f"b'data' is {rows}×{columns} in {len(raw)} bytes, not N×{PIXEL_BYTES}")
                return np.frombuffer(raw, np.uint8).reshape(rows, columns, order="F" if by_columns else "C")
        raise ValueError("b'data' is not a two-dimensional array of numbers")
