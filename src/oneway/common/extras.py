"""Packages that not everyone needs, imported when asked for; if missing, the command that installs them is named."""

from __future__ import annotations

import importlib
from typing import Any

from oneway.common.errors import UserError


def imported(module: str, extra: str, purpose: str) -> Any:
    """A module that comes with an extra of this package.

    Raises:
        UserError: It is not installed; says for what it is needed, and the exact command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{purpose} needs {module} ({error}). Install it with: pip install 'oneway[{extra}]'") from None
