"""Optional packages, imported when they are needed; where one is missing, an error has the command to install it."""

from __future__ import annotations

import importlib
from typing import Any

from oneway.common.errors import UserError


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Imports a module that comes with an extra of this package; a UserError has the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{purpose} needs {module} ({error}). Install it with: pip install 'oneway[{extra}]'") from None
