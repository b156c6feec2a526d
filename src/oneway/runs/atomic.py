"""Atomic writes: a file is there as a whole or not at all, whenever the machine stops."""

from __future__ import annotations

import errno
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from oneway.common.errors import UserError
from oneway.common.links import SUFFIX, create, make_folders, open_descriptor, replace_file

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk, and a quota or a limit that is reached
NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # of folders, on some network file systems


class CannotWrite(UserError):
    """The disk is full, or not writable."""


def write_atomically(path: Path, content: bytes | memoryview) -> None:
    """Replace a file atomically: at any time it has all of the old content or all of the new one, even in a power cut.

    Raises:
        CannotWrite: With the bytes needed and free. No part of the new content is left behind.
    """
    try:
        replace_file(path, content)
        sync_folder(path.parent)  # the new name itself
    except OSError as error:
        raise cannot_write(path, len(content), error) from error


def write_json(path: Path, values: object) -> None:
    """Write values as JSON, atomically."""
    write_atomically(path, (json.dumps(values, indent=1, allow_nan=False) + "\n").encode())


def sync(path: Path) -> None:
    """Flush a file from the system's memory to the disk (`fsync`)."""
    with open_descriptor(path, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)


def sync_folder(folder: Path) -> bool:
    """Flush the names in a folder to the disk; False where the file system cannot guarantee that."""
    try:
        sync(folder)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
        return False
    return True


def sweep(folder: Path) -> None:
    """Remove unfinished files of killed processes; only for a folder that no other process writes to."""
    with suppress(OSError):  # what is not listed now is removed another time
        for leftover in folder.glob(f".*{SUFFIX}"):
            with suppress(OSError):
                leftover.unlink()


def require_room(folder: Path, total: int, largest: int) -> None:
    """Refuse a folder without room for files of `total` bytes, before hours are spent on their content.

    Space for the largest file is allocated as a test: the free space says nothing about quotas and limits.
    """
    free = bytes_free(folder)
    if free is not None and free < total:
        raise UserError(
            f"{folder}: {total} bytes are needed for checkpoints and the model, and {free} are free. "
            "Make room there, or choose another folder with --out."
        )
    probe = folder / f".room.{os.getpid()}{SUFFIX}"
    try:
        with create(probe) as descriptor:
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(descriptor, 0, largest)
            finally:
                os.unlink(probe)
    except OSError as error:
        raise cannot_write(folder, largest, error) from error


def refuse_unwritable(path: Path) -> None:
    """Refuse a file that cannot be written, before minutes are spent on its content; its folder need not exist."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        reason = "cannot be written to" if folder.is_dir() else "is not a folder"
        raise UserError(f"{path}: cannot be written, since {folder} {reason}. Choose another file with --out.")


def place_below(folder: Path, relative: str) -> Path:
    """A path below a folder of results; makes the folders between, and follows no links."""
    path = folder / relative
    try:
        make_folders(folder, path.parent)
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written ({error.strerror}).") from error
    return path


def cannot_write(path: Path, needed: int, error: OSError) -> CannotWrite:
    """The error for a failed write."""
    advice = "Make room there." if error.errno in NO_ROOM else "Make it writable, or choose another place."
    if error.errno == errno.ENOSPC and _no_file_left(path.parent):
        advice = "The disk holds as many files as it can, whatever their size (`df -i`): remove some there."
    free = bytes_free(path.parent)
    return CannotWrite(
        f"{path}: cannot be written ({error.strerror or error}); {needed} bytes are needed, "
        f"{'an unknown number' if free is None else free} are free. {advice}"
    )


def _no_file_left(folder: Path) -> bool:
    """Whether no further file can be made on a disk, for want of inodes; some have no fixed number of them."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return False
    return status.f_files > 0 and status.f_favail == 0


def bytes_free(folder: Path) -> int | None:
    """Free space in bytes, for an ordinary user; None where the system does not tell."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
