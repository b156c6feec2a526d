"""The manifest of a checkpoint: what its tensors belong to, and the checksums by which damage is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from oneway.common.errors import UserError

FORMAT = 3
"""Format 2, of the first version, also had a digest of each tensor, which that of the file covers; it is still read."""

MOST_BYTES = 2**24


class Damaged(Exception):
    """The bytes are not those that were written."""


class Manifest(BaseModel):
    """What is known about the tensors of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: int = FORMAT
    iteration: int = Field(ge=0)
    seconds: float = Field(ge=0, allow_inf_nan=False)
    """Trained until then."""

    bytes: int
    """Of the file of tensors."""

    sha256: str
    """Of the file of tensors."""

    configuration: dict[str, Any]
    split: str
    """Its hash."""


def seal_manifest(manifest: Mapping[str, Any]) -> bytes:
    """A manifest as a file, its own SHA-256 at the end. Every format keeps this form, to tell newer from damaged."""
    seal = hashlib.sha256(json.dumps(manifest).encode()).hexdigest()
    return (json.dumps({**manifest, "seal": seal}, indent=1) + "\n").encode()


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file.

    Raises:
        Damaged: It is not what was written.
        UserError: A newer version has written it.
    """
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise Damaged(f"{path.name} has {size} bytes")
        text = path.read_bytes()
        found = json.loads(text)
        del found["seal"]
        intact = seal_manifest(found) == text
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise Damaged(f"{path.name} cannot be read: {' '.join(str(error).split())[:200]}") from None
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


def verify_tensors(path: Path, manifest: Manifest) -> None:
    """Refuses a file of tensors that does not have the size and the SHA-256 of its manifest.

    Raises:
        Damaged: It does not.
    """
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
