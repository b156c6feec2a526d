"""Files that are there as a whole or not at all, whenever the machine stops."""

from __future__ import annotations

import errno
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from oneway.common.errors import UserError

SUFFIX = ".tmp"
"""What the names of files end with that are not complete yet; they begin with a dot."""

BYTES_AT_ONCE = 2**22

ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says when a disk, a quota or a limit is full."""


class CannotWrite(UserError):
    """A disk is full, or closed to us."""


def write_atomically(path: Path, content: bytes) -> None:
    """The file has its old content or all of the new one, and once this returns it stays, even without power.

    Raises:
        CannotWrite: Names the bytes needed and free. No part of it is left behind.
    """
    try:
        _write(path, content)
    except OSError as error:
        raise cannot_write(path, len(content), error) from error


def write_json(path: Path, values: object) -> None:
    """The same, for what `json` can write."""
    write_atomically(path, (json.dumps(values, indent=1) + "\n").encode())


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}{SUFFIX}")
    try:
        descriptor = _created(temporary)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest[:BYTES_AT_ONCE]) :]
            os.fsync(descriptor)  # or the new name could outlive a power cut that the content does not
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync(path.parent)  # the new name itself


def sync(path: Path) -> None:
    """Returns when a file or a folder is on the disk, and not only on its way."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Removes what processes that were killed had not completed; for a folder that nobody else writes to."""
    for leftover in folder.glob(f".*{SUFFIX}"):
        with suppress(OSError):
            leftover.unlink()


def require_room(folder: Path, total: int, largest: int) -> None:
    """Refuses a folder that has no room for files of `total` bytes, before hours are spent on making them.

    Args:
        folder: Where they are to go.
        total: Bytes of all of them.
        largest: Bytes of one, which is tried: quotas and limits show in no statistics.
    """
    free = bytes_free(folder)
    if free is not None and free < total:
        raise UserError(
            f"{folder}: {total} bytes are needed for checkpoints and the model, and {free} are free. "
            "Make room there, or choose another folder with --out."
        )
    probe = folder / f".room.{os.getpid()}{SUFFIX}"
    try:
        descriptor = _created(probe)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, largest)
        finally:
            os.close(descriptor)
            os.unlink(probe)
    except OSError as error:
        raise cannot_write(folder, largest, error) from error


def refuse_unwritable(path: Path) -> None:
    """Refuses a file that cannot be written, before minutes are spent on what goes into it; its folder may be new."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        reason = "cannot be written to" if folder.is_dir() else "is not a folder"
        raise UserError(f"{path}: cannot be written, since {folder} {reason}. Choose another file with --out.")


def cannot_write(path: Path, needed: int, error: OSError) -> CannotWrite:
    """What to tell of a failed write."""
    way_out = "Make room there." if error.errno in ROOM else "Make it writable, or choose another place."
    free = bytes_free(path.parent)
    return CannotWrite(
        f"{path}: cannot be written ({error.strerror or error}); {needed} bytes are needed, "
        f"{'an unknown number' if free is None else free} are free. {way_out}"
    )


def bytes_free(folder: Path) -> int | None:
    """Room for an ordinary user; None where the system does not tell."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _created(path: Path) -> int:
    """A descriptor of a new file; whatever had that name, a link to elsewhere perhaps, is removed and not followed."""
    with suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
