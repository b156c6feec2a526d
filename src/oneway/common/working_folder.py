"""The working folder may hold files of anyone's, some of which libraries obey; or it may be gone."""

from __future__ import annotations

import os
import platform

from oneway.common.errors import UserError

DRIVER = "libcuda.so.1"
"""A library of NVIDIA's that comes with PyTorch (cuSPARSELt) looks for this one in the working folder, and runs it."""


def require_working_folder() -> None:
    """Refuse a working folder that has been removed or replaced: paths mean nothing there, and Intel's MKL aborts."""
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(
            f"The working folder is no longer there ({error.strerror}). Change to one that is, and repeat the command."
        ) from error


def refuse_foreign_libraries() -> None:
    """Refuse a working folder with a file that loading PyTorch would execute."""
    machine = platform.machine()
    folders = ["", "tls", machine, f"{machine}/{machine}", f"tls/{machine}", f"tls/{machine}/{machine}"]
    folders += [f"glibc-hwcaps/x86-64-v{level}" for level in (2, 3, 4)]
    for folder in folders:
        if os.path.lexists(path := os.path.join(folder, DRIVER)):
            raise UserError(
                f"{os.path.abspath(path)}: PyTorch would run this file because it lies in the working folder. "
                "Start oneway in another folder, or remove it if it is not yours."
            )
