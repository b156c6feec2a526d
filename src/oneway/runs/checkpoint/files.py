"""The folder of checkpoints: write, list, prune and restore them.

A manifest has the configuration and the split that the tensors belong to, and checksums to detect damage.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from oneway.common.errors import UserError
from oneway.engine.state import TrainingState
from oneway.runs import atomic
from oneway.runs.checkpoint import tensors
from oneway.runs.checkpoint.state import bytes_needed, expected, restore
from oneway.runs.reading import is_there, list_names, read_whole, reading

KEPT = 2  # how many checkpoints a run keeps
TENSORS, MANIFEST, DAMAGED = ".safetensors", ".json", ".damaged"
MOST_BYTES = 2**24  # of a manifest
FORMAT = 3
"""Format 2, of the first version, also had a digest of each tensor, which that of the file covers; it is still read."""


class Damaged(Exception):
    """The bytes are not those that were written."""


class Manifest(BaseModel):
    """The metadata of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: int = FORMAT
    iteration: int = Field(ge=0)
    seconds: float = Field(ge=0, allow_inf_nan=False)  # trained until then
    bytes: int  # of the file of tensors
    sha256: str  # of the file of tensors
    configuration: dict[str, Any]
    split: str  # its hash


def write(
    folder: Path,
    iteration: int,
    seconds: float,
    content: tensors.Packed,
    about: Mapping[str, Any],
    require: Callable[[], None] = lambda: None,
) -> None:
    """Write a checkpoint, and remove those older than the last two.

    Args:
        folder: The folder of checkpoints.
        iteration: The number of iterations done.
        seconds: The training time until then.
        content: The tensors of `state.tensors_of`.
        about: Configuration and split.
        require: Called before every change in the folder; raises if it is no longer ours.
    """
    for name, tensor in content.items():
        if not tensors.is_finite(tensor):
            raise UserError(f"At iteration {iteration}, {name} is not finite: no checkpoint is made of it.")
    require()
    if not folder.is_dir():
        folder.mkdir()
        atomic.sync_folder(folder.parent)
    path = folder / f"{iteration:08d}{MANIFEST}"
    with ThreadPoolExecutor(1) as hashing:  # in parallel: hashing takes as long as writing
        digest = hashing.submit(hashlib.sha256, content.data)
        atomic.write_atomically(path.with_suffix(TENSORS), content.data)
    sha256 = digest.result().hexdigest()
    manifest = Manifest(iteration=iteration, seconds=seconds, bytes=len(content.data), sha256=sha256, **about)
    require()
    atomic.write_atomically(path, seal_manifest(manifest.model_dump()))
    require()
    prune(folder)


def list_complete(folder: Path) -> list[Path]:
    """The manifests of the complete checkpoints, oldest first.

    Raises:
        CannotRead: The folder cannot be listed.
    """
    return [folder / name for name in list_names(folder) if _is_numbered(name, MANIFEST)]


def prune(folder: Path) -> None:
    """Remove checkpoints older than the last two; files that cannot be removed now are left for the next time."""
    with suppress(OSError, UserError):
        for old in list_complete(folder)[:-KEPT]:
            old.unlink()  # first: without a manifest, there is no checkpoint
            old.with_suffix(TENSORS).unlink(missing_ok=True)


def remove_incomplete(folder: Path) -> None:
    """Remove files that a killed process left incomplete; only while no other process writes to the folder."""
    atomic.sweep(folder)
    for path in _list_tensors(folder):
        if not is_there(path.with_suffix(MANIFEST)):  # asked for by name: a listing alone is not believed
            with suppress(OSError):
                path.unlink()


def require_room(folder: Path, checkpoint_bytes: int) -> None:
    """Refuse a disk without room for the kept checkpoints, the one being written, and the model."""
    with reading(folder):
        present = sum(file.stat().st_size for file in _list_tensors(folder))
    atomic.require_room(folder.parent, (KEPT + 2) * checkpoint_bytes - present, checkpoint_bytes)


