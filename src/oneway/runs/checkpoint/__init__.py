"""The state of a run at an iteration, on disk: every tensor exact, every write all or nothing, every byte verified.

A checkpoint is two files named by its iteration: the tensors, and a manifest with the SHA-256 of that file, of each
tensor and of the manifest itself. The manifest is written last: where there is one, the checkpoint is complete.
Randomness needs no place in it: an iteration's draws are a function of its number.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from oneway.runs import atomic
from oneway.runs.checkpoint import tensors
from oneway.runs.checkpoint.state import expected, restore
from oneway.common.errors import UserError
from oneway.engine.state import TrainingState

FORMAT = 2
"""Format 1 had the tensors alone, without checksums; it is still read."""

KEPT = 2
TENSORS, MANIFEST, DAMAGED = ".safetensors", ".json", ".damaged"
MOST_MANIFEST_BYTES = 2**24


class Manifest(BaseModel):
    """What is known about the tensors of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: int = FORMAT
    iteration: int = Field(ge=0)
    seconds: float = Field(ge=0, allow_inf_nan=False)
    """Trained until then."""

    bytes: int
    sha256: str
    """Of the file."""

    tensors: dict[str, str]
    """SHA-256 of each."""

    configuration: dict[str, Any]
    split: str
    """Its hash; of format 1 neither is known."""


class Damaged(Exception):
    """The bytes are not those that were written."""


def write(
    folder: Path, iteration: int, seconds: float, content: Mapping[str, Tensor], about: Mapping[str, Any]
) -> Path:
    """Writes a checkpoint, drops those older than the last two, and returns the path of its manifest.

    Args:
        folder: Where checkpoints are.
        iteration: How many are done.
        seconds: Trained until then.
        content: What `state.tensors_of` gave, on the CPU.
        about: Configuration and split.
    """
    for name, tensor in content.items():
        if not tensor.isfinite().all():
            raise UserError(f"At iteration {iteration}, {name} is not finite: no checkpoint is made of it.")
    data = tensors.serialise(content, {"format": FORMAT})
    manifest = Manifest(
        iteration=iteration,
        seconds=seconds,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        tensors={name: tensors.digest(tensor) for name, tensor in content.items()},
        **about,
    )
    if not folder.is_dir():
        folder.mkdir()
        atomic.sync(folder.parent)
    path = folder / f"{iteration:08d}{MANIFEST}"
    atomic.write_atomically(path.with_suffix(TENSORS), data)
    atomic.write_atomically(path, sealed(manifest.model_dump()))
    prune(folder)
    return path


