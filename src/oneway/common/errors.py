"""Errors that a user can correct, and messages for those of the operating system."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from oneway.common.words import visible


class UserError(Exception):
    """Something the user can correct: what is wrong, with the value, and the way out. Printed without a traceback."""


class UnknownName(UserError):
    """A word that is none of those known."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    """The error for an unknown name: suggests the nearest known one, and lists all of them.

    Where some have commas, all are in quotes.
    """
    known = list(known)
    shown = [f"'{name}'" for name in known] if any("," in name for name in known) else known
    near = get_close_matches(name, known, n=1)
    suggestion = f" Did you mean '{near[0]}'?" if near else ""
    return UnknownName(f"Unknown {kind} '{visible(name[:200], lines=False)}'.{suggestion} Known: {', '.join(shown)}.")


def missing(path: Path) -> UserError:
    """The error for a path at which there is nothing: suggests what has nearly the same name there."""
    here = Path.cwd()
    path = path.relative_to(here) if path.is_relative_to(here) else path  # as the user is likely to have typed it
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in islice(entries, MOST_COMPARED) if not entry.name.startswith(".")]
    except OSError:
        names = []
    near = get_close_matches(path.name, names, n=1)
    suggestion = f" Did you mean {path.with_name(near[0])}?" if near else ""
    return UserError(f"{path}: no such file or folder.{suggestion}")


def cannot_read(path: Path | str, error: OSError) -> UserError:
    """The error for a file that is there, and that the system does not give."""
    return UserError(f"{path}: cannot be read ({error.strerror or error}).")


MOST_COMPARED = 10_000
"""Names in a folder that are compared with a missing one."""

SYSTEM_ERRORS = {
    *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENXIO, errno.ENODEV, errno.EBUSY, errno.EAGAIN),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ENOLCK),
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.ENOTCONN, errno.ECONNRESET, errno.ECONNABORTED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH),
}
"""Caused by disks, network file systems, limits and permissions, and not by a bug of ours."""


def describe_system_error(error: OSError) -> str | None:
    """The message for one of SYSTEM_ERRORS; None for an error that may be a bug of ours."""
    if error.errno not in SYSTEM_ERRORS:
        return None
    name = "A file" if error.filename is None else visible(os.fsdecode(error.filename)[:1000], lines=False)
    return (
        f"{name}: {error.strerror or os.strerror(error.errno)}. Nothing complete has been changed. When the cause is "
        "gone, run the same command again; a training that has begun continues with --resume."
    )