def restore_newest(folder: Path, state: TrainingState, say: Callable[[str], None]) -> Manifest | None:
    """Restore the newest intact checkpoint and return its manifest; None if there is no checkpoint.

    Damaged ones are renamed and reported. A checkpoint counts as damaged only if its bytes could be read and differ
    from those that were written.

    Raises:
        CannotRead: One of them cannot be read now, or the folder cannot be listed; they are left as they are.
        UserError: A newer version has written it, it belongs to another model, or all of them are damaged.
    """
    found = list_complete(folder)
    for path in reversed(found):
        try:
            return load(path, state)
        except Damaged as damage:
            _set_aside(path)
            say(f"{path}: damaged ({damage}); set aside as {path.name}{DAMAGED}.")
    if found:
        raise UserError(
            f"{folder}: all {len(found)} checkpoints are damaged and have been set aside. Bring back a copy of one, or "
            "start another run with --out."
        )
    return None


def read_notes(folder: Path) -> Mapping[str, Any] | None:
    """The metadata of the newest checkpoint that can be parsed; None if there is none.

    Only the header is read: whether the checkpoint is intact is checked when it is restored.
    """
    for path in reversed(list_complete(folder)):
        if (notes := tensors.read_notes(path.with_suffix(TENSORS))) is not None:
            return notes
    return None


def load(path: Path, state: TrainingState) -> Manifest:
    """Restore the checkpoint of a manifest, after verifying its checksums.

    Raises:
        Damaged: A checksum does not match.
        CannotRead: A file could not be read completely, or is missing.
        UserError: It is intact but cannot be used: a newer format, or another model.
    """
    manifest = _read_manifest(path)
    if path.stem != f"{manifest.iteration:08d}":
        raise Damaged(f"it is of iteration {manifest.iteration}")
    file = path.with_suffix(TENSORS)
    data = _read_tensors(file, manifest, bytes_needed(state) + tensors.MOST_HEADER_BYTES)
    with reading(file):  # what was verified is what is parsed: the file is not read again
        content = tensors.parse(data, file, *expected(state))
        restore(state, content)
    return manifest


def _list_tensors(folder: Path) -> list[Path]:
    return [folder / name for name in list_names(folder) if _is_numbered(name, TENSORS)]


def _is_numbered(name: str, suffix: str) -> bool:
    return re.fullmatch(rf"[0-9]+{re.escape(suffix)}", name) is not None


def _set_aside(path: Path) -> None:
    """Rename both files of a damaged checkpoint, the manifest first: without it, there is no checkpoint."""
    for file in (path, path.with_suffix(TENSORS)):
        try:
            os.replace(file, file.with_name(f"{file.name}{DAMAGED}"))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise atomic.cannot_write(file, 0, error) from error


def seal_manifest(manifest: Mapping[str, Any]) -> bytes:
    """The bytes of a manifest, its own SHA-256 at the end: the same in every format, to tell newer from damaged."""
    seal = hashlib.sha256(json.dumps(manifest).encode()).hexdigest()
    return (json.dumps({**manifest, "seal": seal}, indent=1) + "\n").encode()


def _read_manifest(path: Path) -> Manifest:
    """Read and verify a manifest.

    Raises:
        Damaged: It does not match its checksum.
        UserError: A newer version has written it.
    """

    def check_size(size: int) -> None:
        if size > MOST_BYTES:
            raise Damaged(f"{path.name} has {size} bytes")

    text = read_whole(path, check_size)
    try:
        found = json.loads(text)
        del found["seal"]
        intact = seal_manifest(found) == text
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Damaged(f"{path.name} cannot be parsed: {' '.join(str(error).split())[:200]}") from None
    if not intact:
        raise Damaged(f"{path.name} does not match its own SHA-256")
    number = found.get("format")
    if isinstance(number, int) and number > FORMAT:
        raise UserError(
            f"{path}: a checkpoint of format {number}, and this version of oneway knows formats up to {FORMAT}. "
            "Continue with the version that wrote it, or a newer one."
        )
    if number not in (2, FORMAT):
        raise Damaged(f"{path.name} is of the unknown format {number!r:.20}")
    if number == 2:
        found.pop("tensors", None)
    try:
        return Manifest.model_validate(found)
    except ValidationError as error:
        raise Damaged(f"{path.name} is wrong at {error.errors()[0]['loc']}") from None


def _read_tensors(path: Path, manifest: Manifest, most: int) -> bytes:
    """Read a file of tensors, and verify size and SHA-256 of its manifest."""

    def check_size(size: int) -> None:
        if size != manifest.bytes:
            raise Damaged(f"{path.name} has {size} bytes instead of {manifest.bytes}")
        if size > most:
            raise UserError(f"{path}: of another model: it has {size} bytes, and at most {most} are expected.")

    data = read_whole(path, check_size)
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        raise Damaged(f"{path.name} does not match its SHA-256")
    return data