def existing(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first: their manifests, or of format 1 the files themselves."""
    manifests = list(folder.glob(f"[0-9]*{MANIFEST}"))
    old = [path for path in _without_manifest(folder) if _format_inside(path) in (1, None)]
    return sorted(manifests + old, key=lambda path: path.stem)


def prune(folder: Path) -> None:
    """Drops the checkpoints older than the last two."""
    for old in existing(folder)[:-KEPT]:
        for file in dict.fromkeys((old, old.with_suffix(TENSORS))):  # the manifest first
            file.unlink(missing_ok=True)


def files(folder: Path) -> list[Path]:
    """The tensors of all checkpoints."""
    return list(folder.glob(f"[0-9]*{TENSORS}"))


def tidy(folder: Path) -> None:
    """Removes what a killed process had not completed, or not removed; for when nobody writes there."""
    atomic.sweep(folder)
    for path in _without_manifest(folder):
        if _format_inside(path) == FORMAT:
            path.unlink()


def restore_newest(folder: Path, state: TrainingState, say: Callable[[str], None]) -> Manifest | None:
    """Restores the newest checkpoint that is whole, and returns its manifest; None where there has been none.

    What is damaged is renamed and said.

    Raises:
        UserError: A newer version has written it, it belongs to another model, or all of them are damaged.
    """
    found = existing(folder)
    for path in reversed(found):
        try:
            return load(path, state)
        except Damaged as damage:
            _set_aside(path)
            say(f"{path}: damaged ({damage}); set aside as {path.name}{DAMAGED}.")
    if found:
        raise UserError(
            f"{folder}: all {len(found)} checkpoints are damaged and have been set aside. "
            "With --resume once more, the run starts over from its first iteration."
        )
    return None


def load(path: Path, state: TrainingState) -> Manifest:
    """Restores one checkpoint, if every byte of it is as it was written.

    Raises:
        Damaged: It is not.
        UserError: It is, and yet cannot be used: a newer format, or another model.
    """
    manifest = _format_1(path) if path.suffix == TENSORS else _unsealed(path)
    if path.stem != f"{manifest.iteration:08d}":
        raise Damaged(f"it is of iteration {manifest.iteration}")
    file = path.with_suffix(TENSORS)
    if manifest.format > 1:
        _verify_file(file, manifest)
    with tensors.opened(file) as opened:
        content = tensors.read(opened, file, *expected(state))
    for name, digest in manifest.tensors.items():
        if name not in content or tensors.digest(content[name]) != digest:
            raise Damaged(f"{name} is not what it was")
    restore(state, content)
    return manifest


def sealed(manifest: Mapping[str, Any]) -> bytes:
    """A manifest as a file, its own SHA-256 at the end. Every format keeps this form, to tell newer from damaged."""
    seal = hashlib.sha256(json.dumps(manifest).encode()).hexdigest()
    return (json.dumps({**manifest, "seal": seal}, indent=1) + "\n").encode()


def _unsealed(path: Path) -> Manifest:
    try:
        if path.stat().st_size > MOST_MANIFEST_BYTES:
            raise Damaged(f"{path.name} has {path.stat().st_size} bytes")
        text = path.read_bytes()
        found = json.loads(text)
        del found["seal"]
        intact = sealed(found) == text
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise Damaged(f"{path.name} cannot be read: {' '.join(str(error).split())[:200]}") from None
    if not intact:
        raise Damaged(f"{path.name} does not match its own SHA-256")
    _refuse_newer(path, found.get("format"))
    if found.get("format") != FORMAT:
        raise Damaged(f"{path.name} is of format {found.get('format')!r:.20}, which has no manifest")
    try:
        return Manifest.model_validate(found)
    except ValidationError as error:
        raise Damaged(f"{path.name} lacks what it should say: {error.errors()[0]['loc']}") from None


def _verify_file(path: Path, manifest: Manifest) -> None:
    try:
        size = path.stat().st_size
        if size != manifest.bytes:
            raise Damaged(f"{path.name} has {size} bytes instead of {manifest.bytes}")
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror or error}") from None
    if found != manifest.sha256:
        raise Damaged(f"{path.name} does not match its SHA-256")


def _format_1(path: Path) -> Manifest:
    """What a checkpoint without a manifest says about itself."""
    unknown = {"bytes": 0, "sha256": "", "tensors": {}, "configuration": {}, "split": ""}
    try:
        with tensors.opened(path) as file:
            return Manifest.model_validate({**tensors.about(file, path), **unknown})
    except (UserError, ValidationError) as error:
        raise Damaged(" ".join(str(error).split())[:200]) from None


def _format_inside(path: Path) -> int | None:
    """Of a file of tensors, by its metadata; None where it cannot be read."""
    try:
        with tensors.opened(path) as file:
            found = tensors.about(file, path).get("format")
    except UserError:
        return None
    return found if isinstance(found, int) else None


def _without_manifest(folder: Path) -> list[Path]:
    return [path for path in files(folder) if not path.with_suffix(MANIFEST).exists()]


def _refuse_newer(path: Path, found: object) -> None:
    if isinstance(found, int) and found > FORMAT:
        raise UserError(
            f"{path}: a checkpoint of format {found}, and this version of oneway knows formats up to {FORMAT}. "
            "Continue with the version that wrote it, or a newer one."
        )


def _set_aside(path: Path) -> None:
    """The manifest first: without it, there is no checkpoint."""
    for file in dict.fromkeys((path, path.with_suffix(TENSORS))):
        with suppress(FileNotFoundError):
            os.replace(file, file.with_name(f"{file.name}{DAMAGED}"))
